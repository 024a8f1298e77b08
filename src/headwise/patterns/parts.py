"""An unfinished store: its finished parts, each in a folder of its own, so that a kill costs only what was running."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from headwise.patterns import mapped
from headwise.patterns.flat import Arrays, join


@dataclass(frozen=True)
class Parts:
    """The parts of one store. A part is a range of examples; the next build may cut the rest otherwise."""

    folder: Path
    key: str
    total: int
    places: list[range] = field(default_factory=list)
    """Which examples are done."""

    @property
    def done(self) -> int:
        """How many examples are done."""
        return sum(map(len, self.places))

    def restore(self) -> None:
        """Find the parts that an earlier build has left; what is damaged counts as not done."""
        found = map(_range, self.folder.iterdir() if self.folder.is_dir() else ())
        for place in sorted(filter(None, found), key=lambda place: place.start):
            if place.start < max((each.stop for each in self.places), default=0):
                continue
            try:
                self._read(place)
            except mapped.Damage:
                continue
            self.places.append(place)

    def gaps(self) -> Iterator[tuple[int, int]]:
        """First and one after last of the examples that are still to be done."""
        start = 0
        for place in sorted([*self.places, range(self.total, self.total)], key=lambda place: place.start):
            if start < place.start:
                yield start, place.start
            start = place.stop

    def save(self, place: range, arrays: Arrays) -> None:
        """Keep a finished part."""
        mapped.write(self.folder / _name(place), arrays, {"key": self._key(place)})
        self.places.append(place)

    def joined(self) -> Arrays:
        """All parts as one."""
        return join([self._read(place) for place in sorted(self.places, key=lambda place: place.start)])

    def remove(self) -> None:
        """Forget all parts."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.places.clear()

    def _read(self, place: range) -> Arrays:
        return mapped.read(self.folder / _name(place), self._key(place), len(place))

    def _key(self, place: range) -> str:
        return f"{self.key}:{_name(place)}:{self.total}"


def _name(place: range) -> str:
    return f"{place.start:09d}-{place.stop:09d}"


def _range(path: Path) -> range | None:
    match = re.fullmatch(r"(\d{9,})-(\d{9,})", path.name)
    return range(int(match[1]), int(match[2])) if match else None
