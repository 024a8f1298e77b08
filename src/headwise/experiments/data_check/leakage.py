"""What two files of a data set share that should not be in both."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice

from headwise.data.examples import Label
from headwise.experiments.data_check.data_files import SHOWN, DataFile, Place, agree, folded, swapped, words
from headwise.training import Listener

# Examples that are almost the same, found without comparing every one with every other.


Grams = tuple[frozenset[str], ...]
"""For each text of an example its stretches of words, marked with the number of the text."""
STRETCH = 3
# How much of what either text has both must have. On SICK, RTE and HealthVer pairs above it are rewordings, or differ
# in a detail; below it come other questions about the same things.
THRESHOLD = 0.7
EVERY = 1_000
# Examples that one is compared with at most; only where the same words come again and again there are more to compare.
MOST = 1_000


def grams(texts: Iterable[str]) -> Grams:
    """Every three words in a row; of a text that has fewer, all of them, and of one without words, itself."""
    return tuple(frozenset(_stretches(f"{number} ", text)) for number, text in enumerate(texts))


def _stretches(mark: str, text: str) -> list[str]:
    cut = words(text)
    if len(cut) < STRETCH:
        return [mark + (" ".join(cut) or folded(text))]
    return [mark + " ".join(cut[start : start + STRETCH]) for start in range(len(cut) - STRETCH + 1)]


def similarity(first: Grams, second: Grams) -> float:
    """Stretches in both, of those in either (Jaccard); of pairs that of the text which is less alike.

    So two pairs with the same long premise and different short hypotheses are not alike.
    """
    return min(len(one & other) / len(one | other) for one, other in zip(first, second, strict=True))


class Similar:
    """Finds the examples of a small file that are like one of a large file, by the rarest stretches of each.

    Examples with a similarity of t share at least t·n of the n stretches that either has in all its texts. So with all
    stretches in one order, they share one among the first n - ⌈t·n⌉ + 1 of each: only those are looked up. In the
    order from rare to frequent in the small file, most examples of the large one have nothing left to look up.
    """

    def __init__(self, examples: Sequence[Grams], threshold: float = THRESHOLD) -> None:
        """Keep the examples of the small file."""
        self.cut_short = False
        """Whether an example met so many others that not all were looked at."""
        self._examples, self._threshold = examples, threshold
        self._counts = Counter(gram for example in examples for stretches in example for gram in stretches)
        self._places: dict[str, dict[int, None]] = defaultdict(dict)
        for place, example in enumerate(examples):
            for gram in self._rarest(example):
                self._places[gram][place] = None

    def like(self, example: Grams) -> Iterator[tuple[int, float]]:
        """The place and the similarity of those that are similar enough, as long as they are asked for."""
        for place in self._met(example):
            alike = similarity(example, self._examples[place])
            if alike >= self._threshold:
                yield place, alike

    def forget(self, place: int) -> None:
        """Find an example no more."""
        for gram in self._rarest(self._examples[place]):
            del self._places[gram][place]

    def _met(self, example: Grams) -> Iterator[int]:
        """Those that share one of the rarest stretches."""
        met: dict[int, None] = {}
        for gram in self._rarest(example):
            met |= dict.fromkeys(islice(self._places.get(gram, ()), MOST + 1))
            if len(met) > MOST:
                self.cut_short = True
                break
        return islice(met, MOST)

    def _rarest(self, example: Grams) -> list[str]:
        """The first in the order; those that the small file has not come before all others, and lead nowhere."""
        total = sum(map(len, example))
        # Slack for the rounding of t·n: one too many costs a little time, one too few would lose a pair.
        first = total - math.ceil(self._threshold * total - 1e-9) + 1
        known = [gram for stretches in example for gram in stretches if gram in self._counts]
        left = first - (total - len(known))
        return sorted(known, key=lambda gram: (self._counts[gram], gram))[:left] if left > 0 else []


@dataclass(frozen=True)
class Near:
    """Examples of the second file that have a near-duplicate in the first: place -> its place, and how alike."""

    found: dict[int, tuple[int, float]]
    complete: bool
    """Whether there can be no more."""


def near_duplicates(
    first: Sequence[Sequence[str]],
    second: Sequence[Sequence[str]],
    *,
    threshold: float = THRESHOLD,
    advance: Callable[[int], None] = lambda done: None,
) -> Near:
    """Look for a near-duplicate in the first file of every example of the second.

    The smaller file is kept in memory, and the other is read along it. Of an example that has several, one is enough:
    in files that fill the same template again and again, all of them are near-duplicates of all others.
    """
    kept = len(second) <= len(first)
    small, large = (second, first) if kept else (first, second)
    index = Similar([grams(texts) for texts in small], threshold)
    found: dict[int, tuple[int, float]] = {}
    for number, texts in enumerate(large):
        matches = index.like(grams(texts))
        if kept:
            found |= _taken(matches, number, index)
        elif match := next(matches, None):
            found[number] = match
        if number % EVERY == 0:
            advance(number)
    return Near(found, complete=not index.cut_short or len(found) == len(second))


def _taken(matches: Iterator[tuple[int, float]], number: int, index: Similar) -> dict[int, tuple[int, float]]:
    """What was found of the file that is kept, and need not be found again."""
    taken = {place: (number, alike) for place, alike in matches}
    for place in taken:
        index.forget(place)
    return taken


# Examples that stand in a file more than once.


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
