"""The Trainer of a run: our batches, our evaluation, and updates that weigh their examples alike."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader
from transformers import TrainerCallback

from headwise.training.batches import LengthBuckets
from headwise.training.material import JointMaterial, Material
from headwise.training.settings import Settings
from headwise.training.task_schedule import TaskBatches
from headwise.training.trainer import GuidedTrainer


class RunTrainer(GuidedTrainer):
    """A GuidedTrainer with our batches and our evaluation; only `fit` makes one."""

    material: Material
    settings: Settings
    _examples = 0
    """Of the update at hand."""

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Batches of similar lengths, decided by seed and epoch alone."""
        sampler = self.material.batches(self.settings)
        self.add_callback(OrderOfEpoch(sampler))
        collate = self.material.collate_train or self.material.collate
        loader: DataLoader[Any] = DataLoader(self.material.train, batch_sampler=sampler, collate_fn=collate)
        prepared: DataLoader[Any] = self.accelerator.prepare(loader)
        return prepared

    def get_batch_samples(self, *args: Any, **options: Any) -> tuple[list[Any], Any]:
        """The micro-batches of an update; of several tasks, their examples are counted."""
        batches, items = super().get_batch_samples(*args, **options)
        if isinstance(self.material, JointMaterial):
            self._examples = sum(len(batch["input_ids"]) for batch in batches)
        return batches, items

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Of several tasks, weighed by the examples: the last update of a pass has micro-batches of different sizes."""
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        batches = self.current_gradient_accumulation_steps
        if isinstance(self.material, JointMaterial) and batches > 1:
            loss = loss * (len(inputs["input_ids"]) * batches / self._examples)
        return (loss, outputs) if return_outputs else loss

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """The metrics on validation."""
        metrics = {f"eval_{name}": value for name, value in self.material.validate(self.settings).items()}
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics


class OrderOfEpoch(TrainerCallback):
    """Tells the sampler which epoch it is: the Trainer does not reach it when it resumes with several processes."""

    def __init__(self, sampler: LengthBuckets | TaskBatches) -> None:
        """For this sampler."""
        self._sampler = sampler

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Within a resumed epoch the Trainer's count has a fraction."""
        self._sampler.set_epoch(int(state.epoch or 0))
