"""How long training takes: steps and epochs, evaluation and saving left out."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState


class Clock(TrainerCallback, ExportableState):
    """Seconds of every optimiser step, kept per epoch across interruptions."""

    def __init__(self) -> None:
        """Start at zero."""
        self.epochs: dict[str, float] = {}
        self._steps: list[float] = []
        self._began = 0.0
        self._epoch = "0"

    @property
    def seconds_per_step(self) -> float | None:
        """The median over the steps of this process, the first one (which warms up) left out."""
        return median(self._steps[1:]) if len(self._steps) > 1 else None

    def state(self) -> dict[str, Any]:
        """What the Trainer keeps in trainer_state.json."""
        return {"args": {}, "attributes": {"epochs": dict(self.epochs)}}

    def restore(self, callbacks: dict[str, Any]) -> None:
        """Go on from a checkpoint's callbacks."""
        self.epochs = dict(callbacks.get(type(self).__name__, {}).get("attributes", {}).get("epochs", {}))

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Go on from the checkpoint that the Trainer resumed from, if any."""
        self.restore(state.stateful_callbacks)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock."""
        # The Trainer rounds the last step of an epoch up, so the number is taken while the epoch still runs.
        self._epoch = str(int(state.epoch or 0))
        self._began = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop the clock."""
        taken = time.perf_counter() - self._began
        self._steps.append(taken)
        self.epochs[self._epoch] = self.epochs.get(self._epoch, 0.0) + taken
