"""Runs that are stopped, by a kill or by a full disk, and go on: the end is the same, bit for bit."""

import errno
import json
import os
import random
import shlex
import signal
import subprocess
import sys
from contextlib import suppress

import pytest
from tiny_runs import Process, assert_one_sentence, log, outcome, record, slowly, undisturbed, write_data

from headwise.cli.train_commands import _resume_command
from headwise.training.checkpoints import MARK, newest

# Two epochs of ten steps; dropout and automatic weights are on, and evaluations and checkpoints fall apart.
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
def words(write_recipe, pairs, tmp_path):
    """The command of the run in tmp_path/run."""
    return ["train", write_recipe(**CHANGES), "--data", pairs, "--output", str(tmp_path / "run")]


@pytest.fixture
def assert_same(whole, tmp_path):
    def check(folder=tmp_path / "run"):
        assert outcome(folder) == outcome(whole)
        assert record(folder)["results"]["guides"] == record(whole)["results"]["guides"]
        steps = [[entry for entry in log(run) if "loss" in entry] for run in (folder, whole)]
        assert steps[0] == steps[1]
        assert {path.name for path in folder.iterdir()} == {path.name for path in whole.iterdir()}

    return check


def test_nothing_of_this_is_trivial(whole):
    happened = record(whole)["results"]
    assert happened["steps"] == 20
    assert len(happened["seconds_per_epoch"]) == 2
    assert len({entry["guide/mdg_weight"] for entry in log(whole) if "loss" in entry}) > 5
    assert len({json.dumps(entry["eval_macro_f1"]) for entry in happened["evaluations"]}) > 1


# -- SIGKILL -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_kills_at_random_moments(words, assert_same, tmp_path, seed):
    chance, kills, work = random.Random(seed), 0, tmp_path / "run" / "unfinished"
    for attempt in range(6):
        process = Process(tmp_path / f"p{attempt}", *words, *(["--resume"] if attempt else []))
        before = newest(work)
        if attempt == 5:
            assert process.result()[0] == 0
            break
        # At least one checkpoint further, then a moment that nobody chose.
        process.wait_until(lambda before=before: newest(work) not in (None, before))
        with suppress(AssertionError):
            process.wait_until(lambda: False, chance.uniform(0, 0.04))
        process.send(signal.SIGKILL)
        code, _, err = process.result()
        kills += code == -signal.SIGKILL
        assert code in (0, -signal.SIGKILL), err
        if code == 0:
            break
    assert kills >= 2
    assert_same()


@pytest.mark.parametrize(
    ("place", "count"),
    [
        slowly(STEP, 2),  # before the first checkpoint
        slowly("torch.save", 1),  # while the first checkpoint is written
        ("torch.save", 5),  # while the second one is, the first being whole
        slowly("headwise.training.checkpoints.MarkCheckpoints.on_save", 2),  # all written, not yet marked
        slowly("pathlib.Path.rename", 1),  # the first best model is written, but not yet in its place
        slowly(STEP, 10),  # the last step of an epoch
        (STEP, 11),
        slowly("headwise.experiments.run.score_splits", 1),  # after the last step
        slowly("headwise.experiments.run.save_classifier", 1),
        ("headwise.experiments.run.model_card", 1),  # the model is saved, the record is not
        slowly("headwise.experiments.record.write", 2),
    ],
)
def test_kills_at_chosen_moments(words, assert_same, tmp_path, place, count):
    code, _, err = Process(tmp_path / "p1", *words, at=(place, count, signal.SIGKILL)).result()
    assert code == -signal.SIGKILL, err
    assert record(tmp_path / "run")["results"] is None
    code, out, err = Process(tmp_path / "p2", *words, "--resume", "--json").result()
    assert code == 0, err
    assert json.loads(out)["results"]["steps"] == 20
    assert_same()


def test_a_kill_after_the_record_leaves_a_finished_run(headwise, words, assert_same, tmp_path):
    assert headwise(*words)[0] == 0
    (tmp_path / "run" / "unfinished" / "checkpoint-20").mkdir(parents=True)
    assert headwise(*words, "--resume")[0] == 0
    assert_same()


@pytest.mark.parametrize("at", ["headwise.experiments.record.environment", "headwise.experiments.record.write"])
def test_a_real_kill_before_the_record(headwise, words, assert_same, tmp_path, at):
    """Nothing but a lock is left, which is no obstacle."""
    assert Process(tmp_path / "p1", *words, at=(at, 1, signal.SIGKILL)).result()[0] == -signal.SIGKILL
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".headwise.lock"]
    assert_one_sentence(headwise(*words, "--resume"), "no run to resume")
    assert headwise(*words)[0] == 0
    assert_same()


@pytest.mark.parametrize("draft", [".headwise.json.new", ".headwise-0123456789ab-cdef.new"])
def test_a_kill_in_the_very_first_moment(headwise, words, assert_same, tmp_path, draft):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / draft).write_text("{")
    assert_one_sentence(headwise(*words, "--resume"), "no run to resume")
    assert headwise(*words)[0] == 0
    assert_same()


@pytest.mark.slow
def test_a_run_that_stopped_early_ends_as_it_would_have(ran, write_recipe, pairs, tmp_path, headwise):
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
        whole = ran(f"{name}-whole", **changes)
        assert outcome(tmp_path / name) == outcome(whole)
        assert record(tmp_path / name)["results"]["guides"] == record(whole)["results"]["guides"]


