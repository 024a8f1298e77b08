"""IAT in transformers' Trainer: every update changes only the heads that are important to its task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from transformers import TrainerCallback

from headwise.errors import InputError
from headwise.heads.iat import IAT, HeadUpdates


class TrainImportantHeads(TrainerCallback):
    """From the beginning to the end of training, tasks update their own heads only.

    The model says whose batch it has seen (`last_task`). The Trainer clips before its `on_pre_optimizer_step`, when the
    gradients of other heads are zero already.
    """

    def __init__(self, model: nn.Module, allowed: Mapping[str, Any], options: IAT) -> None:
        """Nothing happens before training begins.

        Args:
            model: a `MultiTask`.
            allowed: [N,H] by the name of the task, True = its updates may change the head.
            options: of these `protect`, `mode` and `others` count.
        """
        self._model: Any = model
        self._allowed, self._options = allowed, options
        self._updates: HeadUpdates | None = None
        self._hook: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take hold of the gradients."""
        if args.world_size > 1:
            raise InputError(
                f"iat: {args.world_size} processes train together, and their batches belong to different tasks at a "
                "time: train in one process."
            )
        self.remove()
        options = self._options
        self._updates = HeadUpdates(
            self._model,
            self._allowed,
            protect=options.protect,
            mode=options.mode,
            others=options.others,
            own=self._model.own_parameters(),
        )
        self._hook = self._model.register_forward_hook(self._tell)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any) -> None:
        """Show the optimiser what it may change."""
        if self._updates is not None:
            self._updates.before_step(_unwrapped(optimizer))

    def on_optimizer_step(self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any) -> None:
        """Give the optimiser the rest back."""
        if self._updates is not None:
            self._updates.after_step(_unwrapped(optimizer))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Let go."""
        self.remove()

    def remove(self) -> None:
        """Let go, also where training ended with an error, of which the Trainer does not tell."""
        if self._updates is not None:
            self._updates.remove()
            self._hook.remove()
        self._updates = self._hook = None

    def _tell(self, model: Any, inputs: Any, outputs: Any) -> None:
        if self._updates is not None and model.training:
            self._updates.on(model.last_task)


def _unwrapped(optimizer: Any) -> Any:
    """The optimiser of torch inside accelerate's."""
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer
