"""Which examples are asked about when, and what has come of it; the same in every process.

Shapes: N examples, T tokens of all of them together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy

from headwise.ssa.answers import Answers
from headwise.ssa.judge import Flags
from headwise.ssa.probes import Places

# The part of the examples asked about that yields labels is measured, and never taken for less than this: a model which
# is never right is found out soon.
LEAST = 0.05
# So much more than the yield says is asked for after the first round, since one round is cheaper than two.
MORE = 1.1
# Rounds after the first are of 1 / PARTS of all examples at least, which bounds their number, and fill a batch.
PARTS, BATCH = 32, 16


class Rounds:
    """The state of one call of the labeller."""

    def __init__(self, starts: Places, order: Places, need: int) -> None:
        """`starts` [N+1]: where examples begin; `order` [N]: who comes first; `need`: how many are to be labelled."""
        self._starts, self._order, self.need = starts, order, need
        self.places = numpy.empty_like(order)
        """[N] the place of each example in the order."""
        self.places[order] = numpy.arange(len(order))
        self.found = numpy.full(int(starts[-1]), numpy.nan, numpy.float32)
        """[T] labels of the tokens that accepted probes hid; NaN at others."""
        self.originals, self.right, self.probes, self.passes = 0, 0, 0, 0
        self._accepted = numpy.zeros(len(order), bool)
        self._hopeless = numpy.zeros(len(order), bool)
        self._taken, self._accepted_probes, self._flips, self._hidden = 0, 0, 0, 0

    @property
    def done(self) -> int:
        """How many examples are labelled."""
        return min(int(self._accepted.sum()), self.need)

    @property
    def kept(self) -> Flags:
        """[N] which examples are labelled: of those with an accepted probe the first in the order."""
        chosen = self._order[self._accepted[self._order]][: self.need]
        kept = numpy.zeros(len(self._order), bool)
        kept[chosen] = True
        return kept

    def plan(self, max_passes: int) -> Iterator[tuple[Places, int]]:
        """The examples of each round and the number of its pass; the results must be added before the next one."""
        for turn in range(max_passes):
            waiting = self._order[~(self._accepted | self._hopeless)[self._order]]
            if self.done == self.need or not len(waiting):
                return
            self.passes = turn + 1
            begin = 0
            while begin < len(waiting) and self.done < self.need:
                chosen = waiting[begin : begin + self._size()]
                begin += len(chosen)
                self._taken += len(chosen)
                yield chosen, turn

    def add(self, parts: Sequence[Answers]) -> None:
        """The results of a round, from all processes."""
        for part in parts:
            self.originals += part.originals
            self.right += part.right
            self.probes += len(part.probes)
            self._flips += int(part.flips.sum())
            self._accepted_probes += int(part.accepted.sum())
            self._hidden += len(part.probes.hidden)
            self._hopeless[part.hopeless] = True
            self._accepted[part.probes.examples[part.accepted]] = True
            self._write(part)

    def statistics(self) -> dict[str, float]:
        """Numbers about the rounds, for the log."""
        probes, count = max(self.probes, 1), len(self._order)
        return {
            "share": self.done / count,
            "examples": float(count),
            "needed": float(self.need),
            # Of those that were not worth a probe, one is counted as tried and rejected, as the authors would.
            "acceptance": self._accepted_probes / max(self.probes + int(self._hopeless.sum()), 1),
            "flips": self._flips / probes,
            "hidden": self._hidden / probes,
            "right": self.right / max(self.originals, 1),
            "probes": float(self.probes),
            "originals": float(self.originals),
            "passes": float(self.passes),
        }

    def _size(self) -> int:
        """How many examples the next round takes: first what would do if all were to yield, so that none is wasted."""
        if not self._taken:
            return self.need
        seen = max(int(self._accepted.sum()) / self._taken, LEAST)
        return max(math.ceil(MORE * (self.need - self.done) / seen), len(self._order) // PARTS, BATCH)

    def _write(self, part: Answers) -> None:
        """A token gets the smallest value of the accepted probes that hid it."""
        probes, counts = part.probes, numpy.diff(part.probes.starts)
        tokens = numpy.repeat(self._starts[probes.examples], counts) + probes.hidden
        # fmin passes over NaN: every token begins with it, and it is the value of a probe that was not accepted.
        numpy.fmin.at(self.found, tokens, numpy.repeat(part.values, counts))
