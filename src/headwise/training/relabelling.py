"""Label the tokens of the training set anew at the beginning of each epoch, with the model as it stands."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from safetensors.numpy import load_file, save_file
from torch import nn
from transformers import Trainer, TrainerCallback
from transformers.trainer_callback import ExportableState

from headwise.attention import encoder_of
from headwise.errors import InputError, StateError
from headwise.ssa import Supervision, supervision_of
from headwise.ssa.labeller import Labeller
from headwise.ssa.token_labels import TokenLabels
from headwise.training.predict import predict_logits, tokens_at_a_time
from headwise.training.token_labels import TokenLabelCollator, WithTokenLabels
from headwise.training.token_log import log_token_losses

FILE = "headwise_ssa.safetensors"


@dataclass(frozen=True)
class Probing:
    """What the labeller asks the model about."""

    data: Any
    """The training examples, with labels and without anything that only guides need."""
    collate: Callable[[list[Any]], dict[str, torch.Tensor]]
    kind: str
    """classification, regression or ranking."""
    after: Callable[[int, int], None] | None = None
    """Told the step of training, and how many examples the model was asked about since it stopped there."""


class Relabel(TrainerCallback, ExportableState):
    """Labels before each epoch; labels and counts are part of the checkpoints, so that resumption is exact.

    The log gets one entry per epoch with what the labelling gave (`ssa/share`, `ssa/acceptance`, `ssa/base_rate`, ...)
    and `ssa/kept`, the part of the text tokens that reached the threshold in training.
    """

    def __init__(self, model: nn.Module, labelled: WithTokenLabels, probing: Probing, seed: int) -> None:
        """Read the examples; nothing is labelled yet."""
        found = supervision_of(model)
        if found is None:
            raise StateError("this model has no SSA: call self_supervise(model, ...) first.")
        self._model, self._supervision, self._labelled, self._probing = model, found, labelled, probing
        self._labeller = Labeller(probing.data, found.options, found.text, kind=probing.kind, seed=seed)
        self._epoch = -1
        self._current: dict[str, Any] = {}
        self._asked = 0
        self._tell: Callable[[int], None] | None = None
        self.history: list[dict[str, Any]] = []
        self.log: Callable[[dict[str, Any]], None] | None = None
        """The Trainer's own log."""

    # -- what checkpoints keep ---------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """What the Trainer keeps in trainer_state.json."""
        counts = [int(self._supervision.kept), int(self._supervision.seen)]
        memory = {"epoch": self._epoch, "current": dict(self._current), "history": list(self.history), "counts": counts}
        return {"args": {}, "attributes": memory}

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the labels of this epoch beside the model."""
        labels = self._labelled.labels
        if labels is not None and state.is_world_process_zero:
            save_file({"values": labels.values}, _place(args, state) / FILE)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Go on from the checkpoint that the Trainer resumed from, if any."""
        if state.global_step:
            self.restore(state.stateful_callbacks, _place(args, state))

    def restore(self, callbacks: dict[str, Any], checkpoint: Path) -> None:
        """Go on from a checkpoint; without labels in it, the next epoch labels anew."""
        kept = callbacks.get(type(self).__name__, {}).get("attributes", {})
        file = checkpoint / FILE
        if not kept or not file.is_file():
            return
        self._epoch, self._current, self.history = kept["epoch"], dict(kept["current"]), list(kept["history"])
        self._supervision.reset_counts(*kept["counts"])
        values = load_file(file)["values"]
        blank = self._labeller.blank()
        if len(values) != len(blank.values):
            raise InputError(f"{file} holds labels of other examples: go on with the data that the run began with.")
        self._labelled.labels = TokenLabels(values, blank.starts)

    # -- epochs ------------------------------------------------------------------------------------------------------

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Label anew, unless a resumed epoch has its labels."""
        epoch = int(state.epoch or 0)
        if epoch == self._epoch:
            return
        share = self._supervision.options.share(epoch)
        told, self._asked = self._probing.after, 0
        self._tell = None if told is None else lambda asked: told(state.global_step, asked)
        found = self._labeller.label(
            self._predict,
            epoch=epoch,
            share=share,
            split=(args.process_index, args.world_size),
            gather=_gathered if args.world_size > 1 else None,
        )
        self._labelled.labels, self._epoch, self._current = found.labels, epoch, dict(found.statistics)
        self._supervision.reset_counts()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """At the last step of an epoch, tell what it was like; before a checkpoint of the same step."""
        over = float(state.epoch or 0).is_integer() or state.global_step >= state.max_steps
        if not over or not self._current:
            return
        kept = self._supervision.kept_fraction()
        entry = {"epoch": self._epoch, **self._current, **({} if kept is None else {"kept": kept})}
        self.history.append(entry)
        self._current = {}
        if self.log is not None:
            self.log({f"ssa/{name}": value for name, value in entry.items()})

    def _predict(self, view: Any) -> numpy.ndarray:
        """[n,C] by the newest model, in evaluation mode; its mode comes back afterwards."""
        before, tell = self._asked, self._tell
        self._asked += len(view)
        return predict_logits(
            self._model,
            view,
            self._probing.collate,
            batch=len(view),
            tokens=tokens_at_a_time(self._model),
            precision=probing_precision(self._supervision, self._model),
            after_batch=None if tell is None else lambda done: tell(before + done),
        )


def relabel(trainer: Trainer, *, kind: str | None = None) -> Trainer:
    """Let any Trainer of a model with SSA label its training set before each epoch.

        trainer = hw.relabel(Trainer(model=model, train_dataset=..., data_collator=..., args=...))

    The training set must be indexable, with input_ids and labels; its order and batches stay the Trainer's. Checkpoints
    hold the labels, so a resumed run goes on exactly.

    Args:
        trainer: of a model that `hw.self_supervise` was called on.
        kind: classification, regression, or ranking (one logit, labels 0 and 1); by the model's config if not given.
    """
    model: Any = trainer.model
    found = None if model is None else supervision_of(model)
    if found is None:
        raise StateError("the trainer's model has no SSA: call self_supervise(model, ...) first.")
    log_token_losses(trainer)
    if not found.options.labels_wanted:
        return trainer
    data: Any = trainer.train_dataset
    if data is None or not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
        raise InputError("SSA labels the training set by number: give the trainer one with a length, not a stream.")
    collate: Any = trainer.data_collator
    known = {*inspect.signature(type(encoder_of(model)).forward).parameters, "label", "label_ids", "labels"}
    labelled = WithTokenLabels(data, names=known)
    probing = Probing(Probeable(data, known), collate, kind or kind_of(encoder_of(model).config))
    callback = Relabel(model, labelled, probing, trainer.args.seed)
    callback.log = trainer.log
    trainer.train_dataset = labelled
    trainer.data_collator = TokenLabelCollator(collate)
    trainer.add_callback(callback)
    return trainer


class Probeable:
    """Somebody's data set as the labeller wants it: entries that the model knows, word_ids, and labels by that name."""

    def __init__(self, data: Any, known: set[str]) -> None:
        """Wrap it."""
        self._data, self._known = data, known

    def __len__(self) -> int:
        """How many examples there are."""
        return len(self._data)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """An example."""
        item = dict(self._data[index])
        for name in ("label", "label_ids"):
            if name in item:
                item["labels"] = item.pop(name)
        return {name: value for name, value in item.items() if name in self._known or name == "word_ids"}


def kind_of(config: Any) -> str:
    """What kind of answer a classifier gives, by its config."""
    if config.num_labels > 1:
        return "classification"
    return "ranking" if config.problem_type == "multi_label_classification" else "regression"


def probing_precision(supervision: Supervision, model: nn.Module) -> str:
    """fp32 or bf16: as asked, or bf16 where the hardware multiplies it."""
    asked = supervision.options.precision
    if asked != "auto":
        return asked
    device = next(model.parameters()).device
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported() else "fp32"
    # Processors with matrix units for it. With AVX512-bf16 alone it depends on the shapes, and small ones lose.
    has_units = device.type == "cpu" and torch.cpu._is_amx_tile_supported()
    return "bf16" if has_units else "fp32"


def _place(args: Any, state: Any) -> Path:
    return Path(args.output_dir) / f"checkpoint-{state.global_step}"


def _gathered(mine: list[Any]) -> list[Any]:
    """The results of all processes, in their order."""
    parts: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(parts, mine)
    return [each for part in parts for each in part]
