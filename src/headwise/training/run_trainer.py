"""The Trainer of a run: its arguments, what it trains on, its batches and its evaluation."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Sampler
from transformers import PrinterCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.integrations.integration_utils import get_reporting_integration_callbacks

from headwise.errors import InputError
from headwise.training import distributed
from headwise.training.classifier import scale_head
from headwise.training.predict import predict_logits
from headwise.training.trainer import GuidedTrainer, add_guide_callback

if TYPE_CHECKING:
    from headwise.training.relabelling import Probing

Collate = Callable[[list[Any]], dict[str, Any]]
# Batches per window: examples are sorted by length within a window of this many batches and shuffled beyond it, so that
# little padding is needed and an example still meets others from epoch to epoch.
WINDOW = 8
# The main metric of several tasks: the mean of their main metrics.
MEAN = "mean"


@dataclass
class RunArguments(TrainingArguments):
    """transformers' TrainingArguments, and what a run of headwise adds to them."""

    early_stopping_patience: int | None = None
    """Evaluations without a better one after which training stops."""
    by_length: bool = True
    """Examples of similar length share a batch."""
    rewarm_at: int | None = None
    """The step at which the schedule of the learning rate, with its warm-up, begins anew for the remaining steps."""
    head_learning_rate_multiplier: float = 10.0
    """Times `learning_rate` is the learning rate of the weights above the encoder, which start from nothing."""

    def __post_init__(self) -> None:
        """Refuse a multiplier that is no rate."""
        multiplier = self.head_learning_rate_multiplier
        if isinstance(multiplier, bool) or not isinstance(multiplier, int | float) or not 0 < multiplier < inf:
            raise InputError(
                f"training.head_learning_rate_multiplier is {multiplier!r}: expected a finite number above 0."
            )
        super().__post_init__()  # type: ignore[no-untyped-call]


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


# -- batches and evaluation --------------------------------------------------------------------------------------------


