"""A Trainer for losses that are computed outside of the model, and the Trainer of a run with its batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy
from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler
from transformers import PrinterCallback, Trainer, TrainerCallback

from headwise.errors import InputError
from headwise.guides import guidance_of
from headwise.ssa import supervision_of
from headwise.training import distributed
from headwise.training.arguments import Material, RunArguments
from headwise.training.guide_callback import add_guide_callback
from headwise.training.predict import predict_logits

# Batches per window: examples are sorted by length within a window of this many batches and shuffled beyond it, so that
# little padding is needed and an example still meets others from epoch to epoch.
WINDOW = 50


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


class OrderOfEpoch(TrainerCallback):
    """Sets the sampler's epoch: not every Trainer reaches it when it resumes with several processes."""

    def __init__(self, sampler: Any) -> None:
        """For this sampler."""
        self._sampler = sampler

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Within a resumed epoch the Trainer's count has a fraction."""
        self._sampler.set_epoch(int(state.epoch or 0))


class GuidedTrainer(Trainer):
    """transformers' Trainer for a guided model: also right with label smoothing and `compute_loss_func`.

    After `hw.guide(model, ...)` an unchanged `Trainer` trains with guides, as long as the model computes its own loss.
    Label smoothing and `compute_loss_func` take the labels away from the model, so its loss, and with it the guides,
    would be missing, with a warning at most. This class adds them there, logs every part of the loss by name, and keeps
    the guides' state in checkpoints.

    Where it differs from `Trainer`: the loss of the model is taken as what it is, a mean over the batch, and is divided
    by the accumulation steps. `Trainer` (5.22) believes that every encoder classifier divides by the items of the whole
    accumulated batch, which they do not; its gradients grow with accumulation steps and processes.
    """

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """The task's loss plus the weighted guides."""
        guidance, labels = guidance_of(model), inputs.get("labels")  # now, since the labels will be taken out
        if guidance is not None:
            add_guide_callback(self)
        # A compute_loss_func gets the number of items and is expected to divide by it; everything else here is a mean.
        self.loss_is_scaled_for_ga = self.compute_loss_func is not None
        items = num_items_in_batch if self.compute_loss_func is not None else None
        outside = self.compute_loss_func is not None or (self.label_smoother is not None and "labels" in inputs)
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, num_items_in_batch=items)
        if outside and model.training:
            part = 1.0  # of this batch in what the loss was divided by
            if items is not None and isinstance(labels, Tensor):
                # Counted as the Trainer counts items: there may be more labels than examples.
                processes = self.accelerator.num_processes if self.args.average_tokens_across_devices else 1
                part = max(int(labels.ne(-100).sum()), 1) * processes / float(items)
            # As means over this batch, the parts stand to each other, and in the log, as without accumulation.
            for added in (supervision_of(model), guidance):
                loss = loss if added is None else added.total(loss / part) * part
        return (loss, outputs) if return_outputs else loss


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
        self.remove_callback(PrinterCallback)  # it would write to standard output, which is for results
        add_guide_callback(self)

    def examples(self) -> tuple[Any, Any]:
        """The training examples, and how batches are built of them."""
        task = self.material.first
        return task.train, task.collate_train or task.collate

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
        self.add_callback(OrderOfEpoch(sampler))
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
