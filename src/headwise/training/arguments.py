"""How to train: the choices of a run, without its data and model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Literal

import numpy
import torch
from torch import nn

from headwise.training.batches import JointCollator, JointData, LengthBuckets, TaskBatches
from headwise.training.classifier import MultiTask
from headwise.training.predict import predict_logits
from headwise.training.relabelling import Probing


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


# What is trained on what: one task, or several that share an encoder.


Collate = Callable[[list[dict[str, Any]]], dict[str, torch.Tensor]]
Score = Callable[[numpy.ndarray], dict[str, float]]
MEAN = "mean"


@dataclass(frozen=True)
class Material:
    """A model and the data of its task."""

    model: nn.Module
    train: Any
    validation: Any
    collate: Collate
    score: Score
    """The metrics of the logits on validation."""
    primary: str
    """The metric that tells which model is best."""
    collate_train: Callable[[list[Any]], dict[str, Any]] | None = None
    """How training batches are made, if not as those of validation."""
    loss: Callable[..., torch.Tensor] | None = None
    """A loss outside of the model, as transformers' `compute_loss_func`; None for the model's own."""
    probing: Probing | None = None
    """What is labelled before each epoch, if the model has SSA and learns from labels."""
    keep_last: bool = False
    """Whether the weights of the last step are kept beside the best."""

    def batches(self, settings: Settings) -> LengthBuckets | TaskBatches:
        """Batches of similar lengths, decided by seed and epoch alone."""
        return LengthBuckets(self.train.lengths, settings.batch, settings.seed, by_length=settings.by_length)

    def steps_per_epoch(self, settings: Settings, processes: int) -> int:
        """Optimiser steps of one pass over the data."""
        return settings.steps_per_epoch(len(self.train), processes)

    def validate(self, settings: Settings) -> dict[str, float]:
        """The metrics on validation; keeps no attention and no tensors but the logits."""
        logits = predict_logits(self.model, self.validation, self.collate, batch=settings.evaluation_batch)
        return self.score(logits)


@dataclass(frozen=True)
class Part:
    """One task of several."""

    train: Any
    validation: Any
    collate: Collate
    score: Score
    primary: str


@dataclass(frozen=True)
class JointMaterial(Material):
    """A model for several tasks, and the data of each."""

    sampling: str = "proportional"
    parts: Mapping[str, Part] | None = None

    @classmethod
    def of(cls, model: MultiTask, parts: Mapping[str, Part], sampling: str) -> JointMaterial:
        """The best model is the one with the largest mean of the tasks' main metrics."""
        train = JointData({name: part.train for name, part in parts.items()})
        collate = JointCollator({name: part.collate for name, part in parts.items()})
        return cls(
            model=model,
            train=train,
            validation=JointData({name: part.validation for name, part in parts.items()}),
            collate=_none,
            score=_none,
            primary=MEAN,
            collate_train=collate,
            keep_last=True,
            sampling=sampling,
            parts=parts,
        )

    def batches(self, settings: Settings) -> TaskBatches:
        """Batches of one task each."""
        per_epoch = self.steps_per_epoch(settings, 1)
        return TaskBatches(
            {name: part.train.lengths for name, part in (self.parts or {}).items()},
            batch=settings.batch,
            accumulation=settings.accumulation,
            sampling=self.sampling,
            epochs=ceil(settings.total_steps(per_epoch) / per_epoch),
            seed=settings.seed,
            by_length=settings.by_length,
        )

    def steps_per_epoch(self, settings: Settings, processes: int) -> int:
        """The sum over the tasks: all updates of one belong to one task."""
        return sum(settings.steps_per_epoch(len(part.train), processes) for part in (self.parts or {}).values())

    def validate(self, settings: Settings) -> dict[str, float]:
        """Of each task its metrics, and the mean of the main ones."""
        found: dict[str, float] = {}
        main = []
        for name, part in (self.parts or {}).items():
            classifier = self.classifier(name)
            logits = predict_logits(classifier, part.validation, part.collate, batch=settings.evaluation_batch)
            scores = part.score(logits)
            found |= {f"{name}/{metric}": value for metric, value in scores.items()}
            main.append(scores[part.primary])
        return {MEAN: float(numpy.mean(main)), **found}

    def classifier(self, name: str) -> nn.Module:
        """The classifier of one task."""
        model: Any = self.model
        classifier: nn.Module = model.classifier(name)
        return classifier


def _none(*_: Any) -> Any:
    """Stands where a single task has a function; several have one each."""
    return None
