"""How to train: the choices of a run, without its data and model."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that `fit` needs to know; recipes are checked before they become this."""

    seed: int
    batch: int
    accumulation: int
    evaluation_batch: int
    epochs: float | None
    """Passes over the data; None if `steps` is given."""
    steps: int | None
    learning_rate: float
    schedule: str
    warmup: float
    """Part of all steps (below 1) or number of steps."""
    weight_decay: float
    clip: float
    precision: Literal["fp32", "bf16"]
    label_smoothing: float
    early_stopping: int | None
    evaluate_every: int | None
    """Optimiser steps; None for once per epoch."""
    checkpoint_every: int
    log_every: int
    share_every: int
    by_length: bool
    report_to: tuple[str, ...]

    def total_steps(self, per_epoch: int) -> int:
        """Optimiser steps of the whole run, at so many in one pass over the data."""
        return self.steps if self.steps is not None else max(1, round(per_epoch * (self.epochs or 0)))

    def steps_per_epoch(self, examples: int, processes: int = 1) -> int:
        """Optimiser steps of one pass over the data."""
        batches = ceil(ceil(examples / self.batch) / processes)
        return ceil(batches / self.accumulation)

    def warmup_steps(self, total: int) -> int:
        """Optimiser steps of the warm-up."""
        return int(self.warmup) if self.warmup >= 1 else round(self.warmup * total)
