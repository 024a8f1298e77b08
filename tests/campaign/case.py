"""One bad input: a command to type, what is wrong about it, and what may come of it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

from campaign.orders import Order

# What a command may do with an input.
BAD = "bad"
"""It is wrong: the command must refuse it with exit code 2."""
SAME = "same"
"""It may be wrong in a place that does not matter: refused, or the same result as with the valid input."""
OPEN = "open"
"""It may be another valid input: refused, or done."""


@dataclass(frozen=True)
class Case:
    """A command, typed in the folder where its input lies."""

    words: tuple[str, ...]
    what: str
    verdict: str
    without_rights: bool = False
    """Typed by somebody who may not write everywhere, as the administrator may."""


@dataclass
class Draw:
    """What a generator of bad inputs works with: seeded chance, a valid order, and a box with its input."""

    chance: random.Random
    order: Order
    box: Path
    words: list[str] = field(init=False)

    def __post_init__(self) -> None:
        """Begin with the valid words."""
        self.words = list(self.order.words)

    def case(self, what: str, verdict: str, *, without_rights: bool = False) -> Case:
        """The case as it stands now."""
        return Case(tuple(self.words), what, verdict, without_rights)

    def pick(self, patterns: tuple[str, ...]) -> Path | None:
        """One of the files that the patterns name, if there is any."""
        found = sorted({path for pattern in patterns for path in self.box.glob(pattern) if path.is_file()})
        return self.chance.choice(found) if found else None

    def name(self, path: Path) -> str:
        """A file as one would type it."""
        return path.relative_to(self.box).as_posix()
