"""A file that was read: its examples, and where each of them stands."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from headwise.experiments.data_check.words import folded
from headwise.tasks.split import Label

Key = tuple[str, ...]
# How many examples of a problem are shown.
SHOWN = 3


@dataclass(frozen=True)
class Place:
    """Where an example stands."""

    file: str
    unit: str
    """line or row."""
    number: int

    def __str__(self) -> str:
        """For people."""
        return f"{self.file} {self.unit} {self.number}"


@dataclass(frozen=True, eq=False)
class DataFile:
    """The examples of one file. Labels are classes by number, or numbers; None where there is none."""

    name: str
    role: str
    path: str
    unit: str
    lines: tuple[int, ...]
    texts: tuple[tuple[str, ...], ...]
    labels: tuple[Label, ...]
    empty: tuple[int, ...]
    """Lines that lack a text, and are left out."""
    broken: tuple[str, ...]
    """What is wrong with lines that cannot be read, and are left out."""

    def __len__(self) -> int:
        """How many examples it has."""
        return len(self.texts)

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        """The texts without case and white space; examples with the same key are the same."""
        return tuple(tuple(map(folded, texts)) for texts in self.texts)

    @cached_property
    def first_places(self) -> dict[Key, int]:
        """Key -> the first example that has it."""
        places: dict[Key, int] = {}
        for index, key in enumerate(self.keys):
            places.setdefault(key, index)
        return places

    @property
    def labelled(self) -> bool:
        """Whether any example has a label."""
        return any(label is not None for label in self.labels)

    def place(self, index: int) -> Place:
        """Where an example stands."""
        return Place(self.name, self.unit, self.lines[index])


def swapped(key: Key) -> Key:
    """The same pair the other way round."""
    return key[::-1]


def agree(first: Label, second: Label, tolerance: float) -> bool | None:
    """Whether two labels say the same; None if one of them is not there."""
    if first is None or second is None:
        return None
    return abs(first - second) <= tolerance
