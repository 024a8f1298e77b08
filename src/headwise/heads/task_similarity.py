"""How alike tasks are, seen from the heads they need.

Shapes: N layers, H heads, T tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headwise.errors import InputError
from headwise.heads.d_scores import Values
from headwise.heads.plain_numbers import plain
from headwise.heads.pruning import top_heads
from headwise.heads.stability import SHARES, jaccard
from headwise.metrics import score


@dataclass(frozen=True, eq=False)
class ImportanceSimilarity:
    """How far tasks need the same heads."""

    tasks: tuple[str, ...]
    pearson: Values
    """[T,T] correlation of importance over all heads; 0 with a task for which all heads are equal."""
    spearman: Values
    """[T,T] the same, of ranks."""
    overlap: dict[float, Values]
    """Share of heads -> [T,T] Jaccard overlap of the tasks' most important heads, |both| / |either|."""
    chance: dict[float, float]
    """Share of heads -> the overlap to expect of heads chosen at random."""
    per_layer: dict[float, NDArray[np.int64]]
    """Share of heads -> [T,N] how many of a task's most important heads each layer has."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {
            "tasks": list(self.tasks),
            "pearson": plain(self.pearson),
            "spearman": plain(self.spearman),
            "overlap": {str(share): plain(values) for share, values in self.overlap.items()},
            "chance": {str(share): value for share, value in self.chance.items()},
            "per_layer": {str(share): plain(counts) for share, counts in self.per_layer.items()},
        }


def importance_similarity(scores: Mapping[str, ArrayLike], *, shares: Sequence[float] = SHARES) -> ImportanceSimilarity:
    """Compare the importance of heads between tasks.

    Args:
        scores: importance [N,H] of the same heads by task.
        shares: which shares of all heads to call important; those that mean no head are left out.

    Returns:
        Correlations and overlaps between all tasks.
    """
    values = {task: np.asarray(each, dtype=np.float64) for task, each in scores.items()}
    _check_scores(values)
    flat = [each.ravel() for each in values.values()]
    size = flat[0].size
    tops = {
        share: np.stack([top_heads(each, share) for each in values.values()])  # [T,N,H]
        for share in shares
        if int(share * size) > 0
    }
    return ImportanceSimilarity(
        tasks=tuple(values),
        pearson=_between(flat, lambda one, other: score(["pearson"], one, other)["pearson"]),
        spearman=_between(flat, lambda one, other: score(["spearman"], one, other)["spearman"]),
        overlap={share: _between(list(top), jaccard) for share, top in tops.items()},
        chance={share: _chance_overlap(int(top[0].sum()), size) for share, top in tops.items()},
        per_layer={share: top.sum(2) for share, top in tops.items()},
    )


def _between(vectors: Sequence[Any], alike: Callable[[Any, Any], float]) -> Values:
    return np.array([[alike(one, other) for other in vectors] for one in vectors])


def _chance_overlap(chosen: int, size: int) -> float:
    """The mean Jaccard overlap of two random sets: sum_i P(i in both) i / (2 chosen - i)."""
    ways = {both: comb(chosen, both) * comb(size - chosen, chosen - both) for both in range(1, chosen + 1)}
    return sum(count / comb(size, chosen) * both / (2 * chosen - both) for both, count in ways.items())


def _check_scores(scores: Mapping[str, Values]) -> None:
    if len(scores) < 2:
        raise InputError(f"importance of {', '.join(scores) or 'no task'}: similarity needs two tasks or more.")
    shapes = {task: values.shape for task, values in scores.items()}
    if len(set(shapes.values())) != 1:
        found = ", ".join(f"{task} {list(shape)}" for task, shape in shapes.items())
        raise InputError(f"importance of {found}: expected the same layers and heads for all tasks.")
