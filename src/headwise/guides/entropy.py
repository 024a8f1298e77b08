"""Entropy: how evenly heads spread their attention."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from headwise.attention import AttentionRecord, Inputs, What
from headwise.guides.base import Guide, check_choice, mean_over_examples, register_guide


@register_guide("entropy")
class Entropy(Guide):
    """Entropy: heads should spread their attention evenly, or on few tokens (Attanasio et al. 2022, arXiv 2203.09192).

    With H(p) = - sum over k of p_k log p_k and n the number of tokens of the example:

        on="map"        E = mean over heads, layers and tokens q of  H(A_q) / log n,   A_q = row q of a map
        on="received"   E = mean over heads and layers of  H(a) / log n,   a = what each token receives, as shares

    so E lies between 0 (one token gets everything) and 1 (all get the same), whatever the length. The guide lowers

        direction="raise"   1 - E
        direction="lower"   E

    Examples of one token are left out. special_tokens=False leaves out the rows of special tokens on maps, and special
    tokens as keys on received attention.

    Maps cost memory: all heads of all layers are guided, so all maps are kept until the backward pass, 4 bytes times
    examples x heads x layers x tokens^2. Choose fewer with `layers` and `heads`, or take on="received", which needs no
    maps. That is another goal: there a head may look at one token in each row, as long as these are different tokens.

    Relations: Match pulls rows towards a pattern, this one towards no token at all (raise) or any one (lower). It has
    no target, so it has no shuffled twin. MDG and PDG do not mind how even attention is if heads differ.

    Differences from the paper (EAR), which raises entropy so that no single word decides: there the heads of a layer
    are averaged first, the average goes through another softmax, and layers are summed. Here every head counts alone,
    and the value does not depend on length or on the number of layers.
    """

    padding_rows: ClassVar[bool] = True

    on: Literal["map", "received"] = "map"
    """What is measured: the rows of maps, or received attention."""
    direction: Literal["raise", "lower"] = "raise"
    """Whether entropy should be raised or lowered."""

    def __post_init__(self) -> None:
        """Check the options."""
        super().__post_init__()
        check_choice(self, "on", ("map", "received"))
        check_choice(self, "direction", ("raise", "lower"))

    @property
    def what(self) -> What:
        """Maps, or received attention."""
        return self.on

    def __call__(self, maps: AttentionRecord, inputs: Inputs) -> Tensor:
        """The loss of one batch."""
        positions = self.positions(maps)  # [B,K]
        visible = (maps.valid if self.on == "map" else positions).sum(1)  # [B]
        if self.on == "map":
            weights = positions / positions.sum(1, keepdim=True).clamp_min(1)
            layers = [(_entropy(maps[layer]) * weights.unsqueeze(1)).sum(2) for layer in maps.heads]  # [B,n]
            values = torch.cat(layers, 1)
        else:
            received = maps.stacked()  # [B,M,K]
            received = received.to(torch.promote_types(received.dtype, torch.float32)) * positions.unsqueeze(1)
            total = received.sum(2, keepdim=True).clamp_min(torch.finfo(received.dtype).tiny)
            values = _entropy(received / total)
        even = values.mean(1) / visible.clamp_min(2).to(values.dtype).log()
        counted = (visible > 1) & positions.any(1)
        return mean_over_examples(1 - even if self.direction == "raise" else even, counted)


def _entropy(shares: Tensor) -> Tensor:
    """[...] of distributions [...,K], in float32 or better."""
    shares = shares.to(torch.promote_types(shares.dtype, torch.float32))
    value: Tensor = _Apply.apply(shares)  # type: ignore[no-untyped-call]
    return value


class _Apply(torch.autograd.Function):
    """Keeps nothing for the backward pass but the map, which is there anyway."""

    @staticmethod
    def forward(ctx: Any, shares: Tensor) -> Tensor:
        ctx.save_for_backward(shares)
        return -torch.xlogy(shares, shares).sum(-1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (shares,) = ctx.saved_tensors
        # Attention of exactly 0 is dropped or masked: no step changes it, so it has no derivative either.
        slope = shares.clamp_min(torch.finfo(shares.dtype).tiny).log_().add_(1).neg_()
        derivative: Tensor = slope.masked_fill_(shares == 0, 0.0).mul_(gradient.unsqueeze(-1))
        return derivative
