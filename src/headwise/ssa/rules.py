"""Label rules: what a probe says about the tokens that it hid.

A probe is an example with some tokens hidden. The model predicts it with and without them; `score_labels` turns the two
predictions into the label of the hidden tokens.

Shapes: P probes, C logits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import NDArray

from headwise.errors import InputError, choices

Flags = NDArray[numpy.bool_]
Values = NDArray[numpy.float32]

KINDS = ("classification", "regression", "ranking")
# Half a step of float32 on each side: logits were rounded once, and so may be the numbers they are compared with.
ROUNDING = float(numpy.finfo(numpy.float32).eps)

UNLABELLED = float("nan")
"""The label of a token that has none; the token loss leaves it out."""


@dataclass(frozen=True)
class Scorer:
    """Reads logits as predictions, and compares them with the gold label and with each other.

    classification: the prediction is the class of the largest logit. ranking: one logit, above 0 for label 1.
    regression: the logit itself, and two numbers a and b are the same if |a - b| <= tolerance.
    """

    kind: str
    tolerance: float = 0.0
    """Of a regression: how far apart two numbers may be, on the scale of the labels."""
    span: float = 1.0
    """Of a regression: the largest label minus the smallest."""

    def __post_init__(self) -> None:
        """Refuse an unknown kind."""
        if self.kind not in KINDS:
            raise InputError(f"unknown kind of task {self.kind!r}: {choices(self.kind, KINDS)}.")

    @classmethod
    def of(cls, kind: str, gold: NDArray[Any], tolerance: float) -> Scorer:
        """The scorer of a training set; `tolerance` is a fraction of the range of its labels."""
        if kind != "regression":
            return cls(kind)
        span = float(numpy.max(gold) - numpy.min(gold)) or 1.0  # equal labels have no scale
        return cls(kind, tolerance * span, span)

    def right(self, logits: NDArray[Any], gold: NDArray[Any]) -> Flags:
        """[P] whether each prediction is the label: [P,C] logits, [P] labels."""
        predictions = self._predictions(logits)
        if self.kind == "regression":
            return self._near(predictions, numpy.asarray(gold, numpy.float64))
        right: Flags = predictions == (self._classes(logits, gold) if self.kind == "classification" else gold > 0)
        return right

    def same(self, original: NDArray[Any], probed: NDArray[Any]) -> Flags:
        """[P] whether the prediction stayed the same."""
        before, after = self._predictions(original), self._predictions(probed)
        same: Flags = self._near(before, after) if self.kind == "regression" else before == after
        return same

    def drop(self, original: NDArray[Any], probed: NDArray[Any], gold: NDArray[Any]) -> NDArray[numpy.float64]:
        """[P] from 0 to 1: max(0, p(gold) before - after), or for a regression min(1, |after - before| / span)."""
        if self.kind == "regression":
            change = numpy.abs(self._predictions(probed) - self._predictions(original)) / self.span
        else:
            change = self._probability(original, gold) - self._probability(probed, gold)
        dropped: NDArray[numpy.float64] = numpy.clip(change, 0.0, 1.0)
        return dropped

    def _predictions(self, logits: NDArray[Any]) -> NDArray[Any]:
        """[P] class numbers, or True for label 1, or numbers."""
        logits = numpy.asarray(logits)
        classes = self.kind == "classification"
        if logits.ndim != 2 or (logits.shape[1] < 2 if classes else logits.shape[1] != 1):
            raise InputError(
                f"logits of shape {list(logits.shape)} for a {self.kind}: expected [examples, logits] with "
                f"{'two or more' if classes else 'one'} for each example; give the model a head of that size."
            )
        predictions: NDArray[Any] = logits.argmax(1) if classes else logits[:, 0]
        if self.kind == "ranking":
            return predictions > 0
        return predictions if classes else predictions.astype(numpy.float64)

    def _near(self, one: NDArray[Any], other: NDArray[Any]) -> Flags:
        slack = ROUNDING * numpy.maximum(numpy.abs(one), numpy.abs(other))
        near: Flags = numpy.abs(one - other) <= self.tolerance + slack
        return near

    def _probability(self, logits: NDArray[Any], gold: NDArray[Any]) -> NDArray[numpy.float64]:
        """[P] probability of the label."""
        wide = numpy.asarray(logits, numpy.float64)
        if self.kind == "ranking":
            signs = numpy.where(gold > 0, 1.0, -1.0)
            return numpy.asarray(numpy.exp(-numpy.logaddexp(0.0, -signs * wide[:, 0])))
        classes = self._classes(wide, gold)
        powers = numpy.exp(wide - wide.max(1, keepdims=True))  # [P,C]
        return numpy.asarray(powers[numpy.arange(len(powers)), classes] / powers.sum(1))

    @staticmethod
    def _classes(logits: NDArray[Any], gold: NDArray[Any]) -> NDArray[numpy.int64]:
        """[P] the labels as class numbers that the logits have."""
        classes, count = numpy.asarray(gold).astype(numpy.int64), numpy.shape(logits)[1]
        wrong = classes[(classes < 0) | (classes >= count)]
        if len(wrong):
            raise InputError(
                f"label {wrong[0]} for a model of {count} classes: expected 0 to {count - 1}; set num_labels."
            )
        return classes


def score_labels(
    rule: str, scorer: Scorer, original: NDArray[Any], probed: NDArray[Any], gold: NDArray[Any]
) -> tuple[Flags, Values]:
    """[P] which probes are accepted, and [P] the label of the tokens that they hid (NaN if not accepted).

    probe: the paper's idea (version 1). Accepted if the prediction was right; hidden tokens get 1 if it changed, or 0.
    reference: the authors' released code. Accepted if the prediction was right and did not change; hidden tokens get 0.
        Probes that change it are dropped, though they are the evidence for importance.
    soft: all are accepted; hidden tokens get the drop of the right class's probability. Not in the authors' code.

    Several probes of one example: a token gets the smallest value of the accepted probes that hid it, since one of them
    is enough to show that the token is dispensable. Text tokens that no accepted probe hid have no label, but 1 under
    `reference`, also in examples without a probe.
    """
    if rule == "soft":
        return numpy.ones(len(original), bool), scorer.drop(original, probed, gold).astype(numpy.float32)
    changed, accepted = ~scorer.same(original, probed), scorer.right(original, gold)
    if rule == "reference":
        accepted &= ~changed
    return accepted, numpy.where(accepted, changed, UNLABELLED).astype(numpy.float32)
