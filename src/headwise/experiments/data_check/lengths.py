"""How long the texts are: in words, and in tokens of an encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headwise.experiments.data_check.data_file import DataFile
from headwise.experiments.data_check.words import words
from headwise.tasks import Split, encode
from headwise.training import Encoder

PERCENTS = (5, 25, 50, 75, 95, 99)
TOGETHER = "together"
# No text is as long: nothing is cut while tokens are counted.
ENDLESS = 2**30


@dataclass(frozen=True)
class Lengths:
    """Percentiles of the numbers of words: so many percent of the texts are at most so long."""

    percentiles: dict[int, int]
    longest: int


@dataclass(frozen=True)
class Tokens:
    """The same in tokens of an encoder, with special ones, and what a limit would cut."""

    lengths: Lengths
    limit: int
    cut: int
    """Examples that are longer."""
    share: float


def count_words(file: DataFile) -> NDArray[np.int64]:
    """[N,T] the number of words of every text."""
    return np.array([[len(words(text)) for text in texts] for texts in file.texts], dtype=np.int64)


def word_lengths(counts: NDArray[np.int64], names: Sequence[str]) -> dict[str, Lengths]:
    """The lengths of each text and, of pairs, of both together."""
    found = {name: summary(counts[:, place]) for place, name in enumerate(names)}
    return found if len(names) == 1 else {**found, TOGETHER: summary(counts.sum(1))}


def token_lengths(file: DataFile, encoder: Encoder, limit: int) -> Tokens:
    """The lengths of the examples as the encoder sees them."""
    split = Split(file.texts, (None,) * len(file))
    counts = encode(split, encoder.tokenizer, ENDLESS).lengths
    cut = int((counts > limit).sum())
    return Tokens(summary(counts), limit, cut, cut / len(counts))


def summary(counts: NDArray[np.int64]) -> Lengths:
    """Percentiles that occur: the smallest length that so many percent do not exceed."""
    values = np.percentile(counts, PERCENTS, method="inverted_cdf")
    return Lengths(dict(zip(PERCENTS, map(int, values), strict=True)), int(counts.max()))
