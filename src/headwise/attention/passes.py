"""One forward pass as the seam sees it: what is wanted of each layer, and what has been seen.

Shapes: B batch, S positions, H heads, Q queries, K keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from headwise.attention.selection import Selection
from headwise.errors import InputError, StateError, UnsupportedModelError

What = Literal["received", "map"]
Gates = Mapping[int, Tensor]


@dataclass(frozen=True)
class Request:
    """What one customer wants to see."""

    what: What
    after_dropout: bool
    heads: tuple[tuple[int, tuple[int, ...]], ...]
    """Chosen layers with their chosen heads; pairs, so that equal requests are equal keys."""

    @classmethod
    def of(cls, what: What, selection: Selection, *, after_dropout: bool = False) -> Request:
        """Make one from a selection."""
        return cls(what, after_dropout, tuple(sorted(selection.items())))


@dataclass(frozen=True)
class Inputs:
    """What the model was called with, as far as attention is concerned."""

    input_ids: Tensor | None
    attention_mask: Tensor | None
    special_tokens_mask: Tensor | None


class LayerPlan:
    """What all customers together want of one layer."""

    def __init__(self, layer: int, requests: Iterable[Request], gates: Iterable[Gates], head_count: int) -> None:
        """Gather the wishes for this layer."""
        self.takers: list[tuple[int, Request, tuple[int, ...]]] = []
        for number, request in enumerate(requests):
            for wanted, heads in request.heads:
                if wanted == layer:
                    self.takers.append((number, request, heads))
        self.gates = [chosen[layer] for chosen in gates if layer in chosen]
        self.watched = bool(self.takers)
        # One fused call gives received attention either before or after dropout; for all else the maps are made.
        stages = {request.after_dropout for _, request, _ in self.takers}
        self.fused = all(request.what == "received" for _, request, _ in self.takers) and len(stages) == 1
        self.after_dropout = stages == {True}
        self.heads = tuple(sorted({head for _, _, heads in self.takers for head in heads}))
        self.whole = len(self.heads) == head_count


class Pass:
    """The state of one forward pass in one thread; it belongs to the model's seam."""

    def __init__(self, requests: tuple[Request, ...], gates: tuple[Gates, ...], shape: tuple[int, int]) -> None:
        """Plan a pass through a model of this many layers and heads."""
        layers, heads = shape
        self._head_count = heads
        self.plans = [LayerPlan(layer, requests, gates, heads) for layer in range(layers)]
        self.results: list[dict[int, Tensor]] = [{} for _ in requests]
        self.valid: Tensor | None = None
        self.calls = 0
        self.open = True

    def next_layer(self, name: str) -> int:
        """Number the attention calls in the order in which they come: a shared layer is called once per layer."""
        if self.calls >= len(self.plans):
            raise UnsupportedModelError(
                f"{name} calls attention more often than its {len(self.plans)} layers: headwise cannot tell which "
                "call is which layer."
            )
        self.calls += 1
        return self.calls - 1

    def take_received(self, layer: int, received: Tensor) -> None:
        """Hand the received attention of all heads [B,H,K] to those who asked."""
        for number, _, heads in self.plans[layer].takers:
            self._store(number, layer, _heads(received, heads))

    def take_maps(
        self, layer: int, before: Tensor, after: Tensor, heads: tuple[int, ...], valid: Tensor | None
    ) -> None:
        """Hand the maps of `heads` [B,n,Q,K], before and after dropout, to those who asked; padding has no vote."""
        for number, request, wanted in self.plans[layer].takers:
            seen = after if request.after_dropout else before
            seen = _heads(seen, tuple(heads.index(head) for head in wanted))
            if valid is not None:
                seen = seen * valid[:, None, :, None].to(seen.dtype)
            if request.what == "received":
                seen = seen.sum(2, dtype=torch.promote_types(seen.dtype, torch.float32))
            self._store(number, layer, seen)

    def check_heads(self, layer: int, count: int) -> None:
        """Hold the number of heads that came against the number that was promised."""
        if count != self._head_count:
            raise UnsupportedModelError(
                f"layer {layer} has {count} heads, the config says {self._head_count}: headwise needs the same number "
                "of heads in every layer."
            )

    def _store(self, number: int, layer: int, seen: Tensor) -> None:
        """Keep what was seen, but once: gradient checkpointing must repeat every operation, not the record."""
        if self.open:
            self.results[number][layer] = seen

    def apply_gates(self, layer: int, out: Tensor) -> Tensor:
        """Multiply the heads' outputs [B,S,H,D]; gates are (H), (B,H) or (B,S,H)."""
        for gate in self.plans[layer].gates:
            if any(
                size not in (1, there) for size, there in zip(gate.shape[:-1], out.shape[: gate.dim() - 1], strict=True)
            ):
                raise InputError(
                    f"gates of layer {layer} have shape {tuple(gate.shape)}, but the batch is {out.shape[0]} examples "
                    f"of {out.shape[1]} tokens."
                )
            gate = gate.unsqueeze(1) if gate.dim() == 2 else gate
            out = out * gate.unsqueeze(-1).to(out.dtype)
        return out

    def close(self, name: str, route: str) -> None:
        """Check, after the forward pass, that every layer was really seen."""
        self.open = False
        if self.calls != len(self.plans):
            raise StateError(
                f"{name}: expected attention from {len(self.plans)} layers, got {self.calls} by the {route} route; "
                "was the attention implementation changed, or a layer skipped, while headwise was attached? "
                "Detach (unguide, or leave the with block) before changing the model."
            )


def _heads(whole: Tensor, heads: tuple[int, ...]) -> Tensor:
    """Pick heads from dimension 1, without a copy if all are wanted."""
    return whole if heads == tuple(range(whole.shape[1])) else whole[:, list(heads)]
