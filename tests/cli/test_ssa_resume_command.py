"""Runs with self-supervised attention that are stopped or killed: they end as if nothing had happened, labels too."""

import shlex
import signal

import numpy as np
import pytest
from safetensors.numpy import load_file
from tiny_runs import Process, assert_done, log, record, slowly, undisturbed

from headwise.training.checkpoints import newest
from headwise.training.relabelling import FILE

# Three epochs of five steps; dropout and automatic weights are on, and nothing falls on the end of an epoch by itself.
CHANGES = {
    "ssa": {"label_rule": "soft", "precision": "fp32", "mask_fraction": 0.3, "attention_threshold": 0.3},
    "training__epochs": 3,
    "training__checkpoint_every": 4,
    "training__evaluate_every": 3,
}
STEP = "headwise.training.callbacks.Clock.on_step_end"


@pytest.fixture(scope="module")
def whole(tmp_path_factory, encoder, pairs):
    """A run that nobody disturbs."""
    return undisturbed(tmp_path_factory.mktemp("whole") / "run", encoder, pairs, CHANGES)


@pytest.fixture
def words(write_recipe, pairs, tmp_path):
    """The command that trains the same run in tmp_path/run."""
    return ["train", write_recipe(**CHANGES), "--data", pairs, "--output", str(tmp_path / "run")]


def test_nothing_of_this_is_trivial(whole):
    found = record(whole)["results"]["ssa"]
    assert [entry["share"] for entry in found] == pytest.approx([0, 0.2, 0.4])
    assert len({entry["base_rate"] for entry in found}) == 3
    assert len({entry["kept"] for entry in found}) == 3
    assert len([entry for entry in log(whole) if entry.get("ssa/token_loss", 0) > 0]) >= 8
    assert len({entry["ssa/token_weight"] for entry in log(whole) if entry.get("ssa/token_weight", 0) > 0}) >= 4


@pytest.mark.parametrize(
    ("place", "count"),
    [
        slowly(STEP, 10),  # the last step of the second epoch, before it is logged
        slowly("headwise.ssa.labeller.Prober.probe", 2),  # while the third epoch is labelled
        ("headwise.training.relabelling.save_file", 2),  # the model is in the checkpoint, the labels are not
        slowly("headwise.experiments.run.score_splits", 1),  # after the last step
    ],
)
def test_kills(headwise, words, assert_same, tmp_path, place, count):
    code, _, err = Process(tmp_path / "p1", *words, at=(place, count, signal.SIGKILL)).result()
    assert code == -signal.SIGKILL, err
    assert record(tmp_path / "run")["results"] is None
    assert_done(headwise(*words, "--resume"))
    assert_same()


@pytest.mark.slow
@pytest.mark.filterwarnings("always::headwise.errors.HeadwiseWarning")
def test_damaged_labels(headwise, words, assert_same, tmp_path):
    """Killed in step 14: the checkpoint of step 12 is of the third epoch, that of step 8 of the second."""
    assert Process(tmp_path / "p1", *words, at=(STEP, 14, signal.SIGKILL)).result()[0] == -signal.SIGKILL
    path = tmp_path / "run" / "unfinished" / "checkpoint-12" / FILE
    path.write_bytes(path.read_bytes()[:-3])
    _, err = assert_done(headwise(*words, "--resume"))
    assert f"checkpoint-12 is damaged ({FILE} has" in err
    assert "resuming from step 8 of 15" in err
    assert_same()


@pytest.mark.slow
@pytest.mark.parametrize("step", [5, 8])
def test_stopped_by_hand(headwise, words, assert_same, tmp_path, step):
    """At the very end of an epoch, and in the middle of one."""
    code, _, err = Process(tmp_path / "p1", *words, at=(STEP, step, signal.SIGINT)).result()
    assert code == 130, err
    checkpoint = newest(tmp_path / "run" / "unfinished")
    assert checkpoint.name == f"checkpoint-{step}"
    assert np.isnan(load_file(checkpoint / FILE)["values"]).all() == (step == 5)  # the first epoch has no labels
    assert headwise(*shlex.split(err.splitlines()[-1].partition("resume with: ")[2])[1:])[0] == 0
    assert_same()
