"""Losses of batches and their gradients, without a trace on the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import inf
from typing import Any

import torch
from torch import Tensor, nn

from headwise.errors import InputError


@contextmanager
def no_trace(model: nn.Module, *, freeze: bool = False) -> Iterator[None]:
    """Evaluation mode with gradients; afterwards modes, requires_grad and the random state are as before.

    Args:
        model: the model to measure.
        freeze: no gradients for its parameters, only for what the caller adds, such as gates.
    """
    modes = {module: module.training for module in model.modules()}
    frozen = [parameter for parameter in model.parameters() if parameter.requires_grad] if freeze else []
    random = torch.get_rng_state()  # a DataLoader draws a number each time it begins
    try:
        model.eval()
        for parameter in frozen:
            parameter.requires_grad_(False)
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_rng_state(random)
        for parameter in frozen:
            parameter.requires_grad_(True)
        for module, mode in modes.items():
            module.training = mode


def loss_of(model: nn.Module, batch: Mapping[str, Any]) -> Tensor:
    """The loss that the model computes for a batch with labels."""
    loss = getattr(model(**batch), "loss", None)
    if not isinstance(loss, Tensor) or loss.dim() != 0:
        raise InputError(
            f"{type(model).__name__} gave no loss: every batch needs labels, and the model a head that computes a loss "
            "(AutoModelForSequenceClassification has one)."
        )
    return loss


def prepared_batches(
    data: Iterable[Any], device: torch.device, max_examples: int | None = None
) -> Iterator[dict[str, Any]]:
    """Batches on the model's device, until there are enough examples; the last one is cut."""
    if not isinstance(data, Iterable):
        raise InputError(f"data is {_kind(data)}: expected batches, such as a DataLoader or a list of them.")
    left = inf if max_examples is None else max_examples
    for batch in data:
        if not isinstance(batch, Mapping) or not isinstance(batch.get("input_ids"), Tensor):
            raise InputError(
                f"data gave {_kind(batch)}: expected batches, mappings from names to tensors with input_ids and labels "
                "(a single batch goes into a list)."
            )
        if batch["input_ids"].dim() != 2:
            raise InputError(f"input_ids of shape {tuple(batch['input_ids'].shape)}: expected [examples,positions].")
        count = int(min(len(batch["input_ids"]), left))
        if count:
            yield examples_of(batch, slice(count), device)
        left -= count
        if left == 0:
            return


def examples_of(batch: Mapping[str, Any], rows: slice, device: torch.device) -> dict[str, Any]:
    """Some examples of a batch, on the device; knowledge is a mapping within the batch."""
    size = len(batch["input_ids"])

    def prepared(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: prepared(each) for name, each in value.items()}
        if not isinstance(value, Tensor):
            return value
        if value.shape[:1] == (size,):
            value = value[rows].contiguous()
        # Autograd takes no tensor that was created in inference mode.
        return value.clone().to(device) if value.is_inference() else value.to(device)

    return {name: prepared(value) for name, value in batch.items()}


def _kind(value: object) -> str:
    if isinstance(value, Mapping):
        return f"a batch with {', '.join(map(str, value)) or 'nothing'}"
    return f"something of type {type(value).__name__}"
