"""Does losing one task's heads hurt that task, and that task more than the others? The D-score of Li et al. 2023.

Every number comes from M[s,t]: the metric of task t while the heads important to task s are silenced.

Shapes: K percentages, S tasks whose heads were pruned and T tasks that were evaluated (the same ones, in the same
order), V = 3 variants of the score, P pairs of tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headwise.errors import InputError

Values = NDArray[np.float64]

# Of task t, in points, with r[s,t] = M[s,t] / base[t]:
#   reference: the authors' score, 100 [mean_{j != t} M[t,j] - M[t,t]] / base[t]
#   row: specificity, 100 [mean_{j != t} r[t,j] - r[t,t]], losing t's heads hurts t more than the others
#   column: selectivity, 100 [mean_{s != t} r[s,t] - r[t,t]], t is hurt more by losing its own heads than others'
VARIANTS = ("reference", "row", "column")
# Retained shares that differ by less than this are the same but for rounding.
ROUNDING = 1e-12

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
    """Whether a task has performance that it could retain."""
    return np.isfinite(base) & (base > 0)


def double_dissociation(retained: Values) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """[...,P] whether r[s,s] < r[s,t] and r[t,t] < r[t,s] for each pair s < t, and whether all four are known."""
    first, second = np.triu_indices(retained.shape[-1], 1)
    own = np.stack([retained[..., first, first], retained[..., second, second]])
    other = np.stack([retained[..., first, second], retained[..., second, first]])
    known = (np.isfinite(own) & np.isfinite(other)).all(0)
    with np.errstate(invalid="ignore"):
        hurt_more = (own < other - ROUNDING).all(0)
    return np.asarray(hurt_more & known), np.asarray(known)


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


def plain(values: NDArray[Any]) -> list[Any]:
    """Nested lists, with None for what is not finite."""
    nested: list[Any] = np.where(np.isfinite(values), values.astype(object), np.array(None)).tolist()
    return nested


def named_scores(scores: NDArray[Any], tasks: Sequence[str]) -> dict[str, Any]:
    """[V,T+1] as variant -> its mean, and its tasks by name."""
    return {
        name: {"mean": row[-1], "tasks": dict(zip(tasks, row[:-1], strict=True))}
        for name, row in zip(VARIANTS, plain(scores), strict=True)
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
    double: dict[tuple[str, str], bool | None]
    """Whether each task of a pair is hurt more by losing its own heads than the other task is; None if unknown."""
    undefined: dict[str, str]
    """Tasks that lack a score, and why."""

    @property
    def means(self) -> dict[str, float]:
        """The mean over tasks of each variant."""
        return dict(zip(VARIANTS, self.scores[:, -1].tolist(), strict=True))

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON; null where there is no number."""
        return {
            "tasks": list(self.tasks),
            "retained": plain(self.retained),
            **named_scores(self.scores, self.tasks),
            "double_dissociation": named_pairs(list(self.double.values()), self.tasks),
            "undefined": dict(self.undefined),
        }


def dissociation(matrix: ArrayLike, base: ArrayLike, *, tasks: Sequence[str] = ()) -> Dissociation:
    """The D-scores of one matrix of metrics, as the authors compute them and relative to each task's base.

    The authors subtract metrics of different tasks, so their score is not 0 when pruning changes nothing: a base of
    (0.9, 0.7) alone gives (-22.2, 28.6). The variants by row and column compare shares of each task's own base. Both
    are 0 if nothing happens, or if all tasks fall to the same share, and their means over tasks are equal as long as
    the heads of every task that has a score were pruned.

    A task whose base is 0, negative or NaN keeps no share of anything: it has no score, and the others are compared
    without it, row and column. A task whose heads were not pruned (a row of NaN) has no score either, but others are
    compared with it by row.

    Args:
        matrix: [S,T] metric of each task (column) while the heads of each task (row) are silenced.
        base: [T] metric of each task with all heads.
        tasks: their names; numbers from 0 if left out.

    Returns:
        The scores.
    """
    values, bases = np.asarray(matrix, dtype=np.float64), np.asarray(base, dtype=np.float64)
    names = checked_tasks(values.shape, bases.shape, tasks)
    for task, row in zip(names, values[:, has_base(bases)], strict=True):
        # A mean over half of a row would pass for a score.
        if not np.isnan(row).all() and not np.isfinite(row).all():
            raise InputError(
                f"the row of task {task} is {row.tolist()}: expected numbers for all tasks, or NaN for all if its "
                "heads were not pruned; evaluate every task under every mask."
            )
    scores = d_scores(values, bases)
    reasons = {task: _why_undefined(number, values, bases, scores) for number, task in enumerate(names)}
    undefined = {task: reason for task, reason in reasons.items() if reason}
    return _dissociation(names, retained_share(values, bases), scores, undefined)


def over_percents(parts: Sequence[Dissociation]) -> Dissociation:
    """The mean over percentages; scores are linear in the matrix, so these are the scores of the mean matrix."""
    if not parts:
        raise InputError("no percentages to take the mean of: give the scores of at least one.")
    for part in parts:
        if part.tasks != parts[0].tasks:
            raise InputError(
                f"tasks {', '.join(parts[0].tasks)} and {', '.join(part.tasks)}: expected the same tasks in the same "
                "order for all percentages."
            )
    retained = np.mean([part.retained for part in parts], axis=0)
    scores = np.mean([part.scores for part in parts], axis=0)
    undefined = {name: reason for part in parts for name, reason in part.undefined.items()}
    return _dissociation(parts[0].tasks, retained, scores, undefined)


def _dissociation(tasks: tuple[str, ...], retained: Values, scores: Values, undefined: dict[str, str]) -> Dissociation:
    flags = [bool(holds) if known else None for holds, known in zip(*double_dissociation(retained), strict=True)]
    return Dissociation(tasks, retained, scores, dict(zip(combinations(tasks, 2), flags, strict=True)), undefined)


def checked_tasks(matrix: tuple[int, ...], base: tuple[int, ...], tasks: Sequence[str]) -> tuple[str, ...]:
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


def _why_undefined(task: int, matrix: Values, base: Values, scores: Values) -> str | None:
    """Why a task lacks a score, or None if it has all."""
    if not np.isfinite(base[task]):
        return "its metric without pruning is not a number"
    if base[task] <= 0:
        return f"its metric without pruning is {base[task]:.4g}: there is nothing to lose"
    if np.isnan(matrix[task, task]):
        return "its heads were not pruned"
    by_row, by_column = scores[1:, task]
    if not np.isfinite(by_row):
        return "no other task has a metric above 0 to compare with"
    return None if np.isfinite(by_column) else "no other task's heads were pruned, so there is no score by column"
