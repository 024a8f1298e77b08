"""Runs that are stopped and resumed end the same, bit for bit; and two processes do not write one output."""

import errno
import json
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys

import pytest
from small_commands import DISTURBED
from tiny_runs import Process, assert_done, assert_one_sentence, json_of, log, record, slowly, write_data

from headwise.cli.train_commands import resume_line
from headwise.training.checkpoints import newest

STEP = "headwise.training.callbacks.Clock.on_step_end"


def test_nothing_of_this_is_trivial(whole):
    happened = record(whole)["results"]
    assert happened["steps"] == 20
    assert len(happened["seconds_per_epoch"]) == 2
    assert len({entry["guide/mdg_weight"] for entry in log(whole) if "loss" in entry}) > 5
    assert len({json.dumps(entry["eval_macro_f1"]) for entry in happened["evaluations"]}) > 1


# -- SIGKILL; tests/campaign kills at random moments as well -----------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "count"),
    [
        slowly(STEP, 2),  # before the first checkpoint
        slowly("torch.save", 1),  # while the first checkpoint is written
        ("torch.save", 5),  # while the second one is, the first being whole
        slowly("headwise.training.checkpoints.MarkCheckpoints.on_save", 2),  # all written, not yet marked
        slowly("pathlib.Path.rename", 1),  # the first best model is written, but not yet in its place
        slowly(STEP, 10),  # the last step of an epoch
        slowly("headwise.experiments.run.save_classifier", 1),  # after the last step
        ("headwise.experiments.run.model_card", 1),  # the model is saved, the record is not
    ],
)
def test_kills_at_chosen_moments(words, assert_same, tmp_path, place, count):
    code, _, err = Process(tmp_path / "p1", *words, at=(place, count, signal.SIGKILL)).result()
    assert code == -signal.SIGKILL, err
    assert record(tmp_path / "run")["results"] is None
    assert json_of(Process(tmp_path / "p2", *words, "--resume", "--json").result())["results"]["steps"] == 20
    assert_same()


def test_a_kill_before_and_after_the_record(headwise, words, assert_same, tmp_path):
    """Before it nothing but a lock is left, or a draft, which are no obstacle; after it the run is finished."""
    at = ("headwise.experiments.record.write", 1, signal.SIGKILL)
    assert Process(tmp_path / "p1", *words, at=at).result()[0] == -signal.SIGKILL
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".headwise.lock"]
    (tmp_path / "run" / ".headwise-0123456789ab-cdef.new").write_text("{")
    assert_one_sentence(headwise(*words, "--resume"), "no run to resume")
    assert headwise(*words)[0] == 0
    assert_same()
    (tmp_path / "run" / "unfinished" / "checkpoint-20").mkdir(parents=True)
    assert headwise(*words, "--resume")[0] == 0
    assert_same()


@pytest.mark.slow
def test_a_run_that_stopped_early_ends_as_it_would_have(ran, write_recipe, pairs, tmp_path, headwise, assert_same):
    """Killed after its last step, when there is nothing left to train; and the length is no multiple of an epoch."""
    for name, changes in {
        "early": {"training__evaluate_every": 1, "training__early_stopping": 2, "training__learning_rate": 1e-9},
        "odd": {"training__epochs": 1.5},
    }.items():
        changes |= {"training__checkpoint_every": 1}
        command = ["train", write_recipe(**changes), "--data", pairs, "--output", tmp_path / name]
        kill = ("headwise.experiments.run.score_splits", 1, signal.SIGKILL)
        assert Process(tmp_path / f"p-{name}", *command, at=kill).result()[0] == -signal.SIGKILL
        assert headwise(*command, "--resume")[0] == 0
        assert_same(tmp_path / name, ran(f"{name}-whole", **changes))


# -- Ctrl-C ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("step", "number"), [(10, signal.SIGINT), slowly(1, signal.SIGTERM)])
def test_stopped_by_a_signal(headwise, words, assert_same, tmp_path, number, step):
    code, out, err = Process(tmp_path / "p1", *words, "--json", at=(STEP, step, number)).result()
    assert (code, out) == (130, "")
    last = err.splitlines()[-1]
    assert last.startswith(f"headwise: stopped after step {step} of 20, saved; resume with: headwise train ")
    assert record(tmp_path / "run")["results"] is None
    assert newest(tmp_path / "run" / "unfinished").name == f"checkpoint-{step}"
    command = shlex.split(last.partition("resume with: ")[2])
    _, err = assert_done(headwise(*command[1:]))
    assert f"resuming from step {step} of 20" in err
    assert_same()


