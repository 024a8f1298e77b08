"""Checkpoints that can be trusted, runs that start from one, and Ctrl-C."""

import hashlib
import json
import os
import signal
import threading
import time
from types import SimpleNamespace

import pytest
from training.small_task import distance, exact_model, parameters, trainer_of
from transformers import Trainer, TrainerCallback, TrainerState

from headwise.errors import HeadwiseWarning, InputError, StateError
from headwise.training.checkpoints import (
    MARK,
    MarkCheckpoints,
    StopOnRequest,
    branch,
    fault,
    mark,
    newest,
    read_state,
    usable,
)


def checkpoint(folder, name, *, whole=True):
    (folder / name).mkdir(parents=True)
    (folder / name / "model.safetensors").write_text("weights")
    if whole:
        (folder / name / MARK).write_text("{}")
    return folder / name


# -- which one to trust ------------------------------------------------------------------------------------------------


def test_the_newest_is_the_one_with_the_highest_step_and_a_mark(tmp_path):
    assert newest(tmp_path / "nowhere") is None
    checkpoint(tmp_path, "checkpoint-40", whole=False)
    assert newest(tmp_path) is None
    checkpoint(tmp_path, "checkpoint-9")
    expected = checkpoint(tmp_path, "checkpoint-20")
    checkpoint(tmp_path, "checkpoint-last")
    checkpoint(tmp_path, "best")
    assert newest(tmp_path) == expected


def test_a_mark_comes_last_and_the_one_before_it_stays(tmp_path):
    checkpoint(tmp_path, "checkpoint-1")
    checkpoint(tmp_path, "checkpoint-2")
    checkpoint(tmp_path, "checkpoint-3", whole=False)
    fresh = checkpoint(tmp_path, "checkpoint-4", whole=False)
    (fresh / "adapters").mkdir()
    (fresh / "adapters" / "one.safetensors").write_text("weights")
    arguments = SimpleNamespace(output_dir=str(tmp_path))
    MarkCheckpoints().on_save(arguments, TrainerState(global_step=4, is_world_process_zero=False), None)
    assert not (fresh / MARK).exists()  # another process writes it
    MarkCheckpoints().on_save(arguments, TrainerState(global_step=4, is_world_process_zero=True), None)
    listed = {"size": 7, "sha256": hashlib.sha256(b"weights").hexdigest()}
    files = {"adapters/one.safetensors": listed, "model.safetensors": listed}
    assert json.loads((fresh / MARK).read_text()) == {"step": 4, "files": files}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-2", "checkpoint-4"]


def test_damage_is_found(tmp_path):
    folder = checkpoint(tmp_path, "checkpoint-4", whole=False)
    (folder / "parts").mkdir()
    part = folder / "parts" / "rng_state.pth"
    part.write_bytes(b"random")
    mark(folder)
    assert fault(folder) is None
    part.write_bytes(b"rendom")
    assert fault(folder) == "the content of parts/rng_state.pth has changed"
    part.write_bytes(b"rando")
    assert fault(folder) == "parts/rng_state.pth has 5 bytes instead of 6"
    part.unlink()
    assert fault(folder) == "parts/rng_state.pth is missing"
    for content in ("", "[]", '{"files": 3}', '{"files": {"a": {}}}'):
        (folder / MARK).write_text(content)
        assert fault(folder) == f"{MARK} cannot be read"


