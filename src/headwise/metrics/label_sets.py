"""Scores of examples with several labels: any number of classes, or a class for each word.

Labels of words are scored by entities, as seqeval and the CoNLL-2003 script do: an entity is right if its type, its
first and its last word are. A ratio of 0/0 counts as 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import InputError, choices

Array = NDArray[Any]
OUTSIDE = "O"


def _exact(predictions: Array, labels: Array) -> float:
    return float((predictions == labels).all(1).mean())


def _f1(average: str, predictions: Array, labels: Array) -> float:
    from sklearn.metrics import f1_score  # type: ignore[import-untyped]

    return float(f1_score(labels, predictions, average=average, zero_division=0))


SET_METRICS: dict[str, Callable[[Array, Array], float]] = {
    "micro_f1": partial(_f1, "micro"),
    "macro_f1": partial(_f1, "macro"),
    "exact_match": _exact,
}


def score_sets(names: Sequence[str], predictions: Array, labels: Array) -> dict[str, float]:
    """Score any number of classes for each example.

    Args:
        names: of SET_METRICS; macro_f1 is the mean over all classes.
        predictions: [n,C] 0 or 1.
        labels: [n,C] 0 or 1.
    """
    predictions, labels = np.asarray(predictions), np.asarray(labels)
    if predictions.ndim != 2 or predictions.shape != labels.shape or not len(labels):
        raise InputError(
            f"predictions of shape {predictions.shape} and labels of shape {labels.shape}: expected two tables of the "
            "same shape, with at least one row; of logits, compare with 0 first."
        )
    for name in names:
        if name not in SET_METRICS:
            raise InputError(f"unknown metric {name!r}: {choices(name, SET_METRICS)}.")
    return {name: SET_METRICS[name](predictions, labels) for name in names}


Entity = tuple[str, int, int]
"""Type, first word, last word."""


def entities(tags: Sequence[str]) -> list[Entity]:
    """The entities of a sentence in IOB1, IOB2, IOBES or BILOU; words that share a tag without a prefix are one.

    As in seqeval: an entity ends where the type changes or a tag begins a new one, be the tags valid or not.
    """
    found: list[Entity] = []
    kind, start, before = "", 0, OUTSIDE
    for position, tag in enumerate([*tags, OUTSIDE]):
        prefix, own = _parts(tag)
        new = prefix in ("B", "S", "U") or before in ("E", "S", "L", "U") or own != kind
        if kind and (new or prefix == OUTSIDE):
            found.append((kind, start, position - 1))
            kind = ""
        if prefix != OUTSIDE and not kind:
            kind, start = own, position
        before = prefix
    return found


def _parts(tag: str) -> tuple[str, str]:
    """The prefix and the type of a tag."""
    if tag == OUTSIDE:
        return OUTSIDE, ""
    prefix, dash, kind = tag.partition("-")
    return (prefix, kind) if dash and kind and prefix in tuple("BIESLUM") else ("I", tag)


def score_words(
    names: Sequence[str], predictions: Sequence[Sequence[str]], labels: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Score a tag for each word.

    Args:
        names: of entity_f1, entity_precision, entity_recall and word_accuracy, over all sentences together.
        predictions: the tags of each sentence.
        labels: the true ones.
    """
    lengths = [len(row) for row in labels]
    if lengths != [len(row) for row in predictions] or not sum(lengths):
        raise InputError(
            "predictions and labels of words: expected as many of both in every sentence, and at least one."
        )
    right = sum(
        one == other for rows in zip(predictions, labels, strict=True) for one, other in zip(*rows, strict=True)
    )
    guessed, true = (
        {(number, *each) for number, row in enumerate(rows) for each in entities(row)} for rows in (predictions, labels)
    )
    hits = len(guessed & true)
    scores = {
        "entity_f1": 2 * hits / max(len(guessed) + len(true), 1),
        "entity_precision": hits / max(len(guessed), 1),
        "entity_recall": hits / max(len(true), 1),
        "word_accuracy": right / sum(lengths),
    }
    for name in names:
        if name not in scores:
            raise InputError(f"unknown metric {name!r}: {choices(name, scores)}.")
    return {name: scores[name] for name in names}


def in_sentences(values: Sequence[Any], lengths: Sequence[int]) -> list[list[Any]]:
    """One row of values as a list for each sentence."""
    return [list(values[start:end]) for start, end in pairwise(accumulate(lengths, initial=0))]
