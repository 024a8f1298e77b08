"""The parts of the loss of one training step, and the loss in the output of a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass
class GuidePart:
    """One guide's part in the last training step."""

    raw: Tensor
    """The guide's own value, without its weight (detached)."""
    weight: float
    share: float | None = None
    """Weighted gradient norm on the query/key projections, as a share of the task's; None if not measured."""

    @property
    def weighted(self) -> Tensor:
        """The part of the loss."""
        return self.raw * self.weight


@dataclass
class Losses:
    """Task loss and guides of the last training step."""

    task: Tensor | None = None
    """The task's own loss (detached); None if the model was called without labels."""
    guides: dict[str, GuidePart] = field(default_factory=dict)
    """By name; a guide whose weight is 0 at this step is not computed and not listed."""

    def as_dict(self) -> dict[str, float]:
        """Plain numbers for a log: task; per guide NAME, NAME_weighted, NAME_weight and, once measured, its share."""
        numbers = {} if self.task is None else {"task": float(self.task)}
        for name, part in self.guides.items():
            numbers[name] = float(part.raw)
            numbers[f"{name}_weighted"] = float(part.weighted)
            numbers[f"{name}_weight"] = part.weight
            if part.share is not None:
                numbers[f"{name}_share"] = part.share
        return numbers


def with_loss(output: Any, loss: Tensor) -> Any:
    """The output of a model with another loss."""
    if isinstance(output, tuple):
        return (loss, *output[1:])
    output.loss = loss
    return output


def loss_of(output: Any) -> Tensor | None:
    """The loss in a model's output: its field, or the first entry of a plain tuple if that is a scalar."""
    if isinstance(output, tuple):
        first = output[0] if output else None
        return first if isinstance(first, Tensor) and first.dim() == 0 else None
    loss = getattr(output, "loss", None)
    return loss if isinstance(loss, Tensor) else None
