"""Near-duplicates: texts that are almost the same, found without comparing every one with every other.

An example is a tuple of sets, such as the stretches of words of each of its texts. Two examples are as similar as
those of their texts that are least alike, by the share of elements in both among those in either (Jaccard).
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import NamedTuple

Sets = tuple[frozenset[str], ...]
STRETCH = 3
THRESHOLD = 0.7
"""On SICK, RTE and HealthVer pairs above it are rewordings, or differ in a detail; below it come other questions about
the same things."""
LIMIT = 1_000
"""Examples that one is compared with at most; only files that repeat the same words have more to compare."""
REPORT_EVERY = 1_000
# Kana and Han, which are written without blanks: every sign counts as a word.
_SIGNS = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")


@cache
def word_pattern() -> re.Pattern[str]:
    """What a word is: a stretch of letters and digits, or a number such as 0.05."""
    # Numbers stay whole, or the 0 of every "p < 0.05" would answer to "0-dimensional". Vowel signs, as in Hindi, and
    # accents that are characters are no letters to \w, which would cut words in two; the underscore is one.
    marks = "".join(sign for sign in map(chr, range(0x10000)) if unicodedata.category(sign)[0] == "M")
    return re.compile(rf"\d+(?:[.,]\d+)+|[^\W_]+(?:[{marks}]+[^\W_]*)*")


def plain_words(text: str) -> list[str]:
    """The words of a text in lower case."""
    # NFKC makes one of what only looks different: e + accent and é, the micro sign and Greek mu, the ligature ﬁ and fi.
    # Most text is ASCII, where there is nothing to do.
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return word_pattern().findall(text.lower())


def words_and_signs(text: str) -> list[str]:
    """The words of a text in lower case; in Chinese and Japanese every sign is one."""
    return plain_words(text if text.isascii() else _SIGNS.sub(r" \g<0> ", text))


def word_positions(text: str) -> list[tuple[int, int]]:
    """The words of a text and the signs as `words_and_signs` has them: first character and the one after the last."""
    positions = [match.span() for match in word_pattern().finditer(text)]
    if text.isascii():
        return positions
    parts = ([word] if _SIGNS.search(text, *word) is None else _signs_apart(text, *word) for word in positions)
    return [part for word in parts for part in word]


def _signs_apart(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """The parts of a word, every sign for itself."""
    parts, begin = [], start
    for sign in _SIGNS.finditer(text, start, end):
        parts += [(begin, sign.start()), sign.span()]
        begin = sign.end()
    return [(first, last) for first, last in [*parts, (begin, end)] if first < last]


def folded(text: str) -> str:
    """The text without what hardly anybody means: case, and how much white space there is."""
    return " ".join(text.casefold().split())


def word_stretches(texts: Iterable[str]) -> Sets:
    """For each text every three words in a row, marked with the number of the text.

    A text of fewer words has one stretch of all of them, and one without words stands for itself.
    """
    sets = []
    for number, text in enumerate(texts):
        words = words_and_signs(text)
        parts = [words[start : start + STRETCH] for start in range(len(words) - STRETCH + 1)] or [words]
        sets.append(frozenset(f"{number} {' '.join(part) or folded(text)}" for part in parts))
    return tuple(sets)


def similarity(first: Sets, second: Sets) -> float:
    """Elements in both of those in either, of the sets that are least alike.

    So two pairs with the same long premise and different short hypotheses are not alike.
    """
    return min(len(one & other) / len(one | other) for one, other in zip(first, second, strict=True))


class SimilarSets:
    """An index that finds the examples that are like a given one, by the rarest elements of each.

    Examples with a similarity of t share at least t·n of the n elements that either has in all its sets. So with all
    elements in one order, they share one among the first n - ⌈t·n⌉ + 1 of each: only those are looked up. In the order
    from rare to frequent in the index, most examples that are like none have nothing left to look up.
    """

    def __init__(self, examples: Sequence[Sets], threshold: float, *, limit: int | None = None) -> None:
        """Index the examples.

        Args:
            examples: all of them.
            threshold: the least similarity.
            limit: compare with at most so many.
        """
        self.cut_short = False
        """Whether a search met so many examples that not all were compared."""
        self._examples, self._threshold, self._limit = examples, threshold, limit
        self._counts = Counter(element for example in examples for each in example for element in each)
        self._indices: dict[str, dict[int, None]] = defaultdict(dict)
        for index, example in enumerate(examples):
            for element in self._rarest(example):
                self._indices[element][index] = None

    def search(self, example: Sets) -> Iterator[tuple[int, float]]:
        """The index and the similarity of those that are similar enough."""
        met: dict[int, None] = {}
        for element in self._rarest(example):
            found = self._indices.get(element, {})
            met |= found if self._limit is None else dict.fromkeys(islice(found, self._limit + 1))
            if self._limit is not None and len(met) > self._limit:
                self.cut_short = True
                break
        for index in islice(met, self._limit):
            alike = similarity(example, self._examples[index])
            if alike >= self._threshold:
                yield index, alike

    def remove(self, index: int) -> None:
        """Find an example no more."""
        for element in self._rarest(self._examples[index]):
            del self._indices[element][index]

    def _rarest(self, example: Sets) -> list[str]:
        """The first in the order; those that are not in the index come before all others, and lead nowhere."""
        total = sum(map(len, example))
        # Slack for the rounding of t·n: one too many costs a little time, one too few would lose a pair.
        first = total - math.ceil(self._threshold * total - 1e-9) + 1
        known = [element for each in example for element in each if element in self._counts]
        left = first - (total - len(known))
        return sorted(known, key=lambda element: (self._counts[element], element))[:left] if left > 0 else []


class NearDuplicates(NamedTuple):
    """Examples of a second file with a near-duplicate in a first: index -> its index there, and how alike."""

    matches: dict[int, tuple[int, float]]
    complete: bool
    """Whether there can be no more."""


def near_duplicates(
    first: Sequence[Sequence[str]],
    second: Sequence[Sequence[str]],
    *,
    threshold: float = THRESHOLD,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> NearDuplicates:
    """Look for a near-duplicate in the first file of every example of the second.

    The smaller file is kept in memory, and the other is read along it. Of an example that has several, one is enough:
    in files that fill the same template again and again, all of them are near-duplicates of all others.
    """
    second_indexed = len(second) <= len(first)
    small, large = (second, first) if second_indexed else (first, second)
    index = SimilarSets([word_stretches(texts) for texts in small], threshold, limit=LIMIT)
    matches: dict[int, tuple[int, float]] = {}
    for number, texts in enumerate(large):
        similar = index.search(word_stretches(texts))
        if second_indexed:
            for other, alike in list(similar):
                matches[other] = number, alike
                index.remove(other)  # it need not be found again
        elif match := next(similar, None):
            matches[number] = match
        if number % REPORT_EVERY == 0:
            advance(number, len(large))
    return NearDuplicates(matches, complete=not index.cut_short or len(matches) == len(second))
