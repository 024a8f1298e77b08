"""MDG, map discrimination."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from headwise.attention import AttentionRecord, Inputs, What
from headwise.errors import InputError
from headwise.guides.base import Guide, check_choice, mean_over_examples, register_guide
from headwise.guides.gram import gram


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
