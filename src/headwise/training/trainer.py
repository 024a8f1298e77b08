"""A Trainer for losses that are computed outside of the model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback

from headwise.errors import StateError
from headwise.guides import guidance_of
from headwise.ssa import Supervision, supervision_of
from headwise.training import distributed as processes
from headwise.training.arguments import JointMaterial, Material, Settings
from headwise.training.batches import LengthBuckets, TaskBatches
from headwise.training.distributed import SHARE, Share, SharedCollator, SharedData, Shares, weighed_gradients
from headwise.training.logs import GuideLog, TokenLog, log_losses
from headwise.training.ssa_data import WithTokenLabels


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
            log_losses(self)
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


# The Trainer of a run: our batches, our evaluation, and updates that weigh their examples alike.


class RunTrainer(GuidedTrainer):
    """A GuidedTrainer with our batches and our evaluation; only `fit` makes one.

    Several processes with a batch each train as one does with a batch of that many times the size.
    """

    material: Material
    settings: Settings
    _examples = 0
    """Of the update at hand, in all processes."""
    _share: Share | None = None
    """Of several processes, what this one does of the batch at hand."""

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Batches of similar lengths, decided by seed and epoch alone; of several processes, a share of each."""
        together = self.args.world_size
        sampler = self.material.batches(replace(self.settings, batch=self.settings.batch * together))
        self.add_callback(OrderOfEpoch(sampler))
        data, collate = self.material.train, self.material.collate_train or self.material.collate
        if together > 1:
            # Not by accelerate, which fills up the last batches with examples of the first.
            shares = Shares(sampler, self.args.process_index, together, getattr(data, "sizes", None))
            if self.material.loss is not None:
                self.compute_loss_func = self._loss_of_share
            return DataLoader(SharedData(data), batch_sampler=shares, collate_fn=SharedCollator(collate))  # type: ignore[arg-type]
        loader: DataLoader[Any] = DataLoader(data, batch_sampler=sampler, collate_fn=collate)
        prepared: DataLoader[Any] = self.accelerator.prepare(loader)
        return prepared

    def get_batch_samples(self, *args: Any, **options: Any) -> tuple[list[Any], Any]:
        """The micro-batches of an update, whose examples are counted."""
        batches, items = super().get_batch_samples(*args, **options)
        self._examples = sum(_examples_of(batch, batch.get(SHARE)) for batch in batches)
        return batches, items

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """Of several processes, each one's gradients and numbers count by its part of the examples."""
        self._share = inputs.pop(SHARE, None)
        if self._share is None:
            return super().training_step(model, inputs, num_items_in_batch)
        weight = self._share.weight
        for each in self.callback_handler.callbacks:
            if isinstance(each, GuideLog | TokenLog):
                each.weight = weight
        supervision = supervision_of(model)
        if supervision is not None and isinstance(self.material.train, WithTokenLabels):
            labelled = [self.material.train.labelled(places) for places in (self._share.places, self._share.of_places)]
            supervision.token_weight = self._share.beside(*labelled)
        with weighed_gradients(model, weight), _uncounted(None if weight else supervision):
            return super().training_step(model, inputs, num_items_in_batch) * weight

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Of several tasks, weighed by the examples: the last update of a pass has micro-batches of different sizes."""
        share, batches = self._share, self.current_gradient_accumulation_steps
        examples = _examples_of(inputs, share)
        if share is not None and self.material.loss is not None:
            # The part of the micro-batch in its update, as if all processes had as many examples as this one: how many
            # they have, the weight of the gradients says.
            mine = inputs["labels"].numel()
            num_items_in_batch = mine * share.processes * self._examples / examples
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        if isinstance(self.material, JointMaterial) and batches > 1:
            loss = loss * (examples * batches / self._examples)
        return (loss, outputs) if return_outputs else loss

    def _loss_of_share(self, outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Tensor:
        """The loss outside of the model, which is a mean over items: over claims, not over their pairs."""
        if self.material.loss is None or self._share is None:
            raise StateError("only a share of a batch, with a loss outside of the model, has such a loss.")
        return self.material.loss(outputs, labels, num_items_in_batch=num_items_in_batch) * self._share.item_weight

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """The metrics on validation; of several processes, the first one finds them and all go by them."""
        found = processes.from_first(lambda: self.material.validate(self.settings))
        metrics = {f"eval_{name}": value for name, value in found.items()}
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics


def _examples_of(batch: dict[str, Any], share: Share | None) -> int:
    """Of a micro-batch, in all processes."""
    return len(batch["input_ids"]) if share is None else share.of_examples


@contextmanager
def _uncounted(supervision: Supervision | None) -> Iterator[None]:
    """The tokens of a stand-in are counted in another process."""
    if supervision is None:
        yield
        return
    before = int(supervision.kept), int(supervision.seen)
    yield
    supervision.reset_counts(*before)


class OrderOfEpoch(TrainerCallback):
    """Tells the sampler which epoch it is: the Trainer does not reach it when it resumes with several processes."""

    def __init__(self, sampler: LengthBuckets | TaskBatches) -> None:
        """For this sampler."""
        self._sampler = sampler

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Within a resumed epoch the Trainer's count has a fraction."""
        self._sampler.set_epoch(int(state.epoch or 0))
