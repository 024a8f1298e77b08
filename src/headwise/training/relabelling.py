"""Label the tokens of the training set again at the beginning of each epoch, with the model as it stands."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from safetensors import safe_open
from safetensors.numpy import save_file
from torch import nn
from torch.utils.data import IterableDataset
from transformers import Trainer, TrainerCallback

from headwise.attention import encoder_of
from headwise.errors import InputError, StateError
from headwise.limits import parse_json
from headwise.ssa import supervision_of
from headwise.ssa.dataset import TokenLabels
from headwise.ssa.labeller import Labeller, Labelling
from headwise.ssa.model import IGNORED
from headwise.training import distributed
from headwise.training.predict import predict_logits, tokens_at_a_time
from headwise.training.trainer import add_guide_callback, handler_of

FILE = "headwise_ssa.safetensors"
# Tokens at a time on a processor: of sentences and pairs fewer are faster than of documents (512 to 4096 were tried).
TOKENS = 1024
# What data sets call the label of an example.
LABELS = ("labels", "label", "label_ids")
Item = dict[str, Any]
Collate = Callable[[list[Any]], Any]


# -- labels of tokens in examples and batches --------------------------------------------------------------------------


class WithTokenLabels:
    """A data set whose examples carry `ssa_labels`, one number for each token; the labels change between epochs."""

    def __init__(self, data: Any) -> None:
        """Wrap a data set."""
        if isinstance(data, WithTokenLabels):
            raise StateError("this training set has token labels already: wrap it once.")
        if not (hasattr(data, "__getitem__") and hasattr(data, "__len__")) or isinstance(data, IterableDataset):
            raise InputError("SSA labels the training set by number: give one with a length, not a stream.")
        self.data = data
        self.labels: TokenLabels | None = None

    @property
    def lengths(self) -> Any:
        """Tokens of each example."""
        return self.data.lengths

    def __len__(self) -> int:
        """How many examples there are."""
        return len(self.data)

    def __getitem__(self, index: int) -> Item:
        """An example with the labels of its tokens; without the words that only the labeller needs."""
        item = _without("word_ids", self.data[index])
        return item if self.labels is None else {**item, "ssa_labels": self.labels.of(index)}


@dataclass(frozen=True)
class TokenLabelCollator:
    """Adds `ssa_labels` [B,T] to the batch of another collator, -100 where a token has none."""

    collate: Collate

    def __call__(self, items: Sequence[Item]) -> dict[str, Any]:
        """A batch; examples without token labels give one without them."""
        labels = [item["ssa_labels"] for item in items if "ssa_labels" in item]
        batch = dict(self.collate([_without("ssa_labels", item) for item in items]))
        if not labels:
            return batch
        width, mask = batch["input_ids"].shape[1], batch.get("attention_mask")
        padded = numpy.full(batch["input_ids"].shape, IGNORED, numpy.float32)
        for row, values in enumerate(labels):
            if len(values) > width:
                raise InputError(
                    f"an example with {len(values)} token labels came into a batch of {width} tokens: cut texts when "
                    "tokenising, not in the collator."
                )
            # On the left only if this row begins with padding; examples may also come padded already.
            left = mask is not None and len(values) < width and int(mask[row, 0]) == 0
            start = width - len(values) if left else 0
            padded[row, start : start + len(values)] = numpy.nan_to_num(values, nan=IGNORED)
        return {**batch, "ssa_labels": torch.from_numpy(padded)}


class Probeable:
    """A user's data set as the labeller needs it: what the model knows, word_ids, and labels by that name."""

    def __init__(self, data: Any, columns: set[str] | None) -> None:
        """Wrap it; without `columns` all entries stay, but for knowledge, which only guides need."""
        self._data, self._columns = data, columns

    def __len__(self) -> int:
        """How many examples there are."""
        return len(self._data)

    def __getitem__(self, index: int) -> Item:
        """An example."""
        item = _without("knowledge", self._data[index])
        for name in LABELS:
            if name in item:
                item["labels"] = item.pop(name)
        kept = item if self._columns is None else self._columns | {"word_ids"}
        return {name: value for name, value in item.items() if name in kept}


