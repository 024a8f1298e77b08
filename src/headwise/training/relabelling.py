"""Label the tokens of the training set anew at the beginning of each epoch, with the model as it stands."""

from __future__ import annotations

import inspect
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
from headwise.training.guide_callback import add_guide_callback, handler_of
from headwise.training.predict import predict_logits, tokens_at_a_time
from headwise.training.ssa_data import (
    Probeable,
    TokenLabelCollator,
    WithoutWords,
    WithTokenLabels,
    check_dataset,
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


class SSACallback(TrainerCallback):
    """Labels the tokens of the training set before each epoch, with the model as it is then.

        callback = hw.SSACallback(model, train_dataset, data_collator)
        trainer = Trainer(
            model=model, args=args, callbacks=[callback],
            train_dataset=callback.dataset, data_collator=callback.collator,
        )

    `dataset` is the training set with token labels, `collator` puts them into batches; order and batches stay the
    Trainer's. Labels and counts are part of the checkpoints, so that a resumed run is exact. The log gets one entry per
    epoch with what the labelling gave (`ssa/share`, `ssa/acceptance`, `ssa/base_rate`, ...) and `ssa/kept`, the part of
    the text tokens that reached the threshold in training. `hw.GuideCallback()` logs both parts of the loss.
    """

    def __init__(
        self,
        model: nn.Module,
        dataset: Any,
        data_collator: Callable[[list[Any]], Any],
        *,
        kind: str | None = None,
        probing: Probing | None = None,
        seed: int | None = None,
    ) -> None:
        """Read nothing yet; the examples are read when training begins.

        Args:
            model: a classifier that `hw.self_supervise` was called on.
            dataset: the training examples; indexable, with input_ids and labels.
            data_collator: builds a batch of examples.
            kind: classification, regression, or ranking (one logit, labels 0 and 1); by default the model's config.
            probing: what the model is asked about, if not the examples of `dataset`.
            seed: of the labelling; the Trainer's if not given.
        """
        supervision = supervision_of(model)
        if supervision is None:
            raise StateError("this model has no SSA: call self_supervise(model, ...) first.")
        check_dataset(dataset)
        self.dataset, self.collator = WithTokenLabels(dataset), TokenLabelCollator(data_collator)
        self._model, self._supervision, self._probing, self._seed = model, supervision, probing, seed
        self._kind = kind or kind_of(encoder_of(model).config)
        self._labeller: Labeller | None = None
        self._epoch = -1
        self._current: dict[str, Any] = {}
        self._asked = 0
        self._after: Callable[[int], None] | None = None
        self.history: list[dict[str, Any]] = []
        if probing is not None and seed is not None:  # mistakes are found before training
            self._labeller = Labeller(probing.data, supervision.options, supervision.text, kind=probing.kind, seed=seed)

    def labeller(self, args: Any) -> Labeller:
        """The labeller, which is built when the Trainer's arguments are known."""
        if self._labeller is None:
            if args.dataloader_persistent_workers and args.dataloader_num_workers:
                raise InputError(
                    "dataloader_persistent_workers keeps copies of the training set, in which token labels would never "
                    "change: set it to False."
                )
            columns = columns_of(self._model) if args.remove_unused_columns else None
            if self._probing is None:
                data = Probeable(self.dataset.data, columns)
                self._probing = Probing(data, WithoutWords(self.collator.collate), self._kind)
            seed = args.seed if self._seed is None else self._seed
            options, text = self._supervision.options, self._supervision.text
            self._labeller = Labeller(self._probing.data, options, text, kind=self._probing.kind, seed=seed)
        return self._labeller

    # -- what checkpoints keep ---------------------------------------------------------------------------------------

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the labels of this epoch beside the model, and all that is known about it."""
        labels = self.dataset.labels
        if labels is None:
            return
        counts = self._counts()
        if not args.should_save:
            return
        memory = {"epoch": self._epoch, "current": self._current, "history": self.history, "counts": counts}
        save_file({"values": labels.values}, _place(args, state) / FILE, metadata={"memory": json.dumps(memory)})

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin anew, or resume from the checkpoint that the Trainer resumed from."""
        self.labeller(args)
        self._epoch, self._current, self.history = -1, {}, []
        place = _place(args, state)
        if state.global_step and not self.restore(place) and not float(state.epoch).is_integer():
            raise InputError(
                f"{place} has no {FILE}, which holds the token labels of the epoch that was under way: resume with the "
                "output_dir that the checkpoint is in, from a checkpoint of a trainer that relabels."
            )

    def restore(self, checkpoint: Path) -> bool:
        """Resume from a checkpoint, if it has labels."""
        file = checkpoint / FILE
        if not file.is_file():
            return False
        with safe_open(file, "numpy") as opened:
            values, memory = opened.get_tensor("values"), _memory(opened.metadata(), file)
        if self._labeller is None:
            raise StateError("restore() was called before training began.")
        blank = self._labeller.blank()
        if len(values) != len(blank.values):
            raise InputError(f"{file} holds labels of other examples: resume with the data that the run began with.")
        self.dataset.labels = TokenLabels(values, blank.starts)
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
        after = None if self._probing is None else self._probing.after
        self._after = None if after is None else lambda asked: after(state.global_step, asked)
        share = self._supervision.options.share(epoch)
        found = self.label(epoch, share, (args.process_index, args.world_size))
        self.dataset.labels, self._epoch, self._current = found.labels, epoch, dict(found.statistics)
        self._supervision.reset_counts()

    def label(self, epoch: int, share: float, split: tuple[int, int] = (0, 1)) -> Labelling:
        """The labels that the model as it stands gives to this share of the examples; `split` is (rank, world)."""
        if self._labeller is None:
            raise StateError("label() was called before training began.")
        self._asked = 0
        gather = _gathered if split[1] > 1 else None
        return self._labeller.label(self._predict, epoch=epoch, share=share, split=split, gather=gather)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """At the last step of an epoch, log what it was like; before a checkpoint of the same step."""
        over = float(state.epoch or 0).is_integer() or state.global_step >= state.max_steps
        if not over or not self._current:
            return
        self.history, self._current = self.epochs, {}
        logs = {f"ssa/{name}": value for name, value in self.history[-1].items()} | {"epoch": state.epoch}
        state.log_history.append({**logs, "step": state.global_step})
        handler, should_log = handler_of(inspect.currentframe()), control.should_log
        if handler is not None:
            handler.on_log(args, state, control, logs)
            control.should_log = should_log  # or the Trainer would not log the loss of this step

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
        before, after, probing = self._asked, self._after, self._probing
        if probing is None:
            raise StateError("nothing to predict: training has not begun.")
        self._asked += len(view)
        return predict_logits(
            self._model,
            view,
            probing.collate,
            batch=len(view),
            tokens=tokens_at_a_time(self._model, TOKENS),
            precision=probing_precision(self._supervision, self._model),
            after_batch=None if after is None else lambda done: after(before + done),
        )


def relabel(trainer: Trainer, *, kind: str | None = None) -> Trainer:
    """Deprecated: pass an `SSACallback` with its data set and collator to the Trainer instead."""
    model: Any = trainer.model
    supervision = None if model is None else supervision_of(model)
    if supervision is None:
        raise StateError("the trainer's model has no SSA: call self_supervise(model, ...) first.")
    add_guide_callback(trainer)
    if supervision.options.learns_labels:
        collate: Any = trainer.data_collator
        callback = SSACallback(model, trainer.train_dataset, collate, kind=kind)
        callback.labeller(trainer.args)
        trainer.train_dataset, trainer.data_collator = callback.dataset, callback.collator
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
