"""Checkpoints that can be trusted: a mark is written last, and old ones go only after a new one is marked."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from headwise.disk import write_atomically
from headwise.errors import InputError
from headwise.json_text import parse_json
from headwise.training import processes

MARK = "headwise-complete.json"
STATE = "trainer_state.json"


def newest(folder: Path) -> Path | None:
    """The newest whole checkpoint; what a kill left half-written has no mark and is passed over."""
    whole = [path for path in folder.glob("checkpoint-*") if (path / MARK).is_file()]
    return max(whole, key=_step, default=None)


def _step(path: Path) -> int:
    number = path.name.rpartition("-")[2]
    return int(number) if number.isdigit() else -1


def clear_broken(folder: Path) -> None:
    """Remove what a kill left half-written."""
    for path in folder.glob("checkpoint-*"):
        if not (path / MARK).is_file():
            shutil.rmtree(path, ignore_errors=True)


def saved_callbacks(checkpoint: Path) -> dict[str, Any]:
    """What the callbacks kept in a checkpoint."""
    callbacks: dict[str, Any] = read_state(checkpoint).get("stateful_callbacks", {})
    return callbacks


def read_state(checkpoint: Path) -> dict[str, Any]:
    """The state that the Trainer keeps in a checkpoint."""
    path = checkpoint / STATE
    try:
        state = parse_json(path.read_text(encoding="utf-8"))
        if not isinstance(state, dict):
            raise ValueError("it is not a JSON object")
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is damaged ({error}): remove the folder {checkpoint}, or train again.") from error
    return state


class MarkCheckpoints(TrainerCallback):
    """Marks a checkpoint as whole once everything is on the disk, then removes the ones before it."""

    def __init__(self, folder: Path) -> None:
        """`folder` holds the checkpoints."""
        self._folder = folder

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Mark and tidy."""
        processes.wait()  # the others save their random state, too
        if not state.is_world_process_zero:
            return
        checkpoint = self._folder / f"checkpoint-{state.global_step}"
        for path in checkpoint.rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        write_atomically(checkpoint / MARK, json.dumps({"step": state.global_step}))
        for path in self._folder.glob("checkpoint-*"):
            if path != checkpoint:
                shutil.rmtree(path, ignore_errors=True)


class StopAt(TrainerCallback):
    """Evaluates, saves and stops after a step."""

    def __init__(self, step: int) -> None:
        """`step` is the last one."""
        self._step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop if this was the step."""
        if state.global_step >= self._step:
            control.should_evaluate = control.should_save = control.should_training_stop = True


class StopOnRequest(TrainerCallback):
    """After Ctrl-C (or SIGTERM), finishes the step, saves, and stops; a second Ctrl-C stops at once.

    Of several processes one may be asked a step earlier than another: they stop together, as soon as one was asked.
    """

    def __init__(self) -> None:
        """Nothing was asked yet."""
        self.requested = False

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Save and stop if that was asked."""
        if processes.count() > 1 and any(processes.summed([self.requested])):
            self.requested = True
        if self.requested and state.global_step < state.max_steps:
            control.should_save = control.should_training_stop = True

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take the signals for the time of the block; only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

        def ask(number: int, frame: Any) -> None:
            if self.requested:
                raise KeyboardInterrupt
            self.requested = True

        for number in before:
            signal.signal(number, ask)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
