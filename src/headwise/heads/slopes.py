"""The slope of a model's loss by a gate on each head's output, example by example.

Shapes: N layers, H heads, B batch, S positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headwise.attention import Customer, Family, Seam
from headwise.attention.masks import heads_of
from headwise.errors import InputError, StateError

# Labels that the loss leaves out.
IGNORED = -100


class Gates(Customer):
    """Gates of 1 that get gradients, anew for every batch; attached once for all batches, as attaching takes time."""

    def __init__(self, model: nn.Module, mask: Any, *, by_position: bool) -> None:
        """Gates for each head of a model; those of the mask, and of heads that are pruned, are 0."""
        self._model = model
        self._seam = Seam.of(model)
        self._shape = self._seam.family.shape
        self._by_position = by_position
        self._current: Tensor | None = None
        self.there = _there(model, self._seam.family, mask)
        """[N,H] the heads that are neither pruned nor silenced."""

    @contextmanager
    def attached(self) -> Iterator[None]:
        """In the model's attention, for the time of a `with`."""
        self._seam.enter(self)
        try:
            yield
        finally:
            self._seam.leave(self)

    def gates(self) -> Mapping[int, Tensor]:
        """Of each layer, while slopes are taken."""
        return {} if self._current is None else dict(enumerate(self._current))

    def slopes(self, batch: Mapping[str, Any]) -> Tensor:
        """[N,B,H] or, by position, [N,B,S,H]: the slope of the sum of the examples' losses by each gate."""
        layers, heads = self._shape
        size = batch["input_ids"].shape[: 2 if self._by_position else 1]  # B or B,S
        weight = next(self._model.parameters())
        # A gate of bf16 would round the slopes once more.
        precise = torch.promote_types(weight.dtype, torch.float32)
        leaf = torch.ones(layers, *size, heads, dtype=precise, device=weight.device, requires_grad=True)
        there = torch.as_tensor(self.there, device=leaf.device).view(layers, *(1 for _ in size), heads)
        self._current = leaf if self.there.all() else leaf * there
        try:
            total = _loss(self._model, batch).to(precise) * _labels(batch)
            (slopes,) = torch.autograd.grad(total, leaf)
        finally:
            self._current = None
        return slopes


def _there(model: nn.Module, family: Family, mask: Any) -> NDArray[np.bool_]:
    there = np.zeros(family.shape, dtype=bool)
    for layer, heads in enumerate(family.left):
        there[layer, list(heads)] = True
    # The first step of exact pruning has a mask of nothing.
    nothing = isinstance(mask, np.ndarray | Tensor) and tuple(mask.shape) == family.shape and not mask.any()
    if mask is not None and not nothing:
        for layer, heads in heads_of(model, mask).items():
            there[layer, list(heads)] = False
    return there


def _loss(model: nn.Module, batch: Mapping[str, Any]) -> Tensor:
    loss = getattr(model(**batch), "loss", None)
    if not isinstance(loss, Tensor) or loss.dim() != 0:
        raise InputError(
            f"{type(model).__name__} gave no loss: every batch needs labels, and the model a head that computes a loss "
            "(AutoModelForSequenceClassification has one)."
        )
    if not loss.requires_grad:
        raise StateError(f"the loss of {type(model).__name__} does not depend on its heads: is it cut off by no_grad?")
    return loss


def _labels(batch: Mapping[str, Any]) -> Tensor | int:
    """By how many labels the loss was divided: examples, or labelled tokens where every token has a label."""
    labels, ids = batch.get("labels"), batch["input_ids"]
    if isinstance(labels, Tensor) and not labels.is_floating_point() and labels.shape in (ids.shape[:1], ids.shape):
        return (labels != IGNORED).sum()
    return len(ids)


# -- the data --------------------------------------------------------------------------------------------------------


def prepared_batches(data: Iterable[Any], device: torch.device, most: int | None) -> Iterator[dict[str, Any]]:
    """Batches on the model's device, until there are enough examples; the last one is cut."""
    if not isinstance(data, Iterable):
        raise InputError(f"data is {_kind(data)}: expected batches, such as a DataLoader or a list of them.")
    left = most
    for batch in data:
        if not isinstance(batch, Mapping) or not isinstance(batch.get("input_ids"), Tensor):
            raise InputError(
                f"data gave {_kind(batch)}: expected batches, mappings from names to tensors with input_ids and labels "
                "(a single batch goes into a list)."
            )
        if batch["input_ids"].dim() != 2:
            raise InputError(f"input_ids of shape {tuple(batch['input_ids'].shape)}: expected [examples,positions].")
        size = len(batch["input_ids"])
        take = size if left is None else min(size, left)
        if take:
            yield _prepared(batch, size, take, device)
        if left is not None:
            left -= take
            if left == 0:
                return


def _prepared(batch: Mapping[str, Any], size: int, take: int, device: torch.device) -> dict[str, Any]:
    """The first examples of a batch, on the device; knowledge is a mapping within the batch."""
    prepared: dict[str, Any] = {}
    for name, value in batch.items():
        if isinstance(value, Mapping):
            value = _prepared(value, size, take, device)
        elif isinstance(value, Tensor):
            if take < size and value.shape[:1] == (size,):
                value = value[:take]
            # Autograd takes no tensor that was made in inference mode.
            value = value.clone().to(device) if value.is_inference() else value.to(device)
        prepared[name] = value
    return prepared


def token_counts(batch: Mapping[str, Any]) -> Tensor:
    """[B] how many tokens each example has."""
    ids, mask = batch["input_ids"], batch.get("attention_mask")
    if isinstance(mask, Tensor) and mask.dim() == 2:
        return (mask != 0).sum(1)
    return torch.full((len(ids),), ids.shape[1], device=ids.device)


def _kind(value: object) -> str:
    if isinstance(value, Mapping):
        return f"a batch with {', '.join(map(str, value)) or 'nothing'}"
    return f"something of type {type(value).__name__}"