def _without(entry: str, item: Item) -> Item:
    return {name: value for name, value in dict(item).items() if name != entry}


@dataclass(frozen=True)
class Probing:
    """What the labeller lets the model predict."""

    data: Any
    """The training examples, with labels and without anything that only guides need."""
    collate: Callable[[list[Any]], dict[str, torch.Tensor]]
    kind: str
    """classification, regression or ranking."""
    after: Callable[[int, int], None] | None = None
    """Called with the step of training, and how many examples were predicted since it stopped there."""


# -- epochs ------------------------------------------------------------------------------------------------------------


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
        data_collator: Collate,
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
            probing: what the model predicts, if not the examples of `dataset`.
            seed: of the labelling; the Trainer's if not given.
        """
        supervision = supervision_of(model)
        if supervision is None:
            raise StateError("this model has no SSA: call self_supervise(model, ...) first.")
        self.dataset, self.collator = WithTokenLabels(dataset), TokenLabelCollator(data_collator)
        self._model, self._supervision, self._probing, self._seed = model, supervision, probing, seed
        self._kind = kind or (_kind_of(encoder_of(model).config) if probing is None else probing.kind)
        self._labeller: Labeller | None = None
        self._epoch = -1
        self._current: dict[str, Any] = {}
        self.history: list[dict[str, Any]] = []

    def labeller(self, args: Any) -> Labeller:
        """The labeller, which is built when the Trainer's arguments are known: mistakes in the data are found then."""
        if self._labeller is None:
            self._supervision.check_balance(self._model)  # the first labels come after an epoch: too late
            if args.dataloader_persistent_workers and args.dataloader_num_workers:
                raise InputError(
                    "dataloader_persistent_workers keeps copies of the training set, in which token labels would never "
                    "change: set it to False."
                )
            if self._probing is None:
                # The entries that a Trainer with remove_unused_columns leaves in.
                columns = {*inspect.signature(encoder_of(self._model).forward).parameters, *LABELS}
                data = Probeable(self.dataset.data, columns if args.remove_unused_columns else None)
                collate = self.collator.collate
                self._probing = Probing(
                    data, lambda items: collate([_without("word_ids", item) for item in items]), self._kind
                )
            seed = args.seed if self._seed is None else self._seed
            options, text = self._supervision.options, self._supervision.text
            self._labeller = Labeller(self._probing.data, options, text, kind=self._probing.kind, seed=seed)
        return self._labeller

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the labels of this epoch beside the model, and all that is known about it."""
        if self.dataset.labels is None:
            return
        counts = self._counts()
        if args.should_save:
            memory = {"epoch": self._epoch, "current": self._current, "history": self.history, "counts": counts}
            memory["balance"] = self._supervision.balance_state()
            file = Path(args.output_dir) / f"checkpoint-{state.global_step}" / FILE
            save_file({"values": self.dataset.labels.values}, file, metadata={"memory": json.dumps(memory)})

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start, or resume from the checkpoint that the Trainer resumed from."""
        self.labeller(args)
        self._epoch, self._current, self.history = -1, {}, []
        checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        # Between two epochs there are no labels to miss, but there is a measured weight.
        needed = not float(state.epoch or 0).is_integer() or bool(self._supervision.options.token_share)
        if state.global_step and not self.restore(checkpoint) and needed:
            raise InputError(
                f"{checkpoint} has no {FILE}, which holds the token labels of the epoch that was under way and the "
                "weight of the token loss: resume with the output_dir that the checkpoint is in, from a checkpoint of "
                "a trainer that relabels."
            )

    def restore(self, checkpoint: Path) -> bool:
        """Resume from a checkpoint, if it has labels."""
        file = checkpoint / FILE
        if not file.is_file():
            return False
        if self._labeller is None:
            raise StateError("restore() was called before training began.")
        with safe_open(file, "numpy") as opened:
            values, metadata = opened.get_tensor("values"), opened.metadata()
        try:
            memory = parse_json(metadata["memory"])
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{file} is damaged ({error}): remove the folder {checkpoint}, or train again.") from error
        blank = self._labeller.blank()
        if len(values) != len(blank.values):
            raise InputError(f"{file} holds labels of other examples: resume with the data that the run began with.")
        if "balance" not in memory and self._supervision.options.token_share:
            raise InputError(
                f"{file} is of an earlier version, whose token loss had a fixed weight: train again, or resume it with "
                "that version."
            )
        self._supervision.load_balance(memory.get("balance", {}))
        self.dataset.labels = TokenLabels(values, blank.starts)
        self._epoch, self._current, self.history = memory["epoch"], memory["current"], memory["history"]
        if distributed.first():  # they are those of all processes
            self._supervision.reset_counts(*memory["counts"])
        return True

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Label again, unless a resumed epoch has its labels."""
        epoch = int(state.epoch or 0)
        if epoch != self._epoch:
            share, split = self._supervision.options.share(epoch), (args.process_index, args.world_size)
            labelling = self.label(epoch, share, split, step=state.global_step)
            self.dataset.labels, self._epoch, self._current = labelling.labels, epoch, dict(labelling.statistics)
            self._supervision.reset_counts()

    def label(self, epoch: int, share: float, split: tuple[int, int] = (0, 1), *, step: int = 0) -> Labelling:
        """The labels that the model as it stands gives to this share of the examples; `split` is (rank, world)."""
        labeller, probing, predicted = self._labeller, self._probing, 0
        if labeller is None or probing is None:
            raise StateError("label() was called before training began.")

        def predict(view: Any) -> numpy.ndarray:
            """[n,C] by the newest model, in evaluation mode; its mode is restored afterwards."""
            nonlocal predicted
            before, after = predicted, probing.after
            predicted += len(view)
            device = next(self._model.parameters()).device.type
            return predict_logits(
                self._model,
                view,
                probing.collate,
                batch=len(view),
                tokens=tokens_at_a_time(self._model, TOKENS),
                precision=_probing_precision(self._supervision.options.precision, device),
                after_batch=None if after is None else lambda done: after(step, before + done),
            )

        def gather(mine: list[Any]) -> list[Any]:
            return [each for part in distributed.gather(mine) for each in part]

        return labeller.label(predict, epoch=epoch, share=share, split=split, gather=gather)

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
        return [*self.history, {"epoch": self._epoch, **self._current, **({"kept": kept / seen} if seen else {})}]

    def _counts(self) -> list[int]:
        """Tokens that reached the threshold, and all, of all processes."""
        counts = distributed.all_sum([int(self._supervision.kept), int(self._supervision.seen)])
        return [int(number) for number in counts]


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


def _probing_precision(precision: str, device: str) -> str:
    """fp32 or bf16: as configured, or bf16 where the hardware multiplies it."""
    if precision != "auto":
        return precision
    if device == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported() else "fp32"
    # Processors with matrix units for it. With AVX512-bf16 alone it depends on the shapes, and small ones lose.
    has_units: Any = getattr(torch.cpu, "_is_amx_tile_supported", None)  # torch has no public name for it yet
    return "bf16" if device == "cpu" and has_units is not None and has_units() else "fp32"


def _kind_of(config: Any) -> str:
    """What kind of answer a classifier gives, by its config."""
    problem = config.problem_type
    if config.num_labels == 1:
        return "ranking" if problem == "multi_label_classification" else "regression"
    if problem not in (None, "single_label_classification"):
        raise InputError(
            f"SSA asks whether one answer is right, and a model of {config.num_labels} labels with problem_type "
            f"{problem} gives several: expected one class or one number per example."
        )
    return "classification"
