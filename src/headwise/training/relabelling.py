"""Label the tokens of the training set anew at the beginning of each epoch, with the model as it stands."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from safetensors import safe_open
from safetensors.numpy import save_file
from torch import nn
from transformers import Trainer, TrainerCallback

from headwise.attention import encoder_of
from headwise.errors import InputError, StateError
from headwise.limits import parse_json
from headwise.ssa import Supervision, supervision_of
from headwise.ssa.dataset import TokenLabels
from headwise.ssa.labeller import Labeller, Labelling
from headwise.training import distributed
from headwise.training.loss_callbacks import add_loss_callbacks
from headwise.training.predict import predict_logits, tokens_at_a_time
from headwise.training.ssa_data import (
    Probeable,
    TokenLabelCollator,
    WithoutWords,
    WithTokenLabels,
    check_data,
    columns_of,
    kind_of,
)

FILE = "headwise_ssa.safetensors"
# Tokens at a time on a processor: of sentences and pairs fewer are faster than of documents (512 to 4096 were tried).
TOKENS = 1024


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


class Relabel(TrainerCallback):
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

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the labels of this epoch beside the model, and all that is known about it."""
        labels = self._labelled.labels
        if labels is None:
            return
        counts = self._counts()
        if not args.should_save:
            return
        memory = {"epoch": self._epoch, "current": self._current, "history": self.history, "counts": counts}
        save_file({"values": labels.values}, _place(args, state) / FILE, metadata={"memory": json.dumps(memory)})

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin anew, or go on from the checkpoint that the Trainer resumed from."""
        self._epoch, self._current, self.history = -1, {}, []
        place = _place(args, state)
        if state.global_step and not self.restore(place) and not float(state.epoch).is_integer():
            raise InputError(
                f"{place} has no {FILE}, which holds the token labels of the epoch that was under way: resume with the "
                "output_dir that the checkpoint is in, from a checkpoint of a trainer that relabels."
            )

    def restore(self, checkpoint: Path) -> bool:
        """Go on from a checkpoint, if it has labels."""
        file = checkpoint / FILE
        if not file.is_file():
            return False
        with safe_open(file, "numpy") as opened:
            values, memory = opened.get_tensor("values"), _memory(opened.metadata(), file)
        blank = self._labeller.blank()
        if len(values) != len(blank.values):
            raise InputError(f"{file} holds labels of other examples: go on with the data that the run began with.")
        self._labelled.labels = TokenLabels(values, blank.starts)
        self._epoch, self._current, self.history = memory["epoch"], memory["current"], memory["history"]
        if distributed.first():  # they are those of all processes
            self._supervision.reset_counts(*memory["counts"])
        return True

    # -- epochs ------------------------------------------------------------------------------------------------------

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Label anew, unless a resumed epoch has its labels."""
        epoch = int(state.epoch or 0)
        if epoch == self._epoch:
            return
        told = self._probing.after
        self._tell = None if told is None else lambda asked: told(state.global_step, asked)
        share = self._supervision.options.share(epoch)
        found = self.label(epoch, share, (args.process_index, args.world_size))
        self._labelled.labels, self._epoch, self._current = found.labels, epoch, dict(found.statistics)
        self._supervision.reset_counts()

    def label(self, epoch: int, share: float, split: tuple[int, int] = (0, 1)) -> Labelling:
        """The labels that the model as it stands gives to this share of the examples; `split` is (rank, world)."""
        self._asked = 0
        gather = _gathered if split[1] > 1 else None
        return self._labeller.label(self._predict, epoch=epoch, share=share, split=split, gather=gather)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """At the last step of an epoch, tell what it was like; before a checkpoint of the same step."""
        over = float(state.epoch or 0).is_integer() or state.global_step >= state.max_steps
        if not over or not self._current:
            return
        self.history, self._current = self.epochs, {}
        if self.log is not None:
            wanted = control.should_log
            self.log({f"ssa/{name}": value for name, value in self.history[-1].items()})
            control.should_log = wanted  # or the Trainer would take it that the loss of this step is logged, too

    @property
    def epochs(self) -> list[dict[str, Any]]:
        """What each epoch was like, also one that training stopped in."""
        if not self._current:
            return list(self.history)
        kept, seen = self._counts()
        entry = {"epoch": self._epoch, **self._current, **({"kept": kept / seen} if seen else {})}
        return [*self.history, entry]

    def _counts(self) -> list[int]:
        """Tokens that reached the threshold, and all, of all processes."""
        return [
            int(number) for number in distributed.all_sum([int(self._supervision.kept), int(self._supervision.seen)])
        ]

    def _predict(self, view: Any) -> numpy.ndarray:
        """[n,C] by the newest model, in evaluation mode; its mode comes back afterwards."""
        before, tell = self._asked, self._tell
        self._asked += len(view)
        return predict_logits(
            self._model,
            view,
            self._probing.collate,
            batch=len(view),
            tokens=tokens_at_a_time(self._model, TOKENS),
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
    add_loss_callbacks(trainer)
    if not found.options.learns_labels:
        return trainer
    data: Any = trainer.train_dataset
    check_data(trainer, data)
    collate: Any = trainer.data_collator
    labelled = WithTokenLabels(data)
    kind = kind or kind_of(encoder_of(model).config)
    probing = Probing(Probeable(data, columns_of(trainer)), WithoutWords(collate), kind)
    callback = Relabel(model, labelled, probing, trainer.args.seed)
    callback.log = trainer.log
    trainer.train_dataset = labelled
    trainer.data_collator = TokenLabelCollator(collate)
    trainer.add_callback(callback)
    return trainer


def probing_precision(supervision: Supervision, model: nn.Module) -> str:
    """fp32 or bf16: as asked, or bf16 where the hardware multiplies it."""
    asked = supervision.options.precision
    if asked != "auto":
        return asked
    device = next(model.parameters()).device
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported() else "fp32"
    # Processors with matrix units for it. With AVX512-bf16 alone it depends on the shapes, and small ones lose.
    asks: Any = getattr(torch.cpu, "_is_amx_tile_supported", None)  # torch has no public name for it yet
    return "bf16" if device.type == "cpu" and asks is not None and asks() else "fp32"


def _place(args: Any, state: Any) -> Path:
    return Path(args.output_dir) / f"checkpoint-{state.global_step}"


def _memory(metadata: Any, file: Path) -> Any:
    """What a checkpoint keeps beside the labels."""
    try:
        return parse_json(metadata["memory"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file} is damaged ({error}): remove the folder {file.parent}, or train again.") from error


def _gathered(mine: list[Any]) -> list[Any]:
    """The results of all processes, in their order."""
    return [each for part in distributed.gather(mine) for each in part]
