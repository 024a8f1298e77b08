"""How well classes and numbers were predicted. Every case has a defined score; where a ratio is 0/0 it is 0."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import InputError, choices

Array = NDArray[Any]


def accuracy(predictions: Array, labels: Array) -> float:
    """Share of the predictions that are right."""
    return float(np.mean(predictions == labels))


def macro_precision(predictions: Array, labels: Array) -> float:
    """Mean precision of the classes that occur among labels or predictions."""
    table = _confusion(predictions, labels)
    return float(_ratio(table.diagonal(), table.sum(0)).mean())


def macro_recall(predictions: Array, labels: Array) -> float:
    """Mean recall of the classes that occur among labels or predictions."""
    table = _confusion(predictions, labels)
    return float(_ratio(table.diagonal(), table.sum(1)).mean())


def macro_f1(predictions: Array, labels: Array) -> float:
    """Mean F1 of the classes that occur among labels or predictions."""
    table = _confusion(predictions, labels)
    return float(_ratio(2 * table.diagonal(), table.sum(0) + table.sum(1)).mean())


def f1(predictions: Array, labels: Array) -> float:
    """F1 of class 1, the positive one of two."""
    right = np.sum((predictions == 1) & (labels == 1))
    return float(_ratio(2 * right, np.sum(predictions == 1) + np.sum(labels == 1)))


def matthews(predictions: Array, labels: Array) -> float:
    """Matthews' correlation of classes, for two of them or more (Gorodkin 2004)."""
    table = _confusion(predictions, labels)
    total, predicted, true = table.sum(), table.sum(0), table.sum(1)
    shared = table.trace() * total - predicted @ true
    spread = (total**2 - predicted @ predicted) * (total**2 - true @ true)
    return float(_ratio(shared, np.sqrt(spread)))


def pearson(predictions: Array, labels: Array) -> float:
    """Linear correlation; 0 if either side is constant."""
    if np.ptp(predictions) == 0 or np.ptp(labels) == 0:
        return 0.0
    first, second = _standard(predictions), _standard(labels)
    return float(np.clip(first @ second, -1.0, 1.0))


def spearman(predictions: Array, labels: Array) -> float:
    """Correlation of ranks, ties sharing theirs; 0 if either side is constant."""
    from scipy.stats import rankdata  # type: ignore[import-untyped]

    return pearson(rankdata(predictions), rankdata(labels))


METRICS: dict[str, Callable[[Array, Array], float]] = {
    "accuracy": accuracy,
    "macro_precision": macro_precision,
    "macro_recall": macro_recall,
    "macro_f1": macro_f1,
    "f1": f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
}


def score(names: Sequence[str], predictions: Array, labels: Array) -> dict[str, float]:
    """Score predictions by each of the named metrics.

    Args:
        names: metrics, see METRICS.
        predictions: [N] predicted classes, or numbers for pearson and spearman.
        labels: [N] what was right.

    Returns:
        The scores by name.
    """
    for name in names:
        if name not in METRICS:
            raise InputError(f"unknown metric {name!r}: {choices(str(name), METRICS)}.")
    predictions, labels = np.asarray(predictions), np.asarray(labels)
    _check(predictions, labels)
    return {name: METRICS[name](predictions, labels) for name in names}


def _check(predictions: Array, labels: Array) -> None:
    if predictions.ndim != 1 or predictions.shape != labels.shape or not len(labels):
        raise InputError(
            f"predictions of shape {predictions.shape} and labels of shape {labels.shape}: expected two rows of "
            "the same length, at least 1; of logits, take the argmax first."
        )
    for what, values in {"predictions": predictions, "labels": labels}.items():
        if not np.isfinite(values).all():
            raise InputError(
                f"{int((~np.isfinite(values)).sum())} of {len(values)} {what} are not finite, so they cannot be "
                "scored: check the training, for example with a smaller learning rate."
            )


def _confusion(predictions: Array, labels: Array) -> NDArray[np.float64]:
    """[C,C] how often a class (row) was taken for a class (column), of the classes that occur."""
    classes, codes = np.unique(np.concatenate([labels, predictions]), return_inverse=True)
    count = len(classes)
    pairs = codes[: len(labels)] * count + codes[len(labels) :]
    return np.bincount(pairs, minlength=count * count).reshape(count, count).astype(np.float64)


def _ratio(above: Any, below: Any) -> Any:
    return np.divide(above, below, out=np.zeros_like(below, dtype=np.float64), where=np.asarray(below) != 0)


def _standard(values: Array) -> NDArray[np.float64]:
    """Centred and of length 1; scaled first, so that squares of very large or small numbers stay in range."""
    centred = values.astype(np.float64) - values.mean(dtype=np.float64)
    centred /= np.abs(centred).max()
    return np.asarray(centred / np.linalg.norm(centred))


# The metrics of many resamples at once, from how often each example was drawn.


Values = NDArray[np.float64]

# A variance below this part of the mean square is mostly rounding: it is computed again, centred.
CANCELLED = 1e-6


def weighted_score(name: str, predictions: Array, labels: Array, weights: Array) -> Values:
    """One metric of several systems under several weightings of the same examples.

    Args:
        name: the metric, see METRICS.
        predictions: [M,n] predicted classes or numbers, one row per system.
        labels: [n] what was right.
        weights: [R,n] whole numbers: how often each example counts.

    Returns:
        [R,M] the scores.
    """
    if name not in WEIGHTED:
        raise InputError(f"unknown metric {name!r}: {choices(name, WEIGHTED)}.")
    predictions, labels, weights = np.asarray(predictions), np.asarray(labels), np.asarray(weights)
    _check_weights(predictions, labels, weights)
    weights = weights.astype(np.float64)  # once: products with whole numbers are slow
    columns = [WEIGHTED[name](row, labels, weights) for row in predictions]
    return np.stack(columns, axis=1) if columns else np.empty((len(weights), 0))


def _accuracy(predictions: Array, labels: Array, weights: Array) -> Values:
    return _weighted_ratio(weights @ (predictions == labels).astype(np.float64), weights.sum(1))


def _macro_precision(predictions: Array, labels: Array, weights: Array) -> Values:
    hits, predicted, true = _counts(predictions, labels, weights)
    return _mean_of_occurring(_weighted_ratio(hits, predicted), predicted + true)


def _macro_recall(predictions: Array, labels: Array, weights: Array) -> Values:
    hits, predicted, true = _counts(predictions, labels, weights)
    return _mean_of_occurring(_weighted_ratio(hits, true), predicted + true)


def _macro_f1(predictions: Array, labels: Array, weights: Array) -> Values:
    hits, predicted, true = _counts(predictions, labels, weights)
    return _mean_of_occurring(_weighted_ratio(2 * hits, predicted + true), predicted + true)


def _f1(predictions: Array, labels: Array, weights: Array) -> Values:
    positive, true = predictions == 1, labels == 1
    columns = np.stack([positive & true, positive, true], axis=1).astype(np.float64)  # [n,3]
    hits, predicted, actual = (weights @ columns).T
    return _weighted_ratio(2 * hits, predicted + actual)


def _matthews(predictions: Array, labels: Array, weights: Array) -> Values:
    hits, predicted, true = _counts(predictions, labels, weights)
    total = weights.sum(1)  # [R]
    shared = hits.sum(1) * total - (predicted * true).sum(1)
    spread = (total**2 - (predicted**2).sum(1)) * (total**2 - (true**2).sum(1))
    return _weighted_ratio(shared, np.sqrt(spread))


def _pearson(predictions: Array, labels: Array, weights: Array) -> Values:
    """By weighted moments; a resample in which they nearly cancel, as when it is constant, by the plain metric."""
    first, second = _scaled(predictions), _scaled(labels)
    moments = np.stack([first, second, first**2, second**2, first * second], axis=1)  # [n,5]
    one, two, one_squared, two_squared, product = (weights @ moments).T / weights.sum(1)  # each [R]
    spread_one, spread_two = one_squared - one**2, two_squared - two**2
    result = _weighted_ratio(product - one * two, np.sqrt(np.maximum(spread_one * spread_two, 0.0)))
    for number in np.flatnonzero((spread_one <= CANCELLED * one_squared) | (spread_two <= CANCELLED * two_squared)):
        drawn = np.repeat(np.arange(len(labels)), weights[number].astype(np.int64))
        result[number] = METRICS["pearson"](predictions[drawn], labels[drawn])
    return np.clip(result, -1.0, 1.0)


