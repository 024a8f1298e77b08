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
ESSENTIAL = ("model.safetensors", "optimizer.pt", "scheduler.pt", STATE, "rng_state*.pth")


# -- which one to trust ------------------------------------------------------------------------------------------------


def marked(folder: Path) -> list[Path]:
    """The checkpoints with a mark, the newest first; what a kill left half-written has none."""
    steps = {path.name.removeprefix("checkpoint-"): path for path in folder.glob("checkpoint-*")}
    newest_first = sorted(filter(str.isdecimal, steps), key=int, reverse=True)
    return [steps[step] for step in newest_first if (steps[step] / MARK).is_file()]


def newest(folder: Path) -> Path | None:
    """The newest checkpoint with a mark; its files are not read."""
    return next(iter(marked(folder)), None)


def usable(folder: Path) -> Path | None:
    """The newest checkpoint whose files are as they were written; None if no checkpoint was saved yet.

    Damaged ones are reported and removed if one before them is whole, and refused if none is. What a kill left
    half-written is removed. Of several processes the first one reads them and all get its answer.
    """
    chosen: Path | None = None
    with distributed.all_or_none():
        if distributed.first():
            damaged: dict[Path, str] = {}
            for checkpoint in marked(folder):
                problem = fault(checkpoint)
                if problem is None:
                    chosen = checkpoint
                    break
                damaged[checkpoint] = f"{checkpoint} is damaged ({problem})"
            if damaged and chosen is None:
                raise InputError(
                    f"{'; '.join(damaged.values())}, and there is no other checkpoint to resume from: delete the "
                    "folder of the run and start it over."
                )
            for path, problem in damaged.items():
                name = "" if chosen is None else chosen.name
                warnings.warn(f"{problem}: resuming from {name} instead.", HeadwiseWarning, stacklevel=2)
                shutil.rmtree(path, ignore_errors=True)
            _remove_but(folder, marked(folder))
    return distributed.gather(chosen)[0]


def _remove_but(folder: Path, kept: list[Path]) -> None:
    for path in folder.glob("checkpoint-*"):
        if path not in kept:
            shutil.rmtree(path, ignore_errors=True)


def fault(checkpoint: Path) -> str | None:
    """What is wrong with the files of a marked checkpoint; None if they are as they were written."""
    try:
        files = json.loads((checkpoint / MARK).read_text(encoding="utf-8")).get("files")
        if files is not None:
            files = {str(name): (int(about["size"]), str(about["sha256"])) for name, about in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"{MARK} cannot be read"
    if files is None:
        for name in ESSENTIAL:
            if not any(path.is_file() for path in checkpoint.glob(name)):
                return f"{name.replace('*', '')} is missing"
        warnings.warn(
            f"{checkpoint} was saved by an earlier version without hashes of its files: it is used, but damage to it "
            "cannot be detected.",
            HeadwiseWarning,
            stacklevel=2,
        )
        return None
    for name, (size, sha256) in files.items():
        path, name = checkpoint / name, name.removeprefix("../")
        try:
            if not path.is_file():
                return f"{name} is missing"
            if (bytes_now := path.stat().st_size) != size:
                return f"{name} has {bytes_now} bytes instead of {size}"
            if file_digest(path) != sha256:
                return f"the content of {name} has changed"
        except OSError as error:
            return f"{name} cannot be read: {error.strerror or error}"
    return None


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
    content = {"step": int(checkpoint.name.rpartition("-")[2]), "files": files}
    write_atomically(checkpoint / MARK, json.dumps(content, indent=1) + "\n")


class MarkCheckpoints(TrainerCallback):
    """Marks a checkpoint as whole once everything is on the disk; it and the one before it stay."""

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Mark the newest one, and remove old ones."""
        distributed.barrier()  # the others save their random state, too
        if state.is_world_process_zero:
            folder = Path(args.output_dir)
            mark(folder / f"checkpoint-{state.global_step}")
            _remove_but(folder, marked(folder)[:KEPT])


class StopOnRequest(TrainerCallback):
    """After Ctrl-C (or SIGTERM), finishes the step, saves, and stops; a second Ctrl-C stops at once.

    Several processes stop together, as soon as one of them has received a signal.
    """

    def __init__(self, last_step: int | None = None) -> None:
        """After `last_step`, evaluate, save and stop."""
        self.requested = False
        self._last_step = last_step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Save and stop if that was requested."""
        self.requested = any(distributed.gather(self.requested))
        if self.requested and state.global_step < state.max_steps:
            control.should_save = control.should_training_stop = True
        if self._last_step is not None and state.global_step >= self._last_step:
            control.should_evaluate = control.should_save = control.should_training_stop = True

    @contextmanager
    def handling_signals(self) -> Iterator[None]:
        """Handle the signals for the time of the block; only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def request(number: int, frame: Any) -> None:
            if self.requested:
                raise KeyboardInterrupt
            self.requested = True

        before = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


# -- several runs that start from one checkpoint -----------------------------------------------------------------------


def branch(trunk: Path, arm: Path) -> None:
    """Let an arm begin where the trunk ended, with a copy of its checkpoint; an arm that has begun stays as it is.

    Weights, optimiser, schedule, random state and the position in the data are those of the trunk. Which model was best
    is forgotten: an arm keeps its own best model, not one from before it.
    """
    if newest(arm) is not None:
        return
    source = newest(trunk)
    if source is None:
        raise StateError(f"{trunk} has no checkpoint to resume from: was something removed from the run's folder?")
    shutil.rmtree(arm, ignore_errors=True)  # what a kill left half-copied
    arm.mkdir(parents=True)
    copy = arm / source.name
    # The mark says that a checkpoint is whole: it comes last, and lists the state as it is in the copy.
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns(MARK))
    _forget_best(copy)
    mark(copy)


def _forget_best(checkpoint: Path) -> None:
    content = read_state(checkpoint)
    content["stateful_callbacks"][BestModel.__name__]["attributes"] |= {"value": None, "step": 0, "waited": 0}
    write_atomically(checkpoint / STATE, json.dumps(content, indent=2) + "\n")
