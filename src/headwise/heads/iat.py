"""What decides important attention-head training: every choice of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from headwise.errors import InputError, choices
from headwise.registry import politely

PROTECTED = ("qkv", "qkvo")
MODES = ("skip", "grad_mask")
ORDERS = ("descending", "ascending", "random")
GRANULARITIES = ("sample", "token", "batch")
NORMALISATIONS = ("none", "layer")
SPLITS = ("train", "validation")


@dataclass(frozen=True, kw_only=True)
class IAT:
    """Important attention-head training (IAT), the last part of training several tasks together.

    After `start` of all steps the importance of every head is measured for every task, once. From then on an update of
    task t changes the heads of A_t only,

        A_t = the first floor(heads * N * H) heads in the order of their importance to t,

    less the heads that are in the A of all tasks if `shared` is false.

    Where we differ from the authors' code: the defaults are `sample` and `skip` (theirs: `token`, `grad_mask`); no
    gradient of the importance pass is left for the first step; dropout stays on; a control run belongs to it.
    """

    start: float = 0.9
    """Part of all steps after which a task trains only its important heads."""
    heads: float = 0.3
    """Share of all heads that counts as important to a task."""
    shared: bool = True
    """Whether heads that are important to all tasks go on learning."""
    others: bool = True
    """Whether everything that belongs to no head goes on learning; false: only what `protect` names, and the tasks'
    own layers."""
    protect: str = "qkv"
    """What of a head is kept from other tasks: its query, key and value (the authors'), or qkvo for its columns of the
    output projection too."""
    mode: str = "skip"
    """skip: what a task may not change stays as it is, the optimiser's moments too. grad_mask (the authors'): only its
    gradients are zero, so momentum and weight decay still move it."""
    order: str = "descending"
    """Which heads are chosen: descending, the most important ones; controls: ascending, the least, and random."""
    granularity: str = "sample"
    """What importance takes the absolute value of: sample, token (the authors') or batch."""
    normalise: str = "none"
    """layer: divide the importance of each layer's heads by their Euclidean norm."""
    examples: int = 10_000
    """At most so many examples of each task for its importance."""
    split: str = "train"
    """Where these examples come from: train or validation."""
    keep_per_layer: int = 0
    """So many heads of each layer, the last in the order, are never chosen."""
    control: bool = True
    """Whether the run goes on a second time from the same step, on the same data, with all heads learning."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        for name in ("start", "heads"):
            _part(name, getattr(self, name))
        for name in ("shared", "others", "control"):
            _truth(name, getattr(self, name))
        _one_of("protect", self.protect, PROTECTED)
        _one_of("mode", self.mode, MODES)
        _one_of("order", self.order, ORDERS)
        _one_of("granularity", self.granularity, GRANULARITIES)
        _one_of("normalise", self.normalise, NORMALISATIONS)
        _one_of("split", self.split, SPLITS)
        _whole("examples", self.examples, 1)
        _whole("keep_per_layer", self.keep_per_layer, 0)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as a file would have it."""
        return asdict(self)


IAT.__init__ = politely(IAT, "iat")  # type: ignore[method-assign]


def build_iat(options: Any) -> IAT:
    """IAT from the options of a recipe."""
    if isinstance(options, IAT):
        return options
    if not isinstance(options, Mapping):
        raise InputError(f"iat is {options!r:.60}: expected options with values, such as heads: 0.3.")
    return IAT(**{str(name): value for name, value in options.items()})


def _part(name: str, value: Any) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1:
        raise InputError(f"iat.{name} is {value!r}: expected a number above 0 and below 1.")


def _truth(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise InputError(f"iat.{name} is {value!r}: expected true or false.")


def _one_of(name: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(f"iat.{name} is {value!r}: {choices(str(value), known)}.")


def _whole(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"iat.{name} is {value!r}: expected a whole number of {least} or more.")
