"""Every part of a guided loss in the Trainer's log, and the guides' state in its checkpoints."""

from __future__ import annotations

from typing import Any

import torch
from transformers import Trainer, TrainerCallback
from transformers.trainer_callback import ExportableState

from headwise.errors import StateError
from headwise.guides import Guidance, guidance_of
from headwise.training.running import RunningMeans, add_to_log


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
