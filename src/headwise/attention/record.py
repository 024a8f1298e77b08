"""What a capture or a guide gets to see.

Shapes: B batch, N layers, H heads, Q queries, K keys; M maps = chosen heads of all chosen layers together.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from headwise.attention.passes import Request
from headwise.errors import StateError


@dataclass
class _Seen:
    """What one forward pass gave."""

    layers: dict[int, Tensor]
    valid: Tensor
    special: Tensor | None
    cache: dict[Any, Any] = field(default_factory=dict)


class AttentionRecord(Mapping[int, Tensor]):
    """Attention of one forward pass: a mapping from layer number to what was asked for.

    That is [B,n,K] (received), [B,n,Q,K] (map) or [B,n,S,D] (value, output; of padding too).

    The tensors are part of the model's graph: a loss on them trains the model. Only tokens count: padded queries have
    no vote, padded keys receive nothing.
    """

    def __init__(self, request: Request) -> None:
        """An empty record; `fill` gives it content."""
        self.what = request.what
        self.after_dropout = request.after_dropout
        self.heads: dict[int, tuple[int, ...]] = dict(request.heads)
        """The recorded heads of each recorded layer."""
        self._seen: dict[int | None, _Seen] = {}

    def fill(self, layers: dict[int, Tensor], valid: Tensor, special: Tensor | None) -> AttentionRecord:
        """Replace the content by that of another forward pass; each thread sees its own, or else the latest."""
        self._seen[threading.get_ident()] = self._seen[None] = _Seen(layers, valid, special)
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> AttentionRecord:
        """An empty one: what was seen belongs to the model that was copied, and its graph cannot be."""
        twin = copy.copy(self)
        twin._seen = {}
        memo[id(self)] = twin
        return twin

    @property
    def _mine(self) -> _Seen | None:
        return self._seen.get(threading.get_ident(), self._seen.get(None))

    @property
    def _layers(self) -> dict[int, Tensor]:
        return {} if self._mine is None else self._mine.layers

    @property
    def cache(self) -> dict[Any, Any]:
        """For those who compute from this record and want to share results; emptied with every pass."""
        return {} if self._mine is None else self._mine.cache

    @property
    def valid(self) -> Tensor:
        """[B,K] True where a position is a token, False where it is padding."""
        if self._mine is None:
            raise StateError(self._nothing())
        return self._mine.valid

    @property
    def special(self) -> Tensor | None:
        """[B,K] True where a position is a special token such as [CLS]; None if nobody said which are."""
        return None if self._mine is None else self._mine.special

    @property
    def maps(self) -> list[tuple[int, int]]:
        """(layer, head) of every map, in the order of `stacked`."""
        return [(layer, head) for layer, heads in self.heads.items() for head in heads]

    def stacked(self) -> Tensor:
        """All maps in one tensor: [B,M,K] or [B,M,Q,K] (values and outputs: [B,M,S,D])."""
        return torch.cat([self[layer] for layer in self.heads], 1)

    def __getitem__(self, layer: int) -> Tensor:
        """The attention of one layer."""
        if not self._layers:
            raise StateError(self._nothing())
        if layer not in self._layers:
            raise StateError(f"layer {layer} was not recorded: recorded are {sorted(self._layers)}.")
        return self._layers[layer]

    def __iter__(self) -> Iterator[int]:
        """The recorded layers."""
        return iter(self._layers)

    def __len__(self) -> int:
        """How many layers are recorded."""
        return len(self._layers)

    def __repr__(self) -> str:
        """Say what is inside."""
        inside = {layer: tuple(tensor.shape) for layer, tensor in self._layers.items()}
        return f"AttentionRecord({self.what}, {inside or 'no forward pass yet'})"

    @staticmethod
    def _nothing() -> str:
        return (
            "nothing is recorded yet: run the model (the very one given to capture, not a part of it) "
            "inside the with block."
        )
