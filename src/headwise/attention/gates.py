"""Multiply the outputs of heads: masks, importance, pruning and ablation all start here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from headwise.attention.customer import Customer
from headwise.attention.passes import Gates
from headwise.attention.seam import Seam
from headwise.errors import InputError


@contextmanager
def gate(model: nn.Module, gates: Tensor | Mapping[int, Tensor]) -> Iterator[None]:
    """Multiply each head's output by its gate in every forward pass inside the with block.

        gates = torch.ones(12, 12, requires_grad=True)   # [N,H]
        with hw.gate(model, gates):
            model(**batch).loss.backward()
        gates.grad                                       # what each head contributes

    Args:
        model: a transformers encoder, bare or wrapped.
        gates: a tensor [N,H], [N,B,H] or [N,B,S,H], or a mapping from layer to (H), (B,H) or (B,S,H). A gate of 0
            silences a head, 1 leaves it alone; gradients flow into the gates.
    """
    seam = Seam.of(model)
    customer = _Gates(_checked(gates, seam.family.shape))
    seam.enter(customer)
    try:
        yield
    finally:
        seam.leave(customer)


class _Gates(Customer):
    def __init__(self, gates: Gates) -> None:
        self._gates = gates

    def gates(self) -> Gates:
        return self._gates


def _checked(gates: Tensor | Mapping[int, Tensor], shape: tuple[int, int]) -> Gates:
    layers, heads = shape
    if isinstance(gates, Tensor):
        if gates.dim() not in (2, 3, 4) or gates.shape[0] != layers:
            raise InputError(
                f"gates of shape {tuple(gates.shape)}: expected [{layers},{heads}], [{layers},B,{heads}] or "
                f"[{layers},B,S,{heads}] (one row per layer), or a mapping from layer to gates."
            )
        gates = dict(enumerate(gates))
    for layer, each in gates.items():
        if not isinstance(layer, int) or not 0 <= layer < layers:
            raise InputError(f"gates for layer {layer!r}: the model has layers 0 to {layers - 1}.")
        if not isinstance(each, Tensor) or not torch.is_floating_point(each):
            raise InputError(f"gates of layer {layer}: expected a floating-point tensor, got {each!r}.")
        if each.dim() not in (1, 2, 3) or each.shape[-1] != heads:
            raise InputError(
                f"gates of layer {layer} have shape {tuple(each.shape)}: "
                f"expected ({heads},), (B,{heads}) or (B,S,{heads})."
            )
    return dict(gates)
