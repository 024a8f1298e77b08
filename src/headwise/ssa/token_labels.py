"""Labels of all tokens of a data set, as one flat row.

Shapes: N examples, T tokens of all of them together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import NDArray

from headwise.ssa.judge import Flags
from headwise.ssa.rules import IGNORED, Rule, Values


@dataclass(frozen=True)
class TokenLabels:
    """Labels of all tokens, one example after the other; NaN where there is none."""

    values: Values
    """[T]"""
    starts: NDArray[numpy.int64]
    """[N+1] where each example begins, and the end of the last."""

    def __len__(self) -> int:
        """How many examples there are."""
        return len(self.starts) - 1

    def of(self, index: int) -> Values:
        """The labels of an example's tokens."""
        place = range(len(self))[index]  # negative ones count from the end, and those beyond it raise
        return self.values[self.starts[place] : self.starts[place + 1]]


def assembled(found: Values, kept: Flags, text: Flags, starts: NDArray[numpy.int64], rule: Rule) -> TokenLabels:
    """What probes found, with what a rule says where they found nothing.

    Args:
        found: [T] labels of the tokens that accepted probes hid, NaN at others.
        kept: [N] which examples count as labelled.
        text: [T] which tokens are text.
        starts: [N+1] where examples begin.
        rule: says what other tokens get.
    """
    labelled = numpy.repeat(kept, numpy.diff(starts))  # [T]
    inside = numpy.where(numpy.isnan(found), rule.rest, found)
    values = numpy.where(text, numpy.where(labelled, inside, rule.unprobed), IGNORED)
    return TokenLabels(values.astype(numpy.float32), starts)


def shuffled(labels: TokenLabels, kept: Flags, text: Flags, key: tuple[int, ...]) -> TokenLabels:
    """A control: the labels of all kept examples, dealt anew, and thrown among the text tokens of each.

    As many tokens of every example have a label as before, and the labels of the epoch are the same, so base rate and
    amount stay. Neither the tokens nor the examples have anything to do with them: that an example was easily upset is
    lost as well, which shuffling within it would keep, since one probe gives all its tokens the same label. Generators
    are keyed by (*key, ...), so the order of work does not matter.
    """
    values = labels.values.copy()
    inside = numpy.repeat(kept, numpy.diff(labels.starts)) & ~numpy.isnan(values)  # [T]
    values[inside] = numpy.random.default_rng([*key, 0]).permutation(values[inside])
    for example in numpy.flatnonzero(kept).tolist():
        begin, end = labels.starts[example], labels.starts[example + 1]
        places = begin + numpy.flatnonzero(text[begin:end])
        values[places] = numpy.random.default_rng([*key, 1, example]).permutation(values[places])
    return TokenLabels(values, labels.starts)


def summary(labels: TokenLabels) -> dict[str, Any]:
    """How many tokens have a label, and its mean."""
    known = labels.values[~numpy.isnan(labels.values)]
    # Summed as float64: a long row of ones stops growing in float32.
    base_rate = float(known.mean(dtype=numpy.float64)) if len(known) else 0.0
    return {"base_rate": base_rate, "labelled_tokens": float(len(known))}
