"""What two files of a data set share that should not be in both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from headwise.experiments.data_check.data_file import SHOWN, DataFile, Place, agree, swapped
from headwise.experiments.data_check.near import THRESHOLD, near_duplicates
from headwise.training import Listener


@dataclass(frozen=True)
class Match:
    """One of the examples that were found twice."""

    first: Place
    second: Place
    similarity: float


@dataclass(frozen=True)
class Shared:
    """Examples of the second file that are in the first, too."""

    count: int
    share: float
    """Of the second file."""
    same_label: float | None
    """Share whose label is that of the first file, of those that have both; None if none has."""
    examples: tuple[Match, ...]
    complete: bool = True
    """Whether there can be no more; near-duplicates in files that repeat themselves are not all looked for."""


@dataclass(frozen=True)
class Leak:
    """What a second file shares with a first."""

    first: str
    second: str
    exact: Shared
    """All texts are the same but for case and white space."""
    swapped: Shared | None
    """The pair is there the other way round, and not this way; None for single texts."""
    near: Shared
    """Neither of them, but almost the same; see `near.similarity`."""
    texts: dict[str, Shared] | None
    """By text, examples in which this one is the same, whatever the other; None for single texts."""


def find_leaks(
    files: Sequence[DataFile], names: Sequence[str], tolerance: float, listener: Listener, near: float = THRESHOLD
) -> list[Leak]:
    """Compare every file with every later one."""
    return [
        _Comparison(first, second, tolerance).leak(names, near, listener) for first, second in combinations(files, 2)
    ]


@dataclass(frozen=True)
class _Comparison:
    first: DataFile
    second: DataFile
    tolerance: float

    def leak(self, names: Sequence[str], near: float, listener: Listener) -> Leak:
        pairs = len(names) == 2
        exact = self._twins(lambda key: key, range(len(self.second)))
        left = [index for index in range(len(self.second)) if index not in exact]
        turned = self._twins(swapped, left) if pairs else {}
        left = [index for index in left if index not in turned]
        return Leak(
            first=self.first.name,
            second=self.second.name,
            exact=self._shared(exact),
            swapped=self._shared(turned) if pairs else None,
            near=self._near(left, near, listener),
            texts={name: self._same_text(place) for place, name in enumerate(names)} if pairs else None,
        )

    def _twins(
        self, form: Callable[[tuple[str, ...]], tuple[str, ...]], among: Iterable[int]
    ) -> dict[int, tuple[int, float]]:
        known, keys = self.first.first_places, self.second.keys
        return {index: (known[key], 1.0) for index in among if (key := form(keys[index])) in known}

    def _near(self, among: Sequence[int], threshold: float, listener: Listener) -> Shared:
        """Each different example of the first file is looked at once."""
        places = list(self.first.first_places.values())
        size = max(len(places), len(among))
        listener.start(f"near-duplicates of {self.second.name} in {self.first.name}", size)
        first, second = [self.first.texts[place] for place in places], [self.second.texts[place] for place in among]
        near = near_duplicates(first, second, threshold=threshold, advance=listener.advance)
        listener.end()
        found = {among[one]: (places[other], alike) for one, (other, alike) in sorted(near.found.items())}
        return replace(self._shared(found), complete=near.complete)

    def _same_text(self, place: int) -> Shared:
        known: dict[str, int] = {}
        for index, key in enumerate(self.first.keys):
            known.setdefault(key[place], index)
        keys = enumerate(self.second.keys)
        found = {index: (known[key[place]], 1.0) for index, key in keys if key[place] in known}
        return self._shared(found, labels=False)

    def _shared(self, found: Mapping[int, tuple[int, float]], *, labels: bool = True) -> Shared:
        shown = sorted(found.items(), key=lambda each: -each[1][1])[:SHOWN]
        return Shared(
            count=len(found),
            share=len(found) / len(self.second),
            same_label=self._agreement(found) if labels else None,
            examples=tuple(Match(self.first.place(one), self.second.place(two), alike) for two, (one, alike) in shown),
        )

    def _agreement(self, found: Mapping[int, tuple[int, float]]) -> float | None:
        before, after = self.first.labels, self.second.labels
        judged = [agree(before[one], after[two], self.tolerance) for two, (one, _) in found.items()]
        known = [each for each in judged if each is not None]
        return sum(known) / len(known) if known else None
