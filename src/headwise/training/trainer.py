"""A Trainer for losses that are computed outside of the model."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import Trainer

from headwise.guides import guidance_of
from headwise.ssa import supervision_of
from headwise.training.logs import log_losses


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
