"""A damaged checkpoint is reported, the one before it is used, and the end is that of an undisturbed run."""

import json
import shutil
import signal

import pytest
import yaml
from small_commands import DISTURBED
from tiny_runs import Process, assert_done, assert_one_sentence, slowly, small

from headwise.training.checkpoints import MARK, marked

pytestmark = pytest.mark.filterwarnings("always::headwise.errors.HeadwiseWarning")

STEP = "headwise.training.callbacks.Clock.on_step_end"


def delete(path):
    path.unlink()


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


def empty(path):
    path.write_bytes(b"")


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.fixture(scope="module")
def killed(tmp_path_factory, encoder, pairs):
    """The folder of a run that was killed in step 17, after the evaluation of step 16, and its command."""
    folder = tmp_path_factory.mktemp("killed")
    recipe = folder / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(small(encoder, **DISTURBED)), encoding="utf-8")
    words = ["train", recipe, "--data", pairs, "--output"]
    process = Process(folder / "p", *words, folder / "run", at=(STEP, 17, signal.SIGKILL))
    assert process.result()[0] == -signal.SIGKILL
    assert [path.name for path in marked(folder / "run" / "unfinished")] == ["checkpoint-15", "checkpoint-12"]
    return folder / "run", words


@pytest.fixture
def run(killed, tmp_path):
    return shutil.copytree(killed[0], tmp_path / "run")


@pytest.fixture
def resume(headwise, killed, run):
    return lambda: headwise(*killed[1], run, "--resume")


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("optimizer.pt", delete),
        ("model.safetensors", flip),
        ("scheduler.pt", truncate),
        (MARK, empty),
        slowly("rng_state.pth", delete),
        slowly("trainer_state.json", flip),
    ],
)
def test_the_previous_checkpoint_is_used(resume, run, assert_same, name, damage):
    damage(run / "unfinished" / "checkpoint-15" / name)
    _, err = assert_done(resume())
    said = [line for line in err.splitlines() if line.startswith("headwise: ")]
    assert len(said) == 1
    assert "checkpoint-15 is damaged" in said[0]
    assert name in said[0]
    assert said[0].endswith("resuming from checkpoint-12 instead.")
    assert "resuming from step 12 of 20" in err
    assert_same()


def test_a_checkpoint_without_a_mark_is_ignored(resume, run, assert_same):
    """A kill left it half-written, which needs no word."""
    delete(run / "unfinished" / "checkpoint-15" / MARK)
    _, err = assert_done(resume())
    assert "is damaged" not in err
    assert "resuming from step 12 of 20" in err
    assert_same()


def test_nothing_whole_is_left(resume, run):
    for checkpoint, damage in (("checkpoint-12", truncate), ("checkpoint-15", delete)):
        damage(run / "unfinished" / checkpoint / "optimizer.pt")
    before = sorted(path.name for path in run.rglob("*") if path.name != ".headwise.lock")  # which the kill left
    assert_one_sentence(resume(), "checkpoint-15 is damaged", "checkpoint-12 is damaged", "start it over")
    assert sorted(path.name for path in run.rglob("*")) == before


def test_a_damaged_snapshot_of_the_newest_checkpoint(resume, run, assert_same):
    flip(run / "unfinished" / "snapshots" / "step-00000014.safetensors")
    _, err = assert_done(resume())
    assert "snapshots/step-00000014.safetensors" in err
    assert "resuming from checkpoint-12 instead" in err
    assert_same()


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("snapshots/step-00000000.safetensors", delete),
        ("best/weights.safetensors", flip),
        ("best/weights.sha256", flip),
    ],
)
def test_damage_that_no_checkpoint_survives_is_refused_before_training(resume, run, name, damage):
    damage(run / "unfinished" / name)
    assert_one_sentence(resume(), name.split("/")[0], name.split("/")[1], "start it over")


def test_a_kill_while_the_best_model_is_replaced(resume, run, assert_same):
    best = run / "unfinished" / "best"
    best.rename(best.with_name("best.new"))
    assert_done(resume())
    assert_same()


def test_marks_of_an_earlier_version(resume, run, assert_same):
    for each in marked(run / "unfinished"):
        step = json.loads((each / MARK).read_text())["step"]
        (each / MARK).write_text(json.dumps({"step": step}))
    delete(run / "unfinished" / "checkpoint-15" / "scheduler.pt")
    _, err = assert_done(resume())
    assert "scheduler.pt is missing" in err
    assert "checkpoint-12 was saved by an earlier version without hashes" in err
    assert_same()


def test_a_damaged_best_model_is_not_passed_off(killed, resume, run, tmp_path):
    """Killed after the last step, when nothing is trained and the best model is only loaded."""
    kill = ("headwise.experiments.run.score_splits", 1, signal.SIGKILL)
    assert Process(tmp_path / "p", *killed[1], run, "--resume", at=kill).result()[0] == -signal.SIGKILL
    flip(run / "unfinished" / "best" / "weights.safetensors")
    code, out, err = resume()
    assert (code, out) == (2, "")
    assert "best/weights.safetensors has changed since it was written" in err.splitlines()[-1]
