"""The examples of several tasks as one data set, and batches that know their task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy
from torch import Tensor

Collate = Callable[[list[Any]], dict[str, Tensor]]


class JointData:
    """Encoded data sets one behind the other; an item is the name of its task and the example."""

    def __init__(self, parts: Mapping[str, Any]) -> None:
        """`parts` are the data sets by the names of their tasks."""
        self.parts = dict(parts)
        self._names = tuple(parts)
        self._starts = numpy.cumsum([0, *(len(part) for part in parts.values())])

    def __len__(self) -> int:
        """How many examples all tasks have."""
        return int(self._starts[-1])

    def __getitem__(self, index: int) -> tuple[str, Any]:
        """The task's name and the example."""
        place = range(len(self))[index]
        number = int(numpy.searchsorted(self._starts, place, side="right")) - 1
        name = self._names[number]
        return name, self.parts[name][place - int(self._starts[number])]


class JointCollator:
    """Makes a batch by the collator of its task and adds the task's name, which the model asks for."""

    def __init__(self, collators: Mapping[str, Collate]) -> None:
        """One for each task."""
        self.collators = dict(collators)

    def __call__(self, items: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        """All items belong to one task."""
        task = items[0][0]
        return {"task": task, **self.collators[task]([example for _, example in items])}
