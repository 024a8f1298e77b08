"""How a run trains (`RunArguments`), and what it trains on (`Material`): one task, or several that share an encoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import nn
from transformers import TrainingArguments

from headwise.training import distributed
from headwise.training.batches import JointCollator, JointData, LengthBuckets, TaskBatches
from headwise.training.predict import predict_logits

if TYPE_CHECKING:
    from headwise.training.relabelling import Probing

Collate = Callable[[list[Any]], dict[str, Any]]
# The main metric of several tasks: the mean of their main metrics.
MEAN = "mean"


@dataclass
class RunArguments(TrainingArguments):
    """transformers' TrainingArguments, and what a run of headwise adds to them."""

    early_stopping_patience: int | None = None
    """Evaluations without a better one after which training stops."""
    by_length: bool = True
    """Examples of similar length share a batch."""

    def steps_per_epoch(self, examples: int, processes: int = 1) -> int:
        """Optimizer steps of one pass over so many examples."""
        batches = ceil(ceil(examples / self.per_device_train_batch_size) / processes)
        return ceil(batches / self.gradient_accumulation_steps)


@dataclass(frozen=True)
class TaskData:
    """The data of one task."""

    train: Any
    validation: Any
    collate: Collate
    score: Callable[[numpy.ndarray], dict[str, float]]
    """The metrics of the logits on validation."""
    primary: str
    """The metric that decides which model is best."""
    collate_train: Collate | None = None
    """How training batches are built, if not as those of validation."""


@dataclass(frozen=True)
class Material:
    """A model and the data of its tasks."""

    model: Any
    """A classifier, or a `MultiTask` if `sampling` is given."""
    tasks: Mapping[str, TaskData]
    sampling: str | None = None
    """How several tasks take turns; None where the model is a classifier for one task."""
    loss: Callable[..., torch.Tensor] | None = None
    """A loss outside of the model, as transformers' `compute_loss_func`; None for the model's own."""
    probing: Probing | None = None
    """What is labelled before each epoch, if the model has SSA and learns from labels."""

    @property
    def several(self) -> bool:
        """Whether the model is a `MultiTask`."""
        return self.sampling is not None

    @property
    def only(self) -> TaskData:
        """The data of the first task, which is the only one unless there are several."""
        return next(iter(self.tasks.values()))

    @property
    def primary(self) -> str:
        """The metric that decides which model is best."""
        return MEAN if self.several else self.only.primary

    @cached_property
    def train(self) -> Any:
        """The training examples of all tasks."""
        return JointData({name: task.train for name, task in self.tasks.items()}) if self.several else self.only.train

    @cached_property
    def collate(self) -> Collate:
        """How training batches are built."""
        if not self.several:
            return self.only.collate_train or self.only.collate
        return JointCollator({name: task.collate for name, task in self.tasks.items()})

    def classifier(self, task: str) -> nn.Module:
        """The classifier of one task."""
        classifier: nn.Module = self.model.classifier(task) if self.several else self.model
        return classifier

    def batches(self, arguments: RunArguments, batch: int) -> LengthBuckets | TaskBatches:
        """Batches of similar lengths, decided by seed and epoch alone; of several tasks, of one task each."""
        if not self.several:
            return LengthBuckets(self.train.lengths, batch, arguments.seed, by_length=arguments.by_length)
        per_epoch = self.steps_per_epoch(arguments, 1)
        return TaskBatches(
            {name: task.train.lengths for name, task in self.tasks.items()},
            batch=batch,
            accumulation=arguments.gradient_accumulation_steps,
            sampling=str(self.sampling),
            epochs=ceil(arguments.max_steps / per_epoch),
            seed=arguments.seed,
            by_length=arguments.by_length,
        )

    def steps_per_epoch(self, arguments: RunArguments, processes: int) -> int:
        """Optimizer steps of one pass over the data; all micro-batches of a step belong to one task."""
        return sum(arguments.steps_per_epoch(len(task.train), processes) for task in self.tasks.values())

    def validate(self, batch: int) -> dict[str, float]:
        """The metrics on validation; of several tasks all of them as TASK/METRIC, and the mean of the main ones."""
        scores = {
            name: task.score(predict_logits(self.classifier(name), task.validation, task.collate, batch=batch))
            for name, task in self.tasks.items()
        }
        if not self.several:
            return next(iter(scores.values()))
        mean = float(numpy.mean([scores[name][task.primary] for name, task in self.tasks.items()]))
        return {MEAN: mean} | {f"{name}/{metric}": each[metric] for name, each in scores.items() for metric in each}


def run_arguments(
    training: Mapping[str, Any],
    material: Material,
    folder: Path,
    *,
    seed: int = 1,
    by_length: bool = True,
    report_to: tuple[str, ...] = (),
) -> RunArguments:
    """The arguments of a run in a folder.

    Args:
        training: fields of RunArguments, such as a recipe's `training` block; `warmup_steps` below 1 is a part of all
            steps, `max_steps` None means `num_train_epochs`, `eval_steps` None once per epoch.
        material: decides how many steps an epoch has.
        folder: for checkpoints and the best model.
        seed: of weights, order and dropout.
        by_length: whether examples of similar length share a batch.
        report_to: reporters of transformers, such as tensorboard.
    """
    fields = {name: value for name, value in training.items() if value is not None}
    arguments = RunArguments(
        output_dir=str(folder),
        **{name: value for name, value in fields.items() if name not in ("warmup_steps", "eval_steps", "max_steps")},
        seed=seed,
        data_seed=seed,
        by_length=by_length,
        use_cpu=not torch.accelerator.is_available(),  # without this, bf16 is refused where there is no GPU
        optim="adamw_torch_fused",
        eval_strategy="steps",
        save_strategy="steps",
        logging_strategy="steps",
        logging_first_step=True,
        report_to=list(report_to) or "none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=torch.cuda.is_available(),
    )
    per_epoch = material.steps_per_epoch(arguments, distributed.count())
    total = fields.get("max_steps") or max(1, round(per_epoch * arguments.num_train_epochs))
    warmup = fields.get("warmup_steps", 0)
    arguments.max_steps = total
    arguments.warmup_steps = int(warmup) if warmup >= 1 else round(warmup * total)
    # Evaluation counts steps, not epochs: so it always comes before the checkpoint of the same step, and a run that is
    # killed between the two repeats it.
    arguments.eval_steps = min(fields.get("eval_steps") or per_epoch, total)
    arguments.save_steps = min(int(arguments.save_steps), total)
    return arguments
