"""The options of a pruning curve, and the masks that they mean: ranked heads, and random ones as controls.

Shapes: N layers, H heads, K steps of the curve, R random masks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy

from headwise.errors import InputError, choices
from headwise.experiments.head_studies.head_importance import ImportanceSettings
from headwise.heads.importance import HeadImportance
from headwise.heads.pruning import (
    Mask,
    check_counts,
    check_percent,
    check_whole,
    exact_masks,
    head_count,
    layer_matched_masks,
    random_masks,
)

PERCENTS = (20.0, 30.0, 40.0)
DESCENDING, ASCENDING, RANDOM, MATCHED, BASE = "descending", "ascending", "random", "layer-matched", "none"
ORDERS = (DESCENDING, ASCENDING)

# -- settings ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CurveSettings:
    """The options of a pruning curve."""

    percent: tuple[float, ...] = ()
    """Shares of all heads, in the order in which they are shown; 20, 30 and 40 without percent and number."""
    number: tuple[int, ...] = ()
    """Numbers of heads, instead of percentages."""
    task: tuple[str, ...] = ()
    """Whose heads are pruned; all tasks if empty. All tasks are evaluated in any case."""
    order: str = DESCENDING
    """The most important heads first, or the least important."""
    controls: bool = True
    """Whether to measure random and layer-matched masks too, and for the descending order the ascending one."""
    random: int = 3
    """Random masks for each step, and layer-matched ones for each step and task."""
    exact: bool = False
    """Whether importance is measured again, under the mask so far, before every step."""
    keep_per_layer: int = 0
    """Heads of each layer that no mask silences."""
    granularity: str = "sample"
    normalise: str = "none"
    examples: int = 10_000
    """The number of examples for importance."""
    importance_split: str = "train"
    split: str = "validation"
    """The split that is evaluated."""
    limit: int | None = None
    """Evaluate only so many examples, from the first."""
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse wrong and contradictory options before any work."""
        if self.percent and self.number:
            raise InputError("percent=... and number=... both say how many heads to prune: leave one of them out.")
        if not self.percent and not self.number:
            object.__setattr__(self, "percent", PERCENTS)
        for percent in self.percent:
            check_percent(percent)
        for number in self.number:
            check_whole("number", number, 1)
        for name in ("percent", "number", "task"):
            values = getattr(self, name)
            if twice := [value for index, value in enumerate(values) if value in values[:index]]:
                raise InputError(f"{setting_text(name, twice[0])} is given twice: give each once.")
        if self.order not in ORDERS:
            raise InputError(f"order={self.order}: {choices(self.order, ORDERS)}.")
        self.importance  # noqa: B018  refuses unknown names

    @property
    def importance(self) -> ImportanceSettings:
        """How the heads are ranked."""
        return ImportanceSettings(self.granularity, self.normalise, self.examples, self.importance_split, self.seed)

    @property
    def orders(self) -> tuple[str, ...]:
        """The rankings that are measured, `order` first."""
        return ORDERS if self.controls and self.order == DESCENDING else (self.order,)

    @property
    def repeats(self) -> int:
        """Random masks for each step."""
        return self.random if self.controls else 0

    @property
    def steps(self) -> tuple[float, ...]:
        """[K] the percentages or numbers."""
        return self.percent or self.number

    def counts(self, shape: tuple[int, int]) -> tuple[int, ...]:
        """[K] how many heads each step silences; refuses more than the model can lose."""
        counts = self.number or tuple(head_count(shape[0] * shape[1], percent) for percent in self.percent)
        check_counts(counts, shape, self.keep_per_layer)
        return counts


def step_label(percent: float | None, heads: int) -> str:
    """A step in words."""
    return f"{heads} heads" if percent is None else f"{percent:g} % ({heads})"


def setting_text(name: str, value: Any) -> str:
    """A setting as a Python argument."""
    if value is None:
        return f"no {name}"
    words = value if isinstance(value, tuple) else (value,)
    return f"{name}={' '.join(f'{word:g}' if isinstance(word, float) else str(word) for word in words)}"


# -- masks -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Pruned:
    """One mask of a curve."""

    order: str
    """descending, ascending, random, layer-matched, or none: no head is silenced."""
    step: int | None
    """The index of the percentage or number."""
    pruned_for: str | None
    """The task whose heads, or whose layers, are silenced."""
    repeat: int | None
    """The index of a random mask."""
    mask: Mask
    """[N,H]"""


def planned_masks(
    importance: Mapping[str, HeadImportance], settings: CurveSettings, rescore: Callable[[str, Mask], Any]
) -> tuple[Pruned, ...]:
    """All masks of a curve, first the one that silences nothing.

    Random masks are the same for all tasks. Layer-matched masks follow the masks of `settings.order`, and are drawn
    separately for each task. Within a repeat, larger masks contain the smaller ones.

    Args:
        importance: of the tasks whose heads are pruned.
        settings: the options of the curve.
        rescore: a task's importance [N,H] under a mask; called for exact masks only, once for each mask.
    """
    shape = next(iter(importance.values())).scores.shape
    counts, keep, repeats = settings.counts(shape), settings.keep_per_layer, settings.repeats
    masks = [Pruned(BASE, None, None, None, numpy.zeros(shape, dtype=bool))]
    for order in settings.orders:
        for task, each in importance.items():

            def scores(mask: Mask | None, task: str = task, once: Any = each.scores) -> Any:
                return rescore(task, mask) if settings.exact and mask is not None else once

            ranked = exact_masks(scores, counts, ascending=order == ASCENDING, keep_per_layer=keep)
            masks += [Pruned(order, step, task, None, mask) for step, mask in enumerate(ranked)]
    if not repeats:
        return tuple(masks)
    own = [pruned for pruned in masks if pruned.order == settings.order]
    for step, drawn in enumerate(random_masks(shape, counts, repeats, settings.seed, keep_per_layer=keep)):
        masks += [Pruned(RANDOM, step, None, repeat, mask) for repeat, mask in enumerate(drawn)]
    for pruned in own:
        # The seed depends on the task's name, so that the other tasks do not matter.
        seed = numpy.random.SeedSequence([settings.seed, *str(pruned.pruned_for).encode()]).generate_state(1)[0]
        drawn = layer_matched_masks(pruned.mask, repeats, int(seed))
        masks += [replace(pruned, order=MATCHED, repeat=repeat, mask=mask) for repeat, mask in enumerate(drawn)]
    return tuple(masks)
