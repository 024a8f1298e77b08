"""The words of all documents as numbers, in little memory: what an index is made from.

Shapes: N documents, T words of all of them together.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headwise.tasks.retrieval.collection import Progress
from headwise.tasks.retrieval.corpus import EVERY, Corpus
from headwise.tasks.retrieval.words import Words, plain_words

# How often a corpus is gone through: by us, and for lengths, counts and scores by bm25s.
ROUNDS = 4


@dataclass(frozen=True)
class NumberedWords:
    """What bm25s takes: it asks for `ids`, a sequence of lists of numbers, and `vocab`."""

    ids: Lists
    vocab: dict[str, int]


@dataclass
class Lists:
    """A list of numbers for each document, made when it is asked for.

    That takes 4 bytes a word. Lists in a list would take 8 for the place of each number, and 32 more for many numbers.
    """

    numbers: NDArray[np.int32]  # [T]
    starts: NDArray[np.int64]  # [N+1]
    progress: Progress | None = None
    rounds: int = 0

    def __len__(self) -> int:
        """How many documents there are."""
        return len(self.starts) - 1

    def __iter__(self) -> Iterator[list[int]]:
        """The numbers of one document after the other."""
        self.rounds += 1
        told = _Round(self.progress, len(self), self.rounds)
        for place, (start, end) in enumerate(zip(self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True)):
            yield self.numbers[start:end].tolist()
            told(place + 1)


def number_words(corpus: Corpus, words: Words, progress: Progress | None = None) -> NumberedWords:
    """Cut all documents into words, and number these in the order in which they are first met."""
    numbers, starts, numbered = array("i"), array("q", [0]), _Numbers(words)
    told = _Round(progress, len(corpus), 0)
    for place in range(len(corpus)):
        found = map(numbered.__getitem__, plain_words(corpus.text(place)))
        numbers.extend([number for number in found if number >= 0])
        starts.append(len(numbers))
        told(place + 1)
    lists = Lists(np.frombuffer(numbers, np.int32), np.frombuffer(starts, np.int64), progress)
    return NumberedWords(lists, numbered.vocabulary)


class _Numbers(dict[str, int]):
    """Word as it stands in texts -> number of its stem, found out when first met; -1 for stop words."""

    def __init__(self, words: Words) -> None:
        super().__init__(dict.fromkeys(words.left_out(), -1))
        self._stem = words.stemmer()
        self.vocabulary: dict[str, int] = {}

    def __missing__(self, word: str) -> int:
        self[word] = number = self.vocabulary.setdefault(self._stem(word), len(self.vocabulary))
        return number


@dataclass(frozen=True)
class _Round:
    """Tells the progress of one round as a share of all rounds."""

    progress: Progress | None
    documents: int
    before: int

    def __call__(self, done: int) -> None:
        if self.progress is not None and (done % EVERY == 0 or done == self.documents):
            # A later bm25s may go round more often.
            share = (self.before * self.documents + done) // ROUNDS
            self.progress(min(share, self.documents), self.documents)
