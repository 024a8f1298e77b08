"""Knowledge without any source but the letters, which leaves traces of the work done."""

from __future__ import annotations

import itertools
import os
import re
import time
import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from headwise.errors import InputError
from headwise.patterns.base import PATTERNS, Knowledge, Texts, WordMatrix, register_pattern


def letters(texts: Texts, scale: float = 1.0) -> WordMatrix:
    """Words are joined with the words after them that begin with the same letter; the value is their lengths' sum."""
    found = [(which, *match.span()) for which, text in enumerate(texts) for match in re.finditer(r"\w+", text)]
    words = [texts[which][start:stop] for which, start, stop in found]
    pairs = [
        (row, column)
        for row, column in itertools.combinations_with_replacement(range(len(words)), 2)
        if words[row][0] == words[column][0]
    ]
    rows, columns = np.array(pairs, np.int32).reshape(-1, 2).T
    lengths = np.array([len(word) for word in words], np.float32)
    return WordMatrix(
        np.array(found, np.int32).reshape(-1, 3), rows, columns, scale * (lengths[rows] + lengths[columns])
    )


# Never in the registry for long: the contract tests go through it.
@register_pattern("letters")
class Letters(Knowledge):
    """Notes every part that it works on in a separate file; `traces` is an option only so that tests can see it."""

    scale: float = 1.0
    traces: str | None = None
    pause: float = 0.0
    refuse: str | None = None

    def builder(self, corpus, resources, spread):
        return partial(self._matrices, self.scale)

    def _matrices(self, scale: float, examples: Sequence[Texts]) -> list[WordMatrix]:
        time.sleep(self.pause)
        if self.refuse and any(self.refuse in text for texts in examples for text in texts):
            raise InputError(f"no {self.refuse} here, please.")
        if self.traces:
            Path(self.traces, uuid.uuid4().hex).write_text(f"{len(examples)} {os.getpid()}", encoding="utf-8")
        return [letters(texts, scale) for texts in examples]


@register_pattern("counted-letters")
class CountedLetters(Letters):
    """The values grow with the number of the letters of the corpus."""

    from_corpus = True

    def builder(self, corpus, resources, spread):
        return partial(self._matrices, sum(spread(count, corpus)))


for _name in ("letters", "counted-letters"):
    PATTERNS.remove(_name)


def knowledge_from(build, fingerprint=None) -> Knowledge:
    """A pattern of the name "own" whose builder is the given function."""

    class Own(Knowledge):
        name = "own"

        def fingerprint(self, resources):
            return fingerprint(resources) if fingerprint else {}

        def builder(self, corpus, resources, spread):
            return build

    return Own()


def wait_for(true, patience: float = 60.0) -> bool:
    """Whether it becomes true, before patience ends."""
    deadline = time.monotonic() + patience
    while not true() and time.monotonic() < deadline:
        time.sleep(0.01)
    return true()


def count(examples: Sequence[Texts]) -> int:
    return sum(len(text) for texts in examples for text in texts)


def sentences(number: int, seed: int = 0) -> list[Texts]:
    """Examples of one or two texts of some words."""
    rng = np.random.default_rng(seed)
    words = ["apple", "ant", "bee", "bear", "cat", "é", "emu", "zebra"]
    text = lambda: " ".join(rng.choice(words, rng.integers(0, 9)))  # noqa: E731
    return [(text(),) if rng.random() < 0.5 else (text(), text()) for _ in range(number)]


def arcs(matrix: WordMatrix) -> set[tuple[int, int]]:
    """The pairs of words that have a value."""
    return set(zip(matrix.rows.tolist(), matrix.columns.tolist(), strict=True))


def words(matrix: WordMatrix, *texts: str) -> list[str]:
    """The words of a matrix, of all texts of its example."""
    return [texts[number][start:end] for number, start, end in matrix.spans]
