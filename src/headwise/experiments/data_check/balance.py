"""How the labels of a file are spread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headwise.data import Split, encode
from headwise.data.examples import Label
from headwise.experiments.data_check.data_files import DataFile, words
from headwise.training import Encoder

# How long the texts are: in words, and in tokens of an encoder.


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


# Numbers that differ by up to this part of their range say the same.
TOLERANCE = 0.1


@dataclass(frozen=True)
class Balance:
    """How often each class occurs."""

    counts: dict[str, int]
    shares: dict[str, float]
    """Of the examples that have a label."""
    missing: int
    """Examples without one."""
    imbalance: float
    """How many times the most frequent class is as frequent as the rarest that occurs."""


@dataclass(frozen=True)
class Numbers:
    """Where labels that are numbers lie."""

    low: float
    high: float
    mean: float
    deviation: float
    """Standard deviation of the sample; 0 for one example."""
    missing: int
    """Examples without one."""


def label_balance(labels: Sequence[Label], classes: Sequence[str]) -> Balance | None:
    """Count classes; None if no example has a label."""
    known = Counter(label for label in labels if label is not None)
    if not known:
        return None
    counts = {name: known[number] for number, name in enumerate(classes)}
    total, occurring = known.total(), [count for count in counts.values() if count]
    return Balance(
        counts=counts,
        shares={name: count / total for name, count in counts.items()},
        missing=len(labels) - total,
        imbalance=max(occurring) / min(occurring),
    )


def label_numbers(labels: Sequence[Label]) -> Numbers | None:
    """Describe numbers; None if no example has a label."""
    values = np.array([label for label in labels if label is not None], dtype=np.float64)
    if not len(values):
        return None
    return Numbers(
        low=float(values.min()),
        high=float(values.max()),
        mean=float(values.mean()),
        deviation=float(values.std(ddof=1)) if len(values) > 1 else 0.0,
        missing=len(labels) - len(values),
    )


def label_tolerance(labels: Sequence[Label], *, numbers: bool) -> float:
    """How far two labels may lie apart and still agree: classes not at all."""
    values = [label for label in labels if label is not None]
    return TOLERANCE * (max(values) - min(values)) if numbers and values else 0.0
