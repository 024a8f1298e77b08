"""Wu-Palmer similarity of words on WordNet, which NLTK reads."""

from __future__ import annotations

import functools
import warnings
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.patterns.wordnet_files import broken, open_reader
from headwise.patterns.words import plain

# How many pairs of senses, and how many words, a process remembers: some 100 MB.
_PAIRS, _WORDS = 2**19, 2**16
# What NLTK puts above all verbs, adjectives and adverbs, which have no common root.
_ROOT = "*ROOT*"


@dataclass(frozen=True, eq=False)
class Sense:
    """A sense of a word, and what lies above it."""

    name: str
    noun: bool
    order: tuple[str, ...]
    """What lies above it and itself, the deepest first (by the shortest way up), those equally deep by name."""
    steps: dict[str, int]
    """How far each of these is."""


class WordNet:
    """Similarities of words by their first senses, which are the most frequent ones; nouns come before others.

    For senses a and b, whose deepest common hypernym is s,

        similarity = 2 depth(s) / (2 depth(s) + steps(a, s) + steps(b, s))

    exactly as NLTK has it, with its oddities: senses other than nouns have a made-up common root, so that any two
    adjectives get 0.5; some senses (adult) get less than 1 with themselves, so synonyms may; and words such as `a`,
    `in` and `as` are taken for nouns (angstrom, inch, arsenic). Where NLTK's value depends on the order of the two
    senses, which happens if one lies above the other, it is the larger one.
    """

    def __init__(self, path: Path) -> None:
        """Read the WordNet that `find_wordnet` found."""
        self._path = path
        self._reader = open_reader(path)
        self._depths = {_ROOT: (0, 0)}  # of each sense: the lengths of its shortest and its longest way up
        self._senses: dict[str, Sense] = {}
        self._climbs: dict[str, dict[str, int]] = {}
        self.sense = functools.lru_cache(_WORDS)(self._first_sense)
        self._similarity = functools.lru_cache(_PAIRS)(self._either_way)

    def similarities(self, words: Sequence[str]) -> NDArray[np.float32]:
        """[n,n] for each two of the words, 1 for a word with itself; 0 where one is unknown."""
        forms = [plain(word) for word in words]
        senses = [self.sense(form) for form in forms]
        known = [(number, sense) for number, sense in enumerate(senses) if sense is not None]
        matrix = np.diag(np.array([sense is not None for sense in senses], np.float32))
        for (one, first), (two, second) in combinations(known, 2):
            value = 1.0 if forms[one] == forms[two] else self.similarity(first, second)
            matrix[one, two] = matrix[two, one] = value
        return matrix

    def similarity(self, one: Sense, two: Sense) -> float:
        """Of two senses, in any order."""
        return self._similarity(one, two) if one.name <= two.name else self._similarity(two, one)

    def _either_way(self, one: Sense, two: Sense) -> float:
        return max(self.wu_palmer(one, two), self.wu_palmer(two, one))

    def wu_palmer(self, one: Sense, two: Sense) -> float:
        """NLTK's `one.wup_similarity(two)`, with 0 for None."""
        rooted = not (one.noun and two.noun)
        common = (name for name in one.order if name in two.steps and (rooted or name != _ROOT))
        deepest = next(common, None)
        if deepest is None:
            return 0.0
        if one.name in two.steps and self._depths[one.name][0] == self._depths[deepest][0]:
            deepest = one.name
        depth = self._depths[deepest][1] + 1
        return 2.0 * depth / (2 * depth + one.steps[deepest] + two.steps[deepest])

    def _first_sense(self, word: str) -> Sense | None:
        try:
            # NLTK only warns of an entry that is not where it should be.
            with warnings.catch_warnings():
                warnings.filterwarnings("error", message="No WordNet synset")
                synsets = self._reader.synsets(word)
                return self._climbed(synsets[0]) if synsets else None
        except Exception as error:  # other people's files, in which anything may be wrong
            raise broken(self._path, error) from error

    def _climbed(self, synset: Any) -> Sense:
        name = synset.name()
        if name not in self._senses:
            above = self._above(synset)
            climb = self._climbs[name]
            # NLTK takes the shortest way between a sense and one above it, even if that goes up and down again.
            steps = {
                other: min(climb[top] + high for top, high in self._climbs[other].items() if top in climb)
                for other in above
            }
            steps[_ROOT] = max(climb.values()) + 1
            order = sorted(steps, key=lambda each: (-self._depths[each][0], each))
            self._senses[name] = Sense(name, synset.pos() == "n", tuple(order), steps)
        return self._senses[name]

    def _above(self, synset: Any) -> list[str]:
        """The names of a synset and all above it, whose climbs and depths are known from then on."""
        found: dict[str, Any] = {}
        waiting = [synset]
        while waiting:
            each = waiting.pop()
            if each.name() not in found:
                found[each.name()] = each
                waiting += each.hypernyms() + each.instance_hypernyms()
        for name, each in found.items():
            if name not in self._climbs:
                self._depths[name] = (each.min_depth(), each.max_depth())
                self._climbs[name] = _climb(each)
        return list(found)


def _climb(synset: Any) -> dict[str, int]:
    """The fewest steps to everything above a synset."""
    steps: dict[str, int] = {}
    waiting = deque([(synset, 0)])
    while waiting:
        each, height = waiting.popleft()
        if each.name() not in steps:
            steps[each.name()] = height
            waiting.extend((above, height + 1) for above in each.hypernyms() + each.instance_hypernyms())
    return steps


@functools.lru_cache(maxsize=1)
def open_wordnet(path: Path) -> WordNet:
    """The WordNet at this place, read once per process."""
    return WordNet(path)
