"""Both parts of the loss of a model with SSA in the Trainer's log."""

from __future__ import annotations

from typing import Any

from transformers import Trainer, TrainerCallback
from transformers.trainer_callback import ExportableState

from headwise.ssa import Supervision, supervision_of
from headwise.training.running import RunningMeans, add_to_log


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
