"""Callbacks that log every part of the loss of a guided model or of one with SSA, and keep their state in checkpoints.

trainer = Trainer(model=hw.guide(model, "mdg"), ..., callbacks=[hw.GuideCallback()])
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch import Tensor
from transformers import Trainer, TrainerCallback
from transformers.trainer_callback import CallbackHandler, ExportableState

from headwise.errors import StateError
from headwise.guides import Guidance, guidance_of
from headwise.ssa import supervision_of
from headwise.training import distributed


class RunningMeans:
    """Sums numbers by name until their means are taken; tensors stay on their device until then."""

    def __init__(self) -> None:
        """Start empty."""
        self._sums: dict[str, Tensor | float] = {}
        self._counts: dict[str, int] = {}

    def __len__(self) -> int:
        """How many numbers there are means of."""
        return len(self._counts)

    def add(self, numbers: Mapping[str, Tensor | float]) -> None:
        """Add one value of each."""
        for name, number in numbers.items():
            self._sums[name] = self._sums.get(name, 0.0) + number
            self._counts[name] = self._counts.get(name, 0) + 1

    def take(self) -> dict[str, float]:
        """The means, also over all processes of data-parallel training; then start again."""
        means = {name: float(total) / self._counts[name] for name, total in self._sums.items()}
        self._sums, self._counts = {}, {}
        totals = distributed.all_sum(list(means.values()))
        return {name: total / distributed.count() for name, total in zip(means, totals, strict=True)}

    def state(self) -> dict[str, Any]:
        """Plain data, fit for JSON."""
        return {name: [float(total), self._counts[name]] for name, total in self._sums.items()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Resume from a state."""
        for name, (total, count) in state.items():
            self._sums[name], self._counts[name] = total, count


class LossCallback(TrainerCallback, ExportableState):
    """Adds parts of the loss to what the Trainer logs, averaged over the steps since the last log."""

    old_name = ""
    """What the class was called in checkpoints of headwise 0.1."""

    def __init__(self) -> None:
        """A Trainer that restores its callbacks builds one without arguments, too."""
        self.model: Any = None
        self._means = RunningMeans()

    def parts(self) -> dict[str, Tensor | float]:
        """The parts of the loss of the latest forward pass by name; empty if there are none."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """What the Trainer keeps in trainer_state.json."""
        return {"args": {}, "attributes": {"running": self._means.state()}}

    def load(self, callbacks: dict[str, Any]) -> dict[str, Any]:
        """Resume from a checkpoint's callbacks, and make sure that the next checkpoint has this one; returns it."""
        name = type(self).__name__
        saved = callbacks.get(name, callbacks.get(self.old_name))
        attributes: dict[str, Any] = saved.get("attributes", {}) if isinstance(saved, dict) else {}
        self._means = RunningMeans()
        self._means.load(attributes.get("running", {}))
        callbacks.setdefault(name, self.state())  # the Trainer saves only callbacks that have an entry here
        return attributes

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Resume from the checkpoint that the Trainer resumed from, if any."""
        frame = inspect.currentframe()
        handler = None if frame is None or frame.f_back is None else frame.f_back.f_locals.get("self")
        if isinstance(handler, CallbackHandler):
            _move_to_front(handler.callbacks, self)
        self.model = kwargs.get("model") or self.model
        self.load(state.stateful_callbacks)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Remember the parts of this step."""
        self._means.add(self.parts())

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Remember the parts of this part of an accumulated step."""
        self._means.add(self.parts())

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Add the means to a training log; evaluation logs stay as they are."""
        if not len(self._means) or logs is None or "loss" not in logs:
            return
        means = self._means.take()
        logs.update(means)
        if state.log_history:
            state.log_history[-1].update(means)


def _move_to_front(callbacks: list[TrainerCallback], callback: TrainerCallback) -> None:
    """The Trainer puts its reporters before the callbacks of users; they must see the logs after this one did."""
    if callbacks[0] is not callback:
        callbacks[:] = [callback, *(each for each in callbacks if each is not callback)]


class GuideCallback(LossCallback):
    """Logs every part of a guided loss to the Trainer's `report_to`, and keeps the guides' state in checkpoints.

        trainer = Trainer(model=hw.guide(model, "mdg"), ..., callbacks=[hw.GuideCallback()])

    Names: task_loss; per guide NAME: guide/NAME, guide/NAME_weighted, guide/NAME_weight and, when measured,
    guide/NAME_share.
    """

    old_name = "GuideLog"

    @property
    def guidance(self) -> Guidance | None:
        """The guides of the model that is trained."""
        return None if self.model is None else guidance_of(self.model)

    def parts(self) -> dict[str, Tensor | float]:
        """The task's loss, and raw value, weighted value, weight and share of every guide."""
        guidance = self.guidance
        if guidance is None or guidance.losses.task is None:
            return {}
        parts: dict[str, Tensor | float] = {"task_loss": guidance.losses.task}
        for name, part in guidance.losses.guides.items():
            parts[f"guide/{name}"] = part.raw
            parts[f"guide/{name}_weighted"] = part.weighted
            parts[f"guide/{name}_weight"] = part.weight
            if part.share is not None:
                parts[f"guide/{name}_share"] = part.share
        return parts

    def state(self) -> dict[str, Any]:
        """With the state of the guides: their step and automatic weights."""
        state, guidance = super().state(), self.guidance
        state["attributes"]["saved"] = None if guidance is None else guidance.state_dict()
        return state

    def load(self, callbacks: dict[str, Any]) -> dict[str, Any]:
        """Resume the guides, too."""
        attributes, guidance = super().load(callbacks), self.guidance
        if attributes.get("saved") is not None and guidance is not None:
            guidance.load_state_dict(attributes["saved"])
            callbacks[type(self).__name__] = self.state()
        return attributes


class TokenLossCallback(LossCallback):
    """Logs both parts of the loss of a model with SSA: `ssa/task_loss` and `ssa/token_loss`."""

    old_name = "TokenLog"

    def parts(self) -> dict[str, Tensor | float]:
        """The task's loss, and the token loss where there is one."""
        supervision = None if self.model is None else supervision_of(self.model)
        losses = None if supervision is None else supervision.losses
        if losses is None:
            return {}
        parts: dict[str, Tensor | float] = {"ssa/task_loss": losses.task}
        return parts if losses.token is None else parts | {"ssa/token_loss": losses.token}


def add_loss_callbacks(trainer: Trainer) -> None:
    """Add the callbacks that the trainer's model needs, in front of its reporters."""
    model, callbacks = trainer.model, trainer.callback_handler.callbacks
    needed: list[type[LossCallback]] = []
    if model is not None and supervision_of(model) is not None:
        needed.append(TokenLossCallback)
    if model is not None and guidance_of(model) is not None:
        needed.append(GuideCallback)
    for kind in needed:
        callback = next((each for each in callbacks if isinstance(each, kind)), None)
        if callback is None:
            callback = kind()
            callback.model = model
            kept: Any = trainer.state.stateful_callbacks  # a dict by now, whatever its annotation says
            callback.load(kept)
            callbacks.append(callback)
        _move_to_front(callbacks, callback)


def log_losses(trainer: Trainer) -> Trainer:
    """Deprecated: pass `callbacks=[hw.GuideCallback()]` to the Trainer instead."""
    if trainer.model is None or guidance_of(trainer.model) is None:
        raise StateError("the trainer's model is not guided: call guide(model, ...) first.")
    add_loss_callbacks(trainer)
    return trainer
