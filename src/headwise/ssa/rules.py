"""Label rules: what a probe says about the tokens that it hid, and what is said of the others.

Shapes: P probes, C logits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy
from numpy.typing import NDArray

from headwise.errors import InputError, choices

# What an answer of the model means: is it right, is it the same as before, how much is lost.


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


IGNORED = float("nan")
"""The label of a token that nothing is said about; the token loss leaves it out."""

Values = NDArray[numpy.float32]


class Rule(ABC):
    """Turns answers into labels.

    Several probes of one example: a token gets the smallest value of the accepted probes that hid it, since one of them
    is enough to show that it can be spared.
    """

    rest: ClassVar[float] = IGNORED
    """Label of the text tokens of a labelled example that no accepted probe hid."""
    unprobed: ClassVar[float] = IGNORED
    """Label of the text tokens of all other examples."""

    def worth(self, judge: Judge, original: NDArray[Any], gold: NDArray[Any]) -> Flags:
        """[P] which examples are worth a probe, by their [P,C] logits without one: those that are right."""
        return judge.right(original, gold)

    @abstractmethod
    def judge_probes(
        self, judge: Judge, original: NDArray[Any], probed: NDArray[Any], gold: NDArray[Any]
    ) -> tuple[Flags, Values]:
        """[P] which probes are accepted and [P] what their hidden tokens get (NaN where nothing is accepted)."""


@dataclass(frozen=True)
class ReferenceRule(Rule):
    """The authors' released code: right before and the same after means 0 for the hidden tokens and 1 for all others.

    Probes that change the answer are dropped, though they are the evidence for importance, and 1 is given to tokens
    that were never tested, also to all those of examples without a probe.
    """

    rest = 1.0
    unprobed = 1.0

    def judge_probes(
        self, judge: Judge, original: NDArray[Any], probed: NDArray[Any], gold: NDArray[Any]
    ) -> tuple[Flags, Values]:
        """Accepted: right and unchanged; hidden tokens get 0."""
        accepted = judge.right(original, gold) & judge.same(original, probed)
        return accepted, _values(accepted, numpy.zeros(len(accepted)))


@dataclass(frozen=True)
class ProbeRule(Rule):
    """The paper's idea (version 1): a hidden token is important, 1, if the right answer is lost without it, else 0.

    Nothing is said about tokens that were not hidden. The authors' released code differs: see `ReferenceRule`.
    """

    def judge_probes(
        self, judge: Judge, original: NDArray[Any], probed: NDArray[Any], gold: NDArray[Any]
    ) -> tuple[Flags, Values]:
        """Accepted: right before; hidden tokens get 1 if the answer changed, else 0."""
        accepted = judge.right(original, gold)
        return accepted, _values(accepted, ~judge.same(original, probed))


@dataclass(frozen=True)
class SoftRule(Rule):
    """A hidden token gets the drop of the right class's probability, from 0 to 1; not in the authors' code."""

    def worth(self, judge: Judge, original: NDArray[Any], gold: NDArray[Any]) -> Flags:
        """[P] all examples: a wrong answer can become more wrong."""
        return numpy.ones(len(original), bool)

    def judge_probes(
        self, judge: Judge, original: NDArray[Any], probed: NDArray[Any], gold: NDArray[Any]
    ) -> tuple[Flags, Values]:
        """Accepted: all; hidden tokens get the drop."""
        accepted = numpy.ones(len(original), bool)
        return accepted, _values(accepted, judge.drop(original, probed, gold))


RULES: dict[str, type[Rule]] = {"probe": ProbeRule, "reference": ReferenceRule, "soft": SoftRule}


def build_rule(name: str) -> Rule:
    """The label rule of this name."""
    if name not in RULES:
        raise InputError(f"unknown label_rule {name!r}: {choices(name, RULES)}.")
    return RULES[name]()


def _values(accepted: Flags, values: NDArray[Any]) -> Values:
    return numpy.where(accepted, values, IGNORED).astype(numpy.float32)
