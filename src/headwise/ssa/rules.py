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
from headwise.ssa.judge import Flags, Judge

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
