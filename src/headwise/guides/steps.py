"""Count optimiser steps in anybody's loop, so that schedules mean steps even under gradient accumulation."""

from __future__ import annotations

import copy
import weakref
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook


class StepCounter:
    """Counts the steps of the optimiser that trains a model; the count can be set, to resume."""

    def __init__(self, model: nn.Module) -> None:
        """Start at 0."""
        self.count = 0
        self._model = model
        self._optimiser: weakref.ref[Optimizer] | None = None
        self._listen()

    def stop(self) -> None:
        """Count no more."""
        self._handle.remove()

    def __deepcopy__(self, memo: dict[int, Any]) -> StepCounter:
        """The counter of a copied model goes on from the same count with the copy's own optimiser."""
        twin = object.__new__(StepCounter)
        memo[id(self)] = twin
        twin.count, twin._optimiser = self.count, None
        twin._model = copy.deepcopy(self._model, memo)
        twin._listen()
        return twin

    def _listen(self) -> None:
        # torch calls such a hook for every optimiser of the process, so it must not keep a forgotten model alive. It
        # cannot take itself away either, since torch is walking through the hooks: a dead one stays and does nothing.
        counter = weakref.ref(self)

        def stepped(optimiser: Optimizer, args: Any, kwargs: Any) -> None:
            alive = counter()
            if alive is not None:
                alive._stepped(optimiser)

        self._handle = register_optimizer_step_post_hook(stepped)

    def _stepped(self, optimiser: Optimizer) -> None:
        known = None if self._optimiser is None else self._optimiser()
        if known is None and self._trains(optimiser):
            # With several optimisers on one model the first one seen gives the beat.
            known, self._optimiser = optimiser, weakref.ref(optimiser)
        if known is optimiser:
            self.count += 1

    def _trains(self, optimiser: Optimizer) -> bool:
        trained = {id(parameter) for group in optimiser.param_groups for parameter in group["params"]}
        return any(id(parameter) in trained for parameter in self._model.parameters())
