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
from headwise.metrics.classification import accuracy, macro_f1, pearson, spearman, weighted_score
from headwise.metrics.significance import AT_A_TIME, RESAMPLES, ROUNDING

# How well a prediction did, and how sure that is: values with their 95 % intervals.


ESTIMATE_RESAMPLES = 1_000
# 95 % of a normal distribution lie within so many standard deviations.
WIDTH = 1.959963984540054


@dataclass(frozen=True)
class Estimate:
    """A value and the ends of its 95 % interval."""

    value: float
    low: float
    high: float


def estimated_classes(predictions: Array, labels: Array, *, seed: int) -> dict[str, Estimate]:
    """Accuracy with Wilson's interval, macro-F1 with that of a bootstrap over examples."""
    share, count = accuracy(predictions, labels), len(labels)
    low, high = wilson(round(share * count), count)
    return {
        "accuracy": Estimate(share, low, high),
        "macro_f1": Estimate(macro_f1(predictions, labels), *_macro_f1_interval(predictions, labels, seed)),
    }


def estimated_numbers(predictions: Array, labels: Array) -> dict[str, Estimate]:
    """Both correlations with Fisher's interval, and the root of the mean squared error."""
    linear, ranked, count = pearson(predictions, labels), spearman(predictions, labels), len(labels)
    return {
        "pearson": Estimate(linear, *fisher(linear, count)),
        # Ranks vary more than values (Bonett and Wright 2000).
        "spearman": Estimate(ranked, *fisher(ranked, count, spread=1 + ranked**2 / 2)),
        "rmse": _error(predictions, labels),
    }


def wilson(hits: int, count: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927): it stays between 0 and 1, also with few examples."""
    share, extra = hits / count, WIDTH**2 / count
    middle = (share + extra / 2) / (1 + extra)
    half = np.sqrt(share * (1 - share) * extra + extra**2 / 4) / (1 + extra)
    return max(0.0, float(middle - half)), min(1.0, float(middle + half))


def fisher(correlation: float, count: int, *, spread: float = 1.0) -> tuple[float, float]:
    """The 95 % interval of a correlation by Fisher's z; of three examples or fewer, all there is."""
    if count <= 3:
        return -1.0, 1.0
    inside = float(np.clip(correlation, -1 + 1e-15, 1 - 1e-15))
    middle, half = np.arctanh(inside), WIDTH * np.sqrt(spread / (count - 3))
    return float(np.tanh(middle - half)), float(np.tanh(middle + half))


def _macro_f1_interval(predictions: Array, labels: Array, seed: int) -> tuple[float, float]:
    """Percentiles of a bootstrap; drawing examples is drawing cells of their table of labels and predictions."""
    classes, codes = np.unique(np.concatenate([labels, predictions]), return_inverse=True)
    count, size = len(labels), len(classes)
    cells = np.bincount(codes[:count] * size + codes[count:], minlength=size * size)
    occupied = np.flatnonzero(cells)
    drawn = np.random.default_rng(seed).multinomial(count, cells[occupied] / count, size=ESTIMATE_RESAMPLES)  # [R,O]
    low, high = np.quantile(_macro_f1_of(drawn, occupied // size, occupied % size, size), [0.025, 0.975])
    return float(low), float(high)


def _macro_f1_of(drawn: Array, rows: Array, columns: Array, size: int) -> Array:
    """[R] mean F1 of the classes that occur in each draw."""
    either = np.zeros((len(drawn), size))
    right = np.zeros((len(drawn), size))
    for cell, (row, column) in enumerate(zip(rows, columns, strict=True)):
        either[:, row] += drawn[:, cell]
        either[:, column] += drawn[:, cell]
        if row == column:
            right[:, row] = drawn[:, cell]
    scores = np.divide(2 * right, either, out=np.zeros_like(right), where=either > 0)
    return np.asarray(scores.sum(1) / (either > 0).sum(1))


def _error(predictions: Array, labels: Array) -> Estimate:
    squares = (predictions - labels).astype(np.float64) ** 2
    mean = float(squares.mean())
    half = WIDTH * float(squares.std(ddof=1)) / np.sqrt(len(squares)) if len(squares) > 1 else mean
    return Estimate(mean**0.5, max(0.0, mean - half) ** 0.5, float(mean + half) ** 0.5)


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
