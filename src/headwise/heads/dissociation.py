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
from headwise.metrics.significance import mean_interval

# The arithmetic of D-scores, for any number of matrices at once; see dissociation.py for what they mean.


Values = NDArray[np.float64]

VARIANTS = ("reference", "row", "column")
# Retained shares that differ by less than this are the same but for rounding.
ROUNDING = 1e-12


def retained_share(matrix: Values, base: Values) -> Values:
    """r[...,s,t] = M[...,s,t] / base[...,t]; NaN in the columns of tasks with nothing to retain."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(matrix / np.where(has_base(base), base, np.nan)[..., None, :])


def d_scores(matrix: Values, base: Values) -> Values:
    """[...,V,T+1]: the three scores of every task and, last, their mean, for any number of matrices at once.

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


def double_dissociation(retained: Values) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """[...,P] whether r[s,s] < r[s,t] and r[t,t] < r[t,s] for each pair s < t, and whether that can be told."""
    first, second = np.triu_indices(retained.shape[-1], 1)
    own = np.stack([retained[..., first, first], retained[..., second, second]])
    other = np.stack([retained[..., first, second], retained[..., second, first]])
    told = (np.isfinite(own) & np.isfinite(other)).all(0)
    with np.errstate(invalid="ignore"):
        hurt_more = (own < other - ROUNDING).all(0)
    return np.asarray(hurt_more & told), np.asarray(told)


def has_base(base: Values) -> NDArray[np.bool_]:
    """Whether a task has performance that it could retain."""
    return np.isfinite(base) & (base > 0)


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


# Arrays of numbers as plain data, ready for JSON: None for what is not a number, names for places.


def plain(values: NDArray[Any]) -> list[Any]:
    """Nested lists, with None for what is not a number."""
    return [plain(each) if isinstance(each, np.ndarray) else _number(each) for each in values]


def named_scores(scores: NDArray[Any], tasks: Sequence[str]) -> dict[str, Any]:
    """[V,T+1] as variant -> its mean, and its tasks by name."""
    return {
        name: {"mean": _number(row[-1]), "tasks": {task: _number(row[at]) for at, task in enumerate(tasks)}}
        for name, row in zip(VARIANTS, scores, strict=True)
    }


def named_pairs(values: Sequence[Any], tasks: Sequence[str]) -> list[dict[str, Any]]:
    """[P] as a list of pairs with their value."""
    return [{"tasks": list(pair), "holds": each} for pair, each in zip(combinations(tasks, 2), values, strict=True)]


def _number(value: Any) -> float | int | None:
    if not np.isfinite(value):
        return None
    return int(value) if np.issubdtype(type(value), np.integer) else float(value)


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
    def reference(self) -> Values:
        """[T] the authors' D-score: 100 [mean_{j != t} M[t,j] - M[t,t]] / base[t]."""
        return self._of("reference")

    @property
    def row(self) -> Values:
        """[T] specificity: 100 [mean_{j != t} r[t,j] - r[t,t]], losing t's heads hurts t more than the others."""
        return self._of("row")

    @property
    def column(self) -> Values:
        """[T] selectivity: 100 [mean_{s != t} r[s,t] - r[t,t]], t is hurt more by losing its own heads than others'."""
        return self._of("column")

    @property
    def means(self) -> dict[str, float]:
        """The mean over tasks of each variant."""
        return {name: float(self.scores[number, -1]) for number, name in enumerate(VARIANTS)}

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON; null where there is no number."""
        return {
            "tasks": list(self.tasks),
            "retained": plain(self.retained),
            **named_scores(self.scores, self.tasks),
            "double_dissociation": named_pairs(list(self.double.values()), self.tasks),
            "undefined": dict(self.undefined),
        }

    def _of(self, variant: str) -> Values:
        return self.scores[VARIANTS.index(variant), :-1]


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
    _check_rows(values, bases, names)
    retained, scores = retained_share(values, bases), d_scores(values, bases)
    return Dissociation(
        tasks=names,
        retained=retained,
        scores=scores,
        double=dict(zip(combinations(names, 2), _flags(retained), strict=True)),
        undefined=_undefined(values, bases, scores, names),
    )


def over_percents(parts: Sequence[Dissociation]) -> Dissociation:
    """The mean over percentages; scores are linear in the matrix, so these are the scores of the mean matrix."""
    tasks = _same_tasks(parts, "percentages")
    retained = np.mean([part.retained for part in parts], axis=0)
    return Dissociation(
        tasks=tasks,
        retained=retained,
        scores=np.mean([part.scores for part in parts], axis=0),
        double=dict(zip(combinations(tasks, 2), _flags(retained), strict=True)),
        undefined={name: reason for part in parts for name, reason in part.undefined.items()},
    )


@dataclass(frozen=True, eq=False)
class SeedDissociation:
    """D-scores over seeds. A seed in which a task has no score says nothing about that task."""

    tasks: tuple[str, ...]
    seeds: int
    defined: NDArray[np.int64]
    """[V,T+1] how many of the seeds have the score; so for all arrays below, which are laid out as in Dissociation."""
    mean: Values
    deviation: Values
    """Standard deviation over seeds; NaN for fewer than two."""
    half_width: Values
    """Half of the 95 % t interval of the mean; NaN for fewer than two."""
    double: dict[tuple[str, str], float | None]
    """The share of the seeds in which a pair dissociates doubly, of those that can tell."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON; null where there is no number."""
        arrays = {name: getattr(self, name) for name in ("defined", "mean", "deviation", "half_width")}
        return {
            "tasks": list(self.tasks),
            "seeds": self.seeds,
            **{name: named_scores(values, self.tasks) for name, values in arrays.items()},
            "double_dissociation": named_pairs(list(self.double.values()), self.tasks),
        }


