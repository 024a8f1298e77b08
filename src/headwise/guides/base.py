"""What may be done to a model while it trains: frozen dataclasses that never hold a model.

A guide turns attention into a number to minimise. `head_dropout` and `consistency` change the forward pass instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, TypeVar, dataclass_transform

import torch
from torch import Tensor

from headwise.attention import AttentionRecord, Inputs, What
from headwise.attention.dropout import example_numbers, mix
from headwise.errors import InputError
from headwise.guides.weights import Auto, Weight, checked_weight, scaled
from headwise.registry import Registry, politely

# The guides that are match with the pattern of the same name.
PATTERN_GUIDES = ("dependency", "first", "next", "prev", "delim", "period", "pmi", "relations", "wordsim")
# A new guide is one file and one line here: its name, and the module that registers it.
GUIDES = Registry(
    "guide",
    dict.fromkeys(("match", *PATTERN_GUIDES), "headwise.guides.match")
    | {
        "alignment": "headwise.guides.alignment",
        "consistency": "headwise.guides.consistency",
        "disagreement": "headwise.guides.disagreement",
        "entropy": "headwise.guides.entropy",
        "head_dropout": "headwise.guides.head_dropout",
        "mdg": "headwise.guides.gram",
        "pdg": "headwise.guides.gram",
        "rationale": "headwise.guides.rationale",
    },
)

Kind = TypeVar("Kind", bound="type[Regulariser]")


@dataclass(frozen=True, kw_only=True)
class Regulariser:
    """Base of all that `hw.guide` attaches: a guide (a loss on attention), or a change of the forward pass.

    They can be added, have a name in the registry, and say what they need.
    """

    name: ClassVar[str] = "regulariser"
    positional: ClassVar[tuple[str, ...]] = ()
    """Options that may be given without their names."""
    kind: ClassVar[str] = "loss on attention"
    """What it does: a loss on attention, gates of heads, or two passes."""
    reads_marks: ClassVar[bool] = False
    """Whether it needs to know which tokens people marked."""

    @property
    def needs(self) -> str:
        """The extra data or packages that it needs, in a few words."""
        return "nothing"

    @property
    def marks(self) -> tuple[str, ...]:
        """The kinds of tokens that it needs from a tokenizer, such as separator."""
        return ()

    @property
    def optional_marks(self) -> tuple[str, ...]:
        """The kinds of tokens that it uses if the tokenizer has any."""
        return ()

    def fitted(self, examples: Iterable[Any]) -> Regulariser:
        """The same guide for these training examples, if it depends on them. Recipes call it.

        Args:
            examples: the token ids of each example.
        """
        return self

    def has_target(self, inputs: Inputs, valid: Tensor, special: Tensor | None) -> Tensor | None:
        """[B] whether an example has a target; None for a guide without targets, or if only marks decide it.

        Args:
            inputs: of a batch.
            valid: [B,K] which positions are tokens.
            special: [B,K] which positions are special tokens; None if that is not known.
        """
        return None

    def __add__(self, other: Regulariser | Guides) -> Guides:
        """This guide and others."""
        return Guides((self,)) + other

    def __mul__(self, factor: float) -> Regulariser:
        """The same guide, `factor` times as strong."""
        if isinstance(factor, bool) or not isinstance(factor, int | float) or factor < 0 or factor != factor:
            raise InputError(f"a guide times {factor!r}: expected a number of 0 or more.")
        options: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        if "weight" not in options:
            raise InputError(f"{self.name} times {factor!r}: it has no weight that can be scaled; set its options.")
        return replace(self, **{"weight": scaled(options["weight"], float(factor))})

    __rmul__ = __mul__


@dataclass(frozen=True, kw_only=True)
class Guide(Regulariser):
    """Base of all guides: which attention it reads, and how much it counts.

    A subclass turns attention into a scalar:

        @hw.guides.register_guide("mine")
        class Mine(hw.Guide):
            def __call__(self, maps, inputs):
                return maps.stacked().square().mean()

    `maps` is an AttentionRecord (`maps.stacked()` is [B,M,K] for received attention, [B,M,Q,K] for maps), `inputs`
    holds input_ids and the attention mask. The value must not change when padding is added or examples are reordered:
    `self.positions(maps)` says which positions count, `mean_over_examples` averages.
    """

    name: ClassVar[str] = "guide"
    padding_rows: ClassVar[bool] = False
    """Whether it ignores the rows of padded queries, which saves a copy of every map."""

    weight: Weight = Auto(0.03)
    """Factor in the loss: a number, a schedule (warm_up, decay, piecewise) or auto(share).

    The default is a share, since a good number for one guide, model and length ruins another; docs/results.md has the
    measurements behind its size.
    """
    layers: Any = "all"
    """Guided layers: "all", "first:N", "last:N", "first:half", a number or numbers, from 0."""
    heads: Any = "all"
    """Guided heads of these layers: the same forms, a mapping from layer to heads, or (layer, head) pairs."""
    dropout: Literal["before", "after"] = "before"
    """Attention before dropout (a distribution) or after it (rows no longer sum to one)."""
    special_tokens: bool = True
    """Whether special tokens such as [CLS] and [SEP] count as positions."""

    def __post_init__(self) -> None:
        """Check the options that all guides share."""
        object.__setattr__(self, "weight", checked_weight(self.weight, self.name))
        check_choice(self, "dropout", ("before", "after"))
        check_choice(self, "special_tokens", (True, False))

    @property
    def what(self) -> What:
        """The attention that the guide reads: received attention costs almost nothing, maps cost time and memory."""
        return "received"

    def __call__(self, maps: AttentionRecord, inputs: Inputs) -> Tensor:
        """The value to minimise: a scalar."""
        raise NotImplementedError

    def positions(self, maps: AttentionRecord) -> Tensor:
        """[B,K] which positions count for this guide."""
        if self.special_tokens:
            return maps.valid
        if maps.special is None:
            raise InputError(
                f"{self.name}(special_tokens=False) does not know which tokens are special: pass tokenizer=... to "
                "guide(), or special_tokens_mask=... with the batch."
            )
        return maps.valid & ~maps.special


class Guides(tuple[Regulariser, ...]):
    """Several guides together; `+` adds more, `*` scales all."""

    def __add__(self, other: Any) -> Guides:
        """These guides and others."""
        if isinstance(other, Regulariser):
            return Guides((*self, other))
        if isinstance(other, Guides):
            return Guides((*self, *other))
        return NotImplemented

    def __mul__(self, factor: Any) -> Guides:
        """All of them `factor` times as strong."""
        return Guides(guide * factor for guide in self)

    __rmul__ = __mul__

    def named(self) -> Iterator[tuple[str, Regulariser]]:
        """Each guide with a unique name: mdg, and mdg-2 for a second one."""
        counts: dict[str, int] = {}
        for guide in self:
            counts[guide.name] = counts.get(guide.name, 0) + 1
            yield guide.name if counts[guide.name] == 1 else f"{guide.name}-{counts[guide.name]}", guide


@dataclass_transform(frozen_default=True, kw_only_default=True)
def register_guide(name: str) -> Callable[[Kind], Kind]:
    """Register a class as a guide: a frozen dataclass with a name, which answers unknown options by the known ones."""

    def decorate(kind: Kind) -> Kind:
        guide: Any = dataclass(frozen=True, kw_only=True)(kind)
        guide.name = name
        guide.__init__ = politely(guide, name, kind.positional)
        GUIDES.add(name, guide)
        return kind

    return decorate


def build(name: str, **options: Any) -> Regulariser:
    """A guide by its name in the registry and its options, as in recipes."""
    guide = GUIDES[name](**options)
    if not isinstance(guide, Regulariser):
        raise InputError(f"{name!r} is not a guide.")
    return guide


def mean_over_examples(values: Tensor, counts: Tensor) -> Tensor:
    """Mean of per-example values [B] over the examples that have any position at all (`counts` [B] > 0).

    An example counts once, whatever its length.
    """
    present = (counts > 0).to(values.dtype)
    return (values * present).sum() / present.sum().clamp_min(1)


def token_permutation(guide: Guide, inputs: Inputs, valid: Tensor, eligible: Tensor) -> Tensor:
    """[B,K] a random permutation of the eligible positions of each example; the other positions stay.

    For the control of a guide with a target: with `target.gather(1, permutation)` it pulls attention to as many tokens,
    but to the wrong ones. The permutation follows from the tokens of the example, so it is the same in every epoch,
    batch and padding.

    Args:
        guide: for messages.
        inputs: of the batch.
        valid: [B,K] which positions are tokens.
        eligible: [B,K] which positions change places.
    """
    if inputs.input_ids is None:
        raise InputError(f"{guide.name}(shuffle=True) needs input_ids: call the model with them, not inputs_embeds.")
    numbers, first = example_numbers(inputs.input_ids, valid)
    positions = torch.arange(valid.shape[1], device=valid.device)[None]
    own = positions if first is None else positions - first[:, None]
    keys = mix(numbers[:, None] + mix(own + 1)) >> 1  # below the largest number, which stands for the others
    order = keys.masked_fill(~eligible, torch.iinfo(torch.int64).max).sort(dim=1, stable=True).indices
    places = (~eligible).to(torch.uint8).sort(dim=1, stable=True).indices  # those of eligible positions first
    return torch.empty_like(order).scatter_(1, places, order)


def check_choice(guide: Regulariser, option: str, allowed: tuple[Any, ...]) -> None:
    """Refuse a value that is not among those allowed."""
    value = getattr(guide, option)
    if not any(value is choice or (isinstance(choice, str) and value == choice) for choice in allowed):
        names = ", ".join(repr(choice) for choice in allowed)
        raise InputError(f"{guide.name}({option}={value!r}): expected one of {names}.")
