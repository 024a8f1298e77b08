"""The fused operation: attention output and attention received, with exact gradients and without stored maps.

    received_k = sum over valid q of A_qk

Saved for the backward pass: query, key, value and one number per query row. Not saved: the map, the dropout mask.
It is a registered torch operation, so torch.compile, autocast and gradient checkpointing treat it like a built-in one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headwise.attention import tiles
from headwise.attention.visibility import Visibility, additive, blind_rows

# Attention with received attention in slabs of whole examples, by ordinary tensor operations on any device.


SLAB_BYTES = 256 << 20


def forward(
    inputs: tuple[Tensor, Tensor, Tensor],
    mask: Tensor | None,
    valid: Tensor | None,
    scale: float,
    dropout: float,
    seed: int,
    after_dropout: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return out [B,Q,H,D], received [B,H,K] and lse [B,H,Q]."""
    query, key, value = inputs
    batch, heads, queries, _ = query.shape
    compute = torch.promote_types(query.dtype, torch.float32)
    out = query.new_empty(batch, queries, heads, value.shape[3])
    received = query.new_empty(batch, heads, key.shape[2], dtype=compute)
    lse = query.new_empty(batch, heads, queries, dtype=compute)
    for slab in _slabs(query, key):
        scores = _scores(query[slab], key[slab], mask, slab, scale)
        lse[slab] = _lse(scores, mask, slab)
        attention = scores.sub_(lse[slab].unsqueeze(-1)).exp_()
        if dropout > 0:
            mixed = attention * _keep(attention, dropout, seed + slab.start)
        else:
            mixed = attention
        votes = mixed if after_dropout else attention
        if valid is not None:
            votes = votes * valid[slab, None, :, None]
        received[slab] = votes.sum(2)
        out[slab] = torch.matmul(mixed, value[slab].to(compute)).transpose(1, 2)
    return out, received, lse


