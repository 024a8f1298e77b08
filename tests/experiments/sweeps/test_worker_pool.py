"""Runs trained by processes of this machine: real ones, killed and stopped for real."""

import json
import os
import signal
import sys
import time
from pathlib import Path

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
from small_tunes import Lines
from tiny_runs import small

from headwise.errors import InputError
from headwise.experiments import check_recipe
from headwise.experiments.sweeps.jobs import Job, JobResult, JobSettings
from headwise.experiments.sweeps.result_folder import ResultFolder
from headwise.experiments.sweeps.sweep import run_sweep
from headwise.experiments.sweeps.sweep_file import plan_sweep
from headwise.experiments.sweeps.worker_pool import RETRIES, LocalWorkers, run_jobs

if sys.platform != "linux":
    pytestmark = pytest.mark.skip(reason="looks at processes in /proc")


@pytest.mark.slow
def test_a_folder_that_cannot_be_used_stops_the_sweep(tmp_path, encoder):
    """Unlike an error of a run, which is saved."""
    (tmp_path / "other.txt").touch()
    recipe = check_recipe(small(encoder), "test")
    with pytest.raises(InputError, match="holds other files"):
        run_jobs([JobSettings(tmp_path).job(recipe, "r")], LocalWorkers(1), over=print)


@pytest.mark.slow
def test_after_kills_and_stops_every_run_is_finished_once_with_the_same_results(tmp_path, encoder, pairs, undisturbed):
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
    assert "headwise: stopped" in stderr
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
    ends = [each.communicate(timeout=240) for each in both]
    assert [each.returncode for each in both] == [0, 0], ends
    assert sorted(finished_counts(out).values()) == [1, 1]
    assert differences(out, undisturbed) == []


class Scripted:
    """Workers that do what a list says: of each run, the results or the deaths of its processes."""

    name, threads, patience = "scripted", 1, 60

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


DIED = "signal 9"
A, B, BUSY = JobResult("a", "finished"), JobResult("b", "finished"), JobResult("a", "busy")


@pytest.mark.parametrize(
    ("results", "stops", "states"),
    [
        # What has started is finished first.
        ({"a": [DIED] * RETRIES + [A], "b": [B]}, 0, [("a", "finished"), ("b", "finished")]),
        ({"a": [DIED] * (RETRIES + 1), "b": [B]}, 0, [("a", "failed"), ("b", "finished")]),
        ({"a": [BUSY, A], "b": [B]}, 0, [("b", "finished"), ("a", "finished")]),
        # After a request to stop nothing more is started.
        ({"a": [BUSY], "b": [B]}, 1, []),
        ({"a": [DIED], "b": [B]}, 2, []),
    ],
)
def test_a_run_is_started_again_when_its_process_dies_or_another_trains_it(tmp_path, results, stops, states):
    (tmp_path / "runs").mkdir()
    over, workers = [], Scripted(**{key: list(each) for key, each in results.items()})
    jobs = [Job(key, key, {"seed": 1}, JobSettings(tmp_path)) for key in results]
    run_jobs(jobs, workers, over=over.append, stops=lambda: stops)
    assert [(each.key, each.state) for each in over] == states
    assert workers.stopped == [False, True][:stops]
    for failed in (each for each in over if each.state == "failed"):
        assert f"died {RETRIES + 1} times, last: {DIED}" in failed.message
        assert json.loads((tmp_path / "runs" / "a.error.json").read_text())["results"]["status"] == "failed"


def test_a_sweep_says_how_its_runs_ended(tmp_path, encoder, pairs):
    plan, out = plan_sweep(write_sweep(tmp_path / "s.yaml", encoder)), tmp_path / "out"
    there, good, bad, last = (run.key for run in plan.unique)
    ResultFolder(out).open()
    ResultFolder(out).save(there, {})
    done = JobResult(good, "finished", "test accuracy 0.5")
    workers, progress = Scripted(**{good: [done], bad: [DIED] * (RETRIES + 1), last: []}), Lines()
    settings = JobSettings(out, Path(pairs))
    result = run_sweep(plan, settings, workers, progress, stops=lambda: len(progress.lines) // 2)
    error = f"the process of this run died {RETRIES + 1} times, last: {DIED}."
    assert result.states == {there: "present", good: "finished", bad: "failed", last: "interrupted"}
    assert progress.lines == [
        "system plain, seed 2: finished, test accuracy 0.5",
        f"system ag, seed 1: failed: {error}",
    ]
    content = result.as_data()
    assert (content["points"], content["runs"]) == (4, 4)
    assert [content[state] for state in ("finished", "present", "failed", "interrupted")] == [1, 1, 1, 1]
    assert content["errors"] == [{"key": bad, "run": "system ag, seed 1", "error": error}]
    assert result.interrupted
    assert (out / "sweeps" / "tiny.json").is_file()
