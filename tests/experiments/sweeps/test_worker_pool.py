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

from headwise.experiments.sweeps.jobs import Job, JobResult, JobSettings, run_job
from headwise.experiments.sweeps.sweep import run_sweep
from headwise.experiments.sweeps.sweep_file import plan_sweep
from headwise.experiments.sweeps.worker_pool import RETRIES, LocalWorkers, run_jobs
from headwise.training import Silence


@pytest.fixture(scope="module")
def in_one_process(tmp_path_factory, encoder, pairs):
    """The results of the tiny sweep, made without any engine."""
    folder = tmp_path_factory.mktemp("reference")
    plan = plan_sweep(write_sweep(folder / "s.yaml", encoder))
    for planned in plan.unique:
        made = Job(planned.key, "r", planned.recipe.as_data(), str(folder / "out"), data=pairs)
        assert run_job(made, Silence()).state == "finished"
    return folder / "out"


@pytest.mark.slow
def test_two_processes_give_the_bytes_of_one_and_an_error_stops_nobody(tmp_path, encoder, pairs, in_one_process):
    bad = {"task.files": {"train": "no-such-file.tsv", "validation": "no"}}
    grid = {"system": {"plain": {"guides": {}}, "ag": None, "bad": bad}}
    plan = plan_sweep(write_sweep(tmp_path / "s.yaml", encoder, grid=grid))
    # The check for missing files would refuse it: here it goes missing after that.
    results: dict[str, JobResult] = {}
    jobs = [Job(each.key, each.name, each.recipe.as_data(), str(tmp_path / "out"), data=pairs) for each in plan.unique]
    run_jobs(jobs, LocalWorkers(2), over=lambda result: results.update({result.key: result}))
    assert differences(tmp_path / "out", in_one_process) == []
    failed = [result for result in results.values() if result.state == "failed"]
    assert len(failed) == 2
    assert len(list((tmp_path / "out" / "runs").glob("*.error.json"))) == 2
    assert all("no-such-file.tsv" in result.message for result in failed)


@pytest.mark.slow
def test_a_second_call_finds_everything_there(encoder, pairs, in_one_process, tmp_path):
    plan = plan_sweep(write_sweep(tmp_path / "s.yaml", encoder))
    result = run_sweep(plan, JobSettings(in_one_process, pairs), LocalWorkers(1), Silence())
    assert result.as_data()["present"] == len(plan.unique) == 4
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


class Scripted:
    """Workers that do what a list says: of each run, the results or the deaths of its processes."""

    name, threads = "scripted", 1

    def __init__(self, **results):
        self.results, self.running, self.stopped = results, [], []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def room(self):
        return 1

    def submit(self, job):
        self.running.append(job.key)

    def collect(self, progress):
        ended, self.running = self.running, []
        return [(key, self.results[key].pop(0)) for key in ended]

    def stop(self, *, at_once):
        self.stopped.append(at_once)


def run_scripted(folder, stops=lambda: 0, **results):
    (folder / "runs").mkdir(exist_ok=True)
    over, workers = [], Scripted(**results)
    jobs = [Job(key, key, {"seed": 1}, str(folder)) for key in results]
    run_jobs(jobs, workers, over=over.append, stops=stops)
    return [(each.key, each.state) for each in over], over, workers


def test_a_run_whose_process_dies_is_started_again_but_not_for_ever(tmp_path):
    done = {key: JobResult(key, "finished") for key in "ab"}
    states, over, _ = run_scripted(tmp_path, a=["signal 9"] * RETRIES + [done["a"]], b=[done["b"]])
    assert states == [("a", "finished"), ("b", "finished")]  # what has started is finished first
    states, over, _ = run_scripted(tmp_path, a=["signal 9"] * (RETRIES + 1), b=[done["b"]])
    assert states == [("a", "failed"), ("b", "finished")]
    assert "died 3 times, last: signal 9" in over[0].message
    assert json.loads((tmp_path / "runs" / "a.error.json").read_text())["results"]["status"] == "failed"


def test_a_busy_run_is_looked_at_again_and_a_stop_starts_nothing_more(tmp_path):
    done = {key: JobResult(key, "finished") for key in "ab"}
    states, *_ = run_scripted(tmp_path, a=[JobResult("a", "busy"), done["a"]], b=[done["b"]])
    assert states == [("b", "finished"), ("a", "finished")]
    states, _, workers = run_scripted(tmp_path, stops=lambda: 1, a=[JobResult("a", "busy")], b=[done["b"]])
    assert (states, workers.stopped) == ([], [False])


if sys.platform != "linux":
    pytestmark = pytest.mark.skip(reason="looks at processes in /proc")
