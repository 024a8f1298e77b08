"""Cosines between maps: the one small matrix that MDG and PDG share.

Shapes: B batch, M maps, K keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from headwise.attention import AttentionRecord, Inputs, What
from headwise.errors import InputError
from headwise.guides.base import Guide, check_choice, mean_over_examples, register_guide


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


# MDG, map discrimination.


@register_guide("mdg")
class MapDiscrimination(Guide):
    """MDG: every map should be told apart from all others (Eq. 10-11 of arXiv 2204.02922).

    With the received attention of map i as a vector of length one, u_i, and C_ij = u_i . u_j / tau:

        MDG = mean over maps i of  -log softmax(C_i)_i

    It is log M when all maps are alike, and smaller the more they differ. Examples count alike, whatever
    their length.

    Relations: PDG works on the same cosines but squares them, so it presses hardest on pairs that are already alike.
    The scale of MDG depends little on length, that of PDG much.

    Differences from the authors' released code, which `preset="released"` brings back: there a map is averaged over its
    keys, so every entry is 1/K whatever the model does and the gradient is zero without dropout; maps are taken after
    dropout; the tau is 2. (Their padded positions are not brought back.)
    """

    tau: float = 1.0
    """Divides the cosines; the smaller, the sharper the contrast."""
    reduction: Literal["mean", "sum"] = "mean"
    """Over maps: mean (independent of the model's size) or sum (Eq. 11 as printed)."""
    contrast: Literal["model", "layer"] = "model"
    """Which maps are told apart: all of the model (the paper), or those of one layer."""
    reduce: Literal["received", "given"] = "received"
    """The vector of a map: attention received by each key, or given by each query (released code)."""
    preset: Literal["paper", "released"] = "paper"
    """"released" sets tau 2, dropout after, reduce given."""

    def __post_init__(self) -> None:
        """Check, and apply the preset."""
        super().__post_init__()
        check_choice(self, "preset", ("paper", "released"))
        if self.preset == "released":
            object.__setattr__(self, "tau", 2.0)
            object.__setattr__(self, "dropout", "after")
            object.__setattr__(self, "reduce", "given")
        check_choice(self, "reduction", ("mean", "sum"))
        check_choice(self, "contrast", ("model", "layer"))
        check_choice(self, "reduce", ("received", "given"))
        tau = self.tau
        if isinstance(tau, bool) or not isinstance(tau, int | float) or not 0 < tau < torch.inf:
            raise InputError(f"mdg(tau={tau!r}): expected a number above 0 (the paper uses 1.0).")

    @property
    def what(self) -> What:
        """Only the released variant needs maps."""
        return "received" if self.reduce == "received" else "map"

    def __call__(self, maps: AttentionRecord, inputs: Inputs) -> Tensor:
        """The loss of one batch."""
        shared = gram(maps, self.positions(maps), self.reduce, self.special_tokens)
        logits = shared.cosine / self.tau  # [B,M,M]
        blocks = [logits] if self.contrast == "model" else _layer_blocks(logits, maps)
        losses = [torch.logsumexp(block, -1) - block.diagonal(dim1=1, dim2=2) for block in blocks]
        each = torch.cat(losses, 1)  # [B,M]
        return mean_over_examples(each.mean(1) if self.reduction == "mean" else each.sum(1), shared.count)


def _layer_blocks(logits: Tensor, maps: AttentionRecord) -> list[Tensor]:
    """The blocks on the diagonal that hold the maps of one layer each."""
    blocks, start = [], 0
    for heads in maps.heads.values():
        end = start + len(heads)
        blocks.append(logits[:, start:end, start:end])
        start = end
    return blocks
