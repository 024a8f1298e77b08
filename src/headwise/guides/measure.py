"""How hard a loss pulls on the projections that decide where attention goes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from headwise.attention import Projection, query_key_projections
from headwise.errors import StateError


def gradient_norms(model: nn.Module, losses: Sequence[Tensor]) -> list[float]:
    """The gradient norm of each loss on the query and key projections; the graph stays usable.

    In data-parallel training the gradients are averaged over the processes first, so that all get the same numbers.
    """
    projections = query_key_projections(model)
    if not projections:
        raise StateError(
            "no query or key projection is trainable, so no guide can change where attention goes: unfreeze them (or "
            "give them adapters), or use a number as weight."
        )
    return [_norm(_gradient(loss, projections)) for loss in losses]


def anywhere(values: Sequence[Tensor]) -> list[bool]:
    """Which values are not 0 in some process of data-parallel training: all must decide alike, or one waits forever."""
    sizes = torch.stack([value.detach().abs().float() for value in values])
    return [bool(size != 0) for size in _averaged([sizes])[0]]


def _gradient(loss: Tensor, projections: Sequence[Projection]) -> list[Tensor]:
    parameters = [projection.parameter for projection in projections]
    if not loss.requires_grad:
        return [torch.zeros((), device=loss.device)]
    try:
        gradients = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
    except RuntimeError as error:
        raise StateError(_reason(str(error))) from error
    parts = [
        projection.part(gradient)
        for projection, gradient in zip(projections, gradients, strict=True)
        if gradient is not None
    ]
    return _averaged(parts) if parts else [torch.zeros((), device=loss.device)]


def _reason(error: str) -> str:
    if "donated" in error:
        return (
            "gradient shares cannot be measured on a compiled model: use a number as weight, or measure before "
            "torch.compile."
        )
    if "second time" in error or "freed" in error:
        return "the graph of the last forward pass is gone: ask for the gradient share between forward and backward."
    return f"the gradient share cannot be measured: {error}"


def _averaged(parts: list[Tensor]) -> list[Tensor]:
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return parts
    flat = torch.cat([part.flatten() for part in parts])
    torch.distributed.all_reduce(flat)
    return [flat / torch.distributed.get_world_size()]


def _norm(parts: list[Tensor]) -> float:
    return float(torch.stack([part.double().square().sum() for part in parts]).sum().sqrt())
