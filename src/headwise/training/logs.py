"""Every part of a guided loss in the Trainer's log, and the guides' state in its checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import Trainer, TrainerCallback
from transformers.trainer_callback import ExportableState

from headwise.errors import StateError
from headwise.guides import Guidance, guidance_of
from headwise.ssa import Supervision, supervision_of
from headwise.training import distributed as processes

# Means since the last log, which survive a checkpoint.


class RunningMeans:
    """Sums numbers by name until their means are taken; tensors stay on their device until then."""

    def __init__(self) -> None:
        """Start empty."""
        self._sums: dict[str, Tensor | float] = {}
        self._counts: dict[str, int] = {}

    def __len__(self) -> int:
        """How many numbers there are means of."""
        return len(self._counts)

    def note(self, numbers: Mapping[str, Tensor | float], weight: float = 1.0) -> None:
        """Add one value of each; `weight` is that of this process in the mean over processes."""
        for name, number in numbers.items():
            self._sums[name] = self._sums.get(name, 0.0) + (number if weight == 1.0 else weight * number)
            self._counts[name] = self._counts.get(name, 0) + 1

    def take(self) -> dict[str, float]:
        """The means, over all processes of data-parallel training; what comes next is counted anew."""
        means = {name: float(total) / self._counts[name] for name, total in self._sums.items()}
        self._sums, self._counts = {}, {}
        return _averaged_over_processes(means)

    def state(self) -> dict[str, Any]:
        """Plain data, fit for JSON."""
        return {name: [float(total), self._counts[name]] for name, total in self._sums.items()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        for name, (total, count) in state.items():
            self._sums[name], self._counts[name] = total, count


def add_to_log(means: RunningMeans, logs: Any, state: Any) -> None:
    """Add the means to a training log of the Trainer; other logs stay as they are."""
    if not len(means) or logs is None or "loss" not in logs:
        return
    parts = means.take()
    logs.update(parts)
    if state.log_history:
        state.log_history[-1].update(parts)


def _averaged_over_processes(parts: dict[str, float]) -> dict[str, float]:
    """The mean of each number over all processes of data-parallel training."""
    totals = processes.summed(list(parts.values()))
    return {name: total / processes.count() for name, total in zip(parts, totals, strict=True)}


# Both parts of the loss of a model with SSA in the Trainer's log.


class TokenLog(TrainerCallback, ExportableState):
    """Adds `ssa/task_loss` and `ssa/token_loss` to the Trainer's log, averaged over the steps since the last one."""

    def __init__(self, supervision: Supervision | None = None) -> None:
        """Start empty; a Trainer that restores its callbacks makes one without anything, see `on_train_begin`."""
        self._supervision = supervision
        self._means = RunningMeans()
        self.weight = 1.0
        """How much this process counts in the mean over several."""

    def state(self) -> dict[str, Any]:
        """What the Trainer keeps in trainer_state.json."""
        return {"args": {}, "attributes": {"running": self._means.state()}}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Go on from the checkpoint that the Trainer resumed from, if any."""
        model = kwargs.get("model")
        self._supervision = (None if model is None else supervision_of(model)) or self._supervision
        self._means = RunningMeans()
        # The Trainer saves only what has a place: a checkpoint from before this callback has none for it.
        kept = state.stateful_callbacks.setdefault(type(self).__name__, self.state()).get("attributes", {})
        self._means.load(kept.get("running", {}))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Remember the parts of this step."""
        self._note()

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Remember the parts of this part of an accumulated step."""
        self._note()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Add the parts to a training log; other logs stay as they are."""
        add_to_log(self._means, logs, state)

    def _note(self) -> None:
        losses = None if self._supervision is None else self._supervision.losses
        if losses is None:
            return
        parts = {"ssa/task_loss": losses.task} | ({} if losses.token is None else {"ssa/token_loss": losses.token})
        self._means.note(parts, self.weight)


def log_token_losses(trainer: Trainer) -> None:
    """Add a TokenLog to a Trainer, in front: reporters show what they are given when their turn comes."""
    found = None if trainer.model is None else supervision_of(trainer.model)
    callbacks = trainer.callback_handler.callbacks
    if found is not None and not any(isinstance(each, TokenLog) for each in callbacks):
        callbacks.insert(0, TokenLog(found))


class GuideLog(TrainerCallback, ExportableState):
    """Adds the parts of the loss to what the Trainer logs, averaged over the steps since the last log.

    Names: task_loss; per guide NAME: guide/NAME, guide/NAME_weighted, guide/NAME_weight and, when measured,
    guide/NAME_share.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.saved: dict[str, Any] | None = None
        self.running: dict[str, Any] = {}
        self._guidance: Guidance | None = None
        self._means = RunningMeans()
        self.weight = 1.0
        """How much this process counts in the mean over several."""

    def watch(self, guidance: Guidance) -> None:
        """Log this guidance."""
        self._guidance = guidance

    def state(self) -> dict[str, Any]:
        """What the Trainer keeps in trainer_state.json."""
        saved = None if self._guidance is None else self._guidance.state_dict()
        return {"args": {}, "attributes": {"saved": saved, "running": self._means.state()}}

    def load(self, callbacks: dict[str, Any]) -> None:
        """Take the guides' state from a checkpoint's callbacks, and make sure that the next checkpoint has it."""
        found = callbacks.get(type(self).__name__)
        kept = found.get("attributes", {}) if isinstance(found, dict) else {}
        saved = kept.get("saved")
        self._means.load(kept.get("running", {}))
        if saved is not None and self._guidance is not None:
            self._guidance.load_state_dict(saved)
        callbacks.setdefault(type(self).__name__, self.state())

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Go on from the checkpoint that the Trainer resumed from, if any."""
        model = kwargs.get("model")
        self._guidance = (None if model is None else guidance_of(model)) or self._guidance
        self.load(state.stateful_callbacks)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Remember the parts of this step."""
        self._note()

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Remember the parts of this part of an accumulated step."""
        self._note()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Add the parts to a training log; evaluation logs stay as they are."""
        add_to_log(self._means, logs, state)

    def _note(self) -> None:
        if self._guidance is None or self._guidance.losses.task is None:
            return
        numbers: dict[str, torch.Tensor | float] = {"task_loss": self._guidance.losses.task}
        for name, part in self._guidance.losses.guides.items():
            numbers[f"guide/{name}"] = part.raw
            numbers[f"guide/{name}_weighted"] = part.weighted
            numbers[f"guide/{name}_weight"] = part.weight
            if part.share is not None:
                numbers[f"guide/{name}_share"] = part.share
        self._means.note(numbers, self.weight)


def log_losses(trainer: Trainer) -> Trainer:
    """Let any Trainer of a guided model log every part of the loss to its `report_to`, and keep the guides' state.

        trainer = hw.log_losses(Trainer(model=model, ...))

    The callback goes to the front of the row, since reporters show what they are given when their turn comes.
    """
    guidance = None if trainer.model is None else guidance_of(trainer.model)
    if guidance is None:
        raise StateError("the trainer's model is not guided: call guide(model, ...) first.")
    callbacks = trainer.callback_handler.callbacks
    log = next((callback for callback in callbacks if isinstance(callback, GuideLog)), None)
    if log is None:
        log = GuideLog()
        log.watch(guidance)
        kept: Any = trainer.state.stateful_callbacks  # a dict by now, whatever its annotation says
        log.load(kept)
        callbacks.append(log)
    if callbacks[0] is not log:  # new, or restored by the Trainer, which puts what it restores at the end
        callbacks.remove(log)
        callbacks.insert(0, log)
    return trainer
