"""Look at attention while a model runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from headwise.attention.customer import Customer
from headwise.attention.passes import KINDS, Digest, Inputs, Request, What
from headwise.attention.record import AttentionRecord
from headwise.attention.seam import Seam
from headwise.attention.selection import Heads, Layers, select
from headwise.errors import InputError, choices


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
        what: "received", the attention that each token receives, summed over the tokens that give it (no map is ever
            stored); "map", the whole matrix of every chosen head; "value" or "output", each head's values or outputs
            [B,n,S,D], before gates, of padded positions too.
        after_dropout: see what dropout left (training only) instead of the distribution itself.
        digest: for what="map", a function (layer, rows, maps [b,n,Q,K]) -> [b,n,...] that is called as soon as the maps
            of some examples are there; `rows` is the slice of the batch that they are. The record then holds what it
            returns, and no map outlives its layer: statistics of any model and data set without stored maps. Rows of
            padded queries reach it as the model made them.
    """
    if digest is not None and what != "map":
        raise InputError(f"a digest is made of maps, and what={what!r}: give what='map', or leave the digest out.")
    if what not in KINDS:
        raise InputError(f"what={what!r}: {choices(str(what), KINDS)}.")
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
