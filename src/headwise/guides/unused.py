"""Notice guides that are computed and then forgotten."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import torch

from headwise.errors import HeadwiseWarning


class Unused:
    """Warns, once, of an optimiser step whose guides were computed but never added to any loss.

    One addition in a step is enough: a loop may well call the model again for something else.
    """

    def __init__(self) -> None:
        """Start without suspicion."""
        self._names: tuple[str, ...] = ()
        self._added = False
        self._told = False

    def computed(self, names: Iterable[str]) -> None:
        """Guides were computed in a forward pass without a loss to add them to."""
        if torch.is_grad_enabled():
            self._names = tuple(names)

    def added(self) -> None:
        """Guides were added to a loss."""
        self._added = True

    def stepped(self) -> None:
        """The optimiser made a step."""
        forgotten = self._names if not self._added and not self._told else ()
        self._names, self._added = (), False
        if forgotten:
            self._told = True
            warnings.warn(
                f"this step trained without the guides ({', '.join(forgotten)}): the loss is computed outside of the "
                "model, and nobody added them; wrap it, hw.GuidedLoss(loss) (sentence-transformers), use "
                "hw.GuidedTrainer (label smoothing, compute_loss_func), or say loss = hw.guidance(model).total(loss).",
                HeadwiseWarning,
                stacklevel=2,
            )
