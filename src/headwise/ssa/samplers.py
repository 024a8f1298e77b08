"""Which tokens of an example a probe hides.

Samplers get the places of the tokens of each text of one example (`TextTokens.segments`) and a generator, from which
alone they draw: the same generator gives the same probe.

Shapes: T tokens in the example, n units (tokens or words) in a segment, N units in all segments.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Protocol

import numpy
from numpy.typing import NDArray

from headwise.errors import InputError
from headwise.ssa.options import SSA
from headwise.ssa.spans import on_ring, span_lengths

Places = NDArray[numpy.int64]


class Sampler(Protocol):
    """Chooses what is hidden."""

    def hidden(self, segments: Sequence[Places], random: numpy.random.Generator, words: Places | None = None) -> Places:
        """Places of the hidden tokens, ascending, without repeats.

        Args:
            segments: For each text of the example the places of its tokens.
            random: The only source of chance.
            words: [T] number of the word of each token, -1 for tokens that are no text.
        """


def build_sampler(options: SSA) -> Sampler:
    """The sampler that the options ask for."""
    if options.sampler == "reference":
        return ReferenceSampler(options.aug_threshold, options.rm_threshold)
    return UniformSampler(
        options.mask_fraction, options.rm_threshold, options.hidden_at_most, whole_words=options.whole_words
    )


@dataclass(frozen=True)
class UniformSampler:
    """Hides spans so that each unit of the example has the same chance; the recommended sampler.

    Of the example's N units (tokens, or words with `whole_words`) e = mask_fraction N are hidden in expectation, held
    between 1 and N - 1: something is always hidden, something always stays. A segment of n units gets its part,

        m = floor(a + e n / N + u) - floor(a + u),   u ~ U[0,1),  a = e (units of earlier segments) / N,

    which is e n / N, rounded up or down at random; as the segments share u, the sum is e rounded. The m units lie in
    spans (see `spans`) on the segment bent into a ring, so a span may go on at the segment's start.

    With `most_hidden`, e is at most that, and all of it is in one segment, so that a changed prediction has a culprit.
    A segment that is too short for m is hidden altogether, and chosen more often to make up for it.

    Where we differ from the authors' code (`ReferenceSampler`): no short segment is spared, no place is preferred, no
    probe is empty. Only an example of less than two units has nothing that could be hidden.
    """

    mask_fraction: float
    rm_threshold: float
    most_hidden: int | None
    whole_words: bool

    def hidden(self, segments: Sequence[Places], random: numpy.random.Generator, words: Places | None = None) -> Places:
        """See `Sampler`; empty only if the example has less than two units."""
        edges = [self._edges(segment, words) for segment in segments]
        units = [len(each) - 1 for each in edges]
        if sum(units) < 2:
            return numpy.zeros(0, dtype=numpy.int64)
        found = []
        for segment, edge, count in zip(segments, edges, self._counts(units, random), strict=True):
            if count:
                chosen = on_ring(span_lengths(count, self.rm_threshold, random), len(edge) - 1, random)
                found.append(segment[[place for unit in chosen for place in range(edge[unit], edge[unit + 1])]])
        return numpy.sort(numpy.concatenate(found))

    def _edges(self, segment: Places, words: Places | None) -> Sequence[int]:
        """[n + 1] where in the segment its units begin, and where the last one ends."""
        if not self.whole_words:
            return range(len(segment) + 1)
        if words is None:
            raise InputError(
                "ssa.whole_words needs the word of each token, which only fast tokenizers tell: use a fast tokenizer, "
                "or set whole_words: false."
            )
        of_token = words[segment].tolist()
        # What has no word is one of its own.
        inner = [at for at in range(1, len(of_token)) if of_token[at] != of_token[at - 1] or of_token[at] < 0]
        return [0, *inner, len(of_token)] if of_token else [0]

    def _counts(self, units: list[int], random: numpy.random.Generator) -> list[int]:
        """How many units of each segment are hidden."""
        total = sum(units)
        most = total - 1 if self.most_hidden is None else min(self.most_hidden, total - 1)
        expected = min(max(self.mask_fraction * total, 1.0), most)
        rounding = _below_one(random)
        if self.most_hidden is not None:
            return _in_one_segment(int(expected + rounding), units, random)
        upto = [int(expected * seen / total + rounding) for seen in accumulate(units)]
        return [after - before for before, after in pairwise([0, *upto])]


def _in_one_segment(count: int, units: list[int], random: numpy.random.Generator) -> list[int]:
    """All hidden units in one segment, or as many as it has, with the same chance for each unit of the example.

    A unit's chance is P(segment) m / n with m = min(count, n): the same for all if P is in proportion to n / m.
    """
    upto = list(accumulate(each / min(count, each) if each else 0.0 for each in units))
    chosen = bisect_right(upto, _below_one(random) * upto[-1])
    return [min(count, each) if number == chosen else 0 for number, each in enumerate(units)]


def _below_one(random: numpy.random.Generator) -> float:
    """U[0,1) of 30 bits: added to a whole number it never rounds up to the next one, as 53 bits may."""
    return int(random.integers(1 << 30)) / (1 << 30)


@dataclass(frozen=True)
class ReferenceSampler:
    """Hides what the authors' released code hides, for comparison; the probe may be empty.

    Each segment of n tokens is cut in quarters at 0, (n-1)/4, (n-1)/2, 3(n-1)/4 and n. Each token draws u ~ U(0,1) and
    triggers if u <= aug_threshold and its quarter [b, c) is longer than 1: an anchor a is drawn from floor(b) ...
    floor(c) - 1, and with v ~ U(0,1) and t = rm_threshold these are hidden:

        a-2, a-1, a  if v > t and a >= b + 2;   a-1, a  if 2t - 1 < v < t and a >= b + 1;   a  otherwise.

    So short segments are mostly spared and places are not alike (n = 15: from 0.07 to 0.21). Words are not looked at.
    Where we differ from that code: a segment without tokens is no error.
    """

    aug_threshold: float
    rm_threshold: float

    def hidden(self, segments: Sequence[Places], random: numpy.random.Generator, words: Places | None = None) -> Places:
        """See `Sampler`; may be empty."""
        found: set[int] = set()
        for segment in segments:
            found.update(segment[self._of_segment(len(segment), random)].tolist())
        return numpy.array(sorted(found), dtype=numpy.int64)

    def _of_segment(self, tokens: int, random: numpy.random.Generator) -> list[int]:
        """Places inside a segment; may have repeats."""
        bounds = [0.0, 0.25 * (tokens - 1), 0.5 * (tokens - 1), 0.75 * (tokens - 1), float(tokens)]
        places: list[int] = []
        for token in numpy.flatnonzero(random.random(tokens) <= self.aug_threshold).tolist():
            quarter = bisect_right(bounds, token, 1, 4) - 1
            begin, end = bounds[quarter], bounds[quarter + 1]
            if end - begin > 1:
                anchor = int(random.integers(int(begin), int(end)))
                length = self._length(anchor - begin, random.random())
                places.extend(range(anchor - length + 1, anchor + 1))
        return places

    def _length(self, room: float, draw: float) -> int:
        """Length of a span that goes left from an anchor; `room` is how far its quarter reaches to the left."""
        if draw > self.rm_threshold and room >= 2:
            return 3
        if 2 * self.rm_threshold - 1 < draw < self.rm_threshold and room >= 1:
            return 2
        return 1
