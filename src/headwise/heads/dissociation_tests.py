"""How far other validation examples would move a D-score (the bootstrap), and what it would be by chance.

Shapes: K percentages, S tasks whose heads were pruned, T tasks (S = T and the same order in M), V = 3 variants of the
score, P pairs of tasks, n examples of a task, R resamples or random masks, C ways to give random masks to tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from math import perm
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headwise.errors import InputError
from headwise.heads.dissociation import (
    Values,
    checked_tasks,
    d_scores,
    double_dissociation,
    has_base,
    named_pairs,
    named_scores,
    plain,
    retained_share,
)
from headwise.metrics.classification import score
from headwise.metrics.significance import Interval, bootstrap_scores

RESAMPLES = 1_000
# Scores, in points, that differ by less than this are the same but for rounding.
ROUNDING = 1e-9

# -- other examples --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TaskPredictions:
    """The predictions for the validation examples of one task, all in the same order."""

    metric: str
    """The task's primary metric, see METRICS."""
    labels: NDArray[Any]
    """[n] the true classes or numbers."""
    base: NDArray[Any]
    """[n] predicted classes, or numbers, with all heads."""
    masked: NDArray[Any]
    """[K,S,n] the same while the heads of each pruned task are silenced."""


@dataclass(frozen=True, eq=False)
class DissociationIntervals:
    """95 % percentile intervals of D-scores and of what they are computed from, over validation examples."""

    tasks: tuple[str, ...]
    resamples: int
    dropped: int
    """Resamples in which a task fell to a base of 0 or below: they have no part in scores and double."""
    base: Interval
    """[T]"""
    matrix: Interval
    """[K,S,T]"""
    scores: Interval
    """[K,V,T+1], as in Dissociation."""
    mean_scores: Interval
    """[V,T+1] of the means over percentages."""
    double: Values
    """[K,P] the share of resamples with a double dissociation; NaN where that is unknown."""
    mean_double: Values
    """[P] the same, of what is retained on average over percentages."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON; null where there is no number."""
        return {
            "tasks": list(self.tasks),
            "resamples": self.resamples,
            "dropped": self.dropped,
            "base": {"low": plain(self.base.low), "high": plain(self.base.high)},
            "matrix": {"low": plain(self.matrix.low), "high": plain(self.matrix.high)},
            "percentages": [
                self._named(Interval(low, high), double)
                for low, high, double in zip(self.scores.low, self.scores.high, self.double, strict=True)
            ],
            "mean": self._named(self.mean_scores, self.mean_double),
        }

    def _named(self, scores: Interval, double: Values) -> dict[str, Any]:
        return {
            "low": named_scores(scores.low, self.tasks),
            "high": named_scores(scores.high, self.tasks),
            "double_dissociation": named_pairs(plain(double), self.tasks),
        }


