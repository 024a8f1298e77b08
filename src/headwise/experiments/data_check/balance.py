"""How the labels of a file are spread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headwise.tasks.split import Label

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
