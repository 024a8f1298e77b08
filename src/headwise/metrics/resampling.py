"""The bootstrap over examples, and scores with intervals.

Shapes: R resamples, M rows of predictions, n examples, U different columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headwise.errors import InputError
from headwise.metrics.classification import METRICS, Array, Values, pearson, spearman, weighted_score

RESAMPLES = 9_999
# Numbers held at a time while resampling: 16 MB.
AT_A_TIME = 2_000_000
# Values that differ by less than this part of them are the same but for rounding, as after means over seeds.
ROUNDING = 1e-12


def bootstrap_scores(
    metric: str,
    predictions: Array,
    labels: Array,
    *,
    resamples: int = RESAMPLES,
    seed: tuple[int, ...] = (0,),
    by_example: bool = False,
) -> Values:
    """Score several rows of predictions by one metric on the same resamples of their examples.

    Args:
        metric: see METRICS.
        predictions: [M,n] classes or numbers.
        labels: [n] the true classes or numbers.
        resamples: how often to draw n examples with replacement.
        seed: the same seed, predictions and labels give the same draws.
        by_example: draw example by example, which is slower, but the draws depend on nothing but seed and n.

    Returns:
        [R,M] the scores.
    """
    predictions, labels = np.asarray(predictions), np.asarray(labels)
    if predictions.ndim != 2 or labels.shape != predictions.shape[1:] or not labels.size:
        raise InputError(
            f"predictions {list(predictions.shape)} and labels {list(labels.shape)}: expected [M,n] and [n], n at "
            "least 1."
        )

    def compute(columns: Array, weights: Array) -> Values:
        return weighted_score(metric, columns[1:], columns[0], weights)

    return _resampled(np.concatenate([labels[None], predictions]), compute, resamples, seed, by_example)


def bootstrap_means(values: Array, *, resamples: int = RESAMPLES, seed: tuple[int, ...] = (0,)) -> Values:
    """[R,M] the means of several rows of values, [M,n], on the same resamples of their columns."""
    table = np.asarray(values, dtype=np.float64)
    return _resampled(table, lambda columns, weights: weights @ columns.T / table.shape[1], resamples, seed)


def _resampled(
    table: Array,
    compute: Callable[[Array, Array], Values],
    resamples: int,
    seed: tuple[int, ...],
    by_example: bool = False,
) -> Values:
    """Compute scores on resamples of the n columns of a table.

    Equal columns count alike, so drawing n of them is drawing how many of each kind: for classes there are far fewer
    kinds than examples.
    """
    if resamples < 1:
        raise InputError(f"{resamples} resamples: expected 1 or more; {RESAMPLES} make a good interval.")
    columns, counts = (table, None) if by_example else np.unique(table, axis=1, return_counts=True)  # [.,U], [U]
    random, total, kinds = np.random.default_rng(seed), table.shape[1], columns.shape[1]

    def draw(size: int) -> NDArray[np.int64]:
        """[size,U] how often each column is drawn."""
        if counts is not None:
            return random.multinomial(total, counts / total, size=size)
        drawn = random.integers(total, size=(size, total)) + total * np.arange(size)[:, None]
        return np.bincount(drawn.ravel(), minlength=size * total).reshape(size, total)

    step = max(1, AT_A_TIME // kinds)
    return np.concatenate([compute(columns, draw(min(step, resamples - done))) for done in range(0, resamples, step)])


@dataclass(frozen=True, eq=False)
class Interval:
    """The middle 95 % of resamples, number by number."""

    low: Values
    high: Values

    @classmethod
    def of(cls, values: Values) -> Interval:
        """From values whose first axis is the resamples; NaN if there are none."""
        if not len(values):
            return cls(np.full(values.shape[1:], np.nan), np.full(values.shape[1:], np.nan))
        low, high = np.quantile(values, [0.025, 0.975], axis=0)
        return cls(low, high)


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


def bootstrap_test(difference: float, resampled: Values) -> BootstrapTest:
    """Test a difference by its values [R] on resamples."""
    values = np.where(np.abs(resampled) <= ROUNDING, 0.0, resampled)
    middle = Interval.of(values)
    beyond = min(int((values <= 0).sum()), int((values >= 0).sum()))
    return BootstrapTest(
        difference, float(middle.low), float(middle.high), min(1.0, 2 * (beyond + 1) / (len(values) + 1))
    )


# -- scores with intervals -------------------------------------------------------------------------------------------

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
    from scipy.stats import binomtest  # type: ignore[import-untyped]

    wilson = binomtest(int((predictions == labels).sum()), len(labels)).proportion_ci(method="wilson")
    resampled = bootstrap_scores("macro_f1", predictions[None], labels, resamples=ESTIMATE_RESAMPLES, seed=(seed,))
    middle = Interval.of(resampled[:, 0])
    return {
        "accuracy": Estimate(METRICS["accuracy"](predictions, labels), float(wilson.low), float(wilson.high)),
        "macro_f1": Estimate(METRICS["macro_f1"](predictions, labels), float(middle.low), float(middle.high)),
    }


def estimated_numbers(predictions: Array, labels: Array) -> dict[str, Estimate]:
    """Both correlations with Fisher's interval, and the root of the mean squared error with a normal one."""
    linear, ranked = pearson(predictions, labels), spearman(predictions, labels)
    count = len(labels)
    squares = (predictions - labels).astype(np.float64) ** 2
    mean = float(squares.mean())
    half = WIDTH * float(squares.std(ddof=1)) / np.sqrt(count) if count > 1 else mean
    return {
        "pearson": Estimate(linear, *fisher(linear, count)),
        # Ranks vary more than values (Bonett and Wright 2000).
        "spearman": Estimate(ranked, *fisher(ranked, count, spread=1 + ranked**2 / 2)),
        "rmse": Estimate(mean**0.5, max(0.0, mean - half) ** 0.5, float(mean + half) ** 0.5),
    }


def fisher(correlation: float, count: int, *, spread: float = 1.0) -> tuple[float, float]:
    """The 95 % interval of a correlation by Fisher's z; of three examples or fewer, all there is."""
    if count <= 3:
        return -1.0, 1.0
    inside = float(np.clip(correlation, -1 + 1e-15, 1 - 1e-15))
    middle, half = np.arctanh(inside), WIDTH * np.sqrt(spread / (count - 3))
    return float(np.tanh(middle - half)), float(np.tanh(middle + half))
