"""One forward pass as the seam sees it: what is requested of each layer, and what has been seen.

Shapes: B batch, S positions, H heads, Q queries, K keys.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, cast

import torch
from torch import Tensor

from headwise.attention.dropout import example_numbers
from headwise.attention.maps import pick, row_of_first
from headwise.errors import InputError, StateError, UnsupportedModelError

Layers = str | int | Iterable[int]
Heads = str | int | Iterable[int] | Iterable[tuple[int, int]] | Mapping[int, Iterable[int]]
Selection = dict[int, tuple[int, ...]]
What = Literal["received", "cls", "map", "value", "output"]
KINDS: tuple[What, ...] = ("received", "cls", "map", "value", "output")
Gates = Mapping[int, Tensor]
Function = TypeVar("Function", bound=Callable[..., Any])
# Keep torch.compile out of a function, but not out of what it calls: the model.
skipped = cast("Callable[[Function], Function]", functools.partial(torch.compiler.disable, recursive=False))
# (layer, which examples of the batch, their maps [b,n,Q,K] with rows of padding as they are) -> what is kept [b,n,...].
Digest = Callable[[int, slice, Tensor], Tensor]


def select(layers: Layers, heads: Heads, shape: tuple[int, int]) -> Selection:
    """Resolve a choice of layers and heads, which both count from 0.

    Args:
        layers: "all", "first:4", "last:4", "first:half", "last:half", a number, or numbers; negative ones count from
            the end.
        heads: the same for the heads of every chosen layer, or a mapping from layer to heads, or (layer, head) pairs.
        shape: how many layers and heads there are.

    Returns:
        The chosen heads of each chosen layer, both in ascending order.
    """
    layer_count, head_count = shape
    numbers = _numbers(layers, "layer", layer_count)
    chosen = _by_layer(heads, layer_count)
    if not isinstance(chosen, Mapping):
        return dict.fromkeys(numbers, _numbers(chosen, "head", head_count))
    by_layer = {_numbers([layer], "layer", layer_count)[0]: part for layer, part in chosen.items()}
    selection = {layer: _numbers(by_layer[layer], "head", head_count) for layer in numbers if layer in by_layer}
    if not selection:
        raise InputError(
            f"no heads chosen: {dict(chosen)!r} must name at least one of the chosen layers {list(numbers)}."
        )
    return selection


def _by_layer(heads: Any, layer_count: int) -> Any:
    """A list of (layer, head) pairs as a mapping; any other choice as it is."""
    if not isinstance(heads, list | tuple) or not heads or not all(isinstance(each, list | tuple) for each in heads):
        return heads
    chosen: dict[int, list[Any]] = {}
    for pair in heads:
        if len(pair) != 2:
            raise InputError(f"heads {pair!r}: expected pairs of a layer and a head, such as (0, 3).")
        chosen.setdefault(_numbers([pair[0]], "layer", layer_count)[0], []).append(pair[1])
    return chosen


def _numbers(choice: Layers, kind: str, count: int) -> tuple[int, ...]:
    """The chosen numbers, in ascending order; `kind` is layer or head."""
    wrong = f"{kind}s {{!r}}: expected 'all', 'first:N', 'last:N', 'first:half', a number or a list of numbers."
    if isinstance(choice, str):
        name, _, size = choice.partition(":")
        size = str(max(1, count // 2)) if size == "half" else size
        if choice == "all":
            name, size = "first", str(count)
        if name not in ("first", "last") or not size.isdecimal() or int(size) == 0:
            raise InputError(wrong.format(choice))
        if int(size) > count:
            raise InputError(f"{kind}s {choice!r}: the model has {count} {kind}s; choose at most that many.")
        return tuple(range(count))[: int(size)] if name == "first" else tuple(range(count))[-int(size) :]
    if not isinstance(choice, Iterable):
        choice = [choice]
    numbers = set()
    for number in choice:
        if isinstance(number, bool) or not isinstance(number, int):
            raise InputError(wrong.format(number))
        if not -count <= number < count:
            raise InputError(f"{kind} {number} is out of range: the model has {kind}s 0 to {count - 1}.")
        numbers.add(number % count)
    if not numbers:
        raise InputError(f"no {kind}s chosen: give at least one, or 'all'.")
    return tuple(sorted(numbers))


@dataclass(frozen=True)
class Request:
    """What one customer wants to see."""

    what: What
    after_dropout: bool
    heads: tuple[tuple[int, tuple[int, ...]], ...]
    """Chosen layers with their chosen heads; pairs, so that equal requests are equal keys."""
    padding_rows: bool = False
    """Of maps: whether the rows of padded queries are left as they are. Else they are 0, at the cost of a copy."""
    digest: Digest | None = None
    """Of maps: computes what is kept instead, so that no map outlives its layer."""

    @classmethod
    def of(
        cls,
        what: What,
        selection: Selection,
        *,
        after_dropout: bool = False,
        padding_rows: bool = False,
        digest: Digest | None = None,
    ) -> Request:
        """From a selection."""
        return cls(what, after_dropout, tuple(sorted(selection.items())), padding_rows, digest)


@dataclass(frozen=True)
class Inputs:
    """What the model was called with, as far as attention is concerned."""

    input_ids: Tensor | None
    attention_mask: Tensor | None
    special_tokens_mask: Tensor | None
    knowledge: Mapping[str, Tensor] = field(default_factory=dict)
    """What the batch carries for guides by knowledge, by name; the model never sees it."""
    marks: Mapping[str, Tensor] = field(default_factory=dict)
    """[B,K] True at tokens of a kind, such as separators, by the name of the kind."""
    rationale_mask: Tensor | None = None
    """[B,K] not 0 at the tokens that people marked as the reason of the label; the model never sees it."""

    def examples(self) -> tuple[Tensor | None, Tensor | None]:
        """See `example_numbers`; nothing without token ids. Several choices per example count as examples."""
        ids, mask = self.input_ids, self.attention_mask
        if ids is None:
            return None, None
        valid = None if mask is None or mask.shape != ids.shape else (mask != 0).flatten(0, -2)
        return example_numbers(ids.flatten(0, -2), valid)


class Customer:
    """Something that sees or changes attention during forward passes: a capture, gates, a guidance."""

    def requests(self) -> tuple[Request, ...]:
        """What to look at in the coming pass."""
        return ()

    def gates(self, inputs: Inputs, seed: Tensor | None) -> Gates:
        """What to multiply the heads' outputs with in the coming pass; `seed` is that of attention dropout, if any."""
        return {}

    def seed(self) -> Tensor | None:
        """Of attention dropout in the coming pass of a model that trains; None to leave it to torch's generator.

        With it, what is dropped of an example depends on its tokens and not on the batch that it is in.
        """
        return None

    def after(self, seen: list[dict[int, Tensor]], valid: Tensor, inputs: Inputs, output: Any) -> Any:
        """Called after a pass with what was seen (one mapping from layer to tensor per request); returns the output."""
        return output

    def idle(self, output: Any) -> None:
        """Called after a pass in which this customer saw and changed nothing."""

    @skipped
    def around(self, call: Callable[[], Any]) -> Any:
        """Called around each call of the model: runs `call`, once for each forward pass, and returns an output."""
        return call()


