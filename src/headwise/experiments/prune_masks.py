"""Which heads a pruning curve silences: those that each task needs most, and those of its controls.

Shapes: N layers, H heads, K steps of the curve.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy

from headwise.errors import InputError, choices
from headwise.experiments.head_importance import ImportanceSettings
from headwise.heads.importance import HeadImportance
from headwise.heads.pruning import (
    Mask,
    check_percent,
    check_whole,
    cumulative_masks,
    exact_masks,
    head_count,
    layer_matched_masks,
    random_masks,
)

PERCENTS = (20.0, 30.0, 40.0)
DESCENDING, ASCENDING, RANDOM, MATCHED, BASE = "descending", "ascending", "random", "layer-matched", "none"
ORDERS = (DESCENDING, ASCENDING)

# Task and mask to the importance [N,H] of its heads under that mask.
Rescore = Callable[[str, Mask | None], Any]


@dataclass(frozen=True)
class CurveSettings:
    """What a pruning curve is asked for; a field is named as its option."""

    percent: tuple[float, ...] = ()
    """Shares of all heads, in the order in which they are shown; 20, 30 and 40 if neither these nor numbers."""
    number: tuple[int, ...] = ()
    """Numbers of heads, instead of percentages."""
    task: tuple[str, ...] = ()
    """Whose heads are pruned; all tasks if none is named. All tasks are evaluated in any case."""
    order: str = DESCENDING
    """The most important heads first, or the least important."""
    controls: bool = True
    """Whether to measure random and layer-matched masks too, and for the descending order the ascending one."""
    random: int = 3
    """Random masks for each step, and layer-matched ones for each step and task."""
    exact: bool = False
    """Whether importance is measured anew, under the mask so far, before every step."""
    keep_per_layer: int = 0
    """So many heads of each layer are never silenced, by no mask."""
    granularity: str = "sample"
    normalise: str = "none"
    examples: int = 10_000
    """For the importance."""
    importance_split: str = "train"
    split: str = "validation"
    """What is evaluated."""
    limit: int | None = None
    """The first examples of it only."""
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what contradicts itself before any work."""
        if self.percent and self.number:
            raise InputError("--percent and --number both say how many heads to prune: leave one of them out.")
        if not self.percent and not self.number:
            object.__setattr__(self, "percent", PERCENTS)
        for percent in self.percent:
            check_percent(percent)
        for number in self.number:
            check_whole("a --number", number, 1)
        for option, values in (("--percent", self.percent), ("--number", self.number), ("--task", self.task)):
            twice = [value for place, value in enumerate(values) if value in values[:place]]
            if twice:
                shown = twice[0] if isinstance(twice[0], str) else f"{twice[0]:g}"
                raise InputError(f"{option} {shown} is given twice: give each once.")
        if self.order not in ORDERS:
            raise InputError(f"--order {self.order}: {choices(self.order, ORDERS)}.")
        self.importance  # noqa: B018  refuses unknown names

    @property
    def importance(self) -> ImportanceSettings:
        """How the ranking is made."""
        return ImportanceSettings(self.granularity, self.normalise, self.examples, self.importance_split, self.seed)

    @property
    def orders(self) -> tuple[str, ...]:
        """The rankings that are followed, the one asked for first."""
        return ORDERS if self.controls and self.order == DESCENDING else (self.order,)

    @property
    def repeats(self) -> int:
        """Random masks for each step."""
        return self.random if self.controls else 0

    @property
    def steps(self) -> tuple[float, ...]:
        """[K] the percentages or numbers as they were given."""
        return self.percent or self.number

    def counts(self, shape: tuple[int, int]) -> tuple[int, ...]:
        """[K] how many heads each step silences; refuses what this model cannot lose."""
        total = shape[0] * shape[1]
        counts = self.number or tuple(head_count(total, percent) for percent in self.percent)
        cumulative_masks(numpy.zeros(shape), counts, keep_per_layer=self.keep_per_layer)
        return counts

    def label(self, step: int, heads: int) -> str:
        """A step in words."""
        return f"{self.percent[step]:g} % ({heads})" if self.percent else f"{heads} heads"


@dataclass(frozen=True, eq=False)
class Pruned:
    """One mask of a curve and where it belongs."""

    order: str
    """descending, ascending, random, layer-matched, or none: without any mask."""
    step: int | None
    """Which percentage or number, from 0."""
    pruned_for: str | None
    """Whose heads, or whose layers."""
    repeat: int | None
    """Which of the random ones, from 0."""
    mask: Mask
    """[N,H]"""


def planned_masks(
    importance: Mapping[str, HeadImportance], settings: CurveSettings, rescore: Rescore
) -> tuple[Pruned, ...]:
    """All masks of a curve, first the one that silences nothing.

    Random masks are the same for all tasks. Layer-matched ones follow the masks of the order asked for, and are drawn
    for each task by itself. Of one repeat, larger masks hold the smaller ones.

    Args:
        importance: of the tasks whose heads are pruned.
        settings: what is asked for.
        rescore: gives a task's importance under a mask; called only for exact masks, once for each mask.
    """
    shape = next(iter(importance.values())).scores.shape
    counts = settings.counts(shape)
    ranked = {
        (order, task): _ranked(task, each, counts, order, settings, rescore)
        for order in settings.orders
        for task, each in importance.items()
    }
    own = (
        Pruned(order, step, task, None, mask)
        for (order, task), masks in ranked.items()
        for step, mask in enumerate(masks)
    )
    like = {task: ranked[settings.order, task] for task in importance}
    nothing = Pruned(BASE, None, None, None, numpy.zeros(shape, dtype=bool))
    return tuple(chain([nothing], own, _at_random(shape, counts, settings), _matched(like, settings)))


def _ranked(
    task: str, importance: HeadImportance, counts: Sequence[int], order: str, settings: CurveSettings, rescore: Rescore
) -> list[Mask]:
    ascending, keep = order == ASCENDING, settings.keep_per_layer
    if not settings.exact:
        return cumulative_masks(importance.scores, counts, ascending=ascending, keep_per_layer=keep)
    return exact_masks(
        lambda mask: importance.scores if mask is None else rescore(task, mask),
        counts,
        ascending=ascending,
        keep_per_layer=keep,
    )


def _at_random(shape: tuple[int, int], counts: Sequence[int], settings: CurveSettings) -> Iterator[Pruned]:
    if settings.repeats:
        found = random_masks(
            shape, counts, settings.repeats, settings.seed, keep_per_layer=settings.keep_per_layer
        )  # [K][R]
        for step, masks in enumerate(found):
            yield from (Pruned(RANDOM, step, None, repeat, mask) for repeat, mask in enumerate(masks))


def _matched(like: Mapping[str, Sequence[Mask]], settings: CurveSettings) -> Iterator[Pruned]:
    for task, masks in like.items() if settings.repeats else ():
        # By name, so that it does not matter which other tasks there are.
        seed = int(numpy.random.SeedSequence([settings.seed, *task.encode()]).generate_state(1)[0])
        for step, mask in enumerate(masks):
            matched = layer_matched_masks(mask, settings.repeats, seed)
            yield from (Pruned(MATCHED, step, task, repeat, each) for repeat, each in enumerate(matched))
