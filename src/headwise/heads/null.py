"""What D-scores would be by chance: those of random masks, which belong to no task.

Shapes: K percentages, S tasks whose heads were pruned, T tasks (S = T and the same order in M), V = 3 variants of the
score, R random masks, C choices of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations, product
from math import perm
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headwise.errors import InputError
from headwise.heads.bootstrap import Interval
from headwise.heads.d_scores import Values, d_scores
from headwise.heads.dissociation import checked_tasks
from headwise.heads.plain_numbers import named_scores

# Scores, in points, that differ by less than this are the same but for rounding.
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class NullSummary:
    """D-scores of masks that belong to no task; every array is laid out as the scores it is about."""

    mean: Values
    deviation: Values
    low: Values
    """Lower end of the middle 95 %."""
    high: Values
    p: Values | None
    """(1 + draws that reach the observed score) / (1 + draws), one-sided; None if nothing was observed."""

    @classmethod
    def of(cls, scores: Values, observed: Values | None) -> NullSummary:
        """From scores [C,...] and the observed one [...]."""
        middle = Interval.of(scores)
        p = None
        if observed is not None:
            reached = (scores >= observed - ROUNDING).sum(0)
            known = np.isfinite(observed) & np.isfinite(middle.low)
            p = np.where(known, (1 + reached) / (1 + len(scores)), np.nan)
        return cls(scores.mean(0), scores.std(0), middle.low, middle.high, p)

    def as_dict(self, tasks: Sequence[str]) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        parts = {"mean": self.mean, "deviation": self.deviation, "low": self.low, "high": self.high, "p": self.p}
        return {name: None if part is None else named_scores(part, tasks) for name, part in parts.items()}


@dataclass(frozen=True, eq=False)
class NullDissociation:
    """The D-scores that random masks would give."""

    tasks: tuple[str, ...]
    masks: int
    """How many random masks there were per percentage (and row)."""
    draws: int
    """How many ways of giving them to tasks were tried. They share masks, so few masks stay few, however many ways."""
    percentages: tuple[NullSummary, ...]
    mean: NullSummary
    """Of the means over percentages."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON; null where there is no number."""
        return {
            "tasks": list(self.tasks),
            "masks": self.masks,
            "draws": self.draws,
            "percentages": [each.as_dict(self.tasks) for each in self.percentages],
            "mean": self.mean.as_dict(self.tasks),
        }


def null_dissociation(
    random_matrix: ArrayLike,
    base: ArrayLike,
    *,
    observed: ArrayLike | None = None,
    tasks: Sequence[str] = (),
    draws: int = 1_000,
    seed: int = 0,
) -> NullDissociation:
    """D-scores under random masks, to see what an observed score would be by chance.

    A random mask belongs to no task, so a draw gives every task another one of them as "its" heads: all ordered
    choices if there are no more than `draws`, otherwise so many at random. A draw takes the same repeats at every
    percentage, since the masks of one repeat are nested.

    Args:
        random_matrix: [K,R,T] metric of each task under each of R random masks, R at least T.
        base: [T] metric of each task with all heads.
        observed: [K,S,T] the matrix to judge, if any.
        tasks: their names; numbers from 0 if left out.
        draws: at most so many choices.
        seed: decides which, if not all.

    Returns:
        The scores of the random masks, and how rare the observed ones are among them.
    """
    values, bases = np.asarray(random_matrix, dtype=np.float64), np.asarray(base, dtype=np.float64)
    count = bases.size
    if values.ndim != 3 or not len(values) or values.shape[2] != count or values.shape[1] < count:
        raise InputError(
            f"metrics of random masks {list(values.shape)} for {count} tasks: expected [K,R,{count}], with at least "
            "as many random masks R as tasks, since each draw gives every task another one."
        )
    repeats = values.shape[1]
    if perm(repeats, count) <= draws:
        chosen = np.array(list(permutations(range(repeats), count)))
    else:
        random = np.random.default_rng(seed)
        chosen = np.array([random.permutation(repeats)[:count] for _ in range(draws)])
    by_row = np.broadcast_to(values[:, None], (len(values), count, *values.shape[1:]))  # [K,S,R,T]
    return _null(by_row, bases, chosen, observed, tasks)


def layer_matched_null(
    matched_matrix: ArrayLike,
    base: ArrayLike,
    *,
    observed: ArrayLike | None = None,
    tasks: Sequence[str] = (),
    draws: int = 1_000,
    seed: int = 0,
) -> NullDissociation:
    """D-scores under random masks with as many heads in each layer as each task's own mask.

    What is left of an observed score beyond these is about which heads, not about how deep they sit. A draw gives each
    task any one of the masks that match its own; the masks of different tasks must be drawn independently.

    Args:
        matched_matrix: [K,S,R,T] metric of each task under each of the R random masks that match the mask of task s.
        base: [T] metric of each task with all heads.
        observed: [K,S,T] the matrix to judge, if any.
        tasks: their names; numbers from 0 if left out.
        draws: at most so many choices; all R ** T if they are no more.
        seed: decides which, if not all.

    Returns:
        The scores of the random masks, and how rare the observed ones are among them.
    """
    values, bases = np.asarray(matched_matrix, dtype=np.float64), np.asarray(base, dtype=np.float64)
    count = bases.size
    if values.ndim != 4 or values.shape[1::2] != (count, count) or not values.size:
        raise InputError(
            f"metrics of layer-matched masks {list(values.shape)} for {count} tasks: expected "
            f"[K,{count},R,{count}], K and R at least 1."
        )
    repeats = values.shape[2]
    if repeats**count <= draws:
        chosen = np.array(list(product(range(repeats), repeat=count)))
    else:
        chosen = np.random.default_rng(seed).integers(repeats, size=(draws, count))
    return _null(values, bases, chosen, observed, tasks)


def _null(
    values: Values, base: Values, chosen: NDArray[np.int64], observed: ArrayLike | None, tasks: Sequence[str]
) -> NullDissociation:
    """From values [K,S,R,T] and choices [C,S] of one of R for each row."""
    matrices = values[:, np.arange(chosen.shape[1]), chosen]  # [K,C,S,T]
    names = checked_tasks(matrices.shape[2:], base.shape, tasks)
    scores = d_scores(matrices, base)  # [K,C,V,T+1]
    found = None
    if observed is not None:
        given = np.asarray(observed, dtype=np.float64)
        if given.shape != (len(values), *matrices.shape[2:]):
            raise InputError(f"an observed matrix {list(given.shape)}: expected {[len(values), *matrices.shape[2:]]}.")
        found = d_scores(given, base)  # [K,V,T+1]
    return NullDissociation(
        tasks=names,
        masks=values.shape[2],
        draws=len(chosen),
        percentages=tuple(
            NullSummary.of(each, None if found is None else found[number]) for number, each in enumerate(scores)
        ),
        mean=NullSummary.of(scores.mean(0), None if found is None else found.mean(0)),
    )
