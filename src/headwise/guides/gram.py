"""MDG, map discrimination, and PDG, pattern decorrelation: guides on the Gram matrix of all maps.

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
from headwise.guides.weights import Weight


@dataclass(frozen=True)
class Gram:
    """Inner products between the maps' vectors."""

    cosine: Tensor
    """[B,M,M] of the vectors scaled to length one."""
    norm: Tensor
    """[B,M] lengths of the vectors."""
    count: Tensor
    """[B] positions that count."""


def compute_gram(maps: AttentionRecord, positions: Tensor, *, released: bool) -> Gram:
    """The Gram matrix of the maps' vectors, over the `positions` [B,K] that count."""
    vectors = map_vectors(maps, positions, released=released)
    inner = inner_products(vectors)  # scaled afterwards, so no scaled copy is kept
    square = inner.diagonal(dim1=1, dim2=2)  # [B,M]
    # A vector of zeros (no position counts) has no direction: it stays zero, with a zero gradient instead of NaN.
    inverse = square.clamp_min(torch.finfo(square.dtype).tiny).rsqrt()
    cosine = inner * inverse.unsqueeze(1) * inverse.unsqueeze(2)
    return Gram(cosine, square * inverse, positions.sum(1))


def map_vectors(maps: AttentionRecord, positions: Tensor, *, released: bool) -> Tensor:
    """[B,M,K] a vector for each map, 0 at positions that do not count.

    A vector is the attention that each key receives (sum over queries); `released`: the mean over keys.
    """
    vectors = maps.stacked()  # [B,M,K] or [B,M,Q,K]
    vectors = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
    if vectors.dim() == 4:
        vectors = vectors.sum(3) / maps.valid.sum(1)[:, None, None] if released else vectors.sum(2)
    if maps.what == "map" or positions is not maps.valid:  # padding receives nothing, so it needs no mask
        vectors = vectors * positions.unsqueeze(1)
    return vectors


def inner_products(vectors: Tensor) -> Tensor:
    """[B,M,M] of the vectors [B,M,K]; autocast must not compute cosines near one in half precision."""
    with torch.autocast(vectors.device.type, enabled=False):
        return torch.matmul(vectors, vectors.transpose(1, 2))


@dataclass(frozen=True, kw_only=True)
class GramGuide(Guide):
    """Base of MDG and PDG: guides on the Gram matrix of the maps' vectors."""

    preset: Literal["paper", "released"] = "paper"
    """released, for comparison with the authors' code: the mean of each map over its keys, after dropout."""

    def __post_init__(self) -> None:
        """Check the options, and apply the preset."""
        super().__post_init__()
        check_choice(self, "preset", ("paper", "released"))
        check_choice(self, "reduction", ("mean", "sum"))
        if self.preset == "released":
            object.__setattr__(self, "dropout", "after")

    @property
    def what(self) -> What:
        """Only the released variant needs maps."""
        return "map" if self.preset == "released" else "received"

    def gram(self, maps: AttentionRecord) -> Gram:
        """The Gram matrix of a record, computed once for all guides that use the same positions in the same way."""
        key = ("gram", self.preset, self.special_tokens)
        if key not in maps.cache:
            maps.cache[key] = compute_gram(maps, self.positions(maps), released=self.preset == "released")
        shared: Gram = maps.cache[key]
        return shared


@register_guide("mdg")
class MapDiscrimination(GramGuide):
    """MDG: every map should differ from all others (Eq. 10-11 of arXiv 2204.02922).

    With the received attention of map i as a vector of length one, u_i, and C_ij = u_i . u_j / tau:

        MDG = mean over maps i of  -log softmax(C_i)_i

    It is log M when all maps are alike, and smaller the more they differ. Examples count alike, whatever
    their length.

    Relations: PDG uses the same cosines but squares them, so it presses hardest on pairs that are already alike: the
    gradients of the two have a cosine of about 0.99. PDG with `standardise=True` is the one that differs. The scale of
    MDG depends little on length, that of PDG much.

    Differences from the authors' released code, which `preset="released"` brings back: there a map is averaged over its
    keys, so every entry is 1/K whatever the model does and the gradient is zero without dropout; maps are taken after
    dropout; tau is 2. (Their padded positions are not brought back.)
    """

    tau: float = 1.0
    """Divides the cosines; the smaller, the sharper the contrast. The preset "released" sets 2."""
    reduction: Literal["mean", "sum"] = "mean"
    """Over maps: mean (independent of the model's size) or sum (Eq. 11 as printed)."""
    contrast: Literal["model", "layer"] = "model"
    """Which maps are contrasted: all of the model (the paper), or those of one layer."""

    def __post_init__(self) -> None:
        """Check the options, and apply the preset."""
        super().__post_init__()
        if self.preset == "released":
            object.__setattr__(self, "tau", 2.0)
        check_choice(self, "contrast", ("model", "layer"))
        tau = self.tau
        if isinstance(tau, bool) or not isinstance(tau, int | float) or not 0 < tau < torch.inf:
            raise InputError(f"mdg(tau={tau!r}): expected a number above 0 (the paper uses 1.0).")

    def __call__(self, maps: AttentionRecord, inputs: Inputs) -> Tensor:
        """The loss of one batch."""
        gram = self.gram(maps)
        logits = gram.cosine / self.tau  # [B,M,M]
        sizes = [logits.shape[1]] if self.contrast == "model" else [len(heads) for heads in maps.heads.values()]
        # the blocks on the diagonal: the whole matrix, or the maps of each layer
        blocks = [rows.split(sizes, 2)[number] for number, rows in enumerate(logits.split(sizes, 1))]
        losses = [torch.logsumexp(block, -1) - block.diagonal(dim1=1, dim2=2) for block in blocks]
        each = torch.cat(losses, 1)  # [B,M]
        return mean_over_examples(each.mean(1) if self.reduction == "mean" else each.sum(1), gram.count)


@register_guide("pdg")
class PatternDecorrelation(GramGuide):
    """PDG: no two positions should be attended to by the same maps (Eq. 12 of arXiv 2204.02922).

    With the maps' received attention as rows of a matrix U [M,K], each of length one:

        PDG = || U^T U - I ||^2  (Frobenius, over the K positions that count), divided by K with reduction "mean"

    The K x K matrix is never built: with G = U U^T (M x M, shared with MDG) the value is ||G||^2 - 2 tr G + K.

    With rows of length one tr G is constant, so PDG is the sum of the squared cosines between maps: its gradient on the
    query/key projections has a cosine of about 0.99 with that of MDG. The two are nearly one guide. The text about
    Eq. 12 speaks of the cross-correlation of positions, as in Barlow Twins: that is `standardise=True`. Instead of the
    rows each position k is scaled, to mean 0 and variance 1 across the maps, Z [M,K]:

        PDG = || Z^T Z / M - I ||^2  (over the K positions that count), divided by K with reduction "mean"

    that is the sum of the squared correlations between different positions. A position that is the same in all maps has
    no correlation and counts as 0. Its gradient is nearly at right angles to that of MDG (a cosine of 0.04 on SICK): it
    is another guide; docs/results.md has the measurements. It needs no maps and no K x K matrix either. The default is
    the formula as printed: it is what the paper's and our results under this name are about.

    Relations: see MDG. PDG is large (about 170 for 72 maps and 25 tokens) and depends on both numbers, so its weight is
    usually much smaller than MDG's; with `standardise` it is a few units. `auto(share)` computes a weight for both.

    Differences from the authors' released code, which `preset="released"` brings back: maps averaged over keys, which
    leaves no gradient without dropout, and maps after dropout. Its factor 1/K is our reduction "mean".
    """

    weight: Weight = 1e-4
    """Factor in the loss: a number, a schedule (warm_up, decay, piecewise) or auto(share)."""
    reduction: Literal["mean", "sum"] = "mean"
    """Over positions: mean (divided by K) or sum (Eq. 12 as printed)."""
    normalise: bool = True
    """Whether each map's vector is scaled to length one first; without it the value explodes."""
    standardise: bool = False
    """Whether positions are standardised across maps instead of rows: the cross-correlation of the text, as in Barlow
    Twins. `normalise` has no effect then."""

    def __post_init__(self) -> None:
        """Check the options, and apply the preset."""
        super().__post_init__()
        check_choice(self, "normalise", (True, False))
        check_choice(self, "standardise", (True, False))

    def __call__(self, maps: AttentionRecord, inputs: Inputs) -> Tensor:
        """The loss of one batch."""
        if self.standardise:
            inner, varying = self._correlations(maps)
            count = self.positions(maps).sum(1)
        else:
            gram = self.gram(maps)
            inner, varying, count = gram.cosine, gram.count, gram.count  # [B,M,M], [B], [B]
            if not self.normalise:
                inner = inner * gram.norm.unsqueeze(1) * gram.norm.unsqueeze(2)
        trace = inner.diagonal(dim1=1, dim2=2).sum(1)
        value = inner.square().sum((1, 2)) - 2 * trace + varying  # [B]
        if self.reduction == "mean":
            value = value / count.clamp_min(1)
        return mean_over_examples(value, count)

    def _correlations(self, maps: AttentionRecord) -> tuple[Tensor, Tensor]:
        """[B,M,M] Z Z^T / M, which has the norm of the K x K correlations, and [B] how many positions vary."""
        vectors = map_vectors(maps, self.positions(maps), released=self.preset == "released")  # [B,M,K]
        mean = vectors.mean(1, keepdim=True)
        centred = vectors - mean
        variance = centred.square().mean(1, keepdim=True)
        # What differs by rounding only is the same in all maps: it must not be scaled up to variance one.
        varies = variance > torch.finfo(variance.dtype).eps * mean.square()
        inverse = torch.where(varies, variance, 1.0).rsqrt().masked_fill(~varies, 0.0)
        return inner_products(centred * inverse) / vectors.shape[1], varies.sum((1, 2))