def test_the_newest_whole_one_is_used_and_damaged_ones_are_removed(tmp_path):
    assert usable(tmp_path / "nowhere") is None
    for step in (2, 4, 6):
        mark(checkpoint(tmp_path, f"checkpoint-{step}", whole=False))
    checkpoint(tmp_path, "checkpoint-8", whole=False)  # half-written
    checkpoint(tmp_path, "best", whole=False)
    assert usable(tmp_path) == tmp_path / "checkpoint-6"
    (tmp_path / "checkpoint-6" / "model.safetensors").unlink()
    with pytest.warns(HeadwiseWarning, match=r"checkpoint-6 is damaged .*missing.*: resuming from checkpoint-4"):
        assert usable(tmp_path) == tmp_path / "checkpoint-4"
    left = ["best", "checkpoint-2", "checkpoint-4"]
    assert sorted(path.name for path in tmp_path.iterdir()) == left
    for step in (2, 4):
        (tmp_path / f"checkpoint-{step}" / "model.safetensors").write_text("WEIGHTS")
    with pytest.raises(InputError, match="no other checkpoint to resume from: delete .* start it over"):
        usable(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == left


def test_a_mark_of_an_earlier_version_is_accepted_with_a_warning(tmp_path):
    folder = checkpoint(tmp_path, "checkpoint-4")
    (folder / MARK).write_text('{"step": 4}')
    with pytest.raises(InputError, match="optimizer.pt is missing"):
        usable(tmp_path)
    for name in ("optimizer.pt", "scheduler.pt", "trainer_state.json", "rng_state_0.pth"):
        (folder / name).touch()
    with pytest.warns(HeadwiseWarning, match="earlier version without hashes"):
        assert usable(tmp_path) == folder


# -- several runs from one checkpoint ----------------------------------------------------------------------------------


def write_checkpoint(folder, step, *, whole=True):
    path = checkpoint(folder, f"checkpoint-{step}", whole=whole)
    memory = {"value": 0.8, "step": step - 1, "waited": 2, "history": [{"step": step, "eval_mean": 0.8}]}
    callbacks = {"BestModel": {"args": {}, "attributes": memory}, "Clock": {"attributes": {"epochs": {"0": 3.0}}}}
    state = {"global_step": step, "epoch": 1.5, "stateful_callbacks": callbacks}
    (path / "trainer_state.json").write_text(json.dumps(state))
    return path


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_arm_begins_with_the_newest_checkpoint_but_forgets_which_model_was_best(tmp_path, monkeypatch):
    trunk, arm = tmp_path / "trunk", tmp_path / "arm"
    source = write_checkpoint(trunk, 5)
    write_checkpoint(trunk, 7, whole=False)
    before = files(trunk)

    def killed(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:  # while the state is rewritten: the mark comes last
        patch.setattr("headwise.training.checkpoints.write_atomically", killed)
        with pytest.raises(KeyboardInterrupt):
            branch(trunk, arm)
    assert newest(arm) is None
    branch(trunk, arm)
    assert files(trunk) == before
    copy = newest(arm)
    assert copy == arm / "checkpoint-5"
    theirs, mine = read_state(source), read_state(copy)
    forgotten = {"value": None, "step": 0, "waited": 0}
    theirs["stateful_callbacks"]["BestModel"]["attributes"] |= forgotten
    assert mine == theirs
    assert fault(copy) is None  # the mark lists the state as it is in the copy
    begun = files(arm)
    branch(trunk, arm)
    assert files(arm) == begun
    write_checkpoint(tmp_path / "other", 5, whole=False)
    with pytest.raises(StateError, match="other has no checkpoint to resume from"):
        branch(tmp_path / "other", tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


# -- Ctrl-C ------------------------------------------------------------------------------------------------------------


class Interrupt(TrainerCallback):
    """A signal to this very process, in the middle of a step."""

    def __init__(self, number, step):
        self.number, self.step = number, step

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        if state.global_step + 1 == self.step:
            os.kill(os.getpid(), self.number)
            time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_step_saves_and_stops(tmp_path, number):
    stop, before = StopOnRequest(), signal.getsignal(number)
    callbacks = [Interrupt(number, 2), stop, MarkCheckpoints()]
    options = {"max_steps": 4, "save_strategy": "steps", "save_steps": 100}
    trainer = trainer_of(Trainer, exact_model(), tmp_path, callbacks=callbacks, **options)
    with stop.handling_signals():
        trainer.train()
    assert stop.requested
    assert newest(tmp_path) == tmp_path / "checkpoint-2"
    assert {"model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"} <= set(
        json.loads((newest(tmp_path) / MARK).read_text())["files"]
    )
    assert signal.getsignal(number) is before
    # and from there the run ends as if nothing had happened
    whole, again = exact_model(), exact_model()
    trainer_of(Trainer, whole, tmp_path / "other", max_steps=4).train()
    trainer_of(Trainer, again, tmp_path, max_steps=4).train(resume_from_checkpoint=str(newest(tmp_path)))
    assert distance(parameters(whole), parameters(again)) == 0.0


def test_the_last_step_is_the_end_anyway_and_another_one_can_be_chosen():
    stop = StopOnRequest()
    stop.requested = True
    for stop_, step, expected in ((stop, 4, (0, 0, 0)), (stop, 3, (0, 1, 1)), (StopOnRequest(3), 3, (1, 1, 1))):
        control = SimpleNamespace(should_evaluate=False, should_save=False, should_training_stop=False)
        stop_.on_step_end(None, TrainerState(global_step=step, max_steps=4), control)
        assert (control.should_evaluate, control.should_save, control.should_training_stop) == expected


def test_a_second_ctrl_c_stops_at_once():
    stop, before = StopOnRequest(), signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), stop.handling_signals():  # noqa: PT012 - the signal needs a moment
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        assert stop.requested
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
    assert signal.getsignal(signal.SIGINT) is before


def test_in_another_thread_signals_are_left_alone():
    before, seen = signal.getsignal(signal.SIGINT), []

    def work():
        with StopOnRequest().handling_signals():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert seen == [before]
