"""Several ways on from one checkpoint."""

import json

import pytest

from headwise.errors import StateError
from headwise.training.checkpoints import MARK, branch, fault, newest


def write_checkpoint(folder, step, *, whole=True):
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "model.safetensors").write_bytes(bytes([step]) * 9)
    memory = {"value": 0.8, "step": step - 1, "waited": 2, "history": [{"step": step, "eval_mean": 0.8}]}
    others = {"Clock": {"args": {}, "attributes": {"epochs": {"0": 3.0}}}}
    callbacks = {"BestModel": {"args": {}, "attributes": memory}, **others}
    state = {"global_step": step, "epoch": 1.5, "stateful_callbacks": callbacks}
    (path / "trainer_state.json").write_text(json.dumps(state))
    if whole:
        (path / MARK).write_text("{}")
    return path


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_arm_begins_with_the_newest_whole_checkpoint_but_forgets_which_model_was_best(tmp_path):
    trunk, arm = tmp_path / "trunk", tmp_path / "arm"
    write_checkpoint(trunk, 3)
    source = write_checkpoint(trunk, 5)
    write_checkpoint(trunk, 7, whole=False)
    before = files(trunk)
    branch(trunk, arm)
    assert files(trunk) == before
    copy = newest(arm)
    assert copy == arm / "checkpoint-5"
    theirs, mine = (json.loads((path / "trainer_state.json").read_text()) for path in (source, copy))
    memory = mine["stateful_callbacks"]["BestModel"]["attributes"]
    assert memory == {"value": None, "step": 0, "waited": 0, "history": [{"step": 5, "eval_mean": 0.8}]}
    theirs["stateful_callbacks"]["BestModel"]["attributes"] |= {"value": None, "step": 0, "waited": 0}
    assert mine == theirs
    assert (copy / "model.safetensors").read_bytes() == (source / "model.safetensors").read_bytes()
    listed = json.loads((copy / MARK).read_text())
    assert (listed["step"], sorted(listed["files"])) == (5, ["model.safetensors", "trainer_state.json"])
    assert fault(copy) is None  # the mark lists the state as it is in the copy
    (copy / "model.safetensors").write_bytes(b"changed")
    assert files(trunk) == before  # a copy, no link


def test_an_arm_that_has_begun_stays_as_it_is(tmp_path):
    write_checkpoint(tmp_path / "trunk", 5)
    write_checkpoint(tmp_path / "arm", 8)
    (tmp_path / "arm" / "importance.json").write_text("{}")
    before = files(tmp_path / "arm")
    branch(tmp_path / "trunk", tmp_path / "arm")
    assert files(tmp_path / "arm") == before


def test_what_a_kill_left_half_copied_is_copied_again(tmp_path):
    write_checkpoint(tmp_path / "trunk", 5)
    half = write_checkpoint(tmp_path / "arm", 5, whole=False)
    (half / "model.safetensors").write_bytes(b"ha")
    branch(tmp_path / "trunk", tmp_path / "arm")
    assert (newest(tmp_path / "arm") / "model.safetensors").read_bytes() == bytes([5]) * 9


def test_the_mark_comes_last(tmp_path, monkeypatch):
    """A kill while the state is rewritten leaves no whole checkpoint."""
    write_checkpoint(tmp_path / "trunk", 5)

    def killed(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("headwise.training.checkpoints.write_atomically", killed)
        with pytest.raises(KeyboardInterrupt):
            branch(tmp_path / "trunk", tmp_path / "arm")
    assert newest(tmp_path / "arm") is None
    branch(tmp_path / "trunk", tmp_path / "arm")
    assert newest(tmp_path / "arm") is not None


def test_a_trunk_without_a_checkpoint_is_told(tmp_path):
    write_checkpoint(tmp_path / "trunk", 5, whole=False)
    with pytest.raises(StateError, match="trunk has no checkpoint to go on from"):
        branch(tmp_path / "trunk", tmp_path / "arm")
    assert not (tmp_path / "arm").exists()
