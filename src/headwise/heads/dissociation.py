"""Does losing one task's heads hurt that task, and that task more than the others? The D-score of Li et al. 2023.

Every number comes from M[s,t]: the metric of task t while the heads important to task s are silenced. A bootstrap over
validation examples gives intervals, and masks that belong to no task give the scores to expect by chance.

Shapes: K percentages, S tasks whose heads were pruned and T tasks that were evaluated (the same ones, in the same
order), V = 3 variants of the score, P pairs of tasks, n examples of a task, R resamples or random masks, C ways to give
random masks to tasks. What has K+1 rows has the mean over percentages last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations, product
from math import perm
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headwise.documents import finite
from headwise.errors import InputError
from headwise.metrics.classification import score
from headwise.metrics.resampling import Interval, bootstrap_scores

Values = NDArray[np.float64]

# Of task t, in points, with r[s,t] = M[s,t] / base[t]:
#   reference: the authors' score, 100 [mean_{j != t} M[t,j] - M[t,t]] / base[t]
#   row: specificity, 100 [mean_{j != t} r[t,j] - r[t,t]], losing t's heads hurts t more than the others
#   column: selectivity, 100 [mean_{s != t} r[s,t] - r[t,t]], t is hurt more by losing its own heads than others'
VARIANTS = ("reference", "row", "column")
# Retained shares, and scores in points, that differ by less than this are equal but for rounding.
SAME_SHARE, SAME_SCORE = 1e-12, 1e-9
RESAMPLES = 1_000

# -- arithmetic, for any number of matrices at once ------------------------------------------------------------------


def d_scores(matrix: Values, base: Values) -> Values:
    """[...,V,T+1]: the three scores of every task and, last, their mean.

    Args:
        matrix: [...,S,T] metrics under pruning; a row of NaN is a task that was not pruned.
        base: [...,T] metrics without.
    """
    known = has_base(base)
    compared = np.where(known[..., :, None] & known[..., None, :], matrix, np.nan)  # [...,S,T]
    retained = retained_share(compared, base)
    with np.errstate(over="ignore", invalid="ignore"):
        leads = (
            _lead_of_others(compared, -1) / np.where(known, base, np.nan),
            _lead_of_others(retained, -1),
            _lead_of_others(retained, -2),
        )
        scores = 100 * np.stack(leads, axis=-2)  # [...,V,T]
    return np.concatenate([scores, _mean_of(scores, np.isfinite(scores), -1)[..., None]], axis=-1)


def retained_share(matrix: Values, base: Values) -> Values:
    """r[...,s,t] = M[...,s,t] / base[...,t]; NaN in the columns of tasks with nothing to retain."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(matrix / np.where(has_base(base), base, np.nan)[..., None, :])


def has_base(base: Values) -> NDArray[np.bool_]:
    """Whether the metric of a task is above 0, so that a share of it can be retained."""
    return np.isfinite(base) & (base > 0)


def double_dissociation(retained: Values) -> Values:
    """[...,P] 1 if r[s,s] < r[s,t] and r[t,t] < r[t,s] for the pair s < t, else 0; NaN unless all four are known."""
    first, second = np.triu_indices(retained.shape[-1], 1)
    own = np.stack([retained[..., first, first], retained[..., second, second]])
    other = np.stack([retained[..., first, second], retained[..., second, first]])
    known = (np.isfinite(own) & np.isfinite(other)).all(0)
    with np.errstate(invalid="ignore"):
        return np.where(known, (own < other - SAME_SHARE).all(0), np.nan)


def _lead_of_others(values: Values, axis: int) -> Values:
    """[...,T]: the mean off the diagonal, along a row (-1) or column (-2), minus the diagonal."""
    own = np.diagonal(values, axis1=-2, axis2=-1)
    other = np.isfinite(values) & ~np.eye(values.shape[-1], dtype=bool)
    return _mean_of(values, other, axis) - own


