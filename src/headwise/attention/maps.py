"""Attention with explicit maps, for the heads whose maps somebody wants to see; the others go another way.

Shapes: B batch, H heads, n of them chosen, Q queries, K keys, D head size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from headwise.attention.passes import pick, without
from headwise.attention.visibility import additive, blind_rows

# Attention of the other heads: (query, key, value, mask) -> out [B,Q,m,D].
Rest = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]


def attention_with_maps(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    heads: Sequence[int],
    *,
    mask: Tensor | None,
    scale: float,
    dropout: float,
    rest: Rest,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of all heads, and the maps of the chosen ones.

    Returns:
        out [B,Q,H,D], and the maps of `heads`, [B,n,Q,K], before and after dropout (the same tensor if there is none).
    """
    others = without(heads, query.shape[1])
    seen, before, after = _explicit(
        pick(query, heads), pick(key, heads), pick(value, heads), _of_heads(mask, heads), scale, dropout
    )
    seen = seen.transpose(1, 2)
    if not others:
        return seen.contiguous(), before, after
    unseen = rest(pick(query, others), pick(key, others), pick(value, others), _of_heads(mask, others))
    out = torch.cat([seen, unseen], 2)
    order = [*heads, *others]
    if order != sorted(order):
        out = out[:, :, torch.tensor(order, device=query.device).argsort()]
    return out, before, after


def _explicit(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, dropout: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The steps of transformers' eager attention in the same order, so that the results are the same bits."""
    bias = None if mask is None else additive(mask, query.dtype)
    blind = None if mask is None else _blind(mask)
    if bias is not None and bias.requires_grad:
        return _learned_bias(query, key, value, bias, blind, scale, dropout)
    if dropout == 0 and not torch.is_grad_enabled():
        before = _weights(query, key, bias, blind, scale)
        return torch.matmul(before.to(value.dtype), value), before, before
    out, before, after = _Explicit.apply(query, key, value, bias, blind, scale, dropout)  # type: ignore[no-untyped-call]
    return out, before, before if after is None else after


def _blind(mask: Tensor) -> Tensor | None:
    """[B,H,Q,1] True where a query sees no key; on a processor None if all see one, which spares a way over the maps.

    Elsewhere to ask would mean to wait for the device.
    """
    blind = blind_rows(mask).unsqueeze(-1)
    return None if blind.device.type == "cpu" and not bool(blind.any()) else blind


class _Explicit(torch.autograd.Function):
    """Keeps no map for the backward pass, which makes it again, and of dropout only which weights it left.

    Whoever looks at the map keeps it, or its gradient: guides of all layers have their gradients ready before the first
    layer asks for its own. A second copy here would double what maps cost in memory; to make it again costs little.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        blind: Tensor | None,
        scale: float,
        dropout: float,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        before = _weights(query, key, bias, blind, scale)
        kept = torch.empty_like(before, dtype=torch.bool).bernoulli_(1 - dropout) if dropout > 0 else None
        after = before if kept is None else _dropped(before, kept, dropout)
        ctx.save_for_backward(query, key, value, bias, blind, kept)
        ctx.scale, ctx.dropout, ctx.autocast = scale, dropout, _autocast(query.device.type)
        ctx.set_materialize_grads(False)
        return torch.matmul(after.to(value.dtype), value), before, None if kept is None else after

    @staticmethod
    def backward(
        ctx: Any, out_gradient: Tensor | None, before_gradient: Tensor | None, after_gradient: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        query, key, value, bias, blind, kept = ctx.saved_tensors
        with torch.autocast(query.device.type, **ctx.autocast):
            before = _weights(query, key, bias, blind, ctx.scale)
        gradient, value_gradient = after_gradient, None
        if out_gradient is not None:
            after = before if kept is None else _dropped(before, kept, ctx.dropout)
            value_gradient = torch.matmul(after.transpose(2, 3).to(out_gradient.dtype), out_gradient)
            del after
            through_out = torch.matmul(out_gradient, value.transpose(2, 3)).to(before.dtype)
            gradient = through_out if gradient is None else through_out.add_(gradient)
        if gradient is not None and kept is not None:
            gradient = _dropped(gradient, kept, ctx.dropout)
        if before_gradient is not None:
            gradient = before_gradient if gradient is None else gradient.add_(before_gradient)
        if gradient is None:
            return (None,) * 7
        # A row of zeros (a blind query) gets zeros here.
        scores = torch._softmax_backward_data(gradient, before, -1, before.dtype).mul_(ctx.scale).to(query.dtype)
        query_gradient = torch.matmul(scores, key)
        key_gradient = torch.matmul(scores.transpose(2, 3), query)
        return query_gradient, key_gradient, value_gradient, None, None, None, None


def _weights(query: Tensor, key: Tensor, bias: Tensor | None, blind: Tensor | None, scale: float) -> Tensor:
    """[B,n,Q,K] before dropout."""
    scores = torch.matmul(query, key.transpose(2, 3)).mul_(scale)
    if bias is not None:
        scores = scores.add_(bias)
    weights = torch.softmax(scores, -1, dtype=torch.promote_types(query.dtype, torch.float32))
    return weights if blind is None else weights.masked_fill_(blind, 0.0)


def _autocast(device: str) -> dict[str, Any]:
    """What is to be restored when the map is made again."""
    return {"enabled": torch.is_autocast_enabled(device), "dtype": torch.get_autocast_dtype(device)}


def _dropped(weights: Tensor, kept: Tensor, dropout: float) -> Tensor:
    return torch.mul(weights, kept).mul_(1 / (1 - dropout))


def _learned_bias(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor, blind: Tensor | None, scale: float, dropout: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The same by autograd, which also gives the bias its gradient."""
    scores = torch.matmul(query, key.transpose(2, 3)) * scale + bias
    before = torch.softmax(scores, -1, dtype=torch.promote_types(query.dtype, torch.float32))
    if blind is not None:
        before = before.masked_fill(blind, 0.0)
    after = torch.nn.functional.dropout(before, dropout) if dropout > 0 else before
    return torch.matmul(after.to(value.dtype), value), before, after


def _of_heads(mask: Tensor | None, heads: Sequence[int]) -> Tensor | None:
    return mask if mask is None or mask.shape[1] == 1 else pick(mask, heads)
