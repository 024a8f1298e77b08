"""Match: pull heads to a pattern."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from headwise.attention import AttentionRecord, Inputs, What
from headwise.errors import InputError, choices
from headwise.guides.base import (
    PATTERN_GUIDES,
    Guide,
    check_choice,
    mean_over_examples,
    register_guide,
    token_permutation,
)
from headwise.patterns import PATTERNS, Pattern, Tokens, build_pattern


@dataclass(frozen=True)
class Distance:
    """How far attention is from its target, by a formula with an explicit derivative.

    Nothing is kept for the backward pass but the two tensors that are there anyway; composed of torch's own operations
    each distance would keep one or two more copies of every map. Shapes: ... any leading dimensions, K keys.
    """

    value: Callable[[Tensor, Tensor], Tensor]
    """(attention [...,K], target [...,K]) -> [...]"""
    derivative: Callable[[Tensor, Tensor], Tensor]
    """Its derivative by attention, [...,K]."""
    per_key: bool = False
    """Whether the value must be divided by the number of keys."""

    def __call__(self, attention: Tensor, target: Tensor) -> Tensor:
        """[...] in the graph of attention; the target (whose leading dimensions may be 1) has no gradient."""
        value: Tensor = _Apply.apply(attention, target.to(attention.dtype), self)  # type: ignore[no-untyped-call]
        return value


class _Apply(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, attention: Tensor, target: Tensor, distance: Distance) -> Tensor:
        ctx.save_for_backward(attention, target)
        ctx.distance = distance
        return distance.value(attention, target)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ctx.distance.derivative(*ctx.saved_tensors).mul_(gradient.unsqueeze(-1)), None, None


def _squares(attention: Tensor, target: Tensor) -> Tensor:
    return (attention - target).square_().sum(-1)


def _squares_derivative(attention: Tensor, target: Tensor) -> Tensor:
    return (attention - target).mul_(2)


def _divergence(attention: Tensor, target: Tensor) -> Tensor:
    log = attention.clamp_min(torch.finfo(attention.dtype).tiny).log_()
    return torch.xlogy(target, target).sum(-1) - log.mul_(target).sum(-1)


def _divergence_derivative(attention: Tensor, target: Tensor) -> Tensor:
    # Attention of exactly 0 is dropped or masked: no step changes it, so it has no derivative either.
    derivative = (-target / attention.clamp_min(torch.finfo(attention.dtype).tiny)).expand_as(attention)
    return derivative.masked_fill(attention == 0, 0.0)


def _angle(attention: Tensor, target: Tensor) -> Tensor:
    return 1 - (attention * target).sum(-1) / _lengths(attention, target)


def _angle_derivative(attention: Tensor, target: Tensor) -> Tensor:
    lengths = _lengths(attention, target).unsqueeze(-1)
    inner = (attention * target).sum(-1, keepdim=True)
    square = attention.square().sum(-1, keepdim=True)
    towards = inner / square.clamp_min(torch.finfo(attention.dtype).tiny)
    # Where dropout left nothing there is no direction either.
    return (attention * towards).sub_(target).div_(lengths).masked_fill_(square == 0, 0.0)


def _lengths(attention: Tensor, target: Tensor) -> Tensor:
    product: Tensor = torch.linalg.vector_norm(attention, dim=-1) * torch.linalg.vector_norm(target, dim=-1)
    return product.clamp_min(torch.finfo(attention.dtype).tiny)


DISTANCES = {
    "mse": Distance(_squares, _squares_derivative, per_key=True),
    "kl": Distance(_divergence, _divergence_derivative),
    "cosine": Distance(_angle, _angle_derivative),
}


@register_guide("match")
class Match(Guide):
    """Match: chosen heads should attend as a pattern says.

    With A the map of a head, T the target map of the pattern, and q the rows (queries) that have a target:

        on="map"        mean over rows q of  d(A_q, T_q)
        on="received"   d(a, t),  a = what each key receives as shares of the whole, t = the same of T (of knowledge:
                                  the column means of its matrix as shares of the whole)

    and d one of

        mse      mean over keys k of (A_k - T_k)^2
        kl       sum over keys of T_k log(T_k / A_k)
        cosine   1 - A . T / (|A| |T|)

    Rows without a target and examples without any such row are left out; special_tokens=False leaves out the rows of
    special tokens on maps, and special tokens as keys on received attention. Only heads that are guided on their maps
    get explicit maps; the others of their layer stay on SDPA. Received attention needs no maps at all.

    Relations: MDG and PDG make heads differ, no matter how; Match says what they should do. Fixed patterns are due
    to Deshpande and Narasimhan (2020), who guide some heads of every layer, sum the mean squared difference over layers
    (`reduction="sum"`) and let the weight decay (`weight=decay(...)`). Knowledge (arXiv 2204.02922, Table 2) is
    compared with what is received.

    In layers that see a window only (ModernBERT's local ones) a target outside of the window cannot be reached: choose
    the others with `layers`.
    """

    positional: ClassVar[tuple[str, ...]] = ("pattern",)
    padding_rows: ClassVar[bool] = True
    only: ClassVar[str | None] = None
    """The one pattern of a guide that is named after it."""

    pattern: Any = None
    """A pattern, its name, or its name with options: {name: pmi, window: 5}."""
    heads: Any = "first:half"
    """Guided heads of these layers: "all", "first:N", "last:N", "first:half", numbers, or a mapping from layers."""
    distance: Literal["mse", "kl", "cosine"] = "mse"
    """How far attention is from the pattern."""
    on: Literal["map", "received"] | None = None
    """What is compared: whole maps, or received attention. By default that of the pattern."""
    reduction: Literal["mean", "sum"] = "mean"
    """Over maps: mean of all, or sum over layers of the mean over heads."""
    shuffle: bool = False
    """The control: the same targets for the wrong keys, which change places at random in each example."""

    def __post_init__(self) -> None:
        """Check the options, and build the pattern."""
        super().__post_init__()
        object.__setattr__(self, "pattern", self._build(self.pattern))
        object.__setattr__(self, "on", self.pattern.form if self.on is None else self.on)
        check_choice(self, "distance", tuple(DISTANCES))
        check_choice(self, "on", ("map", "received"))
        check_choice(self, "reduction", ("mean", "sum"))
        check_choice(self, "shuffle", (True, False))
        if self.on == "received" and not self.special_tokens and self.pattern.on_special:
            raise InputError(
                f"{self.name}(on='received', special_tokens=False): {self.pattern.name} has special tokens as its "
                "target, which special_tokens=False leaves out; drop one of the two."
            )

    @property
    def what(self) -> What:
        """Maps, or received attention."""
        return "map" if self.on == "map" else "received"

    @property
    def needs(self) -> str:
        """The needs of its pattern."""
        needs: str = self.pattern.needs
        return needs

    @property
    def marks(self) -> tuple[str, ...]:
        """The kinds of tokens that its pattern needs."""
        marks: tuple[str, ...] = self.pattern.marks
        return marks

    def __call__(self, maps: AttentionRecord, inputs: Inputs) -> Tensor:
        """The loss of one batch."""
        tokens = Tokens(maps.valid, inputs.marks, inputs.knowledge)
        places = token_permutation(self, inputs, maps.valid, maps.valid) if self.shuffle else None
        by = self._by_map if self.on == "map" else self._by_received
        values, counts = by(maps, tokens, places)
        if self.reduction == "sum":
            per_layer = [part.mean(1) for part in values.split([len(heads) for heads in maps.heads.values()], 1)]
            return mean_over_examples(torch.stack(per_layer).sum(0), counts)
        return mean_over_examples(values.mean(1), counts)

    def _by_map(self, maps: AttentionRecord, tokens: Tokens, places: Tensor | None) -> tuple[Tensor, Tensor]:
        """[B,M] the mean distance over rows, and [B] how many rows count; `places` [B,K] are those of the keys."""
        key = (self._shared, "map")
        if key not in maps.cache:
            maps.cache[key] = self.pattern.target(tokens)
        target = maps.cache[key]
        distance = DISTANCES[self.distance]
        counted = target.present & self.positions(maps)  # [B,Q]
        rows = target.rows  # [B,Q,K]
        if places is not None:
            rows = rows.gather(2, places.unsqueeze(1).expand_as(rows))
        rows = rows.unsqueeze(1)  # [B,1,Q,K]
        weights = counted / counted.sum(1, keepdim=True).clamp_min(1)  # [B,Q]
        if distance.per_key:
            weights = weights / maps.valid.sum(1, keepdim=True).clamp_min(1)
        each = [(distance(maps[layer], rows) * weights.unsqueeze(1)).sum(2) for layer in maps.heads]  # [B,n]
        return torch.cat(each, 1), counted.sum(1)

    def _by_received(self, maps: AttentionRecord, tokens: Tokens, places: Tensor | None) -> tuple[Tensor, Tensor]:
        """[B,M] the distances, and [B] whether the example counts; `places` [B,K] are those of the keys."""
        key = (self._shared, "received")
        if key not in maps.cache:
            maps.cache[key] = self.pattern.received(tokens)
        target, positions = maps.cache[key], self.positions(maps)
        received = maps.stacked()  # [B,M,K]
        received = received.to(torch.promote_types(received.dtype, torch.float32)) * positions.unsqueeze(1)
        tiny = torch.finfo(received.dtype).tiny
        shares = received / received.sum(2, keepdim=True).clamp_min(tiny)
        wanted = target.shares if places is None else target.shares.gather(1, places)
        expected = (wanted * positions).to(received.dtype)  # [B,K]
        total = expected.sum(1, keepdim=True)
        expected = expected / total.clamp_min(tiny)
        distance = DISTANCES[self.distance]
        values = distance(shares, expected.unsqueeze(1))  # [B,M]
        if distance.per_key:
            values = values / positions.sum(1, keepdim=True).clamp_min(1)
        return values, target.present & (total[:, 0] > 0)

    @property
    def _shared(self) -> Any:
        """The cache key of guides of the same pattern; a pattern with a list among its options shares nothing."""
        try:
            hash(self.pattern)
        except TypeError:
            return id(self.pattern)
        return self.pattern

    def _build(self, choice: Any) -> Pattern:
        if choice is None and self.only is None:
            raise InputError(f"{self.name} needs a pattern: {choices('', PATTERNS)}.")
        if self.only is not None and (choice is None or isinstance(choice, Mapping)):
            choice = {"name": self.only, **(choice or {})}
        pattern = build_pattern(choice)
        if self.only is not None and pattern.name != self.only:
            raise InputError(f"guide {self.name} has its own pattern, not {pattern.name!r}: use match for others.")
        return pattern


def _named(pattern: str) -> type[Match]:
    """The guide that has the name of its pattern."""
    text = inspect.cleandoc(PATTERNS[pattern].__doc__ or "")
    members = {"__doc__": f"{text}\n\nThe same as match with this pattern.", "__module__": __name__, "only": pattern}
    return register_guide(pattern)(type(f"Match{pattern.capitalize()}", (Match,), members))


@register_guide("relations")
class Relations(Match):
    """Terms should attend to the terms that they are related to in a terminology, such as a drug to its disease.

        guide = hw.Relations("drugs.tsv", layers="last:2")   # two terms on each line, with a tab in between
        guide = hw.Relations("hp.obo")                       # an ontology

    Match with the pattern `relations`, on maps; `pattern` may be the path of the file. With W[x,y] the weight of the
    relation between the term with the word x and the term with the word y, the target of x is the row W[x] divided by
    its sum; words without related terms in the example have no target.

    The texts of the training examples are searched for terms once: by the command line and recipes, or by
    `headwise.training.add_knowledge`. `headwise.patterns.TermRelations` describes the files.

    Relations: `wordsim` joins single words by similarity, `alignment` equal tokens of two texts.
    """

    only: ClassVar[str | None] = "relations"

    def _build(self, choice: Any) -> Pattern:
        return super()._build({"path": choice} if isinstance(choice, str) and choice != self.only else choice)


# A guide for every pattern of ours, under its name; as names of this module too, so that they can be pickled.
NAMED = {pattern: Relations if pattern == "relations" else _named(pattern) for pattern in PATTERN_GUIDES}
globals().update({guide.__name__: guide for guide in NAMED.values()})
