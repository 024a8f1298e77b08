"""How far attention is from its target: one number per distribution, by formulas with an explicit derivative.

The formulas keep nothing for the backward pass but the two tensors that are there anyway; composed of torch's own
operations each would keep one or two more copies of every map.

Shapes: ... any leading dimensions, K keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Distance:
    """A distance between attention and its target."""

    value: Callable[[Tensor, Tensor], Tensor]
    """(attention [...,K], target [...,K]) -> [...]"""
    derivative: Callable[[Tensor, Tensor], Tensor]
    """Its derivative by attention, [...,K]."""
    per_key: bool = False
    """Whether the value must be divided by the number of keys."""

    def __call__(self, attention: Tensor, target: Tensor) -> Tensor:
        """[...] in the graph of attention; the target (whose leading dimensions may be 1) has no gradient."""
        value: Tensor = _Apply.apply(attention, target.to(attention.dtype), self)  # type: ignore[no-untyped-call]
        return value


class _Apply(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, attention: Tensor, target: Tensor, distance: Distance) -> Tensor:
        ctx.save_for_backward(attention, target)
        ctx.distance = distance
        return distance.value(attention, target)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ctx.distance.derivative(*ctx.saved_tensors).mul_(gradient.unsqueeze(-1)), None, None


def _squares(attention: Tensor, target: Tensor) -> Tensor:
    return (attention - target).square_().sum(-1)


def _squares_derivative(attention: Tensor, target: Tensor) -> Tensor:
    return (attention - target).mul_(2)


def _divergence(attention: Tensor, target: Tensor) -> Tensor:
    log = attention.clamp_min(torch.finfo(attention.dtype).tiny).log_()
    return torch.xlogy(target, target).sum(-1) - log.mul_(target).sum(-1)


def _divergence_derivative(attention: Tensor, target: Tensor) -> Tensor:
    # Attention of exactly 0 is dropped or masked: no step changes it, so it has no derivative either.
    derivative = (-target / attention.clamp_min(torch.finfo(attention.dtype).tiny)).expand_as(attention)
    return derivative.masked_fill(attention == 0, 0.0)


def _angle(attention: Tensor, target: Tensor) -> Tensor:
    return 1 - (attention * target).sum(-1) / _lengths(attention, target)


def _angle_derivative(attention: Tensor, target: Tensor) -> Tensor:
    lengths = _lengths(attention, target).unsqueeze(-1)
    inner = (attention * target).sum(-1, keepdim=True)
    square = attention.square().sum(-1, keepdim=True)
    towards = inner / square.clamp_min(torch.finfo(attention.dtype).tiny)
    # Where dropout left nothing there is no direction either.
    return (attention * towards).sub_(target).div_(lengths).masked_fill_(square == 0, 0.0)


def _lengths(attention: Tensor, target: Tensor) -> Tensor:
    product: Tensor = torch.linalg.vector_norm(attention, dim=-1) * torch.linalg.vector_norm(target, dim=-1)
    return product.clamp_min(torch.finfo(attention.dtype).tiny)


DISTANCES = {
    "mse": Distance(_squares, _squares_derivative, per_key=True),
    "kl": Distance(_divergence, _divergence_derivative),
    "cosine": Distance(_angle, _angle_derivative),
}
