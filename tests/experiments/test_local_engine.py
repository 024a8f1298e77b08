"""Runs made by processes of this machine: real ones, killed and stopped for real."""

import json
import os
import signal
import sys
import time

import pytest
from small_sweeps import (
    LONG,
    checkpoints,
    differences,
    finished_counts,
    processes_of,
    results,
    start,
    wait_until,
    write_sweep,
)

from headwise.experiments.engines import Board, Monitor
from headwise.experiments.engines.engine import RETRIES
from headwise.experiments.engines.local import LocalEngine
from headwise.experiments.sweeps.perform import Assignment, Report, perform
from headwise.experiments.sweeps.plan import plan_sweep
from headwise.experiments.sweeps.sweep import SweepPlace, run_sweep
from headwise.training import Silence


@pytest.fixture(scope="module")
def in_one_process(tmp_path_factory, encoder, pairs):
    """The results of the tiny sweep, made without any engine."""
    folder = tmp_path_factory.mktemp("reference")
    plan = plan_sweep(write_sweep(folder / "s.yaml", encoder))
    for planned in plan.unique:
        made = Assignment(planned.key, "r", planned.recipe.as_data(), str(folder / "out"), data=pairs)
        assert perform(made, Silence()).state == "finished"
    return folder / "out"


@pytest.mark.slow
def test_two_processes_give_the_bytes_of_one_and_an_error_stops_nobody(tmp_path, encoder, pairs, in_one_process):
    bad = {"task.files": {"train": "no-such-file.tsv", "validation": "no"}}
    grid = {"system": {"plain": {"guides": {}}, "ag": None, "bad": bad}}
    plan = plan_sweep(write_sweep(tmp_path / "s.yaml", encoder, grid=grid))
    # The check for missing files would refuse it: here it goes missing after that.
    states: dict[str, Report] = {}
    monitor = Monitor(lambda report: states.update({report.key: report}), lambda *_: None, lambda: 0)
    made = [
        Assignment(each.key, each.name, each.recipe.as_data(), str(tmp_path / "out"), data=pairs)
        for each in plan.unique
    ]
    LocalEngine(workers=2).run(Board(made, monitor))
    assert differences(tmp_path / "out", in_one_process) == []
    failed = [report for report in states.values() if report.state == "failed"]
    assert len(failed) == 2
    assert len(list((tmp_path / "out" / "runs").glob("*.error.json"))) == 2
    assert all("no-such-file.tsv" in report.message for report in failed)


@pytest.mark.slow
def test_a_second_call_finds_everything_there(encoder, pairs, in_one_process, tmp_path):
    plan = plan_sweep(write_sweep(tmp_path / "s.yaml", encoder))
    outcome = run_sweep(plan, SweepPlace(in_one_process, pairs), LocalEngine(workers=1), Silence())
    assert outcome.count("present") == len(plan.unique) == 4
    assert set(finished_counts(in_one_process).values()) == {1}


@pytest.mark.slow
def test_whatever_happens_every_run_is_finished_once_with_the_same_bytes(tmp_path, encoder, pairs, undisturbed):
    """A worker is killed, the sweep is stopped, then killed itself; in the end two sweeps share what is left."""
    out = tmp_path / "out"
    words = ("sweep", write_sweep(tmp_path / "s.yaml", encoder, **LONG), "--data", pairs, "--output", out, "--json")

    sweep = start(*words, "--workers", 1)
    wait_until(lambda: bool(checkpoints(out)) and bool(processes_of(out)), process=sweep)
    (killed,) = processes_of(out)
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: processes_of(out) not in ([], [killed]), process=sweep)  # another has taken its place
    time.sleep(0.5)
    sweep.send_signal(signal.SIGINT)
    stdout, stderr = sweep.communicate(timeout=120)
    assert sweep.returncode == 130, stderr
    assert "goes on where it was" in stderr
    assert json.loads(stdout)["interrupted"] == 2
    assert processes_of(out) == []
    assert len({path.parents[1] for path in checkpoints(out)}) == 1  # of one run

    sweep = start(*words, "--workers", 1)
    wait_until(lambda: bool(processes_of(out)), process=sweep)
    sweep.kill()
    sweep.communicate()
    wait_until(lambda: processes_of(out) == [])  # it noticed, saved its step and left
    assert not results(out)

    both = [start(*words, "--workers", 1) for _ in range(2)]
    told = [each.communicate(timeout=240) for each in both]
    assert [each.returncode for each in both] == [0, 0], told
    assert sorted(finished_counts(out).values()) == [1, 1]
    assert differences(out, undisturbed) == []


def assignment(key, folder):
    return Assignment(key, key, {"seed": 1}, str(folder))


def test_a_run_whose_workers_keep_dying_is_given_up(tmp_path):
    over = []
    board = Board([assignment("a", tmp_path)], Monitor(over.append, lambda *_: None, lambda: 0))
    (tmp_path / "runs").mkdir()
    for _ in range(RETRIES + 1):
        assert board.take() is not None
        board.lost("a", "signal 9")
    assert board.over
    (report,) = over
    assert report.state == "failed"
    assert "died 3 times, last: signal 9" in report.message


def test_a_busy_run_is_looked_at_again_and_a_stop_empties_the_board(tmp_path):
    over = []
    board = Board([assignment("a", tmp_path)], Monitor(over.append, lambda *_: None, lambda: 0))
    board.take()
    board.report(Report("a", "busy"))
    assert not over
    assert not board.over
    assert board.take() is None  # not at once
    wait_until(lambda: board.take() is not None, 10)
    board.report(Report("a", "busy"))
    board.stopping = True
    assert board.take() is None
    assert board.over


if sys.platform != "linux":
    pytestmark = pytest.mark.skip(reason="looks at processes in /proc")