# A customer with its requests and gates.
Order = tuple[Customer, tuple[Request, ...], Gates]


@dataclass(frozen=True)
class Seen:
    """What was seen of one layer's attention."""

    valid: Tensor | None
    """[B,Q] which queries are tokens; None if all are."""
    mapped: tuple[int, ...] = ()
    """The heads with maps."""
    before: Tensor | None = None
    """[B,n,Q,K] their maps, before dropout."""
    after: Tensor | None = None
    """[B,n,Q,K] their maps, after dropout."""
    rest: tuple[int, ...] = ()
    """The heads whose received attention was counted."""
    counted: Tensor | None = None
    """[B,m,K] what they received."""

    def map(self, request: Request, heads: tuple[int, ...]) -> Tensor:
        """[B,n,Q,K]; rows of padding are 0 unless the request leaves them."""
        maps = self.after if request.after_dropout else self.before
        if maps is None:
            raise StateError("no map was computed: this is a fault of headwise, please report it.")
        maps = pick(maps, [self.mapped.index(head) for head in heads])
        if self.valid is None or request.padding_rows:
            return maps
        return maps * self.valid[:, None, :, None].to(maps.dtype)

    def cls(self, request: Request, heads: tuple[int, ...]) -> Tensor:
        """[B,n,K] the rows of the first token in the maps."""
        return row_of_first(self.map(replace(request, padding_rows=True), heads), self.valid)

    def received(self, request: Request, heads: tuple[int, ...]) -> Tensor:
        """[B,n,K] counted, or summed over the maps of heads for which there are any."""
        if self.counted is not None and set(heads) <= set(self.rest):
            return pick(self.counted, [self.rest.index(head) for head in heads])
        by_map = [head for head in heads if head in self.mapped]
        maps = self.map(replace(request, padding_rows=False), tuple(by_map))
        summed = maps.sum(2, dtype=torch.promote_types(maps.dtype, torch.float32))
        if len(by_map) == len(heads) or self.counted is None:
            return summed
        others = [head for head in heads if head not in self.mapped]
        both = torch.cat([summed, pick(self.counted, [self.rest.index(head) for head in others])], 1)
        return both[:, [(by_map + others).index(head) for head in heads]]


