"""How a run trains (`RunArguments`), and what it trains on (`Material`): one task, or several that share an encoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
import torch
from transformers import TrainingArguments

from headwise.training import distributed

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
    def first(self) -> TaskData:
        """The data of the first task, which is the only one without `sampling`."""
        return next(iter(self.tasks.values()))

    def steps_per_epoch(self, arguments: RunArguments, processes: int = 1) -> int:
        """Optimizer steps of one pass over the data; all micro-batches of a step belong to one task."""
        steps = 0
        for task in self.tasks.values():
            batches = ceil(ceil(len(task.train) / arguments.per_device_train_batch_size) / processes)
            steps += ceil(batches / arguments.gradient_accumulation_steps)
        return steps


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
    warmup, eval_steps, max_steps = (fields.pop(name, 0) for name in ("warmup_steps", "eval_steps", "max_steps"))
    arguments = RunArguments(
        output_dir=str(folder),
        **fields,
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
    total = arguments.max_steps = max_steps or max(1, round(per_epoch * arguments.num_train_epochs))
    arguments.warmup_steps = int(warmup) if warmup >= 1 else round(warmup * total)
    # Evaluation counts steps, not epochs: so it always comes before the checkpoint of the same step, and a run that is
    # killed between the two repeats it.
    arguments.eval_steps = min(eval_steps or per_epoch, total)
    arguments.save_steps = min(int(arguments.save_steps), total)
    return arguments
