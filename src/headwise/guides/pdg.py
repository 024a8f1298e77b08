"""PDG, pattern decorrelation."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from headwise.attention import AttentionRecord, Inputs
from headwise.guides.base import check_choice, mean_over_examples, register_guide
from headwise.guides.mdg import GramGuide, inner_products, map_vectors
from headwise.guides.weights import Weight


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
