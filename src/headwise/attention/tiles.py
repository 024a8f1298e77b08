"""Attention with received attention on the CPU, tile by tile, so that no map is ever stored.

Shapes: B batch, H heads, Q queries, K keys, D head size.

A piece of work is one example, or some of its heads. Its scores are computed in tiles that stay in the cache of a core,
used at once, and discarded. The two loops over tiles are written so that TorchScript can run them. With row maxima c
and row sums l,

    E_qk = exp(s_qk - c_q),   A = E / l,   lse_q = c_q + log l_q,
    out = A V,                received_k = sum over valid q of A_qk.

The backward pass rebuilds A_qk = exp(s_qk - lse_q) from the saved lse. Two rank-one terms are added to matrix products
as one more column: -lse in the scores ([q, -lse] [k, 1]^T), and the gradient g of `received` in the gradient of A
([dO, valid] [V, g]^T = dO V^T + valid_q g_k). So `received` needs no extra pass over the tile.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headwise.attention.dropout import Dropout, keep, lowest_kept
from headwise.attention.maps import additive, blind_rows
from headwise.attention.workers import run_pieces


def forward_piece(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    valid: Tensor,
    bias: Tensor | None,
    blind: Tensor | None,
    out: Tensor,
    received: Tensor,
    lse: Tensor,
    scale: float,
    step: int,
    rows: int,
    rate: float,
    after_dropout: bool,
    drop_rows: Tensor,
    drop_columns: Tensor,
    lowest: int,
) -> None:
    """Attention of some heads of one example; the mathematics is in the docstring of this module.

    Inputs: query [n,Q,D], key and value [n,K,D]; valid [Q,1] is one where a query counts in `received`, else zero;
    bias [1 or n, 1 or Q, K] is added to the scores; blind [1 or n, Q, 1] is true where a query sees no key.
    Outputs: out [Q,n,D] and lse [n,Q] are written, received [n,K] is added to.
    A tile has `step` heads and `rows` query rows. drop_rows [n,Q,1] and drop_columns [K] are the keys of dropout, and
    hashes below `lowest` are dropped; unused at rate 0.
    """
    heads, queries, keys = query.shape[0], query.shape[1], key.shape[1]
    dtype = lse.dtype
    query, key, value = query.to(dtype), key.to(dtype).transpose(1, 2), value.to(dtype)
    product = torch.empty(heads, queries, value.shape[2], dtype=dtype)
    buffer = torch.empty(step * rows * keys, dtype=dtype)
    kept_size = step * rows * keys if rate > 0 else 0
    keep_buffer = torch.empty(kept_size, dtype=dtype)
    bit_buffers = torch.empty(2, kept_size, dtype=torch.int32)
    factor = 1 / (1 - rate)
    for first in range(0, heads, step):
        last = min(heads, first + step)
        for top in range(0, queries, rows):
            bottom = min(queries, top + rows)
            size = (last - first) * (bottom - top) * keys
            tile = buffer[:size].view(last - first, bottom - top, keys)
            if bias is None:
                torch.baddbmm(tile, query[first:last, top:bottom], key[first:last], beta=0, alpha=scale, out=tile)
            else:
                part = bias if bias.shape[0] == 1 else bias[first:last]
                part = part if part.shape[1] == 1 else part[:, top:bottom]
                torch.baddbmm(part, query[first:last, top:bottom], key[first:last], beta=1, alpha=scale, out=tile)
            highest = tile.amax(-1, keepdim=True)
            total = tile.sub_(highest).exp_().sum(-1, keepdim=True)
            if blind is not None:
                part = blind if blind.shape[0] == 1 else blind[first:last]
                total = total.masked_fill(part[:, top:bottom], torch.inf)
            lse[first:last, top:bottom] = (highest + total.log()).squeeze(-1)
            votes = (valid[top:bottom] / total).transpose(1, 2)
            if rate > 0:
                if not after_dropout:
                    received[first:last] += torch.bmm(votes, tile).squeeze(1)
                bits, spare = bit_buffers[0, :size].view_as(tile), bit_buffers[1, :size].view_as(tile)
                row_keys = drop_rows[first:last, top:bottom]
                tile.mul_(keep(keep_buffer[:size].view_as(tile), row_keys, drop_columns, lowest, bits, spare))
                total = total / factor
                if after_dropout:
                    received[first:last] += torch.bmm(votes, tile).squeeze(1).mul_(factor)
            else:
                received[first:last] += torch.bmm(votes, tile).squeeze(1)
            torch.div(torch.bmm(tile, value[first:last]), total, out=product[first:last, top:bottom])
    out.copy_(product.transpose(0, 1))


def backward_piece(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    valid: Tensor,
    bias: Tensor | None,
    lse: Tensor,
    out_gradient: Tensor,
    received_gradient: Tensor,
    query_gradient: Tensor,
    key_gradient: Tensor,
    value_gradient: Tensor,
    scale: float,
    step: int,
    rows: int,
    rate: float,
    after_dropout: bool,
    drop_rows: Tensor,
    drop_columns: Tensor,
    lowest: int,
) -> None:
    """Gradients of `forward_piece`, whose arguments of the same names these are; lse [n,Q] is from the forward pass.

    Inputs: out_gradient [Q,n,D], received_gradient [n,K]. Written: query_gradient [Q,n,D], key_gradient and
    value_gradient [K,n,D].
    """
    heads, queries, keys = query.shape[0], query.shape[1], key.shape[1]
    size_query, size_value = query.shape[2], value.shape[2]
    dtype = lse.dtype
    factor = 1 / (1 - rate)
    # One more column each, as the docstring of this module says: [n,Q,D+1] and [n,K,D+1].
    queries_and_lse = torch.cat([query.to(dtype) * scale, lse.neg().unsqueeze(-1)], -1)
    keys_and_ones = torch.cat([key.to(dtype), torch.ones(heads, keys, 1, dtype=dtype)], -1)
    slope = out_gradient.transpose(0, 1).to(dtype) * factor
    votes = (valid * factor if after_dropout else valid).expand(heads, queries, 1)
    slope_and_votes = torch.cat([slope, votes], -1)
    values_and_slope = torch.cat([value.to(dtype), received_gradient.unsqueeze(-1)], -1)
    key_columns, value_columns = keys_and_ones.transpose(1, 2), values_and_slope.transpose(1, 2)
    to_query = torch.empty(heads, queries, size_query, dtype=dtype)
    to_key = torch.empty(heads, keys, size_query, dtype=dtype)
    to_value = torch.empty(heads, keys, size_value, dtype=dtype)
    buffers = torch.empty(2, step * rows * keys, dtype=dtype)
    kept_size = step * rows * keys if rate > 0 else 0
    drop_buffers = torch.empty(2, kept_size, dtype=dtype)
    bit_buffers = torch.empty(2, kept_size, dtype=torch.int32)
    for first in range(0, heads, step):
        last = min(heads, first + step)
        for top in range(0, queries, rows):
            bottom = min(queries, top + rows)
            beta = 0.0 if top == 0 else 1.0
            size = (last - first) * (bottom - top) * keys
            attention = buffers[0, :size].view(last - first, bottom - top, keys)
            change = buffers[1, :size].view(last - first, bottom - top, keys)  # of the attention, then of the scores
            if bias is None:
                torch.bmm(queries_and_lse[first:last, top:bottom], key_columns[first:last], out=attention)
            else:
                part = bias if bias.shape[0] == 1 else bias[first:last]
                part = part if part.shape[1] == 1 else part[:, top:bottom]
                left = queries_and_lse[first:last, top:bottom]
                torch.baddbmm(part, left, key_columns[first:last], beta=1, alpha=1, out=attention)
            attention.exp_()
            mixed = attention
            if rate > 0:
                bits, spare = bit_buffers[0, :size].view_as(attention), bit_buffers[1, :size].view_as(attention)
                row_keys = drop_rows[first:last, top:bottom]
                kept = keep(drop_buffers[0, :size].view_as(attention), row_keys, drop_columns, lowest, bits, spare)
                mixed = torch.mul(attention, kept, out=drop_buffers[1, :size].view_as(attention))
                if after_dropout:
                    torch.bmm(slope_and_votes[first:last, top:bottom], value_columns[first:last], out=change)
                    change.mul_(kept)
                else:
                    torch.bmm(slope[first:last, top:bottom], value_columns[first:last, :-1], out=change)
                    change.mul_(kept)
                    change.addcmul_(votes[first:last, top:bottom], value_columns[first:last, -1:])
            else:
                torch.bmm(slope_and_votes[first:last, top:bottom], value_columns[first:last], out=change)
            target = to_value[first:last]
            torch.baddbmm(target, mixed.transpose(1, 2), slope[first:last, top:bottom], beta=beta, alpha=1, out=target)
            torch._softmax_backward_data(change, attention, -1, attention.dtype, grad_input=change)
            to_query[first:last, top:bottom] = torch.bmm(change, keys_and_ones[first:last, :, :size_query])
            target = to_key[first:last]
            left = change.transpose(1, 2)
            right = queries_and_lse[first:last, top:bottom, :size_query]
            torch.baddbmm(target, left, right, beta=beta, alpha=1, out=target)
    query_gradient.copy_(to_query.mul_(scale).transpose(0, 1))
    key_gradient.copy_(to_key.transpose(0, 1))
    value_gradient.copy_(to_value.transpose(0, 1))


@lru_cache(maxsize=8)
def fast(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function without the interpreter if torch still offers that, else the function itself."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            scripted: Callable[..., Any] = torch.jit.script(function)
        optimized: Callable[[bool], AbstractContextManager[None]] = vars(torch.jit)["optimized_execution"]
    except (AttributeError, KeyError, RuntimeError, NotImplementedError, TypeError):
        return function

    @wraps(function)
    def run(*arguments: Any) -> None:
        # torch's optimiser gains nothing in these loops and keeps four megabytes for the attempt.
        with optimized(False):
            scripted(*arguments)

    return run


# Bytes of one score tile: the backward pass holds two, which should fit the cache of a core.
TILE_BYTES = 1 << 20

# Pieces for every thread, so that a late thread does not leave the others idle.
PIECES_PER_THREAD = 4


@dataclass(frozen=True)
class Problem:
    """One attention call: what forward and backward share."""

    query: Tensor  # [B,H,Q,D]
    key: Tensor  # [B,H,K,D]
    value: Tensor  # [B,H,K,D]
    mask: Tensor | None  # boolean (True = may be seen) or additive, [B or 1, H or 1, Q or 1, K]
    valid: Tensor | None  # [B,Q] which queries count in `received`; None for all
    scale: float
    dropout: Dropout | None
    after_dropout: bool

    @property
    def compute(self) -> torch.dtype:
        """Half-precision inputs are computed in float32."""
        return torch.promote_types(self.query.dtype, torch.float32)


class Visibility(NamedTuple):
    """What each query may see."""

    spans: list[tuple[int, int]]
    """By example, the window: from the first to behind the last key that any query may see."""
    valid: Tensor
    """[B or 1,Q,1] 1 where the query is a token, 0 where it is padding: padding gets an output but does not count."""
    bias: Tensor | None
    """[B, 1 or H, 1 or Q, K] to add to the scores; None if every query sees every key of the window."""
    blind: Tensor | None
    """[B, 1 or H, Q, 1] True where a query sees nothing; None if there is no such query."""


def visibility_of(problem: Problem) -> Visibility:
    """What a mask of any form lets each query see."""
    mask, valid = problem.mask, problem.valid
    batch, _, queries, _ = problem.query.shape
    keys = problem.key.shape[2]
    votes = (torch.ones(1, queries, 1) if valid is None else valid.unsqueeze(-1)).to(problem.compute)
    spans = [(0, keys)] * batch
    if mask is None:
        return Visibility(spans, votes, None, None)
    if mask.dtype == torch.bool and mask.shape[1] == 1 and mask.shape[2] == 1:
        seen = mask.expand(batch, 1, 1, keys)[:, 0, 0]  # [B,K]
        count = seen.sum(1)
        first = seen.to(torch.uint8).argmax(1).masked_fill(count == 0, 0)
        end = (keys - seen.flip(1).to(torch.uint8).argmax(1)).masked_fill(count == 0, keys)
        spans = list(zip(first.tolist(), end.tolist(), strict=True))
        if bool((end - first == count).all()):  # no holes: the window alone says it
            return Visibility(spans, votes, None, None)
    bias = additive(mask, problem.compute).expand(batch, -1, -1, -1)
    blind = blind_rows(mask).expand(batch, -1, queries).unsqueeze(-1)
    return Visibility(spans, votes, bias, blind if bool(blind.any()) else None)


# (example, heads, keys, which queries are blind) -> the tensors that a loop reads and writes for this piece.
PieceTensors = Callable[[int, slice, slice, Tensor | None], tuple[Tensor | None, ...]]


def run_tiled(problem: Problem, seen: Visibility, loop: Callable[..., None], tensors: PieceTensors) -> None:
    """Call `loop` for every piece of a problem: some heads of one example.

    A piece is a whole example if there are enough of them, else a group of heads that whole tiles fill.
    """
    query, key, value = problem.query, problem.key, problem.value
    batch, heads, queries, _ = query.shape
    row_bytes = key.shape[2] * problem.compute.itemsize
    blocks = -(-queries * row_bytes // TILE_BYTES)
    rows = -(-queries // blocks)  # of a tile
    step = max(1, min(heads, TILE_BYTES // (rows * row_bytes)))  # heads of a tile
    groups = min(-(-heads // step), -(-PIECES_PER_THREAD * torch.get_num_threads() // batch))
    size = step * -(-heads // (step * max(1, groups)))
    dropout, nothing = problem.dropout, torch.empty(0, dtype=torch.int32)
    rate = 0.0 if dropout is None else dropout.rate

    def work(piece: tuple[int, slice]) -> None:
        example, group = piece
        keys, bias, blind = slice(*seen.spans[example]), seen.bias, seen.blind
        if bias is not None:
            bias = (bias[example] if bias.shape[1] == 1 else bias[example, group])[..., keys]
        if blind is not None:
            blind = blind[example] if blind.shape[1] == 1 else blind[example, group]
        loop(
            query[example, group],
            key[example, group, keys],
            value[example, group, keys],
            seen.valid[example if len(seen.valid) > 1 else 0],
            bias,
            *tensors(example, group, keys, blind),
            problem.scale,
            step,
            rows,
            rate,
            problem.after_dropout,
            nothing if dropout is None else dropout.rows[example, group].unsqueeze(-1),
            nothing if dropout is None else dropout.columns[example, keys],
            lowest_kept(rate),
        )

    run_pieces([(b, slice(h, min(heads, h + size))) for b in range(batch) for h in range(0, heads, size)], work)


def forward(problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """Return out [B,Q,H,D], received [B,H,K] and lse [B,H,Q]."""
    query, key, value = problem.query, problem.key, problem.value
    batch, heads, queries, _ = query.shape
    out = query.new_empty(batch, queries, heads, value.shape[3])
    received = torch.zeros(batch, heads, key.shape[2], dtype=problem.compute)
    lse = torch.empty(batch, heads, queries, dtype=problem.compute)

    def tensors(example: int, group: slice, keys: slice, blind: Tensor | None) -> tuple[Tensor | None, ...]:
        return blind, out[example, :, group], received[example, group, keys], lse[example, group]

    run_tiled(problem, visibility_of(problem), fast(forward_piece), tensors)
    return out, received, lse


def backward(
    problem: Problem, out_gradient: Tensor, received_gradient: Tensor, lse: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of query, key and value, each [B,L,H,D] (the layout that the projections use)."""
    seen, whole = visibility_of(problem), (0, problem.key.shape[2])
    # Keys outside an example's window get no gradient and are never visited.
    allocate: Callable[..., Tensor] = torch.empty if seen.spans == [whole] * len(seen.spans) else torch.zeros
    to_query, to_key, to_value = (
        allocate(source.transpose(1, 2).shape, dtype=source.dtype)
        for source in (problem.query, problem.key, problem.value)
    )

    def tensors(example: int, group: slice, keys: slice, blind: Tensor | None) -> tuple[Tensor | None, ...]:
        gradients = out_gradient[example, :, group], received_gradient[example, group, keys]
        targets = to_query[example, :, group], to_key[example, keys, group], to_value[example, keys, group]
        return lse[example, group], *gradients, *targets

    run_tiled(problem, seen, fast(backward_piece), tensors)
    return to_query, to_key, to_value
