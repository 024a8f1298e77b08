"""What a recipe trains, validates and tests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwise.tasks import Split, Task


@dataclass(frozen=True)
class Splits:
    """A task and its examples. `test` is None where the task has none."""

    task: Task
    train: Split
    validation: Split
    test: Split | None
    whole: Split
    """All of the training file, of which `train` is a part."""
    chosen: tuple[int, ...]
    """The places of `train` in it."""
    limited: bool
    """Whether the recipe asks for so many training examples and no more."""
    gold: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Of ranking, by split: how many papers answer each claim, be they among its candidates or not."""
