"""Two processes on one output: the second one ends at once and names the first, whose end, even a kill, frees it."""

import json
import shutil
import signal
import stat

import pytest
from tiny_runs import Process, assert_one_sentence, outcome, undisturbed

CHANGES = {
    "training__batch": 4,
    "training__checkpoint_every": 3,
    "training__evaluate_every": 5,
    "share_every": 4,
}
STEP = "headwise.training.callbacks.Clock.on_step_end"


@pytest.fixture(scope="module")
def whole(tmp_path_factory, encoder, pairs):
    """A run that nobody disturbs."""
    return undisturbed(tmp_path_factory.mktemp("whole") / "run", encoder, pairs, CHANGES)


@pytest.fixture
def stopped(tmp_path):
    """Start a command in its own process, and hold it at a call of a function; it is killed in the end."""
    started = []

    def start(*words, at, count=1):
        process = Process(tmp_path / f"p{len(started)}", *words, at=(at, count, signal.SIGSTOP))
        started.append(process)
        process.wait_until(lambda: state_of(process.pid) == "T")
        return process

    yield start
    for process in started:
        process.send(signal.SIGKILL)
        process.result()


def state_of(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[0]


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_is_trained_by_one_process_at_a_time(stopped, headwise, write_recipe, pairs, whole, tmp_path):
    run = tmp_path / "run"
    words = ["train", write_recipe(**CHANGES), "--data", pairs, "--output", run]
    process = stopped(*words, at=STEP, count=8)
    before = files(run)
    said = f"{run} is in use by process {process.pid} (headwise train, since "
    assert_one_sentence(headwise(*words, "--resume"), said)
    assert_one_sentence(
        headwise(*words), "an unfinished run", f"in use by process {process.pid} (headwise train, since "
    )
    assert files(run) == before
    process.send(signal.SIGKILL)
    assert process.result()[0] == -signal.SIGKILL
    assert headwise(*words, "--resume")[0] == 0
    assert outcome(run) == outcome(whole)
    assert {path.name for path in run.iterdir()} == {path.name for path in whole.iterdir()}
    assert not [name for name in files(run) if name.startswith(".")]


def test_the_first_process_is_not_disturbed(stopped, headwise, write_recipe, pairs, whole, tmp_path):
    """Also where it has not written anything yet, and its folder was missing."""
    run = tmp_path / "above" / "run"
    words = ["train", write_recipe(**CHANGES), "--data", pairs, "--output", run]
    process = stopped(*words, at="headwise.experiments.run.prepare")
    assert_one_sentence(headwise(*words), f"in use by process {process.pid} ")
    process.send(signal.SIGCONT)
    assert process.result()[0] == 0
    assert outcome(run) == outcome(whole)
    code, out, _ = headwise(*words, "--resume", "--json")
    assert (code, json.loads(out)["results"]["steps"]) == (0, 20)


def test_all_files_of_a_run_have_the_same_mode(whole, with_iat):
    for run in (whole, with_iat):
        modes = {stat.S_IMODE(path.stat().st_mode) for path in run.rglob("*") if path.is_file()}
        assert len(modes) == 1
        assert modes != {0o600}


def test_a_command_locks_its_output(stopped, headwise, two_runs, tmp_path):
    """tests/campaign starts every command that writes several times on one output."""
    run = shutil.copytree(two_runs / "plain", tmp_path / "run")
    words = ["analyze", run, "--overwrite"]
    process = stopped(*words, at="headwise.experiments.analysis.analyze.analyze_tasks")
    before = files(tmp_path)
    said = f"{run / 'analysis'} is in use by process {process.pid} (headwise analyze"
    assert_one_sentence(headwise(*words), said)
    assert files(tmp_path) == before
    process.send(signal.SIGKILL)
    assert process.result()[0] == -signal.SIGKILL
    code, _, err = headwise(*words)
    assert code == 0, err
    assert [path for path in tmp_path.rglob("*") if path.name.startswith(".headwise")] == []