class LayerPlan:
    """What all customers together request of one layer."""

    def __init__(
        self, layer: int, requests: Iterable[Request], gates: Iterable[Gates], left: Sequence[int] | None = None
    ) -> None:
        """Collect the requests for this layer; of a pruned one, `left` are the numbers of its remaining heads."""
        self.left = left
        self.takers: list[tuple[int, Request, tuple[int, ...]]] = []
        for number, request in enumerate(requests):
            heads = dict(request.heads).get(layer, ())
            if left is not None:  # indices among those that are left
                for head in heads:
                    if head not in left:
                        others = f"choose among its heads {list(left)}"
                        others = others if left else "it has no heads left, so choose other layers"
                        raise InputError(f"head {head} of layer {layer} was pruned and cannot be watched: {others}.")
                heads = tuple(left.index(head) for head in heads)
            if heads:
                self.takers.append((number, request, heads))
        self.gates = [by_layer[layer] for by_layer in gates if layer in by_layer]
        self.watched = bool(self.takers)
        received = [(request.after_dropout, heads) for _, request, heads in self.takers if request.what == "received"]
        stages = {after_dropout for after_dropout, _ in received}
        self.after_dropout = stages == {True}
        mapped = {head for _, request, heads in self.takers if request.what == "map" for head in heads}
        # One fused call counts what is received either before or after dropout: both together need maps.
        if len(stages) > 1:
            mapped |= {head for _, heads in received for head in heads}
        self.mapped = tuple(sorted(mapped))
        """The heads whose maps are computed."""
        self.counted = any(set(heads) - mapped for _, heads in received)
        """Whether attention received is counted for the others."""
        self.seen = bool(mapped) or self.counted
        """Whether maps or received attention are requested."""
        self.cls = any(request.what == "cls" for _, request, _ in self.takers)
        """Whether the attention of the first token is requested."""
        self.digested = bool(self.takers) and all(request.digest is not None for _, request, _ in self.takers)
        """Whether no map is kept, so that a few examples may be processed at a time."""


