"""Attention with explicit maps, for the heads whose maps somebody wants to see; the others stay on SDPA.

Shapes: B batch, H heads, Q queries, K keys, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headwise.attention.selection import without
from headwise.attention.visibility import additive, blind_rows


def attention_with_maps(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    heads: Sequence[int],
    *,
    mask: Tensor | None,
    scale: float,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of all heads, and the maps of the chosen ones.

    Returns:
        out [B,Q,H,D], and the maps of `heads`, [B,n,Q,K], before and after dropout (the same tensor if there is none).
    """
    count = query.shape[1]
    if len(heads) == count:
        out, before, after = _explicit(query, key, value, mask, scale, dropout)
        return out.transpose(1, 2).contiguous(), before, after
    chosen, rest = list(heads), without(heads, count)
    seen, before, after = _explicit(
        query[:, chosen], key[:, chosen], value[:, chosen], _of_heads(mask, chosen), scale, dropout
    )
    unseen = torch.nn.functional.scaled_dot_product_attention(
        query[:, rest],
        key[:, rest],
        value[:, rest],
        attn_mask=_of_heads(mask, rest),
        dropout_p=dropout,
        scale=scale,
    )
    order = torch.tensor(chosen + rest, device=query.device).argsort()
    out = torch.cat([seen, unseen], 1)[:, order]
    return out.transpose(1, 2).contiguous(), before, after


def _explicit(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, dropout: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The steps of transformers' eager attention in the same order, so that the results are the same bits."""
    scores = torch.matmul(query, key.transpose(2, 3)) * scale
    if mask is not None:
        scores = scores + additive(mask, scores.dtype)
    compute = torch.promote_types(query.dtype, torch.float32)
    before = torch.softmax(scores, -1, dtype=compute)
    if mask is not None:
        before = before.masked_fill(blind_rows(mask).unsqueeze(-1), 0.0)
    after = torch.nn.functional.dropout(before, dropout) if dropout > 0 else before
    return torch.matmul(after.to(value.dtype), value), before, after


def _of_heads(mask: Tensor | None, heads: list[int]) -> Tensor | None:
    return mask if mask is None or mask.shape[1] == 1 else mask[:, heads]
