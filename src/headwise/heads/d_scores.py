"""The arithmetic of D-scores, for any number of matrices at once; see dissociation.py for what they mean.

M[s,t] is the metric of task t while the heads important to task s are silenced.

Shapes: S tasks whose heads were pruned and T tasks that were evaluated (the same ones, in the same order), V = 3
variants of the score, P pairs of tasks.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
