"""The fused operation: attention output and attention received, with exact gradients and without stored maps.

    received_k = sum over valid q of A_qk

Saved for the backward pass: query, key, value and two numbers per query row. Not saved: the map, the dropout mask.
It is a registered torch operation, so torch.compile, autocast and gradient checkpointing treat it like a built-in one.
Large CPU batches are computed in tiles, those on other devices in slabs of whole examples. Small CPU batches keep their
maps, which need little memory: a few ordinary operations are faster than tiles. On crowded cores they take one thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from headwise.attention import tiles
from headwise.attention.dropout import Dropout
from headwise.attention.maps import additive, blind_rows
from headwise.attention.tiles import Problem
from headwise.attention.workers import alone_if_crowded

SLAB_BYTES = 256 << 20
# A CPU batch whose maps together take no more than this keeps them for the backward pass.
SMALL_BYTES = 4 << 20


def attention_with_received(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    valid: Tensor | None = None,
    scale: float | None = None,
    dropout: Dropout | None = None,
    after_dropout: bool = False,
) -> tuple[Tensor, Tensor]:
    """Scaled dot-product attention that also returns how much attention each key received.

    Args:
        query: [B,H,Q,D]; `key` and `value` are [B,H,K,D].
        key: see `query`.
        value: see `query`.
        mask: None, boolean (True = may be seen) or additive, [B or 1, H or 1, Q or 1, K].
        valid: [B,Q] which queries count in `received`; None for all.
        scale: factor on the scores, by default 1 / sqrt(D).
        dropout: which attention weights are dropped; none by default.
        after_dropout: whether `received` sums the weights before (default) or after dropout.

    Returns:
        out [B,Q,H,D] and received [B,H,K] (float32 for half-precision inputs).
    """
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    if _is_small(query, key) and not torch.compiler.is_compiling():  # for which one operation is one node
        return _Small.apply(query, key, value, mask, valid, scale, dropout, after_dropout)  # type: ignore[no-any-return, no-untyped-call]
    rate, rows, columns = (0.0, None, None) if dropout is None else (dropout.rate, dropout.rows, dropout.columns)
    out, received, _ = _operation(query, key, value, mask, valid, rows, columns, scale, rate, after_dropout)
    return out, received


def _is_small(query: Tensor, key: Tensor) -> bool:
    batch, heads, queries, _ = query.shape
    return query.device.type == "cpu" and batch * heads * queries * key.shape[2] * 4 <= SMALL_BYTES


def _in_tiles(query: Tensor) -> bool:
    return query.device.type == "cpu"


class _Small(torch.autograd.Function):
    """A small problem: a few operations over the whole batch, which keep its maps for the backward pass.

    Shapes: flat tensors have B * H in front, [BH,Q,D], [BH,K,D] and [BH,Q,K].
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        valid: Tensor | None,
        scale: float,
        dropout: Dropout | None,
        after_dropout: bool,
    ) -> tuple[Tensor, Tensor]:
        maps, dtype = (*query.shape[:3], key.shape[2]), query.dtype  # [B,H,Q,K]
        compute = torch.promote_types(dtype, torch.float32)
        with alone_if_crowded(), torch.autocast("cpu", enabled=False):
            query, key, value = (each.to(compute).flatten(0, 1) for each in (query, key, value))
            attention = _scaled_product(query, key.transpose(1, 2), scale)
            if mask is not None:
                attention.view(maps).add_(additive(mask, compute))
            attention = torch.softmax(attention, -1)
            if mask is not None and bool((blind := blind_rows(mask)).any()):
                attention.view(maps).masked_fill_(blind.unsqueeze(-1), 0.0)
            factors = None if dropout is None else dropout.factors(compute).view_as(attention)
            mixed = attention if factors is None else attention * factors
            votes = mixed if after_dropout else attention
            if valid is None:
                received = votes.sum(1)
            else:
                received = torch.bmm(valid[:, None, None].to(compute).expand(-1, maps[1], -1, -1).flatten(0, 1), votes)
            out = _by_token(torch.bmm(mixed, value), maps[1], dtype)
        ctx.save_for_backward(query, key, value, valid, attention, factors)
        ctx.options = (maps, dtype, scale, after_dropout)
        ctx.set_materialize_grads(False)
        return out, received.view(maps[0], maps[1], maps[3])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, out_gradient: Tensor | None, received_gradient: Tensor | None) -> tuple[Tensor | None, ...]:
        query, key, value, valid, attention, factors = ctx.saved_tensors
        (_, heads, *_), dtype, scale, after_dropout = ctx.options
        with alone_if_crowded(), torch.autocast("cpu", enabled=False):
            votes = change = value_gradient = None
            if received_gradient is not None:
                votes = received_gradient.flatten(0, 1).unsqueeze(1)  # [BH,1,K]
                if valid is not None:
                    votes = votes * valid[:, None, :, None].to(votes.dtype).expand(-1, heads, -1, -1).flatten(0, 1)
            if out_gradient is not None:
                slope = out_gradient.transpose(1, 2).to(attention.dtype).flatten(0, 1)
                mixed = attention if factors is None else attention * factors
                value_gradient = _by_token(torch.bmm(mixed.transpose(1, 2), slope), heads, dtype).transpose(1, 2)
                change = torch.bmm(slope, value.transpose(1, 2))
            change = _through_dropout(change, votes, factors, after_dropout)
            if change is None:
                return (None,) * 8
            change = torch._softmax_backward_data(change.expand_as(attention), attention, -1, attention.dtype)
            query_gradient = _by_token(_scaled_product(change, key, scale), heads, dtype).transpose(1, 2)
            key_gradient = _by_token(_scaled_product(change.transpose(1, 2), query, scale), heads, dtype).transpose(
                1, 2
            )
        return query_gradient, key_gradient, value_gradient, *(None,) * 5


