"""Texts that say almost the same, found without comparing every one with every other."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from headwise.errors import InputError
from headwise.tasks.retrieval.claim_words import claim_words

Words = frozenset[str]
THRESHOLD = 0.6


def similarity(first: Words, second: Words) -> float:
    """Words in both, of the words in either (Jaccard)."""
    return len(first & second) / len(first | second)


def near_duplicates(texts: Sequence[str], *, threshold: float = THRESHOLD) -> list[int]:
    """For every text the number of its cluster, which is the smallest place in it.

    Two texts are near-duplicates if |A ∩ B| / |A ∪ B| ≥ threshold for the sets A and B of what they are about
    (`claim_words`); clusters are the connected parts. At the default of 0.6 one word in four may differ, and which
    way the effect goes always may. Measured on SciFact's claims: pairs just above it are rewrites of one another,
    pairs just below it are mostly different findings of one paper.
    """
    sets = [claim_words(text) for text in texts]
    index = _Prefixes(sets, threshold)
    parents = list(range(len(sets)))
    first: dict[Words, int] = {}
    for place, words in enumerate(sets):
        if words in first:
            parents[place] = first[words]
            continue
        for other in index.near(words):
            _join(parents, place, other)
        first[words] = place
        index.add(words, place)
    return [_root(parents, place) for place in range(len(parents))]


def nearest_duplicates(
    texts: Sequence[str], others: Sequence[str], *, threshold: float = THRESHOLD
) -> list[int | None]:
    """For every text the place of its most similar near-duplicate among the others, None where there is none."""
    sets, known = ([claim_words(text) for text in group] for group in (texts, others))
    index = _Prefixes([*sets, *known], threshold)
    first: dict[Words, int] = {}
    for place, words in enumerate(known):
        if first.setdefault(words, place) == place:
            index.add(words, place)
    return [index.nearest(words) for words in sets]


class _Prefixes:
    """Sets of words, found by the few rarest words of each.

    Sets of a and b words with a similarity of t or more share at least t·a and t·b words. So with the words in one
    order, they share one among the first a - ⌈t·a⌉ + 1 and b - ⌈t·b⌉ + 1: only those are looked up.
    """

    def __init__(self, sets: Iterable[Words], threshold: float) -> None:
        if not 0 < threshold <= 1:
            raise InputError(f"threshold: expected a number above 0 and at most 1, got {threshold!r}; 0.6 is usual.")
        self.threshold = threshold
        self._counts = Counter(word for words in sets for word in words)
        self._places: dict[str, list[int]] = defaultdict(list)
        self._sets: dict[int, Words] = {}

    def add(self, words: Words, place: int) -> None:
        self._sets[place] = words
        for word in self._rarest(words):
            self._places[word].append(place)

    def near(self, words: Words) -> Iterator[int]:
        """The places of all sets that are similar enough."""
        met = {place for word in self._rarest(words) for place in self._places.get(word, ())}
        return (place for place in met if similarity(words, self._sets[place]) >= self.threshold)

    def nearest(self, words: Words) -> int | None:
        """The place of the most similar one; of equals, the first."""
        return min(self.near(words), key=lambda place: (-similarity(words, self._sets[place]), place), default=None)

    def _rarest(self, words: Words) -> list[str]:
        # Slack for the rounding of t·a: one word too many costs a little time, one too few would lose a pair.
        shared = math.ceil(self.threshold * len(words) - 1e-9)
        return sorted(words, key=lambda word: (self._counts[word], word))[: len(words) - shared + 1]


def _join(parents: list[int], first: int, second: int) -> None:
    low, high = sorted((_root(parents, first), _root(parents, second)))
    parents[high] = low


def _root(parents: list[int], place: int) -> int:
    while parents[place] != place:
        parents[place] = parents[parents[place]]
        place = parents[place]
    return place