def over_seeds(parts: Sequence[Dissociation]) -> SeedDissociation:
    """Mean, standard deviation and 95 % t interval of every score over runs that differ in their seed."""
    tasks = _same_tasks(parts, "seeds")
    scores = np.stack([part.scores for part in parts])  # [seeds,V,T+1]
    summaries = np.array([mean_interval(column[np.isfinite(column)]) for column in scores.reshape(len(parts), -1).T])
    mean, deviation, half_width = (values.reshape(scores.shape[1:]) for values in summaries.T)
    double: dict[tuple[str, str], float | None] = {}
    for pair in combinations(tasks, 2):
        told = [flag for part in parts if (flag := part.double[pair]) is not None]
        double[pair] = sum(told) / len(told) if told else None
    return SeedDissociation(tasks, len(parts), np.isfinite(scores).sum(0), mean, deviation, half_width, double)


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
        found = f"one task ({names[0]})" if names else "none"
        raise InputError(f"a D-score compares tasks: expected two or more, got {found}; train with `tasks:`.")
    return names


def _flags(retained: Values) -> list[bool | None]:
    holds, told = double_dissociation(retained)
    return [bool(flag) if known else None for flag, known in zip(holds, told, strict=True)]


def _check_rows(matrix: Values, base: Values, tasks: tuple[str, ...]) -> None:
    """A row is there or not: a mean over half of one would pass for a score."""
    compared = has_base(base)
    for task, row in zip(tasks, matrix[:, compared], strict=True):
        if not np.isnan(row).all() and not np.isfinite(row).all():
            raise InputError(
                f"the row of task {task} is {row.tolist()}: expected numbers for all tasks, or NaN for all if its "
                "heads were not pruned; evaluate every task under every mask."
            )


def _undefined(matrix: Values, base: Values, scores: Values, tasks: tuple[str, ...]) -> dict[str, str]:
    reasons = {}
    for number, task in enumerate(tasks):
        by_row, by_column = scores[1:, number]
        if not np.isfinite(base[number]):
            reasons[task] = "its metric without pruning is not a number"
        elif base[number] <= 0:
            reasons[task] = f"its metric without pruning is {base[number]:.4g}: there is nothing to lose"
        elif np.isnan(matrix[number, number]):
            reasons[task] = "its heads were not pruned"
        elif not np.isfinite(by_row):
            reasons[task] = "no other task has a metric above 0 to compare with"
        elif not np.isfinite(by_column):
            reasons[task] = "no other task's heads were pruned, so there is no score by column"
    return reasons


def _same_tasks(parts: Sequence[Dissociation], what: str) -> tuple[str, ...]:
    if not parts:
        raise InputError(f"no {what} to take the mean of: give the scores of at least one.")
    for part in parts:
        if part.tasks != parts[0].tasks:
            raise InputError(
                f"tasks {', '.join(parts[0].tasks)} and {', '.join(part.tasks)}: expected the same tasks in the same "
                f"order for all {what}."
            )
    return parts[0].tasks
