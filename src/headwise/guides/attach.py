"""Put guides on a model, take them off, and ask what they did."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from headwise.attention import Seam
from headwise.errors import InputError, StateError, UnsupportedModelError
from headwise.guides.base import Guide, Guides, build
from headwise.guides.guidance import Guidance
from headwise.guides.vocabulary import Vocabulary


def guide(
    model: nn.Module,
    guides: Guide | Guides | Mapping[str, Mapping[str, Any]] | Iterable[Guide],
    *,
    tokenizer: Any = None,
    share_every: int = 0,
) -> nn.Module:
    """Attach guides: in training mode the model's loss becomes task + weighted guides; in eval mode nothing changes.

        model = hw.guide(model, hw.MDG(weight=1e-3) + hw.PDG(weight=1e-4))

    Works with anybody's loop and any Trainer; the model stays what it was, and saves as what it was.

    Args:
        model: a transformers encoder with a head that computes a loss, bare or wrapped.
        guides: a guide, guides added with `+`, or names with options, as in a recipe: {"mdg": {"weight": 0.001}}.
        tokenizer: tells which tokens are special, separators or full stops, for guides that want to know.
        share_every: measure the guides' gradient shares every so many optimiser steps (0: only when asked).

    Returns:
        The same model.
    """
    seam = Seam.of(model)
    if _guidance_of(seam) is not None:
        raise StateError("this model is already guided: call unguide(model) first.")
    if isinstance(share_every, bool) or not isinstance(share_every, int) or share_every < 0:
        raise InputError(f"share_every={share_every!r}: expected a whole number of 0 or more.")
    seam.enter(Guidance(seam, as_guides(guides), Vocabulary.of(tokenizer), share_every))
    return model


def unguide(model: nn.Module) -> nn.Module:
    """Take the guides away; the model is as it was before `guide`, but for what it has learned.

    A model without guides stays as it is.
    """
    current = _guidance_of(Seam.of(model))
    if current is not None:
        current.detach()
    return model


def guidance(model: nn.Module) -> Guidance:
    """The guidance of a guided model: its losses, gradient shares and state."""
    current = _guidance_of(Seam.of(model))
    if current is None:
        raise StateError("this model is not guided: call guide(model, ...) first.")
    return current


def guidance_of(model: nn.Module) -> Guidance | None:
    """The guidance of a model, or None where there is none."""
    try:
        return _guidance_of(Seam.of(model))
    except UnsupportedModelError:
        return None


def last_losses(model: nn.Module) -> dict[str, float]:
    """The parts of the last training loss: task, and each guide raw and weighted (see `Losses.as_dict`)."""
    return guidance(model).losses.as_dict()


def _guidance_of(seam: Seam) -> Guidance | None:
    return next((customer for customer in seam.customers if isinstance(customer, Guidance)), None)


def as_guides(guides: Any) -> Guides:
    """Guides from whatever `guide` takes."""
    if isinstance(guides, Guide):
        return Guides((guides,))
    if isinstance(guides, str):
        return Guides((build(guides),))
    if isinstance(guides, Mapping) and guides:
        return Guides(build(name, **_options(name, options)) for name, options in guides.items())
    if isinstance(guides, Iterable):
        chosen = Guides(guides)
        if chosen and all(isinstance(each, Guide) for each in chosen):
            return chosen
    raise InputError(f"guides={guides!r}: expected guides, such as hw.MDG(weight=1e-3) + hw.PDG(weight=1e-4).")


def _options(name: str, options: Any) -> dict[str, Any]:
    if options is not None and not isinstance(options, Mapping):
        raise InputError(f"options of guide {name} are {options!r}: expected names with values, such as weight: 0.001.")
    return dict(options or {})
