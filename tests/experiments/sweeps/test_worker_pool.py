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

from headwise.experiments.sweeps.jobs import Job, JobResult, JobSettings
from headwise.experiments.sweeps.sweep_file import plan_sweep
from headwise.experiments.sweeps.worker_pool import RETRIES, LocalWorkers, run_jobs

if sys.platform != "linux":
    pytestmark = pytest.mark.skip(reason="looks at processes in /proc")


@pytest.mark.slow
def test_an_error_in_one_process_stops_no_other(tmp_path, encoder, pairs):
    bad = {"task.files": {"train": "no-such-file.tsv", "validation": "no"}}
    changes = {"grid": {"system": {"good": None, "bad": bad}}, "seeds": [1], "compare": None}
    plan = plan_sweep(write_sweep(tmp_path / "s.yaml", encoder, **changes))
    over: dict[str, JobResult] = {}
    settings = JobSettings(tmp_path / "out", Path(pairs))
    # The check for missing files would refuse it: here it goes missing after that.
    jobs = [settings.job(each.recipe, each.name) for each in plan.unique]
    run_jobs(jobs, LocalWorkers(2), over=lambda result: over.update({result.key: result}))
    good, bad = (over[job.key] for job in jobs)
    assert (good.state, bad.state) == ("finished", "failed")
    assert "no-such-file.tsv" in bad.message
    (tmp_path / "other.txt").touch()  # a folder that cannot be used stops the sweep
    with pytest.raises(Exception, match="holds other files"):
        run_jobs([JobSettings(tmp_path).job(plan.runs[0].recipe, "r")], LocalWorkers(1), over=over.update)


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
    jobs = [Job(key, key, {"seed": 1}, JobSettings(folder)) for key in results]
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