def bootstrap_dissociation(
    predictions: Mapping[str, TaskPredictions],
    *,
    pruned: Sequence[str] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> DissociationIntervals:
    """Intervals of D-scores over validation examples.

    The examples of a task are drawn with replacement, each task separately. All predictions of a task are scored on
    the same draw, so what pruning changes is compared within examples.

    Args:
        predictions: of every task, the same K percentages and S pruned tasks in each.
        pruned: the tasks whose heads were pruned, in the order of `masked`; all tasks if left out.
        resamples: how often to draw.
        seed: the same seed gives the same draws for a task, whatever the other tasks.

    Returns:
        The intervals.
    """
    names = checked_tasks((len(predictions),) * 2, (len(predictions),), tuple(predictions))
    rows = [names.index(name) for name in _checked_rows(predictions, pruned)]
    tables = []
    for name, task in predictions.items():
        stacked = np.concatenate([np.asarray(task.base)[None], np.reshape(task.masked, (-1, len(task.labels)))])
        seeds = (seed, *name.encode())  # so that the draws of a task do not depend on the other tasks
        tables.append(
            bootstrap_scores(task.metric, stacked, task.labels, resamples=resamples, seed=seeds, by_example=True)
        )
    base = np.stack([table[:, 0] for table in tables], axis=1)  # [R,T]
    percents = len(predictions[names[0]].masked)
    matrix = np.full((resamples, percents, len(names), len(names)), np.nan)  # [R,K,S,T]
    for number, table in enumerate(tables):
        matrix[:, :, rows, number] = table[:, 1:].reshape(resamples, percents, len(rows))
    metrics = [score([task.metric], task.base, task.labels)[task.metric] for task in predictions.values()]
    compared = has_base(np.array(metrics))
    # Tasks that have no score in the data have none in any resample; a resample that loses another is dropped.
    whole = (has_base(base) | ~compared).all(1)  # [R]
    kept_base, kept = np.where(compared, base, np.nan)[whole][:, None], matrix[whole]
    scores, retained = d_scores(kept, kept_base), retained_share(kept, kept_base)  # [R,K,V,T+1], [R,K,S,T]
    return DissociationIntervals(
        tasks=names,
        resamples=resamples,
        dropped=int((~whole).sum()),
        base=Interval.of(base),
        matrix=Interval.of(matrix),
        scores=Interval.of(scores),
        mean_scores=Interval.of(scores.mean(1)),
        double=_share_of_double(retained),
        mean_double=_share_of_double(retained.mean(1)),
    )


def _share_of_double(retained: Values) -> Values:
    holds, known = double_dissociation(retained)  # [R,...,P]
    count = known.sum(0)
    return np.where(count > 0, holds.sum(0) / np.maximum(count, 1), np.nan)


def _checked_rows(predictions: Mapping[str, TaskPredictions], pruned: Sequence[str] | None) -> tuple[str, ...]:
    """The tasks whose heads were pruned, if all shapes fit."""
    rows = tuple(predictions if pruned is None else pruned)
    if not rows or len(set(rows)) != len(rows) or not set(rows) <= set(predictions):
        raise InputError(
            f"pruned tasks {', '.join(rows) or 'none'}: expected some of {', '.join(predictions)}, each once."
        )
    percents = np.shape(next(iter(predictions.values())).masked)[:1] or (0,)
    for name, task in predictions.items():
        labels, base, masked = (np.shape(each) for each in (task.labels, task.base, task.masked))
        if len(labels) != 1 or base != labels or masked != (*percents, len(rows), *labels) or percents == (0,):
            raise InputError(
                f"predictions of task {name}: labels {list(labels)}, base {list(base)} and masked {list(masked)}, "
                f"expected [n], [n] and [K,{len(rows)},n], K at least 1 and the same for all."
            )
    return rows


# -- chance: D-scores of random masks, which belong to no task -------------------------------------------------------


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

    Layer-matched masks have as many heads in each layer as each task's own mask. What is left of an observed score
    beyond these is about which heads, not about how deep they sit. A draw gives each task any one of the masks that
    match its own; the masks of different tasks must be drawn independently.

    Args:
        random_matrix: [K,R,T] metric of each task under each of R random masks, R at least T; or, for layer-matched
            masks, [K,S,R,T] under each of the R random masks that match the mask of task s.
        base: [T] metric of each task with all heads.
        observed: [K,S,T] the matrix to test, if any.
        tasks: their names; numbers from 0 if left out.
        draws: at most so many choices.
        seed: decides which, if not all.

    Returns:
        The scores of the random masks, and how rare the observed ones are among them.
    """
    values, bases = np.asarray(random_matrix, dtype=np.float64), np.asarray(base, dtype=np.float64)
    count, random = bases.size, np.random.default_rng(seed)
    if values.ndim == 4:
        if values.shape[1::2] != (count, count) or not values.size:
            raise InputError(
                f"metrics of layer-matched masks {list(values.shape)} for {count} tasks: expected "
                f"[K,{count},R,{count}], K and R at least 1."
            )
        repeats = values.shape[2]
        if repeats**count <= draws:
            choices = np.array(list(product(range(repeats), repeat=count)))
        else:
            choices = random.integers(repeats, size=(draws, count))
    else:
        if values.ndim != 3 or not len(values) or values.shape[2] != count or values.shape[1] < count:
            raise InputError(
                f"metrics of random masks {list(values.shape)} for {count} tasks: expected [K,R,{count}], with at "
                "least as many random masks R as tasks, since each draw gives every task another one."
            )
        repeats = values.shape[1]
        if perm(repeats, count) <= draws:
            choices = np.array(list(permutations(range(repeats), count)))
        else:
            choices = np.array([random.permutation(repeats)[:count] for _ in range(draws)])
        values = np.broadcast_to(values[:, None], (len(values), count, *values.shape[1:]))  # [K,S,R,T]
    matrices = values[:, np.arange(choices.shape[1]), choices]  # [K,C,S,T]
    names = checked_tasks(matrices.shape[2:], bases.shape, tasks)
    scores = d_scores(matrices, bases)  # [K,C,V,T+1]
    observed_scores = None
    if observed is not None:
        matrix, expected = np.asarray(observed, dtype=np.float64), (len(values), *matrices.shape[2:])
        if matrix.shape != expected:
            raise InputError(f"an observed matrix {list(matrix.shape)}: expected {list(expected)}.")
        observed_scores = d_scores(matrix, bases)  # [K,V,T+1]
    return NullDissociation(
        tasks=names,
        masks=values.shape[2],
        draws=len(choices),
        percentages=tuple(
            NullSummary.of(each, None if observed_scores is None else observed_scores[number])
            for number, each in enumerate(scores)
        ),
        mean=NullSummary.of(scores.mean(0), None if observed_scores is None else observed_scores.mean(0)),
    )