def _scaled_product(left: Tensor, right: Tensor, scale: float) -> Tensor:
    return torch.baddbmm(left.new_empty(1), left, right, beta=0, alpha=scale)


def _by_token(flat: Tensor, heads: int, dtype: torch.dtype) -> Tensor:
    """[BH,S,D] -> [B,S,H,D], the layout of the projections."""
    whole = flat.unflatten(0, (-1, heads)).transpose(1, 2)
    result: Tensor = whole.to(dtype, memory_format=torch.contiguous_format, copy=True)
    return result


def _through_dropout(
    change: Tensor | None, votes: Tensor | None, factors: Tensor | None, after_dropout: bool
) -> Tensor | None:
    """The gradient of the map from those through the output and through what is received; either may be missing."""
    if votes is not None and after_dropout:
        change = votes if change is None else change.add_(votes)
    if change is not None and factors is not None:
        change = change * factors
    if votes is not None and not after_dropout:
        change = votes if change is None else change.add_(votes)
    return change


def _forward_in_slabs(problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """Return out [B,Q,H,D], received [B,H,K] and lse [B,H,Q]."""
    query, key, value, compute = problem.query, problem.key, problem.value, problem.compute
    batch, heads, queries, _ = query.shape
    out = query.new_empty(batch, queries, heads, value.shape[3])
    received = query.new_empty(batch, heads, key.shape[2], dtype=compute)
    lse = query.new_empty(batch, heads, queries, dtype=compute)
    for slab, scores, mask in _slabs(problem):
        lse[slab] = torch.logsumexp(scores, -1)
        if mask is not None:  # infinite for a row that sees nothing, so that its attention is zero, as in SDPA
            lse[slab] = lse[slab].masked_fill_(blind_rows(mask), torch.inf)
        attention = scores.sub_(lse[slab].unsqueeze(-1)).exp_()
        mixed = (
            attention
            if problem.dropout is None
            else attention * problem.dropout.examples(slab).factors(problem.compute)
        )
        votes = mixed if problem.after_dropout else attention
        if problem.valid is not None:
            votes = votes * problem.valid[slab, None, :, None]
        received[slab] = votes.sum(2)
        out[slab] = torch.matmul(mixed, value[slab].to(compute)).transpose(1, 2)
    return out, received, lse


def _backward_in_slabs(
    problem: Problem, out_gradient: Tensor, received_gradient: Tensor, lse: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of query, key and value, each [B,L,H,D]."""
    query, key, value, compute = problem.query, problem.key, problem.value, lse.dtype
    to_query, to_key, to_value = (each.new_empty(each.transpose(1, 2).shape) for each in (query, key, value))
    for slab, scores, _ in _slabs(problem):
        attention = scores.sub_(lse[slab].unsqueeze(-1)).exp_()
        slope = out_gradient[slab].transpose(1, 2).to(compute)  # [B,H,Q,D]
        votes = received_gradient[slab].unsqueeze(2)  # [B,H,1,K]
        if problem.valid is not None:
            votes = votes * problem.valid[slab, None, :, None]
        change = torch.matmul(slope, value[slab].to(compute).transpose(2, 3))
        if problem.dropout is not None:
            factors = problem.dropout.examples(slab).factors(compute)
            change = (change + votes) * factors if problem.after_dropout else change * factors + votes
            mixed = attention * factors
        else:
            change, mixed = change + votes, attention
        to_value[slab] = torch.matmul(mixed.transpose(2, 3), slope).transpose(1, 2)
        change = torch._softmax_backward_data(change, attention, -1, compute).mul_(problem.scale)
        to_query[slab] = torch.matmul(change, key[slab].to(compute)).transpose(1, 2)
        to_key[slab] = torch.matmul(change.transpose(2, 3), query[slab].to(compute)).transpose(1, 2)
    return to_query, to_key, to_value


def _slabs(problem: Problem) -> Iterator[tuple[slice, Tensor, Tensor | None]]:
    """Some examples at a time: which, their masked scores and their mask."""
    batch, heads, queries, _ = problem.query.shape
    example_bytes = heads * queries * problem.key.shape[2] * 4
    step = max(1, min(batch, SLAB_BYTES // max(1, example_bytes)))
    for start in range(0, batch, step):
        slab = slice(start, min(batch, start + step))
        query, key = problem.query[slab].to(problem.compute), problem.key[slab].to(problem.compute)
        scores = torch.matmul(query, key.transpose(2, 3)).mul_(problem.scale)
        mask = problem.mask
        if mask is not None:
            mask = mask if mask.shape[0] == 1 else mask[slab]
            scores += additive(mask, problem.compute)
        yield slab, scores, mask


def _dropout(rate: float, rows: Tensor | None, columns: Tensor | None) -> Dropout | None:
    return None if rows is None or columns is None else Dropout(rate, rows, columns)


@torch.library.custom_op("headwise::attention_with_received", mutates_args=())
def _operation(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    valid: Tensor | None,
    rows: Tensor | None,
    columns: Tensor | None,
    scale: float,
    rate: float,
    after_dropout: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    dropout = _dropout(rate, rows, columns)
    problem = Problem(query, key, value, mask, valid, scale, dropout, after_dropout)
    forward = tiles.forward if _in_tiles(query) else _forward_in_slabs
    with torch.autocast(query.device.type, enabled=False):
        return forward(problem)


@_operation.register_fake
def _(query, key, value, mask, valid, rows, columns, scale, rate, after_dropout):  # type: ignore[no-untyped-def]
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
    rows: Tensor | None,
    columns: Tensor | None,
    scale: float,
    rate: float,
    after_dropout: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    dropout = _dropout(rate, rows, columns)
    problem = Problem(query, key, value, mask, valid, scale, dropout, after_dropout)
    with torch.autocast(query.device.type, enabled=False):
        backward = tiles.backward if _in_tiles(query) else _backward_in_slabs
        return backward(problem, out_gradient, received_gradient, lse)


@_operation_backward.register_fake
def _(out_gradient, received_gradient, lse, query, key, value, mask, valid, rows, columns, scale, rate, after_dropout):  # type: ignore[no-untyped-def]
    return tuple(source.new_empty(source.transpose(1, 2).shape) for source in (query, key, value))


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    query, key, value, mask, valid, rows, columns, scale, rate, after_dropout = inputs
    _, received, lse = output
    ctx.save_for_backward(query, key, value, mask, valid, rows, columns, lse)
    ctx.options = (scale, rate, after_dropout)
    ctx.received_shape = received.shape
    ctx.mark_non_differentiable(lse)
    ctx.set_materialize_grads(False)


def _backward(
    ctx: Any, out_gradient: Tensor | None, received_gradient: Tensor | None, _: Tensor | None
) -> tuple[Tensor | None, ...]:
    query, key, value, mask, valid, rows, columns, lse = ctx.saved_tensors
    batch, heads, queries, _size = query.shape
    if out_gradient is None:
        out_gradient = query.new_zeros(batch, queries, heads, value.shape[3])
    if received_gradient is None:
        received_gradient = lse.new_zeros(ctx.received_shape)
    gradients = _operation_backward(
        out_gradient, received_gradient, lse, query, key, value, mask, valid, rows, columns, *ctx.options
    )
    return (*(gradient.transpose(1, 2) for gradient in gradients), *(None,) * 7)


_operation.register_autograd(_backward, setup_context=_setup_context)
