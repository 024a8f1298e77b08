"""Somebody's Trainer and data set, as the labeller wants them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn
from torch.utils.data import IterableDataset
from transformers import Trainer

from headwise.attention import encoder_of
from headwise.errors import InputError, StateError
from headwise.training.token_labels import WithTokenLabels

# What data sets call the label of an example.
LABELS = ("labels", "label", "label_ids")


class Probeable:
    """Somebody's data set as the labeller wants it: what the model knows, word_ids, and labels by that name."""

    def __init__(self, data: Any, columns: set[str] | None) -> None:
        """Wrap it; without `columns` all entries stay, but for knowledge, which only guides need."""
        self._data, self._columns = data, columns

    def __len__(self) -> int:
        """How many examples there are."""
        return len(self._data)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """An example."""
        item = dict(self._data[index])
        for name in LABELS:
            if name in item:
                item["labels"] = item.pop(name)
        item.pop("knowledge", None)
        if self._columns is None:
            return item
        return {name: value for name, value in item.items() if name in self._columns or name == "word_ids"}


@dataclass(frozen=True)
class WithoutWords:
    """A collator that is not shown the words of tokens, which only the labeller needs."""

    collate: Callable[[list[Any]], dict[str, torch.Tensor]]

    def __call__(self, items: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """A batch."""
        return self.collate([{name: value for name, value in item.items() if name != "word_ids"} for item in items])


def check_data(trainer: Trainer, data: Any) -> None:
    """Refuse what cannot be labelled, or would never see its labels."""
    if isinstance(data, WithTokenLabels):
        raise StateError("this trainer labels its training set already: call relabel(trainer) once.")
    indexable = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    if not indexable or isinstance(data, IterableDataset):
        raise InputError("SSA labels the training set by number: give the trainer one with a length, not a stream.")
    if trainer.args.dataloader_persistent_workers and trainer.args.dataloader_num_workers:
        raise InputError(
            "dataloader_persistent_workers keeps copies of the training set, in which token labels would never change: "
            "set it to False."
        )


def columns_of(trainer: Trainer) -> set[str] | None:
    """The entries of examples that the Trainer leaves in; None for all."""
    if not trainer.args.remove_unused_columns:
        return None
    model: Any = encoder_of(cast("nn.Module", trainer.model))
    return {*inspect.signature(model.forward).parameters, *LABELS}


def kind_of(config: Any) -> str:
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
