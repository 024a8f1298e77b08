"""Pool tokens by how much they matter.

Shapes: B examples, T tokens, D size of a state.
"""

from __future__ import annotations

import torch
from torch import Tensor


def kept_tokens(scores: Tensor, eligible: Tensor, threshold: float) -> Tensor:
    """[B,T] which tokens are pooled: eligible ones with a score of at least the threshold.

    Where no token reaches it, all eligible ones are (the authors' code then spreads over padding and special tokens).
    """
    kept = eligible & (scores >= threshold)
    return torch.where(kept.any(1, keepdim=True), kept, eligible)


def pooling_weights(values: Tensor, kept: Tensor) -> Tensor:
    """[B,T] softmax of the values over the kept tokens, 0 elsewhere; an example without any has only zeros."""
    lowest = torch.finfo(values.dtype).min
    weights = values.masked_fill(~kept, lowest).softmax(1)
    return weights.masked_fill(~kept, 0.0)


def pooled(states: Tensor, weights: Tensor) -> Tensor:
    """[B,D] the weighted sum of the states."""
    return torch.einsum("bt,btd->bd", weights.to(states.dtype), states)


def blend(own: Tensor, context: Tensor, cls_weight: float, some: Tensor) -> Tensor:
    """[B,D] cls_weight x own + (1 - cls_weight) x context; where there is no text (`some` [B] is False), own alone."""
    return torch.where(some[:, None], cls_weight * own + (1 - cls_weight) * context, own)
