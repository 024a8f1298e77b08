"""Chance that comes out the same on every machine and Python."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

Thing = TypeVar("Thing")


class Dice:
    """Draws made of `Random.random()` alone: of all of `random`, only this sequence is promised to stay as it is."""

    def __init__(self, seed: str) -> None:
        """The same seed, the same draws."""
        self._random = Random(seed)

    def whole(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return low + int(self._random.random() * (high - low + 1))

    def chance(self, share: float) -> bool:
        """True in this share of the draws."""
        return self._random.random() < share

    def pick(self, things: Sequence[Thing]) -> Thing:
        """One of the things."""
        return things[self.whole(0, len(things) - 1)]

    def several(self, things: Sequence[Thing], count: int) -> list[Thing]:
        """Different places of `things`, in random order."""
        left = list(things)
        return [left.pop(self.whole(0, len(left) - 1)) for _ in range(count)]

    def shuffled(self, things: Sequence[Thing]) -> list[Thing]:
        """All the things, in random order."""
        return self.several(things, len(things))
