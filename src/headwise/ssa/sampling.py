"""Which tokens of an example a probe hides.

Samplers get the positions of the tokens of each text of one example (`Examples.segments`) and a random generator,
their only source of randomness: the same generator gives the same probe.

Shapes: T tokens in the example, n units (tokens or words) in a segment, N units in all segments.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy
from numpy.random import Generator
from numpy.typing import NDArray

from headwise.errors import InputError
from headwise.ssa.config import SSA

Indices = NDArray[numpy.int64]


def span_lengths(hidden: int, rm_threshold: float, random: Generator) -> list[int]:
    """Lengths of spans that hide so many units together; the last one is cut to fit.

        P(3) = 1 - t,  P(2) = min(t, 1 - t),  P(1) = max(0, 2t - 1),   t = rm_threshold,

    as in the authors' code, away from its borders. The mean is 4 - 3t for t of 0.5 or more.
    """
    one, two = max(0.0, 2 * rm_threshold - 1), min(rm_threshold, 1 - rm_threshold)
    lengths: list[int] = []
    for draw in random.random(hidden).tolist():  # enough of them, even if each span has one unit
        lengths.append(min(1 if draw < one else 2 if draw < one + two else 3, hidden))
        hidden -= lengths[-1]
        if not hidden:
            break
    return lengths


def on_ring(lengths: list[int], units: int, random: Generator) -> list[int]:
    """Random positions of spans on a ring of n units: each position is hidden with a chance of exactly m / n.

    Spans do not overlap. They do not touch either, as long as there are enough units to part them. Spans (each with the
    unit that parts it from the next) and the units left over are shuffled, laid round the ring, and the ring is turned.
    """
    parted = int(units - sum(lengths) >= len(lengths))
    spare = units - sum(lengths) - parted * len(lengths)
    pieces = numpy.zeros(len(lengths) + spare, dtype=numpy.int64)  # how many units each hides: 0 is a unit left over
    pieces[: len(lengths)] = lengths
    random.shuffle(pieces)
    here = int(random.integers(units))
    positions: list[int] = []  # [m]
    for hidden in pieces.tolist():
        positions.extend((here + step) % units for step in range(hidden))
        here += hidden + (parted if hidden else 1)
    return positions


@dataclass(frozen=True)
class UniformSampler:
    """Hides spans so that each unit of the example has the same chance; the recommended sampler.

    Of the example's N units (tokens, or words with `whole_words`) e = mask_fraction N are hidden in expectation, and
    from 1 to N - 1: something is always hidden, something always stays. A segment of n units gets its part,

        m = floor(a + e n / N + u) - floor(a + u),   u ~ U[0,1),  a = e (units of earlier segments) / N,

    which is e n / N, rounded up or down at random; as the segments share u, the sum is e rounded. The m units lie in
    spans (see `span_lengths`) on the segment bent into a ring, so a span may continue at the segment's start.

    With `most_hidden`, e is at most that, and all of it is in one segment, so that a changed prediction can be
    attributed. A segment that is too short for m is hidden altogether, and chosen more often to make up for it.

    Where we differ from the authors' code (`ReferenceSampler`): no short segment is spared, no position is preferred,
    no probe is empty. Only an example of fewer than two units has nothing that could be hidden.
    """

    mask_fraction: float
    rm_threshold: float
    most_hidden: int | None
    whole_words: bool

    def hidden(self, segments: Sequence[Indices], random: Generator, words: Indices | None = None) -> Indices:
        """Positions of the hidden tokens, ascending, without repeats; none if there are fewer than two units.

        Args:
            segments: for each text of the example the positions of its tokens.
            random: the only source of randomness.
            words: [T] number of the word of each token, -1 for tokens that are no text.
        """
        edges = [self._edges(segment, words) for segment in segments]
        units = [len(each) - 1 for each in edges]
        if sum(units) < 2:
            return numpy.zeros(0, dtype=numpy.int64)
        parts = []
        for segment, edge, count in zip(segments, edges, self._counts(units, random), strict=True):
            if count:
                chosen = on_ring(span_lengths(count, self.rm_threshold, random), len(edge) - 1, random)
                parts.append(segment[[index for unit in chosen for index in range(edge[unit], edge[unit + 1])]])
        return numpy.sort(numpy.concatenate(parts))

    def _edges(self, segment: Indices, words: Indices | None) -> Sequence[int]:
        """[n + 1] where in the segment its units begin, and where the last one ends."""
        if not self.whole_words:
            return range(len(segment) + 1)
        if words is None:
            raise InputError(
                "ssa.whole_words needs the word of each token, which only fast tokenizers know: use a fast tokenizer, "
                "or set whole_words: false."
            )
        of_token = words[segment].tolist()
        # A token without a word is a unit.
        inner = [at for at in range(1, len(of_token)) if of_token[at] != of_token[at - 1] or of_token[at] < 0]
        return [0, *inner, len(of_token)] if of_token else [0]

    def _counts(self, units: list[int], random: Generator) -> list[int]:
        """How many units of each segment are hidden."""
        total = sum(units)
        most = total - 1 if self.most_hidden is None else min(self.most_hidden, total - 1)
        expected = min(max(self.mask_fraction * total, 1.0), most)
        rounding = _below_one(random)
        if self.most_hidden is None:
            upto = [int(expected * before / total + rounding) for before in accumulate(units)]
            return [after - before for before, after in pairwise([0, *upto])]
        # All in one segment, or as many as it has, with the same chance for each unit of the example: a unit's chance
        # is P(segment) m / n with m = min(count, n), the same for all if P is in proportion to n / m.
        count = int(expected + rounding)
        chances = list(accumulate(each / min(count, each) if each else 0.0 for each in units))
        chosen = bisect_right(chances, _below_one(random) * chances[-1])
        return [min(count, each) if number == chosen else 0 for number, each in enumerate(units)]


def _below_one(random: Generator) -> float:
    """U[0,1) of 30 bits: added to a whole number it never rounds up to the next one, as 53 bits may."""
    return int(random.integers(1 << 30)) / (1 << 30)


@dataclass(frozen=True)
class ReferenceSampler:
    """Hides what the authors' released code hides, for comparison; the probe may be empty.

    Each segment of n tokens is cut in quarters at 0, (n-1)/4, (n-1)/2, 3(n-1)/4 and n. Each token draws u ~ U(0,1) and
    triggers if u <= aug_threshold and its quarter [b, c) is longer than 1: an anchor a is drawn from floor(b) ...
    floor(c) - 1, and with v ~ U(0,1) and t = rm_threshold these are hidden:

        a-2, a-1, a  if v > t and a >= b + 2;   a-1, a  if 2t - 1 < v < t and a >= b + 1;   a  otherwise.

    So short segments are mostly spared, and positions differ (n = 15: from 0.07 to 0.21). Words are ignored.
    Where we differ from that code: a segment without tokens is no error.
    """

    aug_threshold: float
    rm_threshold: float

    def hidden(self, segments: Sequence[Indices], random: Generator, words: Indices | None = None) -> Indices:
        """As in `UniformSampler`; may be empty."""
        positions: set[int] = set()
        for segment in segments:
            size = len(segment)
            bounds = [0.0, 0.25 * (size - 1), 0.5 * (size - 1), 0.75 * (size - 1), float(size)]
            for token in numpy.flatnonzero(random.random(size) <= self.aug_threshold).tolist():
                quarter = bisect_right(bounds, token, 1, 4) - 1
                begin, end = bounds[quarter], bounds[quarter + 1]
                if end - begin > 1:
                    anchor = int(random.integers(int(begin), int(end)))
                    room, draw = anchor - begin, random.random()  # to the left, within the quarter
                    length = 3 if draw > self.rm_threshold and room >= 2 else 1
                    if 2 * self.rm_threshold - 1 < draw < self.rm_threshold and room >= 1:
                        length = 2
                    positions.update(segment[anchor - length + 1 : anchor + 1].tolist())
        return numpy.array(sorted(positions), dtype=numpy.int64)


Sampler = UniformSampler | ReferenceSampler


def build_sampler(options: SSA) -> Sampler:
    """The sampler that the options name."""
    if options.sampler == "reference":
        return ReferenceSampler(options.aug_threshold, options.rm_threshold)
    return UniformSampler(
        options.mask_fraction, options.rm_threshold, options.hidden_at_most, whole_words=options.whole_words
    )