def backward(
    inputs: tuple[Tensor, Tensor, Tensor],
    gradients: tuple[Tensor, Tensor, Tensor],
    mask: Tensor | None,
    valid: Tensor | None,
    scale: float,
    dropout: float,
    seed: int,
    after_dropout: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of query, key and value, each [B,L,H,D]; `gradients` are of out and received, then lse."""
    query, key, value = inputs
    out_gradient, received_gradient, lse = gradients
    compute = lse.dtype
    results = [source.new_empty(source.transpose(1, 2).shape) for source in inputs]
    for slab in _slabs(query, key):
        attention = _scores(query[slab], key[slab], mask, slab, scale).sub_(lse[slab].unsqueeze(-1)).exp_()
        slope = out_gradient[slab].transpose(1, 2).to(compute)  # [B,H,Q,D]
        votes = received_gradient[slab].unsqueeze(2)  # [B,H,1,K]
        if valid is not None:
            votes = votes * valid[slab, None, :, None]
        change = torch.matmul(slope, value[slab].to(compute).transpose(2, 3))
        if dropout > 0:
            kept = _keep(attention, dropout, seed + slab.start)
            change = (change + votes) * kept if after_dropout else change * kept + votes
            mixed = attention * kept
        else:
            change, mixed = change + votes, attention
        results[2][slab] = torch.matmul(mixed.transpose(2, 3), slope).transpose(1, 2)
        change = torch._softmax_backward_data(change, attention, -1, compute).mul_(scale)
        results[0][slab] = torch.matmul(change, key[slab].to(compute)).transpose(1, 2)
        results[1][slab] = torch.matmul(change.transpose(2, 3), query[slab].to(compute)).transpose(1, 2)
    return results[0], results[1], results[2]


def _keep(like: Tensor, dropout: float, seed: int) -> Tensor:
    """Zero where a weight is dropped, else 1 / (1 - dropout); the same for the same seed, so never stored."""
    generator = torch.Generator(device=like.device).manual_seed(seed)
    return torch.empty_like(like).bernoulli_(1 - dropout, generator=generator).div_(1 - dropout)


def _slabs(query: Tensor, key: Tensor) -> list[slice]:
    batch, heads, queries, _ = query.shape
    example_bytes = heads * queries * key.shape[2] * 4
    step = max(1, min(batch, SLAB_BYTES // max(1, example_bytes)))
    return [slice(start, min(batch, start + step)) for start in range(0, batch, step)]


def _scores(query: Tensor, key: Tensor, mask: Tensor | None, slab: slice, scale: float) -> Tensor:
    compute = torch.promote_types(query.dtype, torch.float32)
    scores = torch.matmul(query.to(compute), key.to(compute).transpose(2, 3)).mul_(scale)
    if mask is not None:
        scores += additive(_examples(mask, slab), compute)
    return scores


def _lse(scores: Tensor, mask: Tensor | None, slab: slice) -> Tensor:
    """Log of the row sums; infinite for a row that sees nothing, so that its attention is zero, as SDPA has it."""
    lse = torch.logsumexp(scores, -1)
    if mask is None:
        return lse
    return lse.masked_fill_(blind_rows(_examples(mask, slab)), torch.inf)


def _examples(mask: Tensor, slab: slice) -> Tensor:
    return mask if mask.shape[0] == 1 else mask[slab]


# A CPU batch whose maps together take no more than this is computed in one slab.
SMALL_BYTES = 2 << 20


def attention_with_received(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    valid: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    after_dropout: bool = False,
) -> tuple[Tensor, Tensor]:
    """Scaled dot-product attention that also tells how much attention each key received.

    Args:
        query: [B,H,Q,D]; `key` and `value` are [B,H,K,D].
        key: see `query`.
        value: see `query`.
        mask: None, boolean (True = may be seen) or additive, [B or 1, H or 1, Q or 1, K].
        valid: [B,Q] which queries count in `received`; None for all.
        scale: factor on the scores, by default 1 / sqrt(D).
        dropout: rate at which attention weights are dropped.
        after_dropout: whether `received` sums the weights before (default) or after dropout.

    Returns:
        out [B,Q,H,D] and received [B,H,K] (float32 for half-precision inputs).
    """
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    seed = torch.randint(2**62, ()) if dropout > 0 else torch.zeros((), dtype=torch.int64)
    out, received, _ = _operation(query, key, value, mask, valid, seed, scale, dropout, after_dropout)
    return out, received


def _in_tiles(query: Tensor, key: Tensor) -> bool:
    batch, heads, queries, _ = query.shape
    return query.device.type == "cpu" and batch * heads * queries * key.shape[2] * 4 > SMALL_BYTES


@torch.library.custom_op("headwise::attention_with_received", mutates_args=())
def _operation(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    valid: Tensor | None,
    seed: Tensor,
    scale: float,
    dropout: float,
    after_dropout: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    with torch.autocast(query.device.type, enabled=False):
        if _in_tiles(query, key):
            visibility = Visibility(mask, valid, query, key.shape[2])
            return tiles.forward(tiles.Problem(query, key, value, visibility, scale, dropout, int(seed), after_dropout))
        return forward((query, key, value), mask, valid, scale, dropout, int(seed), after_dropout)


@_operation.register_fake
def _(query, key, value, mask, valid, seed, scale, dropout, after_dropout):  # type: ignore[no-untyped-def]
    batch, heads, queries, _ = query.shape
    compute = torch.promote_types(query.dtype, torch.float32)
    return (
        query.new_empty(batch, queries, heads, value.shape[3]),
        query.new_empty((batch, heads, key.shape[2]), dtype=compute),
        query.new_empty((batch, heads, queries), dtype=compute),
    )


@torch.library.custom_op("headwise::attention_with_received_backward", mutates_args=())
def _operation_backward(
    out_gradient: Tensor,
    received_gradient: Tensor,
    lse: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    valid: Tensor | None,
    seed: Tensor,
    scale: float,
    dropout: float,
    after_dropout: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    with torch.autocast(query.device.type, enabled=False):
        if _in_tiles(query, key):
            visibility = Visibility(mask, valid, query, key.shape[2])
            problem = tiles.Problem(query, key, value, visibility, scale, dropout, int(seed), after_dropout)
            return tiles.backward(problem, out_gradient, received_gradient, lse)
        gradients = (out_gradient, received_gradient, lse)
        return backward((query, key, value), gradients, mask, valid, scale, dropout, int(seed), after_dropout)


@_operation_backward.register_fake
def _(out_gradient, received_gradient, lse, query, key, value, mask, valid, seed, scale, dropout, after_dropout):  # type: ignore[no-untyped-def]
    return tuple(source.new_empty(source.transpose(1, 2).shape) for source in (query, key, value))


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    query, key, value, mask, valid, seed, scale, dropout, after_dropout = inputs
    _, received, lse = output
    ctx.save_for_backward(query, key, value, mask, valid, seed, lse)
    ctx.options = (scale, dropout, after_dropout)
    ctx.received_shape = received.shape
    ctx.mark_non_differentiable(lse)
    ctx.set_materialize_grads(False)


def _backward(
    ctx: Any, out_gradient: Tensor | None, received_gradient: Tensor | None, _: Tensor | None
) -> tuple[Tensor | None, ...]:
    query, key, value, mask, valid, seed, lse = ctx.saved_tensors
    batch, heads, queries, _size = query.shape
    if out_gradient is None:
        out_gradient = query.new_zeros(batch, queries, heads, value.shape[3])
    if received_gradient is None:
        received_gradient = lse.new_zeros(ctx.received_shape)
    gradients = _operation_backward(
        out_gradient, received_gradient, lse, query, key, value, mask, valid, seed, *ctx.options
    )
    query_gradient, key_gradient, value_gradient = (gradient.transpose(1, 2) for gradient in gradients)
    return query_gradient, key_gradient, value_gradient, None, None, None, None, None, None


_operation.register_autograd(_backward, setup_context=_setup_context)
