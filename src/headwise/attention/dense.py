"""Attention with received attention in slabs of whole examples, by ordinary tensor operations on any device.

The same mathematics as `tiles`, for two uses: accelerators (CUDA, MPS, XPU), and CPU batches so small that cutting them
up would cost more than it saves. A slab's map lives only while the slab is worked on; the backward pass rebuilds it.

Not run on any accelerator: the equality with `tiles` and with explicit maps is tested on the CPU only.

Shapes: B batch, H heads, Q queries, K keys, D head size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.attention.visibility import additive, blind_rows

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
