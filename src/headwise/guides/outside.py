"""Guides for a loss that is a module around the model, as those of sentence-transformers are."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from headwise.errors import InputError, StateError
from headwise.guides.attach import guidance_of
from headwise.guides.guidance import Guidance


class GuidedLoss(nn.Module):
    """Any loss that holds its model and calls it, plus the weighted guides of that model.

        hw.guide(model, hw.MDG() + hw.PDG())
        loss = hw.GuidedLoss(BinaryCrossEntropyLoss(model))
        CrossEncoderTrainer(model=model, loss=loss, ...).train()

    total = loss + sum over guides g of weight_g x g, where g is the mean over all examples of all forward passes that
    the loss makes: a loss that calls the model once per column, per negative or per part of a batch is guided as if it
    had called it once. In evaluation it is the loss alone.

    Losses with a gradient cache (Cached...) call the model again in the backward pass and are refused.
    """

    def __init__(self, loss: nn.Module) -> None:
        """Wrap a loss; its model may be guided before or after."""
        super().__init__()
        if not isinstance(loss, nn.Module):
            raise InputError(
                f"GuidedLoss({loss!r}): expected a loss that holds the model, such as BinaryCrossEntropyLoss(model)."
            )
        if any(isinstance(module, GuidedLoss) for module in loss.modules()):
            raise InputError("GuidedLoss of a GuidedLoss would add the guides twice: wrap the loss once.")
        self.loss = loss

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the loss returns, a scalar or scalars by name, with the guides added."""
        guidance = guidance_of(self.loss)
        if guidance is None and torch.is_grad_enabled():
            raise StateError(
                f"the model of {type(self.loss).__name__} is not guided: call guide(model, ...) first, or train with "
                "that loss itself."
            )
        if guidance is None or not guidance.training:
            return self.loss(*args, **kwargs)
        with guidance.gathering():
            loss = self.loss(*args, **kwargs)
        return _guided(loss, guidance)

    @property
    def model(self) -> Any:
        """The model of the loss: a trainer looks here to replace it by its wrapped one."""
        return self.loss.model

    def get_config_dict(self) -> dict[str, Any]:
        """What the model card of sentence-transformers tells of this loss."""
        guidance = guidance_of(self.loss)
        return {"loss": self.loss, "guides": [] if guidance is None else [repr(guide) for guide in guidance.guides]}


def _guided(loss: Any, guidance: Guidance) -> Any:
    if isinstance(loss, Tensor) and loss.dim() == 0:
        return guidance.total(loss)
    if isinstance(loss, dict) and loss:  # parts, which the trainer adds up and logs by name
        task = torch.stack(list(loss.values())).sum()
        return {**loss, "guides": guidance.total(task) - task}
    raise InputError(f"the loss is {loss!r}: expected a scalar tensor, or scalar tensors by name.")
