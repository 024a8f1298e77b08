"""Record attention while a model runs."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from headwise.attention.passes import KINDS, Customer, Digest, Heads, Inputs, Layers, Request, What, select
from headwise.attention.seam import Seam
from headwise.errors import InputError, StateError, choices

_NOTHING = (
    "nothing is recorded yet: run the model (the very one given to capture, not a part of it) inside the with block."
)


@dataclass
class _Content:
    """What one forward pass gave."""

    layers: dict[int, Tensor]
    valid: Tensor
    special: Tensor | None
    cache: dict[Any, Any] = field(default_factory=dict)


class AttentionRecord(Mapping[int, Tensor]):
    """Attention of one forward pass: a mapping from layer number to what was requested.

    That is [B,n,K] (received, cls), [B,n,Q,K] (map) or [B,n,S,D] (value, output; of padding too).

    The tensors are part of the model's graph: a loss on them trains the model. Only tokens count: padded queries are
    left out, padded keys receive nothing.
    """

    def __init__(self, request: Request) -> None:
        """An empty record; `fill` gives it content."""
        self.what = request.what
        self.after_dropout = request.after_dropout
        self.heads: dict[int, tuple[int, ...]] = dict(request.heads)
        """The recorded heads of each recorded layer."""
        self._content: dict[int | None, _Content] = {}

    def fill(self, layers: dict[int, Tensor], valid: Tensor, special: Tensor | None) -> AttentionRecord:
        """Replace the content by that of another forward pass; each thread sees its own, or else the latest."""
        self._content[threading.get_ident()] = self._content[None] = _Content(layers, valid, special)
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> AttentionRecord:
        """An empty one: the content belongs to the model that was copied, and its graph cannot be copied."""
        twin = copy.copy(self)
        twin._content = {}
        memo[id(self)] = twin
        return twin

    @property
    def _mine(self) -> _Content:
        empty = _Content({}, torch.ones(0, 0, dtype=torch.bool), None)
        return self._content.get(threading.get_ident(), self._content.get(None, empty))

    @property
    def cache(self) -> dict[Any, Any]:
        """For functions that compute from this record and share results; emptied with every pass."""
        return self._mine.cache

    @property
    def valid(self) -> Tensor:
        """[B,K] True where a position is a token, False where it is padding."""
        if not self._content:
            raise StateError(_NOTHING)
        return self._mine.valid

    @property
    def special(self) -> Tensor | None:
        """[B,K] True where a position is a special token such as [CLS]; None if that is not known."""
        return self._mine.special

    @property
    def maps(self) -> list[tuple[int, int]]:
        """(layer, head) of every map, in the order of `stacked`."""
        return [(layer, head) for layer, heads in self.heads.items() for head in heads]

    def stacked(self) -> Tensor:
        """All maps in one tensor: [B,M,K] or [B,M,Q,K] (values and outputs: [B,M,S,D])."""
        return torch.cat([self[layer] for layer in self.heads], 1)

    def __getitem__(self, layer: int) -> Tensor:
        """The attention of one layer."""
        layers = self._mine.layers
        if not layers:
            raise StateError(_NOTHING)
        if layer not in layers:
            raise StateError(f"layer {layer} was not recorded: recorded are {sorted(layers)}.")
        return layers[layer]

    def __iter__(self) -> Iterator[int]:
        """The recorded layers."""
        return iter(self._mine.layers)

    def __len__(self) -> int:
        """How many layers are recorded."""
        return len(self._mine.layers)

    def __repr__(self) -> str:
        """The kind and the shapes of the content."""
        inside = {layer: tuple(tensor.shape) for layer, tensor in self._mine.layers.items()}
        return f"AttentionRecord({self.what}, {inside or 'no forward pass yet'})"


@contextmanager
def capture(
    model: nn.Module,
    layers: Layers = "all",
    heads: Heads = "all",
    what: What = "received",
    *,
    after_dropout: bool = False,
    digest: Digest | None = None,
) -> Iterator[AttentionRecord]:
    """Record attention of every forward pass inside the with block; outside it the model is untouched.

        with hw.capture(model, layers="last:4") as record:
            model(**batch)
        record[11]        # [B,H,K]: how much attention each token received from each head of layer 11
        record.stacked()  # [B,M,K]: all recorded heads

    The record holds the latest pass, as part of its graph: a loss on it trains the model. (Under gradient checkpointing
    the backward pass must be inside the block too, and use_reentrant=True hides the graph.) Watching does not change
    what the model computes, to rounding: the kernel that also counts is not the kernel of plain SDPA.

    Args:
        model: a transformers encoder, bare or wrapped (PEFT, DDP, ...).
        layers: "all", "first:N", "last:N", a number or numbers.
        heads: the same, or a mapping from layer to heads.
        what: "received", the attention that each token receives, summed over the tokens that it comes from; "cls",
            where the first token ([CLS]) looks, [B,n,K] (of both no map is ever stored); "map", the whole matrix of
            every chosen head; "value" or "output", each head's values or outputs [B,n,S,D], before gates, of padded
            positions too.
        after_dropout: record the weights after dropout (training only) instead of the distribution itself.
        digest: for what="map", a function (layer, rows, maps [b,n,Q,K]) -> [b,n,...] that is called as soon as the maps
            of some examples are computed; `rows` is the slice of the batch that they are. The record then holds what it
            returns, and no map outlives its layer: statistics of any model and data set without stored maps. Rows of
            padded queries are passed to it unchanged.
    """
    if digest is not None and what != "map":
        raise InputError(f"a digest is made of maps, and what={what!r}: give what='map', or leave the digest out.")
    if what not in KINDS:
        raise InputError(f"what={what!r}: {choices(str(what), KINDS)}.")
    if after_dropout and what == "cls":
        raise InputError("what='cls' is attention before dropout: leave after_dropout out, or give what='map'.")
    seam = Seam.of(model)
    selection = select(layers, heads, seam.family.shape)
    request = Request.of(what, selection, after_dropout=after_dropout, padding_rows=digest is not None, digest=digest)
    customer = _Capture(request)
    seam.enter(customer)
    try:
        yield customer.record
    finally:
        seam.leave(customer)


class _Capture(Customer):
    def __init__(self, request: Request) -> None:
        self._request = request
        self.record = AttentionRecord(request)

    def requests(self) -> tuple[Request, ...]:
        return (self._request,)

    def after(self, seen: list[dict[int, Tensor]], valid: Tensor, inputs: Inputs, output: Any) -> Any:
        special = inputs.special_tokens_mask
        self.record.fill(seen[0], valid, None if special is None else special != 0)
        return output
