"""Examples that stand in a file more than once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headwise.experiments.data_check.data_file import SHOWN, DataFile, Place, agree, swapped
from headwise.tasks.split import Label


@dataclass(frozen=True)
class Found:
    """How often something was found, and the first places."""

    count: int
    examples: tuple[tuple[Place, ...], ...]


@dataclass(frozen=True)
class Duplicates:
    """What is said twice in one file, regardless of case and white space."""

    repeated: Found
    """Examples whose texts stand there before."""
    contradicting: Found
    """Different texts that stand there with labels that do not agree."""
    identical: Found | None
    """Pairs of a text with itself; None for single texts."""
    swapped: Found | None
    """Pairs that stand there before the other way round; None for single texts."""


def find_duplicates(file: DataFile, tolerance: float) -> Duplicates:
    """Look for examples of a file that are the same."""
    pairs = bool(file.keys) and len(file.keys[0]) == 2
    return Duplicates(
        repeated=_found(file, _repeated(file)),
        contradicting=_found(file, _contradicting(file, tolerance)),
        identical=_found(file, _identical(file)) if pairs else None,
        swapped=_found(file, _swapped(file)) if pairs else None,
    )


def _found(file: DataFile, groups: Iterator[Sequence[int]]) -> Found:
    found = list(groups)
    return Found(len(found), tuple(tuple(map(file.place, group)) for group in found[:SHOWN]))


def _repeated(file: DataFile) -> Iterator[Sequence[int]]:
    for index, key in enumerate(file.keys):
        first = file.first_places[key]
        if first < index:
            yield first, index


def _contradicting(file: DataFile, tolerance: float) -> Iterator[Sequence[int]]:
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for index, key in enumerate(file.keys):
        groups[key].append(index)
    for group in groups.values():
        if len(group) > 1 and (extremes := _extremes(file.labels, group, tolerance)):
            yield extremes


def _extremes(labels: Sequence[Label], group: Sequence[int], tolerance: float) -> tuple[int, int] | None:
    """The two of a group whose labels lie farthest apart, in their order, if they do not agree."""
    known = [(label, index) for index in group if (label := labels[index]) is not None]
    if not known:
        return None
    (low, first), (high, second) = min(known), max(known, key=lambda each: (each[0], -each[1]))
    return None if agree(low, high, tolerance) else (min(first, second), max(first, second))


def _identical(file: DataFile) -> Iterator[Sequence[int]]:
    return ((index,) for index, key in enumerate(file.keys) if key[0] == key[1])


def _swapped(file: DataFile) -> Iterator[Sequence[int]]:
    for index, key in enumerate(file.keys):
        first = file.first_places.get(swapped(key), index)
        if first < index and key[0] != key[1]:
            yield first, index
