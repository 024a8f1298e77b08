"""Checkpoints that can be trusted, files that are whole, and Ctrl-C."""

import hashlib
import json
import os
import resource
import signal
import threading
import time

import pytest
from training.small_task import distance, exact_model, parameters, trainer_of
from transformers import Trainer, TrainerCallback, TrainerState

from headwise.disk import write_atomically
from headwise.errors import HeadwiseWarning, InputError
from headwise.training.checkpoints import (
    MARK,
    MarkCheckpoints,
    StopOnRequest,

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


# -- which one to trust --------------------------------------------------------------------------------------------


def test_the_newest_is_the_one_with_the_highest_step_and_a_mark(tmp_path):
    assert newest(tmp_path / "nowhere") is None
    assert newest(tmp_path) is None
    checkpoint(tmp_path, "checkpoint-40", whole=False)
    assert newest(tmp_path) is None
    checkpoint(tmp_path, "checkpoint-9")
    wanted = checkpoint(tmp_path, "checkpoint-20")
    checkpoint(tmp_path, "checkpoint-last")
    checkpoint(tmp_path, "best")
    assert newest(tmp_path) == wanted


def test_only_broken_ones_are_cleared(tmp_path):
    whole, broken = checkpoint(tmp_path, "checkpoint-3"), checkpoint(tmp_path, "checkpoint-6", whole=False)
    other = checkpoint(tmp_path, "best", whole=False)
    with pytest.warns(HeadwiseWarning), pytest.raises(InputError):
        usable(tmp_path)
    assert (whole.is_dir(), broken.exists(), other.is_dir()) == (True, False, True)


def test_a_mark_comes_last_and_the_one_before_it_stays(tmp_path):
    checkpoint(tmp_path, "checkpoint-1")
    checkpoint(tmp_path, "checkpoint-2")
    checkpoint(tmp_path, "checkpoint-3", whole=False)
    fresh = checkpoint(tmp_path, "checkpoint-4", whole=False)
    (fresh / "adapters").mkdir()
    (fresh / "adapters" / "one.safetensors").write_text("weights")
    callback = MarkCheckpoints()
    callback.on_save(None, TrainerState(global_step=4, is_world_process_zero=False), None)
    assert not (fresh / MARK).exists()  # another process' business
    callback.on_save(None, TrainerState(global_step=4, is_world_process_zero=True), None)
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
    for content in ("", "{", "[]", '{"files": 3}', '{"files": {"a": {}}}'):
        (folder / MARK).write_text(content)
        assert fault(folder) == f"{MARK} cannot be read"


def test_the_newest_whole_one_is_used_and_damaged_ones_go(tmp_path):
    assert usable(tmp_path / "nowhere") is None
    for step in (2, 4, 6):
        mark(checkpoint(tmp_path, f"checkpoint-{step}", whole=False))
    checkpoint(tmp_path, "checkpoint-8", whole=False)
    assert usable(tmp_path) == tmp_path / "checkpoint-6"
    (tmp_path / "checkpoint-6" / "model.safetensors").unlink()
    with pytest.warns(HeadwiseWarning, match=r"checkpoint-6 is damaged .*missing.*: resuming from checkpoint-4"):
        assert usable(tmp_path) == tmp_path / "checkpoint-4"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-2", "checkpoint-4"]
    for step in (2, 4):
        (tmp_path / f"checkpoint-{step}" / "model.safetensors").write_text("WEIGHTS")
    with pytest.raises(InputError, match="no other checkpoint to resume from: delete .* start it over"):
        usable(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-2", "checkpoint-4"]


def test_a_mark_of_an_earlier_version_is_accepted_with_a_warning(tmp_path):
    folder = checkpoint(tmp_path, "checkpoint-4")
    (folder / MARK).write_text('{"step": 4}')
    with pytest.raises(InputError, match="optimizer.pt is missing"):
        usable(tmp_path)
    for name in ("optimizer.pt", "scheduler.pt", "trainer_state.json", "rng_state_0.pth"):
        (folder / name).touch()
    with pytest.warns(HeadwiseWarning, match="earlier version without hashes"):
        assert usable(tmp_path) == folder


def test_the_trainers_checkpoints_are_marked(tmp_path):
    trainer = trainer_of(
        Trainer, exact_model(), tmp_path, save_strategy="steps", save_steps=1, callbacks=[MarkCheckpoints()]
    )
    trainer.train()
    assert sorted(path.name for path in tmp_path.glob("checkpoint-*")) == ["checkpoint-2", "checkpoint-3"]
    assert {"model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"} <= set(
        json.loads((newest(tmp_path) / MARK).read_text())["files"]
    )
    assert fault(newest(tmp_path)) is None
    assert newest(tmp_path) == tmp_path / "checkpoint-3"
    assert "TrainerControl" in read_state(newest(tmp_path))["stateful_callbacks"]


# -- writing -------------------------------------------------------------------------------------------------------


def test_a_file_is_written(tmp_path):
    path = tmp_path / "a.json"
    write_atomically(path, "old")
    write_atomically(path, "näw")
    assert path.read_text(encoding="utf-8") == "näw"
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]


def test_a_full_disk_leaves_the_old_content(tmp_path):
    """A real limit, that of this process on the size of a file."""
    path = tmp_path / "a.json"
    path.write_text("old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_atomically(path, "n" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]


def test_a_reader_never_sees_half_a_file(tmp_path):
    path = tmp_path / "a.txt"
    write_atomically(path, "0" * 100_000)
    seen, ended = set(), threading.Event()

    def read():
        while not ended.is_set():
            text = path.read_text()
            seen.add((len(text), text == text[0] * len(text)))
            time.sleep(0.001)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(20):
        write_atomically(path, str(number % 10) * 100_000)
    ended.set()
    reader.join(20)
    assert seen == {(100_000, True)}


# -- Ctrl-C --------------------------------------------------------------------------------------------------------


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
    model = exact_model()
    trainer = trainer_of(
        Trainer,
        model,
        tmp_path,
        max_steps=4,
        callbacks=[Interrupt(number, 2), stop, MarkCheckpoints()],
        save_strategy="steps",
        save_steps=100,
    )
    with stop.handling_signals():
        trainer.train()
    assert stop.requested
    assert trainer.state.global_step == 2
    assert newest(tmp_path) == tmp_path / "checkpoint-2"
    assert signal.getsignal(number) is before
    # and from there the run ends as if nothing had happened
    whole, again = exact_model(), exact_model()
    trainer_of(Trainer, whole, tmp_path / "other", max_steps=4).train()
    trainer_of(Trainer, again, tmp_path, max_steps=4).train(resume_from_checkpoint=str(newest(tmp_path)))
    assert distance(parameters(whole), parameters(again)) == 0.0


def test_in_the_last_step_there_is_nothing_to_stop(tmp_path):
    stop = StopOnRequest()
    stop.requested = True
    control = type("Control", (), {"should_save": False, "should_training_stop": False})()
    stop.on_step_end(None, TrainerState(global_step=4, max_steps=4), control)
    assert not control.should_save
    stop.on_step_end(None, TrainerState(global_step=3, max_steps=4), control)
    assert control.should_save
    assert control.should_training_stop


def test_a_second_ctrl_c_stops_at_once():
    stop = StopOnRequest()
    with stop.handling_signals():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        assert stop.requested
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the signal needs a moment
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)


def test_handlers_come_back_after_an_error():
    before, stop = signal.getsignal(signal.SIGINT), StopOnRequest()
    with pytest.raises(ZeroDivisionError), stop.handling_signals():
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is before


def test_in_another_thread_signals_are_left_alone():
    before, stop, seen = signal.getsignal(signal.SIGINT), StopOnRequest(), []

    def work():
        with stop.handling_signals():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert seen == [before]
