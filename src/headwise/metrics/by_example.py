"""Two systems on the same examples: McNemar's test, and how the tests of several seeds make one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import InputError

Array = NDArray[Any]


@dataclass(frozen=True)
class McNemar:
    """On which examples exactly one of two classifiers is right."""

    better: int
    """Examples that only the second has right."""
    worse: int
    """Examples that only the first has right."""
    p: float
    """Two-sided exact test: how unevenly a fair coin would share them out."""

    def as_data(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)


def mcnemar(first: Array, second: Array, labels: Array) -> McNemar:
    """McNemar's exact test (1947) of predictions on the same examples.

    Args:
        first: [n] predicted classes.
        second: [n] those of the other classifier.
        labels: [n] what was right.
    """
    from scipy.stats import binomtest  # type: ignore[import-untyped]

    first, second, labels = np.asarray(first), np.asarray(second), np.asarray(labels)
    if not (first.shape == second.shape == labels.shape and labels.ndim == 1 and len(labels)):
        raise InputError(
            f"predictions of shape {first.shape} and {second.shape} and labels of shape {labels.shape}: expected three "
            "rows of the same length, at least 1."
        )
    before, after = first == labels, second == labels
    better, worse = int((after & ~before).sum()), int((before & ~after).sum())
    p = float(binomtest(better, better + worse).pvalue) if better + worse else 1.0
    return McNemar(better, worse, p)


def twice_the_median(p_values: Sequence[float]) -> float:
    """One p-value of several for the same question, valid whatever their dependence (Rüger 1978).

    Seeds share their examples, so their p-values are no independent evidence, and Fisher's method would be wrong. One
    p-value stays as it is.
    """
    if not p_values:
        raise InputError("no p-values to put together: give at least one.")
    return float(p_values[0]) if len(p_values) == 1 else min(1.0, 2 * float(np.median(p_values)))