class LengthBuckets(Sampler[list[int]]):
    """Batches of examples of similar length; every example once per epoch.

    The order is a function of (seed, epoch) and of nothing else, so an interrupted epoch can be repeated. Two runs with
    the same seed see the same batches, whatever else they do with random numbers.
    """

    def __init__(self, lengths: Sequence[int], batch: int, seed: int, *, by_length: bool = True) -> None:
        """`by_length=False` shuffles all examples alike."""
        self.batch_size, self.drop_last = batch, False  # accelerate reads these two
        self._lengths, self._by_length = numpy.asarray(lengths), by_length
        self._seed, self._epoch = seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of this epoch."""
        self._epoch = epoch

    def __len__(self) -> int:
        """Batches per epoch."""
        return -(-len(self._lengths) // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        """The batches of the epoch."""
        random = numpy.random.default_rng([self._seed, self._epoch])
        order = random.permutation(len(self._lengths))
        starts = numpy.arange(0, len(order), self.batch_size)
        if self._by_length:
            windows = numpy.arange(len(order)) // (WINDOW * self.batch_size)
            order = order[numpy.lexsort((self._lengths[order], windows))]
            # A short batch stays the last: in several processes accelerate would lose others behind it.
            random.shuffle(starts[: len(order) // self.batch_size])
        for start in starts:
            yield order[start : start + self.batch_size].tolist()


class PartOfBatches(Sampler[list[int]]):
    """The part of one process in every batch of another sampler, taken in turns, so that lengths are alike.

    A batch of fewer examples than processes leaves some without any: they repeat its first one, since all processes
    must take the same steps.
    """

    def __init__(self, batches: Any, rank: int, processes: int) -> None:
        """`batches` yields the batches of all processes together."""
        self._batches, self._rank, self._processes = batches, rank, processes

    def __len__(self) -> int:
        """Batches per epoch."""
        return len(self._batches)

    def __iter__(self) -> Iterator[list[int]]:
        """The part of each batch of the epoch."""
        for batch in self._batches:
            yield batch[self._rank :: self._processes] or batch[:1]


def _in_a_row(at: int, first: Callable[[int], float], second: Callable[[int], float], step: int) -> float:
    """The factor of the learning rate at a step; the second schedule begins at step `at`."""
    return first(step) if step < at else second(step - at)


class _RateOfStep(TrainerCallback):
    """Sets the learning rates of the first step: those of a checkpoint may be of another schedule."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        scheduler = kwargs["lr_scheduler"]
        factors = [each(state.global_step) for each in scheduler.lr_lambdas]
        rates = [rate * factor for rate, factor in zip(scheduler.base_lrs, factors, strict=True)]
        for group, rate in zip(scheduler.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        scheduler._last_lr = rates  # which is what the Trainer logs


def _wait(*args: Any, **kwargs: Any) -> None:
    """In the place of a reporter's `on_train_end`."""


def _finish_wandb() -> None:
    """End the run of W&B, which transformers leaves open: the next run of this process is another one."""
    wandb = sys.modules.get("wandb")
    if wandb is not None and wandb.run is not None:
        wandb.finish()


def report_summary(report_to: Sequence[str], name: str, folder: Path, metrics: Mapping[str, float]) -> None:
    """Send metrics of many runs to reporters, as a run of its own."""
    arguments = TrainingArguments(output_dir=str(folder), run_name=name, use_cpu=True)
    state, control = TrainerState(), TrainerControl()
    for kind in get_reporting_integration_callbacks(list(report_to)):
        reporter = kind()
        reporter.on_train_begin(arguments, state, control, model=None)
        reporter.on_log(arguments, state, control, logs=dict(metrics), model=None)
        reporter.on_train_end(arguments, state, control)
    _finish_wandb()


class _OrderOfEpoch(TrainerCallback):
    """Sets the sampler's epoch: not every Trainer reaches it when it resumes with several processes."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._sampler.set_epoch(int(state.epoch or 0))  # within a resumed epoch the Trainer's count has a fraction


class RunTrainer(GuidedTrainer):
    """A GuidedTrainer with the batches and the evaluation of a run on one task; only `fit` builds one.

    Several processes with a batch each train as one does with a batch of that many times the size, if batches are full.
    """

    def __init__(self, material: Material, arguments: RunArguments, callbacks: list[TrainerCallback]) -> None:
        """Callbacks that a run does not need are left out, and that of the guides is added."""
        self.material = material
        train, collate = self.examples()
        try:
            super().__init__(
                model=material.model,
                args=arguments,
                train_dataset=train,
                eval_dataset=material.first.validation,
                data_collator=collate,
                callbacks=callbacks,
                compute_loss_func=material.loss,
            )
        except (ImportError, RuntimeError, ValueError) as error:
            if not arguments.report_to:
                raise
            # A reporter that transformers does not know, or that is not installed.
            reason = " ".join(str(error).split()).rstrip(".")
            raise InputError(
                f"report_to is {', '.join(arguments.report_to)}: {reason}; change it or leave it out."
            ) from error
        kinds = tuple(get_reporting_integration_callbacks(arguments.report_to))
        self._reporters = [each for each in self.callback_handler.callbacks if isinstance(each, kinds)]
        for each in self._reporters:  # the scores on test are still to come
            each.on_train_end = _wait
        self.remove_callback(PrinterCallback)  # it would write to standard output, which is for results
        add_guide_callback(self)

    def end_reports(self, metrics: Mapping[str, float] | None = None) -> None:
        """Send the last metrics to the reporters of `report_to`, and close what they opened."""
        for each in self._reporters:
            if metrics and self.state.is_world_process_zero:
                each.on_log(self.args, self.state, self.control, logs=dict(metrics), model=self.model)
            del each.on_train_end
            each.on_train_end(self.args, self.state, self.control, model=self.model)
        if self._reporters:
            _finish_wandb()
        self._reporters = []

    def examples(self) -> tuple[Any, Any]:
        """The training examples, and how batches are built of them."""
        task = self.material.first
        return task.train, task.collate_train or task.collate

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """As usual, or two schedules in a row."""
        at: int | None = getattr(self.args, "rewarm_at", None)
        if at is None:
            return super().create_scheduler(num_training_steps, optimizer)
        self.lr_scheduler = None  # once for each part: the Trainer keeps the one that it has
        second = super().create_scheduler(num_training_steps - at, optimizer)
        self.lr_scheduler = None
        scheduler = super().create_scheduler(num_training_steps, optimizer)
        if not isinstance(scheduler, LambdaLR) or not isinstance(second, LambdaLR):
            raise InputError(f"lr_scheduler_type {self.args.lr_scheduler_type} cannot begin anew: use linear.")
        parts = zip(scheduler.lr_lambdas, second.lr_lambdas, strict=True)
        scheduler.lr_lambdas = [partial(_in_a_row, at, *part) for part in parts]
        self.add_callback(_RateOfStep())
        return scheduler

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """As usual, with a learning rate for the weights above the encoder."""
        arguments: Any = self.args
        fresh = self.optimizer is None
        optimizer: torch.optim.Optimizer = super().create_optimizer(model)
        if fresh and arguments.head_learning_rate_multiplier != 1:
            scale_head(optimizer, self.material.model, arguments.head_learning_rate_multiplier)
        return optimizer

    def sampler(self, batch: int) -> Any:
        """Batches of similar lengths, decided by seed and epoch alone."""
        arguments: Any = self.args
        lengths = self.material.first.train.lengths
        return LengthBuckets(lengths, batch, arguments.seed, by_length=arguments.by_length)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """The batches of an epoch, of which each process takes its part."""
        data: Any = self.train_dataset
        world, collate = self.args.world_size, self.data_collator
        sampler = self.sampler(self.args.per_device_train_batch_size * world)
        self.add_callback(_OrderOfEpoch(sampler))
        if world > 1:  # not by accelerate, which gives processes batches of different tasks
            parts = PartOfBatches(sampler, self.args.process_index, world)
            return DataLoader(data, batch_sampler=parts, collate_fn=collate)
        loader: DataLoader[Any] = self.accelerator.prepare(DataLoader(data, batch_sampler=sampler, collate_fn=collate))
        return loader

    def validate(self) -> dict[str, float]:
        """The metrics on validation."""
        task, batch = self.material.first, self.args.per_device_eval_batch_size
        return task.score(predict_logits(self.material.model, task.validation, task.collate, batch=batch))

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """The metrics on validation; of several processes, the first one computes them for all."""
        scores = distributed.from_first(self.validate)
        metrics = {f"eval_{name}": value for name, value in scores.items()}
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics
