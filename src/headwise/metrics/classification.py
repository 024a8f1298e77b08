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
