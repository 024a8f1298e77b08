"""The paired bootstrap over examples, for any metric and several systems at once.

Shapes: R resamples, M rows of predictions, n examples, U different columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import InputError
from headwise.metrics.significance import AT_A_TIME, RESAMPLES, ROUNDING
from headwise.metrics.weighted import weighted_score

Array = NDArray[Any]
Values = NDArray[np.float64]


@dataclass(frozen=True)
class BootstrapTest:
    """A difference between two systems, and how far other examples would move it."""

    difference: float
    """Second minus first."""
    low: float
    """Lower end of the 95 % percentile interval."""
    high: float
    p: float
    """Two-sided: twice the share of resamples on the other side of 0, so below 0.05 where the interval leaves 0 out."""

    def as_data(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)


def bootstrap_scores(
    metric: str, predictions: Array, labels: Array, *, resamples: int = RESAMPLES, seed: tuple[int, ...] = (0,)
) -> Values:
    """One metric of several rows of predictions on the same resamples of their examples.

    Args:
        metric: see METRICS.
        predictions: [M,n] classes or numbers.
        labels: [n] what was right.
        resamples: how often to draw n examples with replacement.
        seed: the same seed, predictions and labels give the same draws.

    Returns:
        [R,M] the scores.
    """
    predictions, labels = np.asarray(predictions), np.asarray(labels)
    if predictions.ndim != 2 or labels.shape != predictions.shape[1:] or not labels.size:
        raise InputError(
            f"predictions {list(predictions.shape)} and labels {list(labels.shape)}: expected [M,n] and [n], n at "
            "least 1."
        )
    columns, counts = _alike(np.concatenate([labels[None], predictions]))

    def score(weights: Array) -> Values:
        return weighted_score(metric, columns[1:], columns[0], weights)

    return _resampled(score, counts, resamples, seed)


def bootstrap_means(values: Array, *, resamples: int = RESAMPLES, seed: tuple[int, ...] = (0,)) -> Values:
    """[R,M] the means of several rows of values, [M,n], on the same resamples of their columns."""
    columns, counts = _alike(np.asarray(values, dtype=np.float64))
    total = counts.sum()
    return _resampled(lambda weights: weights @ columns.T / total, counts, resamples, seed)


def bootstrap_test(difference: float, resampled: Values) -> BootstrapTest:
    """The test of a difference from its values [R] on resamples."""
    values = np.where(np.abs(resampled) <= ROUNDING, 0.0, resampled)
    low, high = np.quantile(values, [0.025, 0.975])
    beyond = min(int((values <= 0).sum()), int((values >= 0).sum()))
    return BootstrapTest(difference, float(low), float(high), min(1.0, 2 * (beyond + 1) / (len(values) + 1)))


def _alike(table: Array) -> tuple[Array, Array]:
    """The different columns [.,U] of a table, and how many examples have each.

    Examples that all systems answer alike count alike, so drawing n examples is drawing how many of each kind: for
    classes there are far fewer kinds than examples.
    """
    columns, counts = np.unique(table, axis=1, return_counts=True)
    return columns, counts


def _resampled(score: Callable[[Array], Values], counts: Array, resamples: int, seed: tuple[int, ...]) -> Values:
    if resamples < 1:
        raise InputError(f"{resamples} resamples: expected 1 or more; {RESAMPLES} make a good interval.")
    random, total = np.random.default_rng(seed), int(counts.sum())
    step = max(1, AT_A_TIME // len(counts))
    return np.concatenate(
        [
            score(random.multinomial(total, counts / total, size=min(step, resamples - done)))
            for done in range(0, resamples, step)
        ]
    )
