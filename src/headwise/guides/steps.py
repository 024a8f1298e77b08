"""Count optimiser steps in anybody's loop, so that schedules mean steps even under gradient accumulation."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook


class StepCounter:
    """Counts the steps of the optimiser that trains a model; the count can be set, to resume."""

    def __init__(self, model: nn.Module, then: Callable[[], None]) -> None:
        """Start at 0, and call `then` after every step that counts."""
        self.count = 0
        self._model = model
        self._then = then
        self._optimiser: weakref.ref[Optimizer] | None = None
        self._rival: weakref.ref[Optimizer] | None = None
        self._listen()

    def stop(self) -> None:
        """Count no more."""
        self._handle.remove()

    def __deepcopy__(self, memo: dict[int, Any]) -> StepCounter:
        """The counter of a copied model goes on from the same count with the copy's own optimiser."""
        twin = object.__new__(StepCounter)
        memo[id(self)] = twin
        twin.count, twin._optimiser, twin._rival = self.count, None, None
        twin._model = copy.deepcopy(self._model, memo)
        twin._then = copy.deepcopy(self._then, memo)
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
        if known is optimiser:
            self._rival = None
            self._count(1)
        elif self._trains(optimiser):
            self._other_stepped(optimiser, first=known is None)

    def _other_stepped(self, optimiser: Optimizer, *, first: bool) -> None:
        """With several optimisers on one model the first gives the beat, until another steps twice without it.

        That is a second training run, in a notebook say, where the optimiser of the first is still alive.
        """
        rival = None if self._rival is None else self._rival()
        if first or rival is optimiser:
            self._optimiser, self._rival = weakref.ref(optimiser), None
            self._count(1 if first else 2)
        else:
            self._rival = weakref.ref(optimiser)

    def _count(self, steps: int) -> None:
        self.count += steps
        self._then()

    def _trains(self, optimiser: Optimizer) -> bool:
        trained = {id(parameter) for group in optimiser.param_groups for parameter in group["params"]}
        return any(id(parameter) in trained for parameter in self._model.parameters())
