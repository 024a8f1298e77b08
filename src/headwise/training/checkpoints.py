"""Checkpoints that can be trusted: a mark with the hash of every file is written last.

The two newest are kept, so that a run whose newest checkpoint is damaged resumes from the one before it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from headwise.cache import file_digest
from headwise.disk import write_atomically
from headwise.errors import HeadwiseWarning, InputError, StateError
from headwise.limits import parse_json
from headwise.training import distributed
from headwise.training.callbacks import BestModel

MARK = "headwise-complete.json"
STATE = "trainer_state.json"
# In the folder of the checkpoints: what the heads looked like at each evaluation.
SNAPSHOTS = "snapshots"
# How many marked checkpoints stay.
KEPT = 2
# What a checkpoint without a list of its files must at least have.
ESSENTIAL = ("model.safetensors", "optimizer.pt", "scheduler.pt", STATE)


# -- which one to trust ------------------------------------------------------------------------------------------------


def marked(folder: Path) -> list[Path]:
    """The checkpoints with a mark, the newest first; what a kill left half-written has none."""
    found = [path for path in folder.glob("checkpoint-*") if (path / MARK).is_file() and _step(path) >= 0]
    return sorted(found, key=_step, reverse=True)


def newest(folder: Path) -> Path | None:
    """The newest checkpoint with a mark; its files are not read."""
    return next(iter(marked(folder)), None)


def usable(folder: Path) -> Path | None:
    """The newest checkpoint whose files are as they were written; None if no checkpoint was saved yet.

    Damaged ones are reported and removed if one before them is whole, and refused if none is. Of several processes the
    first one reads them and all get its answer.
    """
    chosen: str | None = None
    with distributed.all_or_none():
        if distributed.first():
            found = _verified(folder)
            clear_broken(folder)
            if found is not None:
                chosen = found.name
                for path in marked(folder):
                    if _step(path) > _step(found):  # damaged
                        shutil.rmtree(path, ignore_errors=True)
    chosen = distributed.from_first(lambda: chosen)
    return None if chosen is None else folder / chosen


def _verified(folder: Path) -> Path | None:
    damaged: list[str] = []
    for checkpoint in marked(folder):
        problem = fault(checkpoint)
        if problem is None:
            for each in damaged:
                warnings.warn(f"{each}: resuming from {checkpoint.name} instead.", HeadwiseWarning, stacklevel=2)
            return checkpoint
        damaged.append(f"{checkpoint} is damaged ({problem})")
    if damaged:
        raise InputError(
            f"{'; '.join(damaged)}, and there is no other checkpoint to resume from: delete the folder of the run and "
            "start it over."
        )
    return None


def clear_broken(folder: Path) -> None:
    """Remove what a kill left half-written."""
    for path in folder.glob("checkpoint-*"):
        if not (path / MARK).is_file():
            shutil.rmtree(path, ignore_errors=True)


def fault(checkpoint: Path) -> str | None:
    """What is wrong with the files of a marked checkpoint; None if they are as they were written."""
    try:
        mark = json.loads((checkpoint / MARK).read_text(encoding="utf-8"))
        files = mark.get("files")
        if files is not None:
            files = {str(name): (int(about["size"]), str(about["sha256"])) for name, about in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"{MARK} cannot be read"
    if files is None:
        return _unlisted(checkpoint)
    for name, (size, sha256) in files.items():
        path, name = checkpoint / name, name.removeprefix("../")
        try:
            if not path.is_file():
                return f"{name} is missing"
            if (found := path.stat().st_size) != size:
                return f"{name} has {found} bytes instead of {size}"
            if file_digest(path) != sha256:
                return f"the content of {name} has changed"
        except OSError as error:
            return f"{name} cannot be read: {error.strerror or error}"
    return None


def _unlisted(checkpoint: Path) -> str | None:
    """Of a checkpoint from before marks had a list: missing files are noticed, other damage is not."""
    missing = [name for name in ESSENTIAL if not (checkpoint / name).is_file()]
    missing += [] if list(checkpoint.glob("rng_state*.pth")) else ["rng_state.pth"]
    if missing:
        return f"{missing[0]} is missing"
    warnings.warn(
        f"{checkpoint} was saved by an earlier version without hashes of its files: it is used, but damage to it "
        "cannot be detected.",
        HeadwiseWarning,
        stacklevel=2,
    )
    return None


def _step(path: Path) -> int:
    number = path.name.rpartition("-")[2]
    return int(number) if number.isdigit() else -1


# -- what is kept ------------------------------------------------------------------------------------------------------


def mark(checkpoint: Path) -> None:
    """Bring all files of a checkpoint to the disk, and then write the mark that lists them.

    Also the snapshots beside it: a run that resumes takes those from before the checkpoint as they are.
    """
    files = {}
    for path in sorted([*checkpoint.rglob("*"), *checkpoint.parent.glob(f"{SNAPSHOTS}/*.safetensors")]):
        if path.is_file() and path.name != MARK:
            with path.open("rb") as file:
                os.fsync(file.fileno())
            name = Path(os.path.relpath(path, checkpoint)).as_posix()
            files[name] = {"size": path.stat().st_size, "sha256": file_digest(path)}
    write_atomically(checkpoint / MARK, json.dumps({"step": _step(checkpoint), "files": files}, indent=1) + "\n")


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
    """Marks a checkpoint as whole once everything is on the disk; it and the one before it stay."""

    def __init__(self, folder: Path) -> None:
        """`folder` holds the checkpoints."""
        self._folder = folder

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Mark and tidy."""
        distributed.barrier()  # the others save their random state, too
        if not state.is_world_process_zero:
            return
        checkpoint = self._folder / f"checkpoint-{state.global_step}"
        mark(checkpoint)
        kept = marked(self._folder)[:KEPT]
        for path in self._folder.glob("checkpoint-*"):
            if path not in kept:
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
        if distributed.count() > 1 and any(distributed.all_sum([self.requested])):
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


# Several ways on from one checkpoint: each has a folder of its own that begins with a copy of it.


def branch(trunk: Path, arm: Path) -> None:
    """Let an arm begin where the trunk ended; an arm that has begun stays as it is.

    Weights, optimiser, schedule, random state and the place in the data are those of the trunk. Which model was best
    is forgotten: an arm keeps the best of its own, not one from before it.
    """
    if newest(arm) is not None:
        return
    source = newest(trunk)
    if source is None:
        raise StateError(f"{trunk} has no checkpoint to go on from: was something removed from the run's folder?")
    shutil.rmtree(arm, ignore_errors=True)  # what a kill left half-copied
    arm.mkdir(parents=True)
    copy = arm / source.name
    # The mark says that a checkpoint is whole: it comes last, and lists the state as it is in the copy.
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns(MARK))
    _forget_best(copy)
    mark(copy)


def _forget_best(checkpoint: Path) -> None:
    content = read_state(checkpoint)
    memory = content["stateful_callbacks"][BestModel.__name__]["attributes"]
    memory |= {"value": None, "step": 0, "waited": 0}
    write_atomically(checkpoint / STATE, json.dumps(content, indent=2) + "\n")
