"""Keep the model that did best on validation, and stop when it no longer gets better."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState


class BestModel(TrainerCallback, ExportableState):
    """Saves the model after each evaluation that beats all before; its memory is part of the checkpoints."""

    def __init__(
        self,
        metric: str = "",
        folder: Path | None = None,
        save: Callable[[Path], None] | None = None,
        patience: int | None = None,
    ) -> None:
        """`save` writes the model to a folder; `patience` evaluations without a better one end the training."""
        self.value: float | None = None
        self.step = 0
        self.waited = 0
        self.history: list[dict[str, Any]] = []
        self._metric = metric
        self._folder = folder
        self._save = save
        self._patience = patience

    @property
    def exhausted(self) -> bool:
        """Whether patience has run out."""
        return self._patience is not None and self.waited >= self._patience

    def state(self) -> dict[str, Any]:
        """What the Trainer keeps in trainer_state.json."""
        memory = {"value": self.value, "step": self.step, "waited": self.waited, "history": list(self.history)}
        return {"args": {}, "attributes": memory}

    def restore(self, callbacks: dict[str, Any]) -> None:
        """Go on from a checkpoint's callbacks."""
        for name, value in callbacks.get(type(self).__name__, {}).get("attributes", {}).items():
            setattr(self, name, value)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Go on from the checkpoint that the Trainer resumed from, if any."""
        self.restore(state.stateful_callbacks)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        """Compare with the best so far."""
        value = float(metrics[f"eval_{self._metric}"])
        self.history.append({"step": state.global_step, **{name: value for name, value in metrics.items()}})
        if self.value is None or value > self.value:
            self.value, self.step, self.waited = value, state.global_step, 0
            if state.is_world_process_zero:
                self._keep()
            return
        self.waited += 1
        if self.exhausted:
            control.should_training_stop = True

    def _keep(self) -> None:
        """Write beside, then swap, so that a kill leaves the old or the new model but no half one."""
        if self._folder is None or self._save is None:
            return
        fresh = self._folder.with_name(self._folder.name + ".new")
        shutil.rmtree(fresh, ignore_errors=True)
        self._save(fresh)
        shutil.rmtree(self._folder, ignore_errors=True)
        fresh.rename(self._folder)
