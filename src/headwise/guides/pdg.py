"""PDG, pattern decorrelation."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from headwise.attention import AttentionRecord, Inputs
from headwise.guides.base import check_choice, mean_over_examples, register_guide
from headwise.guides.mdg import GramGuide
from headwise.guides.weights import Weight


@register_guide("pdg")
class PatternDecorrelation(GramGuide):
    """PDG: no two positions should be attended to by the same maps (Eq. 12 of arXiv 2204.02922).

    With the maps' received attention as rows of a matrix U [M,K], each of length one:

        PDG = || U^T U - I ||^2  (Frobenius, over the K positions that count), divided by K with reduction "mean"

    The K x K matrix is never built: with G = U U^T (M x M, shared with MDG) the value is ||G||^2 - 2 tr G + K.

    Relations: see MDG. PDG is large (about 170 for 72 maps and 25 tokens) and depends on both numbers, so its weight is
    usually much smaller than MDG's; `auto(share)` computes one.

    Differences from the authors' released code, which `preset="released"` brings back: maps averaged over keys, which
    leaves no gradient without dropout, and maps after dropout. Its factor 1/K is our reduction "mean".
    """

    weight: Weight = 1e-4
    """Factor in the loss: a number, a schedule (warm_up, decay, piecewise) or auto(share)."""
    reduction: Literal["mean", "sum"] = "mean"
    """Over positions: mean (divided by K) or sum (Eq. 12 as printed)."""
    normalise: bool = True
    """Whether each map's vector is scaled to length one first; without it the value explodes."""

    def __post_init__(self) -> None:
        """Check the options, and apply the preset."""
        super().__post_init__()
        check_choice(self, "normalise", (True, False))

    def __call__(self, maps: AttentionRecord, inputs: Inputs) -> Tensor:
        """The loss of one batch."""
        gram = self.gram(maps)
        inner = gram.cosine  # [B,M,M]
        if not self.normalise:
            inner = inner * gram.norm.unsqueeze(1) * gram.norm.unsqueeze(2)
        trace = inner.diagonal(dim1=1, dim2=2).sum(1)
        value = inner.square().sum((1, 2)) - 2 * trace + gram.count  # [B]
        if self.reduction == "mean":
            value = value / gram.count.clamp_min(1)
        return mean_over_examples(value, gram.count)