class Pass:
    """The state of one forward pass in one thread; it belongs to the model's seam."""

    def __init__(
        self, requests: Sequence[Request], gates: Sequence[Gates], left: Sequence[Sequence[int]], heads: int
    ) -> None:
        """Plan a pass through a model of `heads` heads, of which these are left in each layer."""
        self._left = left
        self.plans = [
            LayerPlan(layer, requests, gates, None if len(those) == heads else those)
            for layer, those in enumerate(left)
        ]
        self.results: list[dict[int, Tensor]] = [{} for _ in requests]
        self.seed: Tensor | None = None
        """Of attention dropout in this step, if it is given from outside; see `Customer.seed`."""
        self._examples: Tensor | None = None
        self._first: Tensor | None = None
        self.shape = (0, 0)
        """Examples and positions of the batch, from what was seen."""
        self.valid: Tensor | None = None
        self.calls = 0
        self.open = True

    def take(self, layer: int, seen: Seen | None, rows: slice | None = None, **parts: Tensor) -> None:
        """Keep what the requests ask of one layer's attention; padding does not count.

        `rows` are the examples of the batch, if not all of them; the parts of a batch come in order. `parts` are the
        value and the output of heads, [B,H,S,D], and the attention of the first token, [B,H,K]. Gradient checkpointing
        repeats every operation, but nothing is kept or digested twice.
        """
        for number, request, heads in self.plans[layer].takers:
            if request.what in parts:
                kept, positions = pick(parts[request.what], heads), parts[request.what].shape[2]
            elif seen is None or request.what not in ("received", "cls", "map"):
                continue
            elif request.what != "map":
                kept = seen.received(request, heads) if request.what == "received" else seen.cls(request, heads)
                positions = kept.shape[-1]
            else:
                kept = maps = seen.map(request, heads)
                positions = maps.shape[-1]
                if request.digest is not None and self.open:
                    kept = request.digest(layer, rows or slice(0, len(maps)), maps)
                    if not isinstance(kept, Tensor) or kept.shape[:2] != maps.shape[:2]:
                        got = f"a tensor {list(kept.shape)}" if isinstance(kept, Tensor) else repr(kept)[:40]
                        raise InputError(
                            f"digest returned {got} for maps {list(maps.shape)}: expected a tensor of the same "
                            f"examples and heads, {list(maps.shape[:2])} and whatever follows."
                        )
                    if layer in self.results[number]:
                        kept = torch.cat([self.results[number][layer], kept])
            if self.open:
                self.results[number][layer] = kept
                self.shape = len(kept), positions

    def seed_dropout(self, seed: Tensor, inputs: Inputs) -> None:
        """Decide the attention dropout of this pass by a seed and the tokens of each example."""
        self.seed = seed
        self._examples, self._first = inputs.examples()

    def dropout_of(self, layer: int, batch: int) -> dict[str, Tensor | None]:
        """What decides the dropout of a layer instead of torch's generator, if anything does."""
        if self.seed is None:
            return {}
        known: dict[str, Tensor | None] = {"seed": self.seed + layer}
        if self._examples is not None and len(self._examples) == batch:
            known |= {"examples": self._examples, "first": self._first}
        return known

    def check_heads(self, layer: int, count: int) -> None:
        """Compare the number of heads of a layer with the expected one."""
        expected = len(self._left[layer])
        if count != expected:
            raise UnsupportedModelError(
                f"layer {layer} has {count} heads, the config says {expected}: headwise needs the same number of heads "
                "in every layer, unless hw.prune took them away."
            )

    def apply_gates(self, layer: int, out: Tensor) -> Tensor:
        """Multiply the heads' outputs [B,S,H,D]; gates are (H), (B,H) or (B,S,H), with those of pruned heads."""
        left = self.plans[layer].left
        for gate in self.plans[layer].gates:
            sizes = zip(gate.shape[:-1], out.shape[: gate.dim() - 1], strict=True)
            if any(size not in (1, expected) for size, expected in sizes):
                raise InputError(
                    f"gates of layer {layer} have shape {tuple(gate.shape)}, but the batch is {out.shape[0]} examples "
                    f"of {out.shape[1]} tokens."
                )
            gate = gate if left is None else gate[..., list(left)]
            gate = gate.unsqueeze(1) if gate.dim() == 2 else gate
            out = out * gate.unsqueeze(-1).to(out.dtype)
        return out
