"""Guides in a Trainer of transformers: `GuideCallback` logs their losses, `GuidedTrainer` adds them to any loss."""

from __future__ import annotations

import inspect
from types import FrameType
from typing import Any

from torch import Tensor, nn
from transformers import Trainer, TrainerCallback
from transformers.trainer_callback import CallbackHandler, ExportableState

from headwise.attention import SeededDropout, encoder_of, family_of
from headwise.errors import StateError
from headwise.guides import guidance_of
from headwise.ssa import supervision_of
from headwise.training import distributed

# What the class was called in checkpoints of headwise 0.1, when there were two.
OLD_NAMES = ("GuideLog", "TokenLog")


class GuideCallback(TrainerCallback, ExportableState):
    """Logs every part of the loss of a model with guides or SSA, and keeps the guides' state in checkpoints.

        trainer = Trainer(model=hw.guide(model, "mdg"), ..., callbacks=[hw.GuideCallback()])

    It also makes runs comparable, so give it to the plain model of a comparison, too: attention dropout is decided by
    the Trainer's seed, the step and the tokens of an example, not by how attention is computed or batches are split.

    The parts go to the Trainer's log, and so to every reporter of `report_to`, averaged over the steps since the last
    log. Names: task_loss; per guide NAME: guide/NAME, guide/NAME_weighted, guide/NAME_weight and, when measured,
    guide/NAME_share; of SSA: ssa/task_loss and ssa/token_loss.
    """

    def __init__(self) -> None:
        """A Trainer that restores its callbacks builds one without arguments, too."""
        self.model: Any = None
        self._dropout: SeededDropout | None = None
        # The sum of each part since the last log, a tensor on its device, and of how many values.
        self._sums: dict[str, tuple[Tensor | float, int]] = {}

    def state(self) -> dict[str, Any]:
        """What the Trainer keeps in trainer_state.json: sums since the last log, steps and weights of the guides."""
        guidance = None if self.model is None else guidance_of(self.model)
        running = {name: [float(total), count] for name, (total, count) in self._sums.items()}
        saved = None if guidance is None else guidance.state_dict()
        return {"args": {}, "attributes": {"saved": saved, "running": running}}

    def load(self, callbacks: dict[str, Any]) -> None:
        """Resume from a checkpoint's callbacks, and make sure that the next checkpoint has this one."""
        self._sums = {}
        guidance = None if self.model is None else guidance_of(self.model)
        for each in (callbacks.get(type(self).__name__), *(callbacks.pop(name, None) for name in OLD_NAMES)):
            attributes = each.get("attributes", {}) if isinstance(each, dict) else {}
            self._sums |= {name: (total, count) for name, (total, count) in attributes.get("running", {}).items()}
            if attributes.get("saved") is not None and guidance is not None:
                guidance.load_state_dict(attributes["saved"])
        callbacks.setdefault(type(self).__name__, self.state())  # the Trainer saves only callbacks with an entry here

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Resume from the checkpoint that the Trainer resumed from, if any."""
        handler = handler_of(inspect.currentframe())
        if handler is not None:
            _move_to_front(handler.callbacks, self)
        self.model = kwargs.get("model") or self.model
        self.load(state.stateful_callbacks)
        if family_of(encoder_of(self.model)).route == "fused":
            self._dropout = SeededDropout(self.model, args.seed)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Of accumulated batches only the first gets here, so that all have the same step."""
        if self._dropout is not None:
            self._dropout.step = state.global_step

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Leave the model as it was."""
        if self._dropout is not None:
            self._dropout.remove()
            self._dropout = None

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Add the parts of the loss of the latest forward pass."""
        parts: dict[str, Tensor | float] = {}
        guidance, supervision = guidance_of(self.model), supervision_of(self.model)
        if supervision is not None:
            supervision.collect()
        if guidance is not None and guidance.losses.task is not None:
            parts["task_loss"] = guidance.losses.task
            for name, part in guidance.losses.guides.items():
                parts[f"guide/{name}"] = part.raw
                parts[f"guide/{name}_weighted"] = part.weighted
                parts[f"guide/{name}_weight"] = part.weight
                if part.share is not None:
                    parts[f"guide/{name}_share"] = part.share
        if supervision is not None and supervision.losses is not None:
            parts["ssa/task_loss"] = supervision.losses.task
            if supervision.losses.token is not None:
                parts["ssa/token_loss"] = supervision.losses.token
            if supervision.losses.weight is not None:
                parts["ssa/token_weight"] = supervision.losses.weight
        for name, number in parts.items():
            total, count = self._sums.get(name, (0.0, 0))
            self._sums[name] = total + number, count + 1

    on_substep_end = on_step_end  # of an accumulated step

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Add the means over all steps and processes to a training log; evaluation logs stay as they are."""
        if not self._sums or logs is None or "loss" not in logs:
            return
        sums = distributed.all_sum([float(total) / count for total, count in self._sums.values()])
        for name, total in zip(self._sums, sums, strict=True):
            logs[name] = total / distributed.count()
            if state.log_history:
                state.log_history[-1][name] = logs[name]
        self._sums = {}


def handler_of(frame: FrameType | None) -> CallbackHandler | None:
    """The handler that calls the callback whose frame this is: the Trainer passes it to nobody."""
    caller = None if frame is None or frame.f_back is None else frame.f_back.f_locals.get("self")
    return caller if isinstance(caller, CallbackHandler) else None


def _move_to_front(callbacks: list[TrainerCallback], callback: TrainerCallback) -> None:
    """The Trainer puts its reporters before the callbacks of users; they must see the logs after this one did."""
    if callbacks[0] is not callback:
        callbacks.remove(callback)
        callbacks.insert(0, callback)


def add_guide_callback(trainer: Trainer) -> None:
    """Add a GuideCallback if there is none, in front of the reporters."""
    model, callbacks = trainer.model, trainer.callback_handler.callbacks
    if model is None:
        return
    present = [each for each in callbacks if isinstance(each, GuideCallback)]
    if not present:
        callback = GuideCallback()
        callback.model = model
        kept: Any = trainer.state.stateful_callbacks  # a dict by now, whatever its annotation says
        callback.load(kept)
        callbacks.append(callback)
        present = [callback]
    _move_to_front(callbacks, present[0])


def log_losses(trainer: Trainer) -> Trainer:
    """Deprecated: pass `callbacks=[hw.GuideCallback()]` to the Trainer instead."""
    if trainer.model is None or guidance_of(trainer.model) is None:
        raise StateError("the trainer's model is not guided: call guide(model, ...) first.")
    add_guide_callback(trainer)
    return trainer


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
