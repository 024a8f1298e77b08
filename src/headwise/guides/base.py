"""A guide: a frozen dataclass that turns attention into a number to minimise. It never holds a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeVar, dataclass_transform

from torch import Tensor

from headwise.attention import AttentionRecord, Inputs, What
from headwise.errors import InputError
from headwise.guides.weights import Auto, Weight, checked_weight, scaled
from headwise.registry import Registry, politely

# The guides that are match with the pattern of the same name.
PATTERN_GUIDES = ("dependency", "first", "next", "prev", "delim", "period", "pmi", "wordsim")
# A new guide is one file and one line here: its name, and the module that registers it.
GUIDES = Registry(
    "guide",
    dict.fromkeys(("match", *PATTERN_GUIDES), "headwise.guides.match")
    | {
        "disagreement": "headwise.guides.disagreement",
        "mdg": "headwise.guides.gram",
        "pdg": "headwise.guides.gram",
    },
)

Kind = TypeVar("Kind", bound="type[Guide]")


@dataclass(frozen=True, kw_only=True)
class Guide:
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
    positional: ClassVar[tuple[str, ...]] = ()
    """Options that may be given without their names."""
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
    """Guided heads of these layers: the same forms, or a mapping from layer to heads."""
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

    @property
    def needs(self) -> str:
        """The extra data or packages that it needs, in a few words."""
        return "nothing"

    @property
    def marks(self) -> tuple[str, ...]:
        """The kinds of tokens that it needs from a tokenizer, such as separator."""
        return ()

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

    def __add__(self, other: Guide | Guides) -> Guides:
        """This guide and others."""
        return Guides((self,)) + other

    def __mul__(self, factor: float) -> Guide:
        """The same guide, `factor` times as strong."""
        if isinstance(factor, bool) or not isinstance(factor, int | float) or factor < 0 or factor != factor:
            raise InputError(f"a guide times {factor!r}: expected a number of 0 or more.")
        return replace(self, weight=scaled(self.weight, float(factor)))

    __rmul__ = __mul__


class Guides(tuple[Guide, ...]):
    """Several guides together; `+` adds more, `*` scales all."""

    def __add__(self, other: Any) -> Guides:
        """These guides and others."""
        if isinstance(other, Guide):
            return Guides((*self, other))
        if isinstance(other, Guides):
            return Guides((*self, *other))
        return NotImplemented

    def __mul__(self, factor: Any) -> Guides:
        """All of them `factor` times as strong."""
        return Guides(guide * factor for guide in self)

    __rmul__ = __mul__

    def named(self) -> Iterator[tuple[str, Guide]]:
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


def build(name: str, **options: Any) -> Guide:
    """A guide by its name in the registry and its options, as in recipes."""
    guide = GUIDES[name](**options)
    if not isinstance(guide, Guide):
        raise InputError(f"{name!r} is not a guide.")
    return guide


def mean_over_examples(values: Tensor, counts: Tensor) -> Tensor:
    """Mean of per-example values [B] over the examples that have any position at all (`counts` [B] > 0).

    An example counts once, whatever its length.
    """
    present = (counts > 0).to(values.dtype)
    return (values * present).sum() / present.sum().clamp_min(1)


def check_choice(guide: Guide, option: str, allowed: tuple[Any, ...]) -> None:
    """Refuse a value that is not among those allowed."""
    value = getattr(guide, option)
    if not any(value is choice or (isinstance(choice, str) and value == choice) for choice in allowed):
        names = ", ".join(repr(choice) for choice in allowed)
        raise InputError(f"{guide.name}({option}={value!r}): expected one of {names}.")
