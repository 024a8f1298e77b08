"""A Trainer for losses that are computed outside of the model, and the Trainer of a run."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback

from headwise.guides import guidance_of
from headwise.ssa import supervision_of
from headwise.training import distributed
from headwise.training.arguments import Material
from headwise.training.batches import LengthBuckets, TaskBatches
from headwise.training.guide_callback import add_guide_callback


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
        guidance = guidance_of(model)
        if guidance is not None:
            add_guide_callback(self)
        # A compute_loss_func gets the number of items and is expected to divide by it; everything else here is a mean.
        self.loss_is_scaled_for_ga = self.compute_loss_func is not None
        items = num_items_in_batch if self.compute_loss_func is not None else None
        outside = self.compute_loss_func is not None or (self.label_smoother is not None and "labels" in inputs)
        part = self._part(inputs.get("labels"), items)  # now, since the labels will be taken out
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, num_items_in_batch=items)
        if outside and model.training:
            # As means over this batch, the parts stand to each other, and in the log, as without accumulation.
            for added in (supervision_of(model), guidance):
                loss = loss if added is None else added.total(loss / part) * part
        return (loss, outputs) if return_outputs else loss

    def _part(self, labels: Any, items: Tensor | int | None) -> float:
        """The part of this batch in what the loss was divided by; 1 for a mean over the batch."""
        if items is None or not isinstance(labels, Tensor):
            return 1.0
        # Counted as the Trainer counts items: there may be more labels than examples.
        mine = max(int(labels.ne(-100).sum()), 1)
        processes = self.accelerator.num_processes if self.args.average_tokens_across_devices else 1
        return mine * processes / float(items)


class RunTrainer(GuidedTrainer):
    """A GuidedTrainer with the batches and the evaluation of a run; only `fit` builds one.

    Several processes with a batch each train as one does with a batch of that many times the size, if batches are full.
    """

    material: Material
    _examples = 0
    """Of this process, in the current update."""

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Batches of similar lengths, decided by seed and epoch alone; each process takes its part of each batch."""
        arguments: Any = self.args
        world = arguments.world_size
        sampler = self.material.batches(arguments, arguments.per_device_train_batch_size * world)
        self.add_callback(OrderOfEpoch(sampler))
        data, collate = self.material.train, self.material.collate
        if world > 1:  # not by accelerate, which gives processes batches of different tasks
            parts = distributed.PartOfBatches(sampler, arguments.process_index, world)
            return DataLoader(data, batch_sampler=parts, collate_fn=collate)
        loader: DataLoader[Any] = DataLoader(data, batch_sampler=sampler, collate_fn=collate)
        prepared: DataLoader[Any] = self.accelerator.prepare(loader)
        return prepared

    def get_batch_samples(self, *args: Any, **options: Any) -> tuple[list[Any], Any]:
        """The micro-batches of an update, whose examples are counted."""
        batches, items = super().get_batch_samples(*args, **options)
        self._examples = sum(len(batch["input_ids"]) for batch in batches)
        return batches, items

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Of several tasks, weighted by examples: the last update of a pass has micro-batches of different sizes."""
        examples, batches = len(inputs["input_ids"]), self.current_gradient_accumulation_steps
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        if self.material.several and batches > 1:
            loss = loss * (examples * batches / self._examples)
        return (loss, outputs) if return_outputs else loss

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """The metrics on validation; of several processes, the first one computes them for all."""
        scores = distributed.from_first(lambda: self.material.validate(self.args.per_device_eval_batch_size))
        metrics = {f"eval_{name}": value for name, value in scores.items()}
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics


class OrderOfEpoch(TrainerCallback):
    """Sets the sampler's epoch: the Trainer does not reach the sampler when it resumes with several processes."""

    def __init__(self, sampler: LengthBuckets | TaskBatches) -> None:
        """For this sampler."""
        self._sampler = sampler

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Within a resumed epoch the Trainer's count has a fraction."""
        self._sampler.set_epoch(int(state.epoch or 0))
