"""Hidden spans on a ring: how long they are, and where they lie.

A segment is bent into a ring, so that it has no ends and no place is better than another.

Shapes: n units (tokens or words) on the ring, m of them hidden, k spans.
"""

from __future__ import annotations

import numpy

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
