"""Arrays of numbers as plain data, ready for JSON: None for what is not a number, names for places.

Shapes: V = 3 variants of the score, T tasks, P pairs of tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.heads.d_scores import VARIANTS


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
