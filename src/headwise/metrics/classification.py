"""Scores of predicted classes and numbers. Every case has a defined score: a ratio of 0/0 counts as 0.

Every metric exists for plain predictions (`score`) and for many weightings of the same examples at once
(`weighted_score`), which is what a bootstrap needs. Metrics of classes are computed by the same formula in both cases.

Shapes: n examples, C classes that occur, M systems, R weightings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import InputError, choices

Array = NDArray[Any]
Values = NDArray[np.float64]

# A variance below this part of the mean square is mostly rounding: it is computed again, centred.
CANCELLED = 1e-6


def score(names: Sequence[str], predictions: Array, labels: Array) -> dict[str, float]:
    """Score predictions by each of the named metrics.

    Args:
        names: metrics, see METRICS.
        predictions: [n] predicted classes, or numbers for pearson and spearman.
        labels: [n] the true classes or numbers.

    Returns:
        The scores by name.
    """
    predictions, labels = np.asarray(predictions), np.asarray(labels)
    if predictions.ndim != 1 or predictions.shape != labels.shape or not len(labels):
        raise InputError(
            f"predictions of shape {predictions.shape} and labels of shape {labels.shape}: expected two rows of "
            "the same length, at least 1; of logits, take the argmax first."
        )
    _check(names, predictions, labels)
    return {name: METRICS[name](predictions, labels) for name in names}


def weighted_score(name: str, predictions: Array, labels: Array, weights: Array) -> Values:
    """Score several systems by one metric under several weightings of the same examples.

    Args:
        name: the metric, see METRICS.
        predictions: [M,n] predicted classes or numbers, one row per system.
        labels: [n] the true classes or numbers.
        weights: [R,n] whole numbers: how often each example counts.

    Returns:
        [R,M] the scores.
    """
    predictions, labels, weights = np.asarray(predictions), np.asarray(labels), np.asarray(weights)
    ranks = (predictions.ndim, labels.ndim, weights.ndim)
    if ranks != (2, 1, 2) or not 0 < len(labels) == predictions.shape[1] == weights.shape[1]:
        raise InputError(
            f"predictions {list(predictions.shape)}, labels {list(labels.shape)} and weights {list(weights.shape)}: "
            "expected [M,n], [n] and [R,n], n at least 1; of logits, take the argmax first."
        )
    if not np.issubdtype(weights.dtype, np.integer) or (weights < 0).any() or (weights.sum(1) == 0).any():
        raise InputError("weights: expected whole numbers from 0, and one above 0 in each row.")
    _check([name], predictions, labels)
    weights = weights.astype(np.float64)  # once: products with whole numbers are slow
    compute = _WEIGHTED_NUMBERS.get(name) or partial(_class_score, name)
    columns = [compute(row, labels, weights) for row in predictions]
    return np.stack(columns, axis=1) if columns else np.empty((len(weights), 0))


def _check(names: Sequence[str], predictions: Array, labels: Array) -> None:
    for name in names:
        if name not in METRICS:
            raise InputError(f"unknown metric {name!r}: {choices(str(name), METRICS)}.")

    for what, values in {"predictions": predictions, "labels": labels}.items():
        if not np.isfinite(values).all():
            raise InputError(
                f"{int((~np.isfinite(values)).sum())} of {values.size} {what} are not finite, so they cannot be "
                "scored: check the training, for example with a smaller learning rate."
            )


def _ratio(above: Array, below: Array) -> Values:
    return np.divide(above, below, out=np.zeros(np.shape(below)), where=below != 0)


# -- classes ---------------------------------------------------------------------------------------------------------

CLASS_METRICS = ("accuracy", "macro_precision", "macro_recall", "macro_f1", "f1", "matthews")


def _class_score(name: str, predictions: Array, labels: Array, weights: Values | None = None) -> Values:
    """[R] one metric of one system; R is 1 without weights.

    A macro average goes over the classes that occur, as label or prediction. F1 is that of class 1, the positive one
    of two. Matthews' correlation is that of two or more classes (Gorodkin 2004).
    """
    count = len(labels)
    classes, codes = np.unique(np.concatenate([labels, predictions]), return_inverse=True)
    size, of_labels, of_predictions = len(classes), codes[:count], codes[count:]
    if weights is None:  # no table of examples by classes, which may be large
        right = of_labels[of_labels == of_predictions]
        counts = [np.bincount(each, minlength=size) for each in (right, of_predictions, of_labels)]
        table = np.concatenate(counts, dtype=np.float64)[None]  # [1,3C]
    else:
        is_true, is_predicted = (each[:, None] == np.arange(size) for each in (of_labels, of_predictions))  # [n,C]
        columns = np.concatenate([is_predicted & is_true, is_predicted, is_true], axis=1)
        table = weights @ columns.astype(np.float64)  # [R,3C]
    hits, predicted, true = table[:, :size], table[:, size : 2 * size], table[:, 2 * size :]  # each [R,C]
    either = predicted + true
    if name == "accuracy":
        return _ratio(hits.sum(1), true.sum(1))
    if name == "f1":
        positive = classes == 1
        return _ratio(2 * hits[:, positive].sum(1), either[:, positive].sum(1))
    if name == "matthews":
        total = true.sum(1)
        shared = hits.sum(1) * total - (predicted * true).sum(1)
        spread = (total**2 - (predicted**2).sum(1)) * (total**2 - (true**2).sum(1))
        return _ratio(shared, np.sqrt(spread))
    ratios = {"macro_precision": (hits, predicted), "macro_recall": (hits, true), "macro_f1": (2 * hits, either)}
    return np.asarray(_ratio(*ratios[name]).sum(1) / (either > 0).sum(1))


# -- numbers ---------------------------------------------------------------------------------------------------------


def pearson(predictions: Array, labels: Array) -> float:
    """Linear correlation; 0 if either side is constant."""
    if np.ptp(predictions) == 0 or np.ptp(labels) == 0:
        return 0.0
    first, second = (each / np.linalg.norm(each) for each in (_scaled(predictions), _scaled(labels)))
    return float(np.clip(first @ second, -1.0, 1.0))


def spearman(predictions: Array, labels: Array) -> float:
    """Correlation of ranks, ties sharing theirs; 0 if either side is constant."""
    from scipy.stats import rankdata  # type: ignore[import-untyped]

    return pearson(rankdata(predictions), rankdata(labels))


def _weighted_pearson(predictions: Array, labels: Array, weights: Values) -> Values:
    """By weighted moments; a resample in which they nearly cancel, as when it is constant, by the plain metric."""
    first, second = _scaled(predictions), _scaled(labels)
    moments = np.stack([first, second, first**2, second**2, first * second], axis=1)  # [n,5]
    one, two, one_squared, two_squared, product = (weights @ moments).T / weights.sum(1)  # each [R]
    spread_one, spread_two = one_squared - one**2, two_squared - two**2
    result = _ratio(product - one * two, np.sqrt(np.maximum(spread_one * spread_two, 0.0)))
    for number in np.flatnonzero((spread_one <= CANCELLED * one_squared) | (spread_two <= CANCELLED * two_squared)):
        drawn = np.repeat(np.arange(len(labels)), weights[number].astype(np.int64))
        result[number] = pearson(predictions[drawn], labels[drawn])
    return np.clip(result, -1.0, 1.0)


def _weighted_spearman(predictions: Array, labels: Array, weights: Values) -> Values:
    first, first_spread = _centred_ranks(predictions, weights)
    second, second_spread = _centred_ranks(labels, weights)
    first *= second
    first *= weights
    return np.clip(_ratio(first.sum(1), np.sqrt(first_spread) * np.sqrt(second_spread)), -1.0, 1.0)


_WEIGHTED_NUMBERS: dict[str, Callable[[Array, Array, Values], Values]] = {
    "pearson": _weighted_pearson,
    "spearman": _weighted_spearman,
}


def _scaled(values: Array) -> Values:
    """Centred, and at most 1 from there, so that squares of very large or small numbers stay in range."""
    centred = values.astype(np.float64) - values.mean(dtype=np.float64)
    largest = np.abs(centred).max()
    return np.asarray(centred / largest if largest else centred)


def _centred_ranks(values: Array, weights: Values) -> tuple[Values, Values]:
    """The rank [R,n] of each example among those drawn, minus the mean rank, and the sum [R] of their squares.

    Ties share their rank. All ranks are whole numbers and halves, so a constant row has a sum of exactly 0.
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))  # [U]
    drawn = np.add.reduceat(weights[:, order], starts, axis=1)  # [R,U]
    ranks = np.cumsum(drawn, axis=1)
    ranks -= (drawn - 1) / 2  # the mean of the ranks that a value takes
    ranks -= (weights.sum(1, keepdims=True) + 1) / 2
    index = np.empty(len(values), dtype=np.int64)
    index[order] = np.repeat(np.arange(len(starts)), np.diff([*starts, len(values)]))
    return ranks[:, index], (drawn * ranks**2).sum(1)


def _plain_class_score(name: str, predictions: Array, labels: Array) -> float:
    return float(_class_score(name, predictions, labels)[0])


METRICS: dict[str, Callable[[Array, Array], float]] = {
    **{name: partial(_plain_class_score, name) for name in CLASS_METRICS},
    "pearson": pearson,
    "spearman": spearman,
}
