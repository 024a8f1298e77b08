"""Attention masks of any form, and attention with explicit maps for the heads whose maps are watched.

Shapes: B batch, H heads, n of them chosen, Q queries, K keys, D head size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from headwise.attention.dropout import Dropout

# Some models hide keys by adding the lowest number of their type, others by adding -10000; exp(-745) is zero already.
LOWEST_SEEN = -5000.0
# Attention of the other heads: (query, key, value, mask, dropout) -> out [B,Q,m,D].
Rest = Callable[[Tensor, Tensor, Tensor, Tensor | None, "Dropout | None"], Tensor]


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask as numbers to add to the scores. The lowest finite number, not -inf: a blind row must not turn to NaN."""
    if mask.dtype != torch.bool:
        return mask.to(dtype).clamp(min=torch.finfo(dtype).min)
    bias = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    return bias.masked_fill_(~mask, torch.finfo(dtype).min)


def visible(mask: Tensor) -> Tensor:
    """A mask as booleans: an additive mask hides what it lowers so far that nothing is left in any number type."""
    return mask if mask.dtype == torch.bool else mask > LOWEST_SEEN


def blind_rows(mask: Tensor) -> Tensor:
    """[B,H,Q] True where a query sees no key."""
    return ~visible(mask).any(-1)


def narrow(mask: Tensor | None) -> Tensor | None:
    """Undo the expansion of a key mask over queries: [B,1,Q,K] with equal rows becomes [B,1,1,K]."""
    if mask is not None and mask.shape[2] > 1 and mask.stride(2) == 0:
        return mask[:, :, :1]
    return mask


def valid_positions(mask: Tensor | None, batch: int) -> Tensor | None:
    """[B,L] which positions are tokens, from a self-attention mask; None if all are.

    In an encoder a token may see itself, and padding is visible to nothing, itself included: so the diagonal separates
    them in key masks and in sliding windows alike.
    """
    if mask is None:
        return None
    seen = visible(mask).any(1)  # over heads: [B,Q,K]
    valid = seen[:, 0] if seen.shape[1] == 1 else seen.diagonal(dim1=1, dim2=2)
    return valid.expand(batch, -1)


def pick(whole: Tensor, heads: Sequence[int]) -> Tensor:
    """Pick heads from dimension 1; without a copy where they are neighbours."""
    if list(heads) == list(range(heads[0], heads[-1] + 1)):
        return whole if len(heads) == whole.shape[1] else whole.narrow(1, heads[0], len(heads))
    return whole[:, list(heads)]


def without(numbers: Sequence[int], count: int) -> list[int]:
    """The numbers below `count` that are not among these."""
    return [number for number in range(count) if number not in set(numbers)]


def row_of_first(maps: Tensor, valid: Tensor | None) -> Tensor:
    """[B or 1,H,Q,K] -> [B,H,K]: the row of the first token, which is [CLS] in most models; `valid` is [B,Q]."""
    if valid is None or maps.shape[2] == 1:
        return maps[:, :, 0]
    first = valid.to(torch.uint8).argmax(1)
    maps = maps.expand(len(valid), -1, -1, -1)
    return maps[torch.arange(len(maps), device=maps.device), :, first]


def attention_of_first(query: Tensor, key: Tensor, mask: Tensor | None, valid: Tensor | None, scale: float) -> Tensor:
    """[B,H,K] where the first token looks, before dropout; one row of each map, so it costs next to nothing."""
    compute = torch.promote_types(query.dtype, torch.float32)
    with torch.autocast(query.device.type, enabled=False):
        row = row_of_first(query, valid).to(compute).unsqueeze(2) * scale  # [B,H,1,D]
        scores = torch.matmul(row, key.to(compute).transpose(2, 3)).squeeze(2)
        if mask is not None:
            scores = scores + additive(row_of_first(mask, valid), compute)
        return torch.softmax(scores, -1)


