"""Multiply the outputs of heads: masks, importance, pruning and ablation all start here."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from headwise.attention.families import Family, encoder_of, family_of
from headwise.attention.passes import Customer, Gates
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


# Name heads, and silence them for a while.


# {layer: heads} or (layer, head) pairs; a mask [N,H], True at the heads that are meant, is taken too.
Heads = Mapping[int, Iterable[int]] | Iterable[tuple[int, int]] | numpy.ndarray | Tensor

_EXPECTED = "expected {layer: [heads]}, (layer, head) pairs, or a bool mask [layers, heads]"


@contextmanager
def mask(model: nn.Module, heads: Heads) -> Iterator[None]:
    """Silence heads in every forward pass inside the with block: their outputs are multiplied by 0.

        with hw.mask(model, {0: [3, 7], 5: [1]}):
            model(**batch)

    The model computes as if the columns of these heads in the output projection were 0; its bias stays. `hw.prune`
    takes heads away for good and gives the same outputs. Numbers are those before any pruning.

    Args:
        model: a transformers encoder, bare or wrapped.
        heads: the heads to silence: {layer: heads}, (layer, head) pairs, or a bool mask [N,H], True = silent.
    """
    chosen = heads_of(model, heads)
    count = family_of(encoder_of(model)).heads
    device = next(encoder_of(model).parameters()).device
    gates = {layer: torch.ones(count, device=device) for layer in chosen}
    for layer, numbers in chosen.items():
        gates[layer][list(numbers)] = 0
    with gate(model, gates):
        yield


def heads_of(model: nn.Module, heads: Heads) -> dict[int, tuple[int, ...]]:
    """The heads that are meant, by layer, both in ascending order; all of them there.

    Args:
        model: a transformers encoder, bare or wrapped.
        heads: {layer: heads}, (layer, head) pairs, or a bool mask [N,H]; naming a head twice does no harm.
    """
    family = family_of(encoder_of(model))
    chosen: dict[int, set[int]] = {}
    for layer, head in _pairs(heads, family):
        layer, head = _number(layer, "layer"), _number(head, "head")
        _check(layer, head, family)
        chosen.setdefault(layer, set()).add(head)
    if not chosen:
        raise InputError("no heads chosen: name at least one, as {layer: [heads]} or as (layer, head) pairs.")
    return {layer: tuple(sorted(chosen[layer])) for layer in sorted(chosen)}


def _pairs(heads: Any, family: Family) -> Iterator[tuple[Any, Any]]:
    """(layer, head) of whatever names heads."""
    if isinstance(heads, Tensor):
        heads = heads.detach().cpu().numpy()
    if isinstance(heads, numpy.ndarray) and heads.dtype == bool:
        if heads.shape != family.shape:
            raise InputError(
                f"a mask of shape {heads.shape}: the model has {family.layers} layers of {family.heads} heads."
            )
        yield from zip(*numpy.nonzero(heads), strict=True)
    elif isinstance(heads, Mapping):
        for layer, numbers in heads.items():
            yield from ((layer, head) for head in _listed(numbers, f"heads {numbers!r} of layer {layer!r}"))
    else:
        for pair in _listed(heads, f"heads {heads!r}"):
            both = list(_listed(pair, f"head {pair!r}"))
            if len(both) != 2:
                raise InputError(f"head {pair!r}: {_EXPECTED}.")
            yield both[0], both[1]


def _listed(several: Any, what: str) -> Iterator[Any]:
    if isinstance(several, str) or not isinstance(several, Iterable):
        raise InputError(f"{what}: {_EXPECTED}.")
    return iter(several)


def _number(number: Any, kind: str) -> int:
    """Whole numbers of any library; truth values are none."""
    if not isinstance(number, bool | numpy.bool_):
        try:
            return operator.index(number)
        except TypeError:
            pass
    raise InputError(f"{kind} {number!r}: expected a number; {kind}s count from 0.")


def _check(layer: int, head: int, family: Family) -> None:
    if not 0 <= layer < family.layers:
        raise InputError(f"layer {layer}: the model has layers 0 to {family.layers - 1}.")
    if not 0 <= head < family.heads:
        raise InputError(f"head {head} of layer {layer}: the model has heads 0 to {family.heads - 1}.")
    left = family.left[layer]
    if head not in left:
        others = f"its heads {list(left)} are there" if left else "no head of that layer is there"
        raise InputError(f"head {head} of layer {layer} was pruned from this model: {others}.")