# -- Ctrl-C ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, slowly(signal.SIGTERM)])
@pytest.mark.parametrize("step", [slowly(1), 10, slowly(14)])
def test_stopped_by_hand(headwise, words, assert_same, tmp_path, number, step):
    code, out, err = Process(tmp_path / "p1", *words, "--json", at=(STEP, step, number)).result()
    assert (code, out) == (130, "")
    last = err.splitlines()[-1]
    assert last.startswith(f"headwise: stopped after step {step} of 20, saved; resume with: headwise train ")
    assert record(tmp_path / "run")["results"] is None
    assert newest(tmp_path / "run" / "unfinished").name == f"checkpoint-{step}"
    command = shlex.split(last.partition("resume with: ")[2])
    code, out, err = headwise(*command[1:])
    assert code == 0, err
    assert f"resuming from step {step} of 20" in err
    assert_same()


def test_stopped_in_the_last_step_is_done(words, assert_same, tmp_path):
    assert Process(tmp_path / "p1", *words, at=(STEP, 20, signal.SIGINT)).result()[0] == 0
    assert_same()


def test_stopped_before_the_first_step(words, tmp_path):
    place = ("headwise.experiments.prepare.load_classifier", 1, signal.SIGINT)
    code, _, err = Process(tmp_path / "p1", *words, at=place).result()
    assert code == 130
    assert "Traceback" not in err
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_stopped_twice_stops_at_once(words, assert_same, tmp_path, headwise):
    code, _, err = Process(tmp_path / "p1", *words, at=(STEP, 8, signal.SIGINT, signal.SIGINT)).result()
    assert code == 130
    assert "Traceback" not in err
    assert newest(tmp_path / "run" / "unfinished").name == "checkpoint-6"
    assert headwise(*words, "--resume")[0] == 0
    assert_same()


@pytest.mark.parametrize(
    ("typed", "printed"),
    [
        (["headwise", "train", "a b.yaml"], "headwise train 'a b.yaml' --resume"),
        (["headwise", "train", "r", "--resume", "--json"], "headwise train r --json --resume"),
        (["/opt/x y/headwise", "train", "r"], "'/opt/x y/headwise' train r --resume"),
        (["/x/headwise/__main__.py", "train", "r"], f"{sys.executable} -m headwise train r --resume"),
        (["headwise", "train", "--set", "a='b'", "--", "r"], """headwise train --set 'a='"'"'b'"'"'' --resume -- r"""),
    ],
)
def test_the_printed_line(monkeypatch, typed, printed):
    monkeypatch.setattr(sys, "argv", typed)
    assert _resume_command() == printed


def test_a_program_on_the_path_needs_no_folder(monkeypatch, tmp_path):
    program = tmp_path / "headwise"
    program.write_text("#!/bin/sh")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [str(program), "train", "r"])
    assert _resume_command() == "headwise train r --resume"


@pytest.mark.slow
def test_the_printed_line_works_in_a_shell(write_recipe, pairs, assert_same, tmp_path):
    """Everything for real: a fresh process, a signal from outside, names with blanks and quotes."""
    place = tmp_path / 'it\'s a "run" $HOME'
    words = ["train", write_recipe(**CHANGES), "--data", pairs, "--set", "description=two 'words'"]
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


# -- a full disk -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "what"),
    [
        (120_000, "the optimiser's state, the largest file"),
        (50_000, "the weights"),
        (1_000, "the record, the first file of all"),
    ],
)
def test_a_full_disk(headwise, words, assert_same, tmp_path, limit, what):
    run = tmp_path / "run"
    assert Process(tmp_path / "p1", *words, at=(STEP, 7, signal.SIGINT)).result()[0] == 130
    kept = newest(run / "unfinished")
    before = {path.name: path.read_bytes() for path in kept.iterdir()}
    code, out, err = Process(tmp_path / "p2", *words, "--resume", file_limit=limit).result()
    assert (code, out) == (2, ""), what
    last = err.splitlines()[-1]
    assert last.startswith("headwise: ")
    assert "could not be" in last
    assert "Traceback" not in err
    assert newest(run / "unfinished") == kept
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == before
    assert MARK in before
    assert record(run)["results"] is None
    assert headwise(*words, "--resume")[0] == 0
    assert_same()


@pytest.mark.slow
def test_a_full_disk_before_the_first_checkpoint(headwise, words, assert_same, tmp_path):
    code, _, err = Process(tmp_path / "p1", *words, file_limit=120_000).result()
    assert code == 2
    assert "there is none before it" in err.splitlines()[-1]
    assert headwise(*words, "--resume")[0] == 0
    assert_same()


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


def test_another_recipe_or_other_data_does_not_resume_command(headwise, words, assert_same, tmp_path):
    assert Process(tmp_path / "p1", *words, at=(STEP, 7, signal.SIGINT)).result()[0] == 130
    assert_one_sentence(headwise(*words, "--resume", "--set", "seed=2"), "holds another run", "seed 1", "--output")
    assert_one_sentence(headwise(*words), "an unfinished run", "--resume")
    other = write_data(tmp_path / "other", sizes=(41, 24, 21))
    assert_one_sentence(headwise(*words, "--resume", "--data", other), "other examples", "--data")
    for command in ("evaluate", "predict"):
        more = ["--input", "x.tsv", "--output", tmp_path / "y.tsv"] if command == "predict" else []
        assert_one_sentence(headwise(command, tmp_path / "run", *more), "not finished", "--resume")
    assert headwise(*words, "--resume")[0] == 0
    assert_same()
