"""One round of asking the model: originals once, then probes of those that are worth it.

Shapes: N examples, P probes, C logits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import NDArray

from headwise.errors import InputError, StateError
from headwise.ssa.examples import Examples
from headwise.ssa.judge import Flags, Judge
from headwise.ssa.probes import Drawer, Places, Probes, View
from headwise.ssa.rules import Rule, Values

Predict = Callable[[View], NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Answers:
    """What one process found out in a round: plain arrays, so that processes can send them to each other."""

    originals: int
    """How many examples were predicted for the first time."""
    right: int
    """How many of those were right."""
    hopeless: Places
    """Examples that are not worth a probe."""
    probes: Probes
    accepted: Flags
    """[P]"""
    flips: Flags
    """[P] where the answer changed."""
    values: Values
    """[P] the label of the hidden tokens."""


class Asker:
    """Asks the model about examples; remembers its answers to the originals."""

    def __init__(self, examples: Examples, judge: Judge, rule: Rule, drawer: Drawer, predict: Predict, mask_id: int):
        """For one call of the labeller, in which the model stays the same."""
        self._examples, self._judge, self._rule, self._drawer = examples, judge, rule, drawer
        self._predict, self._mask_id = predict, mask_id
        self._seen = numpy.zeros(len(examples), bool)
        self._originals: NDArray[Any] = numpy.zeros((len(examples), 0))  # [N,C] once C is known, filled where seen

    def ask(self, chosen: Places, turn: int, count: int) -> Answers:
        """Probe these examples, `count` times each, in pass number `turn`."""
        originals, right = self._predict_originals(chosen[~self._seen[chosen]])
        worth = self._worth(chosen)
        probes = self._drawer.draw(chosen[worth], turn, count)
        return self._judged(probes, originals, right, chosen[~worth])

    def _worth(self, chosen: Places) -> Flags:
        if not len(chosen):  # as may be in one of several processes
            return numpy.zeros(0, bool)
        return self._rule.worth(self._judge, self._originals[chosen], self._examples.gold[chosen])

    def _judged(self, probes: Probes, originals: int, right: int, hopeless: Places) -> Answers:
        if not len(probes):
            none = numpy.zeros(0, bool)
            return Answers(originals, right, hopeless, probes, none, none, numpy.zeros(0, numpy.float32))
        before, gold = self._originals[probes.examples], self._examples.gold[probes.examples]
        after = self._logits(probes)
        accepted, values = self._rule.judge_probes(self._judge, before, after, gold)
        self._drawer.forget(probes.examples[accepted])
        return Answers(originals, right, hopeless, probes, accepted, ~self._judge.same(before, after), values)

    def _predict_originals(self, fresh: Places) -> tuple[int, int]:
        """Predict examples as they are; how many, and how many of them are right."""
        if not len(fresh):
            return 0, 0
        logits = self._logits(Probes.nothing_hidden(fresh))
        if not self._seen.any():
            self._originals = numpy.zeros((len(self._examples), logits.shape[1]), logits.dtype)
        self._originals[fresh] = logits
        self._seen[fresh] = True
        return len(fresh), int(self._judge.right(logits, self._examples.gold[fresh]).sum())

    def _logits(self, probes: Probes) -> NDArray[Any]:
        logits = numpy.asarray(self._predict(View(self._examples, probes, self._mask_id)))
        if logits.ndim != 2 or len(logits) != len(probes):
            raise InputError(
                f"predict gave an array of shape {list(logits.shape)} for {len(probes)} examples: expected a row of "
                "logits for each, [examples, logits]."
            )
        if not numpy.isfinite(logits).all():  # NaN would become a label that says "ignored"
            raise StateError("the model's outputs are not finite: training has diverged; lower the learning rate.")
        return logits