def _spearman(predictions: Array, labels: Array, weights: Array) -> Values:
    first, first_spread = _centred_ranks(predictions, weights)
    second, second_spread = _centred_ranks(labels, weights)
    first *= second
    first *= weights
    return np.clip(_weighted_ratio(first.sum(1), np.sqrt(first_spread) * np.sqrt(second_spread)), -1.0, 1.0)


WEIGHTED: dict[str, Callable[[Array, Array, Array], Values]] = {
    "accuracy": _accuracy,
    "macro_precision": _macro_precision,
    "macro_recall": _macro_recall,
    "macro_f1": _macro_f1,
    "f1": _f1,
    "matthews": _matthews,
    "pearson": _pearson,
    "spearman": _spearman,
}


def _check_weights(predictions: Array, labels: Array, weights: Array) -> None:
    if predictions.ndim != 2 or labels.ndim != 1 or weights.ndim != 2:
        fits = False
    else:
        fits = 0 < len(labels) == predictions.shape[1] == weights.shape[1]
    if not fits:
        raise InputError(
            f"predictions {list(predictions.shape)}, labels {list(labels.shape)} and weights {list(weights.shape)}: "
            "expected [M,n], [n] and [R,n], n at least 1; of logits, take the argmax first."
        )
    if not np.issubdtype(weights.dtype, np.integer) or (weights < 0).any() or (weights.sum(1) == 0).any():
        raise InputError("weights: expected whole numbers from 0, and one above 0 in each row.")
    for what, values in {"predictions": predictions, "labels": labels}.items():
        if not np.isfinite(values).all():
            raise InputError(f"{int((~np.isfinite(values)).sum())} {what} are not finite, so they cannot be scored.")


def _counts(predictions: Array, labels: Array, weights: Array) -> tuple[Values, Values, Values]:
    """[R,C] each: how often a class was found, predicted and right."""
    classes = np.unique(np.concatenate([labels, predictions]))
    predicted, true = predictions[:, None] == classes, labels[:, None] == classes  # [n,C]
    columns = np.concatenate([predicted & true, predicted, true], axis=1).astype(np.float64)
    hits, predicted_count, true_count = np.split(weights @ columns, 3, axis=1)
    return hits, predicted_count, true_count


def _mean_of_occurring(values: Values, occurrences: Values) -> Values:
    """[R]: the mean over the classes that were drawn, as label or prediction."""
    return np.asarray(values.sum(1) / (occurrences > 0).sum(1))  # the others are 0/0, and so 0


def _weighted_ratio(above: Array, below: Array) -> Values:
    return np.divide(above, below, out=np.zeros(np.shape(below)), where=below != 0)


def _scaled(values: Array) -> Values:
    """Centred, and at most 1 from there, so that squares stay in range."""
    centred = values.astype(np.float64) - values.mean(dtype=np.float64)
    largest = np.abs(centred).max()
    return np.asarray(centred / largest if largest else centred)


def _centred_ranks(values: Array, weights: Array) -> tuple[Values, Values]:
    """The rank [R,n] of each example among those drawn, minus the mean rank, and the sum [R] of their squares.

    Ties share their rank. All ranks are whole numbers and halves, so a constant row has a sum of exactly 0.
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))  # [U]
    drawn = np.add.reduceat(weights[:, order], starts, axis=1)  # [R,U]
    ranks = np.cumsum(drawn, axis=1)
    ranks -= (drawn - 1) / 2  # the mean of the places that a value takes
    ranks -= (weights.sum(1, keepdims=True) + 1) / 2
    place = np.empty(len(values), dtype=np.int64)
    place[order] = np.repeat(np.arange(len(starts)), np.diff([*starts, len(values)]))
    return ranks[:, place], (drawn * ranks**2).sum(1)
