"""Disagreement between the heads of a layer."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from headwise.attention import AttentionRecord, Inputs, What
from headwise.errors import InputError
from headwise.guides.base import Guide, check_choice, mean_over_examples, register_guide

WHAT: dict[str, What] = {"subspace": "value", "position": "map", "output": "output"}


@register_guide("disagreement")
class Disagreement(Guide):
    """Disagreement: the heads of one layer should differ, token by token (Li et al. 2018, arXiv 1810.10183).

    For the heads i, j of a layer, as a mean over pairs i != j, over tokens s and over layers:

        on="subspace"   cosine of their values V_is, V_js
        on="position"   sum over keys k of A_isk A_jsk
        on="output"     cosine of their outputs O_is, O_js

    The sum over pairs is never formed: with unit vectors u_i it is |sum_i u_i|^2 - H, and the same for maps.

    Relations: MDG and PDG compare what keys receive from all heads of the model; this compares neighbours only, and
    also what they read (subspace) and write (output). Only "position" needs maps. The values of a layer do not depend
    on its own queries and keys, so a share of their gradient (`auto`) says little where only the first layer is guided.

    Differences from the paper as printed, which `reduction="paper"` brings back: there the pairs i = j count too, over
    H^2, which for cosines is a constant and for maps presses every head towards even attention. "position" is here a
    mean over tokens, so that it does not depend on length.
    """

    padding_rows: ClassVar[bool] = True

    on: Literal["subspace", "position", "output"] = "output"
    """What should differ: values, maps or outputs."""
    reduction: Literal["pairs", "paper"] = "pairs"
    """Mean over pairs of different heads, or over all H^2 pairs."""

    def __post_init__(self) -> None:
        """Check the options."""
        super().__post_init__()
        check_choice(self, "on", tuple(WHAT))
        check_choice(self, "reduction", ("pairs", "paper"))

    @property
    def what(self) -> What:
        """Values and outputs cost little; maps cost time and memory."""
        return WHAT[self.on]

    def __call__(self, maps: AttentionRecord, inputs: Inputs) -> Tensor:
        """The loss of one batch."""
        positions = self.positions(maps)  # [B,S]
        weights = positions / positions.sum(1, keepdim=True).clamp_min(1)
        layers = [(self._agreement(maps[layer], layer) * weights).sum(1) for layer in maps.heads]  # [B]
        return mean_over_examples(torch.stack(layers).mean(0), positions.sum(1))

    def _agreement(self, parts: Tensor, layer: int) -> Tensor:
        """[B,S] for the values, outputs or rows of a layer's heads [B,n,S,D or K]."""
        count = parts.shape[1]
        if count < 2:
            raise InputError(f"disagreement on one head of layer {layer}: choose two or more with heads.")
        parts = parts.to(torch.promote_types(parts.dtype, torch.float32))
        pairs = self.reduction == "pairs"
        if self.on == "position":
            inner: Tensor = _Inner.apply(parts, pairs)  # type: ignore[no-untyped-call]
        else:
            length = torch.linalg.vector_norm(parts, dim=3, keepdim=True)
            unit = parts / length.clamp_min(torch.finfo(parts.dtype).eps)
            inner = unit.sum(1).square().sum(2)
            if pairs:
                inner = inner - (length > 0).sum((1, 3))  # a head that dropout has zeroed agrees with none
        return inner / (count * (count - 1) if pairs else count**2)


class _Inner(torch.autograd.Function):
    """Inner products of the heads' rows [B,n,S,K], summed over pairs of heads: [B,S].

        sum over i, j of A_i . A_j = |sum_i A_i|^2,   without i = j  - sum_i |A_i|^2

    With an explicit gradient, so that there is never more than one copy of each map at a time.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, different: bool) -> Tensor:
        total = rows.sum(1)  # [B,S,K]
        ctx.save_for_backward(rows, total)
        ctx.different = different
        inner = total.square().sum(2)
        return inner - torch.linalg.vector_norm(rows, dim=(1, 3)).square() if different else inner

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        rows, total = ctx.saved_tensors
        total = total.unsqueeze(1)
        derivative = total - rows if ctx.different else total.expand_as(rows).clone()
        return derivative.mul_(2 * gradient[:, None, :, None]), None