def _mean_of(values: Values, which: NDArray[np.bool_], axis: int) -> Values:
    """The mean of some of the values; NaN where there are none."""
    count = which.sum(axis)
    total = np.where(which, values, 0.0).sum(axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


# -- plain data, ready for JSON --------------------------------------------------------------------------------------


def named_scores(scores: NDArray[Any], tasks: Sequence[str]) -> dict[str, Any]:
    """[V,T+1] as variant -> its mean, and its tasks by name."""
    return {
        name: {"mean": row[-1], "tasks": dict(zip(tasks, row[:-1], strict=True))}
        for name, row in zip(VARIANTS, finite(scores), strict=True)
    }


def named_pairs(values: Sequence[Any], tasks: Sequence[str]) -> list[dict[str, Any]]:
    """[P] as a list of pairs with their value."""
    return [{"tasks": list(pair), "holds": each} for pair, each in zip(combinations(tasks, 2), values, strict=True)]


# -- the scores of one matrix ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Dissociation:
    """The D-scores of one matrix, in points: 100 is all of a task's performance without pruning."""

    tasks: tuple[str, ...]
    retained: Values
    """[S,T] r[s,t] = M[s,t] / base[t]."""
    scores: Values
    """[V,T+1] by variant (see VARIANTS) and task, the mean over tasks last; NaN where there is no score."""
    undefined: dict[str, str]
    """Tasks that lack a score, and why."""

    @property
    def double(self) -> dict[tuple[str, str], bool | None]:
        """Whether each task of a pair is hurt more by losing its own heads than the other task is; None if unknown."""
        pairs = zip(combinations(self.tasks, 2), double_dissociation(self.retained), strict=True)
        return {pair: None if np.isnan(holds) else bool(holds) for pair, holds in pairs}

    @property
    def means(self) -> dict[str, float]:
        """The mean over tasks of each variant."""
        return dict(zip(VARIANTS, self.scores[:, -1].tolist(), strict=True))

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON; null where there is no number."""
        return {
            "tasks": list(self.tasks),
            "retained": finite(self.retained),
            **named_scores(self.scores, self.tasks),
            "double_dissociation": named_pairs(list(self.double.values()), self.tasks),
            "undefined": dict(self.undefined),
        }


def dissociation(matrix: ArrayLike, base: ArrayLike, *, tasks: Sequence[str] = ()) -> Dissociation:
    """The D-scores of one matrix of metrics, as the authors compute them and relative to each task's base.

    The authors subtract metrics of different tasks, so their score is not 0 when pruning changes nothing: a base of
    (0.9, 0.7) alone gives (-22.2, 28.6). The variants by row and column compare shares of each task's own base. Both
    are 0 if nothing changes, or if all tasks fall to the same share, and their means over tasks are equal as long as
    the heads of every task that has a score were pruned.

    A task whose base is 0, negative or NaN retains no share of anything: it has no score, and the others are compared
    without it, row and column. A task whose heads were not pruned (a row of NaN) has no score either, but others are
    compared with it by row.

    Args:
        matrix: [S,T] metric of each task (column) while the heads of each task (row) are silenced.
        base: [T] metric of each task with all heads.
        tasks: their names; numbers from 0 if left out.
    """
    values, bases = np.asarray(matrix, dtype=np.float64), np.asarray(base, dtype=np.float64)
    names = _checked_tasks(values.shape, bases.shape, tasks)
    for task, row in zip(names, values[:, has_base(bases)], strict=True):
        # A mean over half of a row would pass for a score.
        if not np.isnan(row).all() and not np.isfinite(row).all():
            raise InputError(
                f"the row of task {task} is {row.tolist()}: expected numbers for all tasks, or NaN for all if its "
                "heads were not pruned; evaluate every task under every mask."
            )
    scores, undefined = d_scores(values, bases), {}
    for index, task in enumerate(names):
        reasons = {
            "its metric without pruning is not a number": not np.isfinite(bases[index]),
            f"its metric without pruning is {bases[index]:.4g}: there is nothing to lose": bases[index] <= 0,
            "its heads were not pruned": np.isnan(values[index, index]),
            "no other task has a metric above 0 to compare with": not np.isfinite(scores[1, index]),
            "no other task's heads were pruned, so there is no score by column": not np.isfinite(scores[2, index]),
        }
        if reason := next((reason for reason, holds in reasons.items() if holds), None):
            undefined[task] = reason
    return Dissociation(names, retained_share(values, bases), scores, undefined)


def dissociations(matrices: ArrayLike, base: ArrayLike, *, tasks: Sequence[str] = ()) -> list[Dissociation]:
    """The D-scores of each percentage, from matrices [K,S,T], and last their mean over percentages.

    Scores are linear in the matrix, so the mean has the scores of the mean matrix.
    """
    parts = [dissociation(matrix, base, tasks=tasks) for matrix in np.asarray(matrices, dtype=np.float64)]
    if not parts:
        raise InputError("no percentages to take the mean of: give the matrix of at least one.")
    retained = np.mean([part.retained for part in parts], axis=0)
    scores = np.mean([part.scores for part in parts], axis=0)
    undefined = {name: reason for part in parts for name, reason in part.undefined.items()}
    return [*parts, Dissociation(parts[0].tasks, retained, scores, undefined)]


def _checked_tasks(matrix: tuple[int, ...], base: tuple[int, ...], tasks: Sequence[str]) -> tuple[str, ...]:
    """The names of the tasks, if the shapes [T,T] and [T] fit together and there are two tasks or more."""
    count = base[0] if base else 0
    names = tuple(tasks) or tuple(map(str, range(count)))
    if base != (count,) or matrix != (count, count) or len(names) != count:
        raise InputError(
            f"a matrix {list(matrix)}, a base {list(base)} and {len(names)} task names: expected [T,T], [T] and T of "
            "them, rows and columns in the same order."
        )
    if len(set(names)) != count:
        raise InputError(f"tasks {', '.join(names)}: expected each name once; rename those that are the same.")
    if count < 2:
        got = f"one task ({names[0]})" if names else "none"
        raise InputError(f"a D-score compares tasks: expected two or more, got {got}; train with `tasks:`.")
    return names


# -- the bootstrap over examples -------------------------------------------------------------------------------------


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
    """95 % percentile intervals of D-scores over validation examples."""

    resamples: int
    dropped: int
    """Resamples in which a task fell to a base of 0 or below: they do not count in scores and double."""
    base: Interval
    """[T]"""
    scores: Interval
    """[K+1,V,T+1], as in Dissociation."""
    double: Values
    """[K+1,P] the share of resamples with a double dissociation; NaN where that is unknown."""

    def as_dict(self, step: int, tasks: Sequence[str]) -> dict[str, Any]:
        """The intervals of one percentage, or of the mean (-1); plain data, null where there is no number."""
        return {
            "low": named_scores(self.scores.low[step], tasks),
            "high": named_scores(self.scores.high[step], tasks),
            "double_dissociation": named_pairs(finite(self.double[step]), tasks),
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
    """
    names = _checked_tasks((len(predictions),) * 2, (len(predictions),), tuple(predictions))
    rows = tuple(names if pruned is None else pruned)
    if not rows or len(set(rows)) != len(rows) or not set(rows) <= set(names):
        raise InputError(f"pruned tasks {', '.join(rows) or 'none'}: expected some of {', '.join(names)}, each once.")
    percents = len(predictions[names[0]].masked)
    tables = []
    for name, task in predictions.items():
        labels, whole, masked = (np.shape(each) for each in (task.labels, task.base, task.masked))
        if len(labels) != 1 or whole != labels or masked != (percents, len(rows), *labels) or not percents:
            raise InputError(
                f"predictions of task {name}: labels {list(labels)}, base {list(whole)} and masked {list(masked)}, "
                f"expected [n], [n] and [K,{len(rows)},n], K at least 1 and the same for all."
            )
        stacked = np.concatenate([np.asarray(task.base)[None], np.reshape(task.masked, (-1, len(task.labels)))])
        # By name, so that the draws of a task do not depend on the other tasks.
        seeds = (seed, *name.encode())
        tables.append(
            bootstrap_scores(task.metric, stacked, task.labels, resamples=resamples, seed=seeds, by_example=True)
        )
    scored = np.stack(tables, axis=-1)  # [R,1+KS,T]
    base = scored[:, 0]  # [R,T]
    matrix = np.full((resamples, percents, len(names), len(names)), np.nan)  # [R,K,S,T]
    matrix[:, :, [names.index(row) for row in rows]] = scored[:, 1:].reshape(resamples, percents, len(rows), -1)
    metrics = [score([task.metric], task.base, task.labels)[task.metric] for task in predictions.values()]
    compared = has_base(np.array(metrics))
    # Tasks that have no score in the data have none in any resample; a resample that loses another is dropped.
    whole_draws = (has_base(base) | ~compared).all(1)  # [R]
    kept_base, kept = np.where(compared, base, np.nan)[whole_draws][:, None], matrix[whole_draws]
    scores, retained = d_scores(kept, kept_base), retained_share(kept, kept_base)  # [R,K,V,T+1], [R,K,S,T]
    double = double_dissociation(_with_mean(retained, 1))  # [R,K+1,P]
    return DissociationIntervals(
        resamples=resamples,
        dropped=int((~whole_draws).sum()),
        base=Interval.of(base),
        scores=Interval.of(_with_mean(scores, 1)),
        double=_mean_of(double, np.isfinite(double), 0),
    )


def _with_mean(values: Values, axis: int) -> Values:
    """The same with its mean over an axis as one more entry, the last."""
    return np.concatenate([values, values.mean(axis, keepdims=True)], axis=axis)


# -- chance: the D-scores of masks that belong to no task ------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class NullDissociation:
    """The D-scores that random masks give; all arrays are [K+1,V,T+1]."""

    masks: int
    """How many random masks there were per percentage (and row)."""
    draws: int
    """How many ways of giving them to tasks were tried. They share masks, so few masks stay few, however many ways."""
    mean: Values
    deviation: Values
    low: Values
    """Lower end of the middle 95 %."""
    high: Values
    p: Values | None
    """(1 + draws that reach the observed score) / (1 + draws), one-sided; None if nothing was observed."""

    def as_dict(self, step: int, tasks: Sequence[str]) -> dict[str, Any]:
        """The scores of one percentage, or of the mean (-1); plain data, null where there is no number."""
        parts = {name: getattr(self, name) for name in ("mean", "deviation", "low", "high", "p")}
        return {name: None if part is None else named_scores(part[step], tasks) for name, part in parts.items()}


def null_dissociation(
    random_matrix: ArrayLike,
    base: ArrayLike,
    *,
    observed: ArrayLike | None = None,
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
        draws: the largest number of choices.
        seed: decides which, if not all.
    """
    values, bases = np.asarray(random_matrix, dtype=np.float64), np.asarray(base, dtype=np.float64)
    count, random, matched = bases.size, np.random.default_rng(seed), values.ndim == 4
    if matched and (values.shape[1::2] != (count, count) or not values.size):
        raise InputError(
            f"metrics of layer-matched masks {list(values.shape)} for {count} tasks: expected [K,{count},R,{count}], K "
            "and R at least 1."
        )
    if not matched:
        if values.ndim != 3 or not len(values) or values.shape[2] != count or values.shape[1] < count:
            raise InputError(
                f"metrics of random masks {list(values.shape)} for {count} tasks: expected [K,R,{count}], with at "
                "least as many random masks R as tasks, since each draw gives every task another one."
            )
        values = np.broadcast_to(values[:, None], (len(values), count, *values.shape[1:]))  # [K,S,R,T]
    repeats = values.shape[2]
    if (repeats**count if matched else perm(repeats, count)) <= draws:
        ways = product(range(repeats), repeat=count) if matched else permutations(range(repeats), count)
        choices = np.array(list(ways))
    elif matched:
        choices = random.integers(repeats, size=(draws, count))
    else:
        choices = np.array([random.permutation(repeats)[:count] for _ in range(draws)])
    matrices = values[:, np.arange(choices.shape[1]), choices]  # [K,C,S,T]
    _checked_tasks(matrices.shape[2:], bases.shape, ())
    scores = _with_mean(d_scores(matrices, bases), 0)  # [K+1,C,V,T+1]
    middle = Interval.of(np.moveaxis(scores, 1, 0))
    p = None
    if observed is not None:
        matrix, expected = np.asarray(observed, dtype=np.float64), (len(values), *matrices.shape[2:])
        if matrix.shape != expected:
            raise InputError(f"an observed matrix {list(matrix.shape)}: expected {list(expected)}.")
        reached = _with_mean(d_scores(matrix, bases), 0)  # [K+1,V,T+1]
        known = np.isfinite(reached) & np.isfinite(middle.low)
        count_reached = (scores >= reached[:, None] - SAME_SCORE).sum(1)
        p = np.where(known, (1 + count_reached) / (1 + len(choices)), np.nan)
    return NullDissociation(repeats, len(choices), scores.mean(1), scores.std(1), middle.low, middle.high, p)
