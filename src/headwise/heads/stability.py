"""How sure importance is: running sums over examples, from which come the means, their intervals and two halves.

No value of a single example is kept, so memory does not grow with the data.

Shapes: N layers, H heads, B batch, M heads of all layers in one row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise.errors import StateError
from headwise.heads.pruning import top_heads
from headwise.metrics import score

SHARES = (0.1, 0.2, 0.3, 0.5)

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Stability:
    """How alike the ranking is when it is made from the even and from the odd examples."""

    spearman: float
    """Rank correlation of the two halves over all heads."""
    overlap: dict[float, float]
    """Share of heads -> Jaccard overlap of the two halves' most important heads, |both| / |either|."""

    @classmethod
    def between(cls, first: Array, second: Array) -> Stability:
        """Compare two vectors [M] of scores of the same heads; shares that mean no head are left out."""
        overlap = {}
        for share in (each for each in SHARES if each * first.size >= 1):
            one, other = top_heads(first[None], share), top_heads(second[None], share)
            overlap[share] = jaccard(one, other)
        return cls(score(["spearman"], first, second)["spearman"], overlap)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {"spearman": self.spearman, "overlap": {str(share): value for share, value in self.overlap.items()}}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Stability:
        """What `as_dict` gave."""
        overlap = {float(share): float(value) for share, value in data["overlap"].items()}
        return cls(float(data["spearman"]), overlap)


def jaccard(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    """The overlap of two choices of heads, |both| / |either|."""
    return float((one & other).sum() / (one | other).sum())


class RunningSums:
    """Sums over examples x of a value a(x) per head, and of a size n(x).

    The size is the number of tokens, or 1. The mean is sum a / sum n; with n = 1 it is the plain mean. Its standard
    error is sqrt(sum (a - mean * n)^2 / (X (X - 1))) / (sum n / X) over X examples: for n = 1 the usual one, else that
    of a ratio by the delta method.
    """

    def __init__(self, *, by_token: bool) -> None:
        """Nothing seen yet."""
        self.examples = 0
        self._by_token = by_token
        self._sums: list[Tensor] = []

    def add(self, values: Tensor, tokens: Tensor) -> None:
        """Count one batch; everything stays on the model's device, so that nobody waits for it.

        Args:
            values: [N,B,H] a of every example.
            tokens: [B] how many tokens every example has.
        """
        precise = torch.float32 if values.device.type == "mps" else torch.float64  # mps knows no float64
        values, tokens = values.to(precise), tokens.to(precise)
        sizes = tokens if self._by_token else torch.ones_like(tokens)
        even = (torch.arange(len(sizes), device=sizes.device) + self.examples) % 2 == 0
        halves = torch.stack([even, ~even]).to(precise)  # [2,B]
        new = [
            torch.einsum("zb,nbh->znh", halves, values),
            halves @ sizes,
            torch.einsum("nbh,nbh->nh", values, values),
            torch.einsum("nbh,b->nh", values, sizes),
            sizes @ sizes,
            tokens.sum(),
        ]
        self._sums = [old + more for old, more in zip(self._sums, new, strict=True)] if self._sums else new
        self.examples += len(sizes)

    def results(self) -> Means:
        """The means over all examples so far; at least one must have been added."""
        values, sizes, *squares, tokens = (each.double().cpu().numpy() for each in self._sums)
        if not all(np.isfinite(each).all() for each in (values, *squares)):
            raise StateError(
                "the gradients of the gates are not finite: has training diverged, or is the model in fp16? "
                "Use fp32 or bf16."
            )
        mean = values.sum(0) / sizes.sum()
        if self.examples == 1:
            return Means(mean, None, None, int(tokens))
        of_values, of_both, of_sizes = squares
        # Rounding may leave a little less than nothing.
        spread = np.maximum(of_values - 2 * mean * of_both + mean**2 * of_sizes, 0.0)
        error = np.sqrt(spread * self.examples / (self.examples - 1)) / sizes.sum()
        return Means(mean, error, values / sizes[:, None, None], int(tokens))


@dataclass(frozen=True)
class Means:
    """What running sums tell."""

    mean: Array
    """[N,H]"""
    error: Array | None
    """[N,H] standard error of the mean; None for a single example."""
    halves: Array | None
    """[2,N,H] the means of the even and of the odd examples; None for a single example."""
    tokens: int