def attention_with_maps(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    heads: Sequence[int],
    *,
    mask: Tensor | None,
    scale: float,
    dropout: Dropout | None,
    rest: Rest,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of all heads, and the maps of the chosen ones; `rest` computes the others.

    Returns:
        out [B,Q,H,D], and the maps of `heads`, [B,n,Q,K], before and after dropout (the same tensor if there is none).
    """

    def of(those: Sequence[int]) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Dropout | None]:
        shared = mask is None or mask.shape[1] == 1
        part = mask if mask is None or shared else pick(mask, those)
        dropped = None if dropout is None else dropout.heads(those)
        return pick(query, those), pick(key, those), pick(value, those), part, dropped

    others = without(heads, query.shape[1])
    seen, before, after = _explicit(*of(heads), scale)
    seen = seen.transpose(1, 2)
    if not others:
        return seen.contiguous(), before, after
    out = torch.cat([seen, rest(*of(others))], 2)
    order = [*heads, *others]
    if order != sorted(order):
        out = out[:, :, torch.tensor(order, device=query.device).argsort()]
    return out, before, after


def _explicit(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: Dropout | None, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The steps of transformers' eager attention in the same order, so that the results are the same bits."""
    bias = blind = None
    if mask is not None:
        bias, blind = additive(mask, query.dtype), blind_rows(mask).unsqueeze(-1)
        # On a CPU, skip a pass over the maps if no row is blind; elsewhere the question would wait for the device.
        if blind.device.type == "cpu" and not bool(blind.any()):
            blind = None
    if bias is not None and bias.requires_grad:  # by autograd, which also gives the bias its gradient
        scores = torch.matmul(query, key.transpose(2, 3)) * scale + bias
        before = torch.softmax(scores, -1, dtype=torch.promote_types(query.dtype, torch.float32))
        before = before if blind is None else before.masked_fill(blind, 0.0)
        after = before if dropout is None else _dropped(before, dropout)
        return torch.matmul(after.to(value.dtype), value), before, after
    if dropout is None and not torch.is_grad_enabled():
        before = _weights(query, key, bias, blind, scale)
        return torch.matmul(before.to(value.dtype), value), before, before
    out, before, after = _Explicit.apply(query, key, value, bias, blind, scale, dropout)  # type: ignore[no-untyped-call]
    return out, before, before if after is None else after


class _Explicit(torch.autograd.Function):
    """Stores neither maps nor dropout masks for the backward pass, which computes them again.

    The reader of the map keeps it, or its gradient: guides of all layers have their gradients ready before the first
    layer needs its map. A second copy here would double the memory of maps; computing it again costs little.
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
        dropout: Dropout | None,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        before = _weights(query, key, bias, blind, scale)
        after = before if dropout is None else _dropped(before, dropout)
        ctx.save_for_backward(query, key, value, bias, blind)
        ctx.scale, ctx.dropout, device = scale, dropout, query.device.type
        ctx.autocast = {"enabled": torch.is_autocast_enabled(device), "dtype": torch.get_autocast_dtype(device)}
        ctx.set_materialize_grads(False)
        return torch.matmul(after.to(value.dtype), value), before, None if dropout is None else after

    @staticmethod
    def backward(
        ctx: Any, out_gradient: Tensor | None, before_gradient: Tensor | None, after_gradient: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        query, key, value, bias, blind = ctx.saved_tensors
        kept = None if ctx.dropout is None else ctx.dropout.kept()
        with torch.autocast(query.device.type, **ctx.autocast):
            before = _weights(query, key, bias, blind, ctx.scale)
        gradient, value_gradient = after_gradient, None
        if out_gradient is not None:
            after = before if kept is None else _dropped(before, ctx.dropout, kept)
            value_gradient = torch.matmul(after.transpose(2, 3).to(out_gradient.dtype), out_gradient)
            del after
            through_out = torch.matmul(out_gradient, value.transpose(2, 3)).to(before.dtype)
            gradient = through_out if gradient is None else through_out.add_(gradient)
        if gradient is not None and kept is not None:
            gradient = _dropped(gradient, ctx.dropout, kept)
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


def _dropped(weights: Tensor, dropout: Dropout, kept: Tensor | None = None) -> Tensor:
    return torch.mul(weights, dropout.kept() if kept is None else kept).mul_(1 / (1 - dropout.rate))
