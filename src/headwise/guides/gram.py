"""Cosines between maps: the one small matrix that MDG and PDG share.

Shapes: B batch, M maps, K keys.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.attention import AttentionRecord


@dataclass(frozen=True)
class Gram:
    """Inner products between the maps' vectors."""

    cosine: Tensor
    """[B,M,M] of the vectors scaled to length one."""
    norm: Tensor
    """[B,M] lengths of the vectors."""
    count: Tensor
    """[B] positions that count."""


def gram(maps: AttentionRecord, positions: Tensor, reduce: str, key: object) -> Gram:
    """The Gram matrix of a record, computed once for all guides that look at the same positions in the same way.

    Args:
        maps: the record.
        positions: [B,K] which positions count.
        reduce: "received" (sum over queries) or "given" (mean over keys, as in the released code).
        key: names the choice of positions, for sharing.
    """
    if (reduce, key) not in maps.cache:
        maps.cache[reduce, key] = _gram(maps, positions, reduce)
    shared: Gram = maps.cache[reduce, key]
    return shared


def _gram(maps: AttentionRecord, positions: Tensor, reduce: str) -> Gram:
    vectors = maps.stacked()  # [B,M,K] or [B,M,Q,K]
    vectors = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
    if vectors.dim() == 4:
        given = vectors.sum(3) / maps.valid.sum(1)[:, None, None]  # mean over the keys that are tokens
        vectors = given if reduce == "given" else vectors.sum(2)
    if maps.what == "map" or positions is not maps.valid:  # padding receives nothing, so it needs no mask
        vectors = vectors * positions.unsqueeze(1)
    # autocast must not compute cosines near one in half precision
    with torch.autocast(vectors.device.type, enabled=False):
        inner = torch.matmul(vectors, vectors.transpose(1, 2))  # [B,M,M]: scaled afterwards, so no scaled copy is kept
    square = inner.diagonal(dim1=1, dim2=2)  # [B,M]
    # A vector of zeros (no position counts) has no direction: it stays zero, with a zero gradient instead of NaN.
    inverse = square.clamp_min(torch.finfo(square.dtype).tiny).rsqrt()
    cosine = inner * inverse.unsqueeze(1) * inverse.unsqueeze(2)
    return Gram(cosine, square * inverse, positions.sum(1))
