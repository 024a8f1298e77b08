"""PMI: which words of the training texts occur together more often than by chance.

Shapes: W words of an example, E entries of a sparse matrix, V words of the vocabulary, P pairs of words.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from headwise.errors import InputError
from headwise.patterns.align import RULES, plain, words_of
from headwise.patterns.base import Builder, Knowledge, Resources, Spread, Texts, WordMatrix, register_pattern

# Pairs of words, by their numbers: x << 32 | y with x <= y, ascending.
Keys = NDArray[np.int64]
# Counts of a part of the corpus: its words, the pairs of them, and how often each occurs.
Counted = tuple[list[str], Keys, NDArray[np.int64]]
_LOW = 0xFFFFFFFF


@register_pattern("pmi")
class PMI(Knowledge):
    """Words should attend to those that occur near them more often than by chance (positive PMI, training texts).

    With c(x,y) the number of times that y occurs at most `window` words before or after x in one text,
    c(x) = sum_y c(x,y) and N = sum_x c(x):

        PPMI(x,y) = max(0, log(c(x,y) N / (c(x) c(y))))

    Pairs that occur fewer than `minimum` times have 0, though they do count in c(x) and N. The matrix of an example
    holds all pairs of its words, over both of its texts. Two occurrences of a word have the value of that word with
    itself; an occurrence has none with itself.

    Relations: needs nothing but the training texts, so it fits any language and subject; `wordsim` adds knowledge
    from outside, `dependency` the grammar of the sentence.

    Difference from the authors' released code: there pairs of neighbours are counted inside the one example, where
    hardly any pair occurs twice.
    """

    from_corpus: ClassVar[bool] = True
    needs: ClassVar[str] = "the training texts"

    window: int = 5
    """How many words apart two words may be to count as a pair."""
    minimum: int = 2
    """How often a pair must occur to have a value."""
    lower: bool = True
    """Whether words that differ only in case (or in the kind of apostrophe) are the same."""

    def __post_init__(self) -> None:
        """Check the options."""
        for option in ("window", "minimum"):
            value = getattr(self, option)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"pmi({option}={value!r}): expected a whole number of 1 or more.")
        if not isinstance(self.lower, bool):
            raise InputError(f"pmi(lower={self.lower!r}): expected True or False.")

    def fingerprint(self, resources: Resources) -> dict[str, Any]:
        """The rules for splitting texts into words."""
        return {"words": RULES}

    def builder(self, corpus: Sequence[Texts], resources: Resources, spread: Spread) -> Builder:
        """Count the pairs of the training texts, and keep those that have a value."""
        if not len(corpus):
            raise InputError("pmi counts words over the training texts, but there are none: give a training split.")
        count = functools.partial(count_pairs, window=self.window, lower=self.lower)
        vocabulary, keys, counts = _merged(spread(count, corpus))
        if not len(keys):
            raise InputError(
                f"pmi found no two words in one text in any of the {len(corpus)} training examples: check that the "
                "right columns are read as texts."
            )
        first, second = keys >> 32, keys & _LOW
        # A pair of occurrences counts from both sides: c(x,y) and c(y,x) grow by one, and c(x,x) by two.
        both_ways = counts * np.where(first == second, 2, 1)
        total = np.bincount(first, both_ways, len(vocabulary))
        different = first != second
        total += np.bincount(second[different], both_ways[different], len(vocabulary))
        frequent = counts >= self.minimum
        keys, first, second, both_ways = (each[frequent] for each in (keys, first, second, both_ways))
        values = np.log(both_ways * total.sum() / (total[first] * total[second]))
        kept = values > 0
        if not kept.any():
            raise InputError(
                f"pmi(window={self.window}, minimum={self.minimum}): none of the {len(counts)} pairs of words in "
                f"{len(corpus)} training examples occurs so often and more than by chance: set minimum to 1, or use "
                "more texts."
            )
        used = {*first[kept].tolist(), *second[kept].tolist()}
        numbers = {word: number for number, word in enumerate(vocabulary) if number in used}
        return functools.partial(self._matrices, numbers, keys[kept], values[kept].astype(np.float32))

    def _matrices(
        self, numbers: Mapping[str, int], keys: Keys, values: NDArray[np.float32], examples: Sequence[Texts]
    ) -> list[WordMatrix]:
        """One matrix for each example, from the words of the pairs that have a value, their keys and values [P]."""
        matrices = []
        for texts in examples:
            words, spans = words_of(texts)
            ids = np.array([numbers.get(plain(word) if self.lower else word, -1) for word in words], np.int64)
            known = np.flatnonzero(ids >= 0)
            rows, columns = (known[side] for side in np.triu_indices(len(known), 1))
            wanted = _keys(ids[rows], ids[columns])
            index = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
            known_pair = keys[index] == wanted  # [E]
            rows, columns = (side[known_pair].astype(np.int32) for side in (rows, columns))
            matrices.append(WordMatrix(spans, rows, columns, values[index[known_pair]]))
        return matrices


def count_pairs(examples: Sequence[Texts], *, window: int, lower: bool) -> Counted:
    """How often each pair of words occurs at most `window` words apart, within one text."""
    numbers: dict[str, int] = {}
    ids, lengths = [], []  # the word at each position in the corpus, and how many positions each text has
    for text in itertools.chain.from_iterable(examples):
        split, _ = words_of((text,))
        ids += [numbers.setdefault(plain(word) if lower else word, len(numbers)) for word in split]
        lengths.append(len(split))
    word, of_text = np.array(ids, np.int64), np.repeat(np.arange(len(lengths)), lengths)
    pairs = []
    for distance in range(1, min(window, len(word) - 1) + 1):
        together = of_text[:-distance] == of_text[distance:]
        pairs.append(_keys(word[:-distance][together], word[distance:][together]))
    keys, counts = np.unique(np.concatenate([np.zeros(0, np.int64), *pairs]), return_counts=True)
    return list(numbers), keys, counts


def _merged(parts: Iterable[Counted]) -> Counted:
    """All parts as one, summed whenever the new ones outnumber the old: few sums, little memory."""
    numbers: dict[str, int] = {}
    keys, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for words, part_keys, part_counts in parts:
        number = np.array([numbers.setdefault(word, len(numbers)) for word in words], np.int64)
        keys.append(_keys(number[part_keys >> 32], number[part_keys & _LOW]))
        counts.append(part_counts)
        if sum(map(len, keys[1:])) > len(keys[0]):
            keys, counts = ([merged] for merged in _summed(keys, counts))
    return list(numbers), *_summed(keys, counts)


def _summed(keys: list[Keys], counts: list[NDArray[np.int64]]) -> tuple[Keys, NDArray[np.int64]]:
    different, index = np.unique(np.concatenate(keys), return_inverse=True)
    sums = np.zeros(len(different), np.int64)
    np.add.at(sums, index, np.concatenate(counts))
    return different, sums


def _keys(first: Keys, second: Keys) -> Keys:
    return np.minimum(first, second) << 32 | np.maximum(first, second)
