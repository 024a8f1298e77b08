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
from typing import Any, Protocol

import numpy
from numpy.typing import NDArray

from headwise.errors import InputError
from headwise.ssa.config import SSA
from headwise.ssa.token_labels import Examples

# Hidden spans on a ring: how long they are, and where they lie.


LONGEST = 3


def span_chances(rm_threshold: float) -> tuple[float, float, float]:
    """Chances that a span has 1, 2 or 3 units.

        P(3) = 1 - t,  P(2) = min(t, 1 - t),  P(1) = max(0, 2t - 1),   t = rm_threshold,

    as in the authors' code, away from its borders. The mean is 4 - 3t for t of 0.5 or more.
    """
    return max(0.0, 2 * rm_threshold - 1), min(rm_threshold, 1 - rm_threshold), 1 - rm_threshold


def span_lengths(hidden: int, rm_threshold: float, random: numpy.random.Generator) -> list[int]:
    """Lengths of spans that hide so many units together; the last one is cut to fit."""
    one, two, _ = span_chances(rm_threshold)
    lengths: list[int] = []
    for draw in random.random(hidden).tolist():  # enough of them, even if each span has one unit
        length = 1 if draw < one else 2 if draw < one + two else LONGEST
        lengths.append(min(length, hidden))
        hidden -= lengths[-1]
        if not hidden:
            break
    return lengths


def on_ring(lengths: list[int], units: int, random: numpy.random.Generator) -> list[int]:
    """Places of spans on a ring of n units, thrown at random: each place is hidden with a chance of exactly m / n.

    Spans do not overlap. They do not touch either, as long as there are enough units to part them. Spans (each with the
    unit that parts it from the next) and the units left over are shuffled, laid round the ring, and the ring is turned.
    """
    parted = int(units - sum(lengths) >= len(lengths))
    spare = units - sum(lengths) - parted * len(lengths)
    pieces = numpy.zeros(len(lengths) + spare, dtype=numpy.int64)  # how many units each hides: none is a unit left over
    pieces[: len(lengths)] = lengths
    random.shuffle(pieces)
    here = int(random.integers(units))
    places: list[int] = []  # [m]
    for hidden in pieces.tolist():
        places.extend((here + step) % units for step in range(hidden))
        here += hidden + (parted if hidden else 1)
    return places


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


# Probes: examples with some tokens hidden, drawn so that neither batches nor processes change them.


@dataclass(frozen=True, eq=False)
class Probes:
    """Hidden sets, one after the other."""

    examples: Places
    """[P] the example of each probe."""
    hidden: Places
    """[H] places of the hidden tokens in their example."""
    starts: Places
    """[P+1] where the places of each probe begin, and the end of the last."""

    @classmethod
    def of(cls, examples: Sequence[int], hidden: Sequence[Places]) -> Probes:
        """Probes from their examples and sets."""
        starts = numpy.cumsum([0, *map(len, hidden)], dtype=numpy.int64)
        flat = numpy.concatenate(hidden) if hidden else numpy.zeros(0)
        return cls(numpy.array(examples, numpy.int64), flat.astype(numpy.int64), starts)

    @classmethod
    def nothing_hidden(cls, examples: Places) -> Probes:
        """The examples as they are."""
        return cls(examples, numpy.zeros(0, numpy.int64), numpy.zeros(len(examples) + 1, numpy.int64))

    def __len__(self) -> int:
        """How many there are."""
        return len(self.examples)


class View:
    """A data set of probes: the examples without their labels, hidden tokens replaced in a copy."""

    def __init__(self, examples: Examples, probes: Probes, mask_id: int) -> None:
        """`mask_id` stands for hidden tokens."""
        self.examples = probes.examples
        """[P] which example of the training set each item is made of."""
        self.lengths: Places = numpy.diff(examples.starts)[probes.examples]
        """[P] tokens of each item."""
        self._from, self._probes, self._mask_id = examples, probes, mask_id

    def __len__(self) -> int:
        """How many items there are."""
        return len(self._probes)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """An item of the training set with its hidden tokens replaced and without labels."""
        place = range(len(self))[index]  # negative ones count from the end, and those beyond it raise
        example = int(self.examples[place])
        item = dict(self._from.data[example])
        item.pop("labels", None)
        ids = self._from.ids[self._from.part(example)].copy()
        ids[self._probes.hidden[self._probes.starts[place] : self._probes.starts[place + 1]]] = self._mask_id
        item["input_ids"] = ids
        return item


class Drawer:
    """Draws hidden sets; never the same one twice for an example, and never an empty one."""

    def __init__(self, examples: Examples, sampler: Sampler, key: tuple[int, ...]) -> None:
        """`key` begins the key of every generator: (*key, example, turn, probe)."""
        self._examples, self._sampler, self._key = examples, sampler, key
        self._tried: dict[int, set[bytes]] = {}

    def draw(self, examples: Places, turn: int, count: int) -> Probes:
        """Up to `count` probes of each example, in pass number `turn`."""
        found = [(example, places) for example in examples.tolist() for places in self._of(example, turn, count)]
        return Probes.of([example for example, _ in found], [places for _, places in found])

    def forget(self, examples: Places) -> None:
        """These will not be asked for again."""
        for example in examples.tolist():
            self._tried.pop(example, None)

    def _of(self, example: int, turn: int, count: int) -> list[Places]:
        segments = self._examples.segments(example)
        words = None if self._examples.words is None else self._examples.words[self._examples.part(example)]
        tried = self._tried.setdefault(example, set())
        new = []
        for probe in range(count):
            random = numpy.random.default_rng([*self._key, example, turn, probe])
            places = self._sampler.hidden(segments, random, words)
            mark = places.tobytes()
            # An empty set hides nothing and would be accepted for it; a set tried before has had its answer.
            if len(places) and mark not in tried:
                tried.add(mark)
                new.append(places)
        return new
