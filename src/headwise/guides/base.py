"""What a guide is: a frozen dataclass that turns attention into a number to minimise. It never holds a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, TypeVar, dataclass_transform

from torch import Tensor

from headwise.attention import AttentionRecord, Inputs, What
from headwise.errors import InputError
from headwise.guides.weights import Auto, Schedule, Weight, checked_weight, scaled
from headwise.registry import Registry, politely

# The parts of a guided loss.


@dataclass
class GuidePart:
    """One guide's part in the last training step."""

    raw: Tensor
    """The guide's own value, without its weight (detached)."""
    weight: float
    share: float | None = None
    """Weighted gradient norm on the query/key projections, as a share of the task's; None if not measured."""

    @property
    def weighted(self) -> Tensor:
        """What was added to the loss."""
        return self.raw * self.weight


@dataclass
class Losses:
    """Task loss and guides of the last training step."""

    task: Tensor | None = None
    """The task's own loss (detached); None if the model was called without labels."""
    guides: dict[str, GuidePart] = field(default_factory=dict)
    """By name; a guide whose weight is 0 at this step is not computed and not listed."""

    def as_dict(self) -> dict[str, float]:
        """Plain numbers for a log: task; per guide NAME, NAME_weighted, NAME_weight and, once measured, its share."""
        numbers = {} if self.task is None else {"task": float(self.task)}
        for name, part in self.guides.items():
            numbers[name] = float(part.raw)
            numbers[f"{name}_weighted"] = float(part.weighted)
            numbers[f"{name}_weight"] = part.weight
            if part.share is not None:
                numbers[f"{name}_share"] = part.share
        return numbers


def loss_of(output: Any) -> Tensor | None:
    """The loss in a model's output: its field, or the first entry of a plain tuple if that is a scalar."""
    if isinstance(output, tuple):
        first = output[0] if output else None
        return first if isinstance(first, Tensor) and first.dim() == 0 else None
    loss = getattr(output, "loss", None)
    return loss if isinstance(loss, Tensor) else None


def with_loss(output: Any, loss: Tensor) -> Any:
    """The output with another loss."""
    if isinstance(output, tuple):
        return (loss, *output[1:])
    output.loss = loss
    return output


GUIDES = Registry("guide")

Kind = TypeVar("Kind", bound="type[Guide]")


@dataclass(frozen=True, kw_only=True)
class Guide:
    """Base of all guides: what to look at, and how much it counts.

    A subclass says how to turn attention into a scalar:

        @hw.register_guide("mine")
        class Mine(hw.Guide):
            def __call__(self, maps, inputs):
                return maps.stacked().square().mean()

    `maps` is an AttentionRecord (`maps.stacked()` is [B,M,K] for received attention, [B,M,Q,K] for maps), `inputs`
    holds input_ids and the attention mask. The value must not change when padding is added or examples are reordered:
    `self.positions(maps)` tells which positions count, `mean_over_examples` averages.
    """

    name: ClassVar[str] = "guide"
    positional: ClassVar[tuple[str, ...]] = ()
    """Options that may be given without their names."""
    padding_rows: ClassVar[bool] = False
    """Whether it leaves the rows of padded queries out by itself, which saves a copy of every map."""

    weight: Weight = Auto(0.03)
    """Factor in the loss: a number, a schedule (warm_up, decay, piecewise) or auto(share).

    The default is a share, since a good number for one guide, model and length ruins another; its size is that of
    docs/results.md.
    """
    layers: Any = "all"
    """Guided layers: "all", "first:N", "last:N", "first:half", a number or numbers, from 0."""
    heads: Any = "all"
    """Guided heads of these layers, likewise, or a mapping from layer to heads."""
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
        """What the guide looks at: received attention costs nothing to speak of, maps cost time and memory."""
        return "received"

    @property
    def needs(self) -> str:
        """What a user must have for it, in a few words."""
        return "nothing"

    @property
    def marks(self) -> tuple[str, ...]:
        """The kinds of tokens that it must be told of by a tokenizer, such as separator."""
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
                f"{self.name}(special_tokens=False) cannot tell which tokens are special: pass tokenizer=... to "
                "guide(), or special_tokens_mask=... with the batch."
            )
        return maps.valid & ~maps.special

    def __add__(self, other: Guide | Guides) -> Guides:
        """Both."""
        return Guides((self,)) + other

    def __mul__(self, factor: float) -> Guide:
        """The same guide, `factor` times as strong."""
        return replace(self, weight=scaled(self.weight, checked_factor(factor)))

    __rmul__ = __mul__


class Guides(tuple[Guide, ...]):
    """Several guides together; `+` adds more, `*` scales all."""

    def __add__(self, other: Any) -> Guides:
        """These and others."""
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
        """Each guide with a name of its own: mdg, and mdg-2 for a second one."""
        counts: dict[str, int] = {}
        for guide in self:
            counts[guide.name] = counts.get(guide.name, 0) + 1
            yield guide.name if counts[guide.name] == 1 else f"{guide.name}-{counts[guide.name]}", guide


@dataclass_transform(frozen_default=True, kw_only_default=True)
def register_guide(name: str) -> Callable[[Kind], Kind]:
    """Make a class a guide: a frozen dataclass under a name, with unknown options answered by the known ones."""

    def decorate(kind: Kind) -> Kind:
        made: Any = dataclass(frozen=True, kw_only=True)(kind)
        made.name = name
        made.__init__ = politely(made, name, kind.positional)
        GUIDES.add(name, made)
        return kind

    return decorate


def build(name: str, **options: Any) -> Guide:
    """A guide by its name in the registry, as recipes give it."""
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


def checked_factor(factor: Any) -> float:
    """A number that a guide may be multiplied with."""
    if isinstance(factor, bool) or not isinstance(factor, int | float) or factor < 0 or factor != factor:
        raise InputError(f"a guide times {factor!r}: expected a number of 0 or more.")
    return float(factor)


def weight_at(guide: Guide, step: int) -> float | None:
    """The weight at a step; None if it is still to be measured."""
    weight = guide.weight
    if isinstance(weight, Auto):
        return None if weight.share > 0 else 0.0
    return weight.at(step) if isinstance(weight, Schedule) else weight