def test_stopped_before_the_first_step_and_in_the_last(words, assert_same, tmp_path):
    at = ("headwise.experiments.prepare.load_classifier", 1, signal.SIGINT)
    code, _, err = Process(tmp_path / "p1", *words, at=at).result()
    assert code == 130
    assert "Traceback" not in err
    assert not (tmp_path / "run").exists()
    assert Process(tmp_path / "p2", *words, at=(STEP, 20, signal.SIGINT)).result()[0] == 0
    assert_same()


@pytest.mark.parametrize(
    ("typed", "printed"),
    [
        (["headwise", "train", "r", "--resume", "--json"], "headwise train r --json --resume"),
        (["/opt/x y/headwise", "train", "r"], "'/opt/x y/headwise' train r --resume"),
        (["/x/headwise/__main__.py", "train", "r"], f"{sys.executable} -m headwise train r --resume"),
        (["headwise", "train", "--set", "a='b'", "--", "r"], """headwise train --set 'a='"'"'b'"'"'' --resume -- r"""),
    ],
)
def test_the_printed_line(monkeypatch, typed, printed):
    monkeypatch.setattr(sys, "argv", typed)
    assert resume_line() == printed


@pytest.mark.slow
def test_the_printed_line_works_in_a_shell(write_recipe, pairs, assert_same, tmp_path):
    """Everything for real: a fresh process, a signal from outside, names with blanks and quotes."""
    place = tmp_path / 'it\'s a "run" $HOME'
    words = ["train", write_recipe(**DISTURBED), "--data", pairs, "--set", "description=two 'words'"]
    words += ["--set", "description=", "--set", "description=''", "--output", str(place)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "headwise", *words], stderr=subprocess.PIPE, text=True, env=environment
    )
    while newest(place / "unfinished") is None and process.poll() is None:
        pass
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    line = err.splitlines()[-1].partition("resume with: ")[2]
    done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=240, env=environment)
    assert done.returncode == 0, done.stderr
    assert_same(place)


# -- a full disk; tests/campaign has more -----------------------------------------------------------------------------


def test_a_full_disk_at_the_very_end(headwise, words, assert_same, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("headwise.experiments.run.save_classifier", full)
        code, _, err = headwise(*words)
    assert code == 2
    assert "No space left on device" in err.splitlines()[-1]
    assert headwise(*words, "--resume")[0] == 0
    assert_same()


# -- not the same run --------------------------------------------------------------------------------------------------


def test_another_recipe_or_other_data_is_not_resumed(headwise, words, assert_same, tmp_path):
    assert Process(tmp_path / "p1", *words, at=(STEP, 7, signal.SIGINT)).result()[0] == 130
    assert_one_sentence(headwise(*words, "--resume", "--set", "seed=2"), "holds another run", "seed 1", "--output")
    assert_one_sentence(headwise(*words), "an unfinished run", "--resume")
    other = write_data(tmp_path / "other", sizes=(41, 24, 21))
    assert_one_sentence(headwise(*words, "--resume", "--data", other), "other examples", "--data")
    assert_one_sentence(headwise("evaluate", tmp_path / "run"), "not finished", "--resume")
    assert headwise(*words, "--resume")[0] == 0
    assert_same()


# -- two processes on one output: the second ends at once and names the first, whose end, even a kill, frees it --------


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


def test_a_run_is_trained_by_one_process_at_a_time(stopped, headwise, words, assert_same, tmp_path):
    run = tmp_path / "run"
    process = stopped(*words, at=STEP, count=8)
    before = files(run)
    said = f"in use by process {process.pid} (headwise train, since "
    assert_one_sentence(headwise(*words, "--resume"), f"{run} is {said}")
    assert_one_sentence(headwise(*words), "an unfinished run", said)
    assert files(run) == before
    process.send(signal.SIGKILL)
    assert process.result()[0] == -signal.SIGKILL
    assert headwise(*words, "--resume")[0] == 0
    assert_same()
    assert not [name for name in files(run) if name.startswith(".")]


def test_the_first_process_is_not_disturbed(stopped, headwise, words, assert_same):
    """Also where it has not written anything yet, and its folder was missing."""
    process = stopped(*words, at="headwise.experiments.run.prepare")
    assert_one_sentence(headwise(*words), f"in use by process {process.pid} ")
    process.send(signal.SIGCONT)
    assert process.result()[0] == 0
    assert_same()


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
    assert_done(headwise(*words))
    assert [path for path in tmp_path.rglob("*") if path.name.startswith(".headwise")] == []
