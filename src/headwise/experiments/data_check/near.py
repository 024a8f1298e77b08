"""Examples that are almost the same, found without comparing every one with every other."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from headwise.experiments.data_check.words import folded, words

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
