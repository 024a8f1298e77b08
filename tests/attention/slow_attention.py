"""Attention written out the slow and obvious way, and the same as an attention function for transformers models.

Nothing here uses headwise.

Shapes: B batch, H heads, Q queries, K keys, D head size.
"""

from __future__ import annotations

import torch
from conftest import FUSED
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import sdpa_mask


def slow_maps(query: Tensor, key: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """The map [B,H,Q,K]; the row of a query that sees no key is zero."""
    scores = query @ key.transpose(2, 3) * scale
    if mask is None:
        return scores.softmax(-1)
    seen = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
    if mask.dtype != torch.bool:
        scores = scores + mask.masked_fill(~seen, 0.0)
    blind = ~seen.any(-1, keepdim=True)
    scores = scores.masked_fill(~seen & ~blind, -torch.inf)
    return scores.softmax(-1).masked_fill(blind, 0.0)


def slow_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    valid: Tensor | None = None,
    factors: Tensor | None = None,
    after_dropout: bool = False,
) -> tuple[Tensor, Tensor]:
    """Output [B,Q,H,D] and received attention [B,H,K]; `factors` multiply the map as dropout does."""
    before = slow_maps(query, key, mask, query.shape[-1] ** -0.5)
    after = before if factors is None else before * factors
    votes = after if after_dropout else before
    if valid is not None:
        votes = votes * valid[:, None, :, None]
    return (after @ value).transpose(1, 2), votes.sum(2)


_maps: list[Tensor] = []


def _attend(module, query, key, value, attention_mask, dropout=0.0, scaling=None, **kwargs):
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    _maps.append(slow_maps(query, key, attention_mask, scale))
    return (_maps[-1] @ value).transpose(1, 2).contiguous(), None


AttentionInterface.register("slow-reference", _attend)
AttentionMaskInterface.register("slow-reference", sdpa_mask)


def model_maps(model: PreTrainedModel, batch: dict[str, Tensor]) -> list[Tensor]:
    """The maps [B,H,Q,K] of every layer of an unwatched model without dropout, rows of padding set to zero."""
    if model.config.model_type in FUSED:
        model.set_attn_implementation("slow-reference")
        _maps.clear()
        model(**batch)
        model.set_attn_implementation("sdpa")
        maps = list(_maps)
    else:
        model.set_attn_implementation("eager")
        maps = list(model(**batch, output_attentions=True).attentions)
    return [each * batch["attention_mask"][:, None, :, None] for each in maps]
