"""Attach guides to a model, remove them, and read their losses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from headwise.attention import Seam
from headwise.errors import InputError, StateError, UnsupportedModelError
from headwise.guides.base import Guides, Regulariser, build
from headwise.guides.guidance import Guidance, Vocabulary


def guide(
    model: nn.Module,
    guides: Regulariser | Guides | Mapping[str, Mapping[str, Any]] | Iterable[Regulariser],
    *,
    tokenizer: Any = None,
    share_every: int = 0,
) -> nn.Module:
    """Attach guides: in training mode the model's loss becomes task + weighted guides; in eval mode nothing changes.

        model = hw.guide(model, hw.MDG(weight=1e-3) + hw.PDG(weight=1e-4))

    Works with anybody's loop and any Trainer; the model keeps its class and is saved as before.

    Args:
        model: a transformers encoder with a head that computes a loss, bare or wrapped.
        guides: a guide, guides added with `+`, or names with options, as in a recipe: {"mdg": {"weight": 0.001}}.
        tokenizer: knows which tokens are special, separators or full stops, for guides that need it.
        share_every: measure the guides' gradient shares every so many optimiser steps (0: only by `gradient_share`).

    Returns:
        The same model.
    """
    seam = Seam.of(model)
    if guidance_of(model) is not None:
        raise StateError("this model is already guided: call unguide(model) first.")
    if isinstance(share_every, bool) or not isinstance(share_every, int) or share_every < 0:
        raise InputError(f"share_every={share_every!r}: expected a whole number of 0 or more.")
    chosen = as_guides(guides)
    vocabulary = Vocabulary.of(tokenizer, marks=any(each.marks for each in chosen))
    seam.enter(Guidance(seam, chosen, vocabulary, share_every))
    return model


def unguide(model: nn.Module) -> nn.Module:
    """Take the guides away; the model is as it was before `guide`, but for what it has learned.

    A model without guides stays as it is.
    """
    for customer in Seam.of(model).customers:
        if isinstance(customer, Guidance):
            customer.detach()
    return model


def guidance(model: nn.Module) -> Guidance:
    """The guidance of a guided model: its losses, gradient shares and state."""
    Seam.of(model)  # refuses a model that cannot be guided
    current = guidance_of(model)
    if current is None:
        raise StateError("this model is not guided: call guide(model, ...) first.")
    return current


def guidance_of(model: nn.Module) -> Guidance | None:
    """The guidance of a model, or None where there is none."""
    try:
        customers = Seam.of(model).customers
    except UnsupportedModelError:
        return None
    return next((customer for customer in customers if isinstance(customer, Guidance)), None)


def last_losses(model: nn.Module) -> dict[str, float]:
    """The parts of the last training loss: task, and each guide raw and weighted (see `Losses.as_dict`)."""
    return guidance(model).losses.as_dict()


def as_guides(guides: Any) -> Guides:
    """Guides from any form that `guide` takes."""
    if isinstance(guides, Regulariser):
        return Guides((guides,))
    if isinstance(guides, str):
        return Guides((build(guides),))
    if isinstance(guides, Mapping) and guides:
        for name, options in guides.items():
            if options is not None and not isinstance(options, Mapping):
                raise InputError(
                    f"options of guide {name} are {options!r}: expected names with values, such as weight: 0.001."
                )
        return Guides(build(name, **(options or {})) for name, options in guides.items())
    if isinstance(guides, Iterable):
        several = Guides(guides)
        if several and all(isinstance(each, Regulariser) for each in several):
            return several
    raise InputError(f"guides={guides!r}: expected guides, such as hw.MDG(weight=1e-3) + hw.PDG(weight=1e-4).")


class GuidedLoss(nn.Module):
    """A loss module that holds its model, as in sentence-transformers, plus the weighted guides of that model.

        hw.guide(model, hw.MDG() + hw.PDG())
        loss = hw.guides.GuidedLoss(BinaryCrossEntropyLoss(model))
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
        """The value of the loss, a scalar or scalars by name, with the guides added."""
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
        if isinstance(loss, Tensor) and loss.dim() == 0:
            return guidance.total(loss)
        if isinstance(loss, dict) and loss:  # parts, which the trainer adds up and logs by name
            task = torch.stack(list(loss.values())).sum()
            return {**loss, "guides": guidance.total(task) - task}
        raise InputError(f"the loss is {loss!r}: expected a scalar tensor, or scalar tensors by name.")

    @property
    def model(self) -> Any:
        """The model of the loss: a trainer looks here to replace it by its wrapped one."""
        return self.loss.model

    def get_config_dict(self) -> dict[str, Any]:
        """The entry of this loss in the model card of sentence-transformers."""
        guidance = guidance_of(self.loss)
        return {"loss": self.loss, "guides": [] if guidance is None else [repr(guide) for guide in guidance.guides]}
