"""Several ways on from one checkpoint: each has a folder of its own that begins with a copy of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from headwise.disk import write_atomically
from headwise.errors import StateError
from headwise.training.best import BestModel
from headwise.training.checkpoints import MARK, STATE, mark, newest, read_state


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
