"""What an answer of the model means: is it right, is it the same as before, how much is lost.

Shapes: P probes, C logits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import NDArray

from headwise.errors import InputError, choices

KINDS = ("classification", "regression", "ranking")
# Half a step of float32 on each side: logits were rounded once, so may be the numbers that they are compared with.
ROUNDING = float(numpy.finfo(numpy.float32).eps)

Flags = NDArray[numpy.bool_]
Numbers = NDArray[numpy.float64]


@dataclass(frozen=True)
class Judge:
    """Reads logits as answers.

    classification: the answer is the class of the largest logit. ranking: one logit, above 0 for label 1. regression:
    the logit itself, and two numbers a and b are the same if |a - b| <= tolerance.
    """

    kind: str
    tolerance: float = 0.0
    """Of a regression: how far two numbers may be apart, on the scale of the labels."""
    span: float = 1.0
    """Of a regression: the largest label minus the smallest."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if self.kind not in KINDS:
            raise InputError(f"unknown kind of task {self.kind!r}: {choices(self.kind, KINDS)}.")
        if not self.tolerance >= 0 or not self.span > 0:
            raise InputError(
                f"tolerance {self.tolerance}, span {self.span}: expected a tolerance of 0 or more and a span above 0."
            )

    @classmethod
    def of(cls, kind: str, gold: NDArray[Any], part: float) -> Judge:
        """The judge of a training set with these labels; `part` of their range is the tolerance of a regression."""
        if kind != "regression":
            return cls(kind)
        # Labels that are all alike have no scale of their own.
        span = float(numpy.max(gold) - numpy.min(gold)) or 1.0
        return cls(kind, part * span, span)

    def right(self, logits: NDArray[Any], gold: NDArray[Any]) -> Flags:
        """[P] whether each answer is the label: [P,C] logits, [P] labels."""
        answers = self._answers(logits)
        if self.kind == "regression":
            return self._near(answers, numpy.asarray(gold, numpy.float64))
        right: Flags = answers == (self._classes(logits, gold) if self.kind == "classification" else gold > 0)
        return right

    def same(self, original: NDArray[Any], probed: NDArray[Any]) -> Flags:
        """[P] whether the answer stayed as it was."""
        before, after = self._answers(original), self._answers(probed)
        same: Flags = self._near(before, after) if self.kind == "regression" else before == after
        return same

    def drop(self, original: NDArray[Any], probed: NDArray[Any], gold: NDArray[Any]) -> Numbers:
        """[P] from 0 to 1: max(0, p(gold) before - after), or for a regression min(1, |after - before| / span)."""
        if self.kind == "regression":
            change = numpy.abs(self._answers(probed) - self._answers(original)) / self.span
        else:
            change = self._certainty(original, gold) - self._certainty(probed, gold)
        dropped: Numbers = numpy.clip(change, 0.0, 1.0)
        return dropped

    def _answers(self, logits: NDArray[Any]) -> NDArray[Any]:
        """[P] class numbers, or True for label 1, or numbers."""
        logits = numpy.asarray(logits)
        fits = logits.ndim == 2 and (logits.shape[1] > 1 if self.kind == "classification" else logits.shape[1] == 1)
        if not fits:
            columns = "two or more" if self.kind == "classification" else "one"
            raise InputError(
                f"logits of shape {list(logits.shape)} for a {self.kind}: expected [examples, logits] with {columns} "
                "for each example; give the model a head of that size."
            )
        if self.kind == "classification":
            answers: NDArray[Any] = logits.argmax(1)
        else:
            answers = logits[:, 0] > 0 if self.kind == "ranking" else logits[:, 0].astype(numpy.float64)
        return answers

    def _near(self, one: NDArray[Any], other: NDArray[Any]) -> Flags:
        slack = ROUNDING * numpy.maximum(numpy.abs(one), numpy.abs(other))
        near: Flags = numpy.abs(one - other) <= self.tolerance + slack
        return near

    def _certainty(self, logits: NDArray[Any], gold: NDArray[Any]) -> Numbers:
        """[P] probability of the label."""
        wide = numpy.asarray(logits, numpy.float64)
        if self.kind == "ranking":
            signs = numpy.where(gold > 0, 1.0, -1.0)
            certainty: Numbers = numpy.exp(-numpy.logaddexp(0.0, -signs * wide[:, 0]))
            return certainty
        classes = self._classes(wide, gold)
        powers = numpy.exp(wide - wide.max(1, keepdims=True))  # [P,C]
        chosen: Numbers = powers[numpy.arange(len(powers)), classes] / powers.sum(1)
        return chosen

    def _classes(self, logits: NDArray[Any], gold: NDArray[Any]) -> NDArray[numpy.int64]:
        """[P] the labels as class numbers that the logits have."""
        classes = numpy.asarray(gold).astype(numpy.int64)
        count = numpy.shape(logits)[1]
        if len(classes) and not 0 <= classes.min() <= classes.max() < count:
            wrong = classes[(classes < 0) | (classes >= count)][0]
            raise InputError(
                f"label {wrong} for a model of {count} classes: expected 0 to {count - 1}; set num_labels."
            )
        return classes
