"""The heads of one example as vectors, as points, and as one mean map: what figures are drawn from.

Everything is computed in float64 on the CPU, over the tokens of the example and never over its padding.

Shapes: B batch, M maps = recorded heads of all recorded layers, Q queries, K keys, T tokens of one example.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.attention import AttentionRecord
from headwise.errors import InputError

TINY = torch.finfo(torch.float64).tiny
# Entries of an axis this near to the largest count as equal to it: rounding must not choose between them.
TIE = 1 - 1e-6


def head_vectors(record: AttentionRecord, example: int) -> Tensor:
    """[M,T]: how each head's attention is shared out over the tokens of one example; every row sums to one."""
    check_kind(record, "received")
    tokens = _tokens(record, example)
    received = _of_example(record, example)[:, tokens]
    return received / received.sum(1, keepdim=True).clamp_min(TINY)


def mean_map(record: AttentionRecord, example: int) -> Tensor:
    """[T,T]: the mean of all recorded maps of one example; rows are the tokens that look, columns those looked at."""
    check_kind(record, "map")
    tokens = _tokens(record, example)
    return _of_example(record, example).mean(0)[tokens][:, tokens]


def principal_components(vectors: Tensor, count: int = 2) -> tuple[Tensor, Tensor]:
    """The vectors as points on the axes along which they differ most.

    The sign of such an axis is arbitrary, so a rule sets it: its largest entry, the first of equals, is positive.

    Args:
        vectors: [M,T] one row per point.
        count: how many axes; those that the points do not have stay zero.

    Returns:
        coordinates [M,count], and the share of the variance that each axis explains, [count].
    """
    if vectors.dim() != 2 or 0 in vectors.shape or count < 1:
        raise InputError(f"expected vectors [M,T] and a count of 1 or more, not {list(vectors.shape)} and {count}.")
    values = vectors.detach().cpu().double()
    left, lengths, axes = torch.linalg.svd(values - values.mean(0), full_matrices=False)
    size = axes.abs()
    largest = (size >= TIE * size.amax(1, keepdim=True)).byte().argmax(1, keepdim=True)
    signs = axes.gather(1, largest).squeeze(1).sign()
    explained = lengths.square() / lengths.square().sum().clamp_min(TINY)
    return _resized(left * (lengths * signs), count), _resized(explained, count)


def check_kind(record: AttentionRecord, what: str) -> None:
    """Refuse a record of the other kind."""
    if record.what != what:
        raise InputError(f"the record holds {record.what!r}: capture it with what={what!r}.")


def _tokens(record: AttentionRecord, example: int) -> Tensor:
    size = record.valid.shape[0]
    if not 0 <= example < size:
        raise InputError(f"example {example} is not in the record: it holds 0 to {size - 1}.")
    return record.valid[example].cpu()  # [K]


def _of_example(record: AttentionRecord, example: int) -> Tensor:
    """[M,K] or [M,Q,K]; picked layer by layer, so that the batch is not copied for one example."""
    return torch.cat([record[layer][example].detach().cpu().double() for layer in record.heads])


def _resized(values: Tensor, count: int) -> Tensor:
    """The first `count` of the last axis, zeros where it is shorter."""
    return torch.nn.functional.pad(values[..., :count], (0, max(0, count - values.shape[-1])))
