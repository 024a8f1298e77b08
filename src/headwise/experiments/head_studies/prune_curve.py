"""A pruning curve: what every task of a run loses when the heads that one of them needs are silenced.

Shapes: N layers, H heads, K steps of the curve, S tasks whose heads are pruned and T tasks that are evaluated (the same
ones, in the same order; a row of NaN for a task whose heads are not pruned), R random masks, P masks in all, n
examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import numpy
from numpy.typing import NDArray

from headwise.errors import InputError, choices
from headwise.experiments.head_studies.head_importance import ImportanceSettings
from headwise.heads.dissociation import plain
from headwise.heads.dissociation_tests import TaskPredictions
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

# Which heads a pruning curve silences: those that each task needs most, and those of its controls.


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


NAME = "prune-curve"

Values = NDArray[numpy.float64]


@dataclass(frozen=True, eq=False)
class PruneCurve:
    """The metric of every task under every mask."""

    run: Mapping[str, Any]
    """Which run."""
    metrics: dict[str, str]
    """The tasks that were evaluated, with their main metric."""
    settings: CurveSettings
    shape: tuple[int, int]
    """Layers and heads."""
    counts: tuple[int, ...]
    """[K] silenced heads."""
    masks: tuple[Pruned, ...]
    """[P] the first silences nothing."""
    values: Values
    """[P,T]"""
    importance: dict[str, HeadImportance]
    labels: dict[str, NDArray[Any]]
    """Task -> [n] what was right."""
    predictions: dict[str, NDArray[Any]]
    """Task -> [P,n] predicted classes, or numbers."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """[T] their names."""
        return tuple(self.metrics)

    @property
    def pruned_for(self) -> tuple[str, ...]:
        """The tasks whose heads were pruned."""
        return self.settings.task

    @property
    def base(self) -> Values:
        """[T] the metric of each task with all heads."""
        return numpy.asarray(self.values[0])

    def matrix(self, order: str) -> Values:
        """[K,S,T] M[k,s,t]: the metric of t while the heads of s, by this ranking, are silenced."""
        return self._filled(order, 1)[:, :, 0]

    @property
    def random(self) -> Values:
        """[K,R,T] under random masks."""
        return self._filled(RANDOM, self.settings.repeats)[:, 0]

    @property
    def layer_matched(self) -> Values:
        """[K,S,R,T] under random masks with as many heads in each layer as those of s."""
        return self._filled(MATCHED, self.settings.repeats)

    def _filled(self, order: str, repeats: int) -> Values:
        """[K,S,R,T]; masks of no task lie in the first row."""
        found = numpy.full((len(self.counts), len(self.tasks), repeats, len(self.tasks)), numpy.nan)
        for each, values in zip(self.masks, self.values, strict=True):
            if each.order == order:
                row = 0 if each.pruned_for is None else self.tasks.index(each.pruned_for)
                found[each.step, row, each.repeat or 0] = values
        return found

    def task_predictions(self) -> dict[str, TaskPredictions]:
        """For the bootstrap: predictions by task, with all heads and in the order asked for, [K,S,n]."""
        places = {
            (each.step, each.pruned_for): place
            for place, each in enumerate(self.masks)
            if each.order == self.settings.order
        }
        rows = [[places[step, task] for task in self.pruned_for] for step in range(len(self.counts))]
        return {
            task: TaskPredictions(metric, self.labels[task], self.predictions[task][0], self.predictions[task][rows])
            for task, metric in self.metrics.items()
        }

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON; null in the rows of tasks whose heads were not pruned."""
        settings = self.settings
        return {
            "run": dict(self.run),
            "tasks": list(self.tasks),
            "metrics": self.metrics,
            "split": settings.split,
            "examples": {task: len(labels) for task, labels in self.labels.items()},
            "percents": list(settings.percent) or None,
            "counts": list(self.counts),
            "shape": list(self.shape),
            "pruned_for": list(self.pruned_for),
            "settings": asdict(settings),
            "base": plain(self.base),
            "matrix": {order: plain(self.matrix(order)) for order in settings.orders},
            "random": plain(self.random),
            "layer_matched": plain(self.layer_matched),
            "masks": [_mask_as_dict(each, values) for each, values in zip(self.masks, self.values, strict=True)],
            "importance": {task: each.as_dict() for task, each in self.importance.items()},
        }

    def percent(self, step: int | None) -> float | None:
        """The percentage of a step; None without a mask, and where numbers of heads were given."""
        return None if step is None or not self.settings.percent else self.settings.percent[step]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What the bootstrap needs, by name."""
        return {f"labels/{task}": labels for task, labels in self.labels.items()} | {
            f"predictions/{task}": predictions for task, predictions in self.predictions.items()
        }

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row for each mask and evaluated task."""
        for each, values in zip(self.masks, self.values, strict=True):
            for task, value, base in zip(self.tasks, values.tolist(), self.base.tolist(), strict=True):
                yield {
                    "order": each.order,
                    "percent": self.percent(each.step),
                    "heads": int(each.mask.sum()),
                    "pruned_for": each.pruned_for,
                    "repeat": each.repeat,
                    "task": task,
                    "metric": self.metrics[task],
                    "value": value,
                    "base": base,
                    "retained": value / base if base > 0 else None,
                }

    @classmethod
    def from_files(cls, content: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> PruneCurve:
        """What `as_dict` and `arrays` gave."""
        shape = (int(content["shape"][0]), int(content["shape"][1]))
        masks = tuple(_mask_from_dict(each, shape) for each in content["masks"])
        settings: dict[str, Any] = {
            name: tuple(each) if isinstance(each, list) else each for name, each in content["settings"].items()
        }
        tasks = list(content["metrics"])
        curve = cls(
            run=content["run"],
            metrics=dict(content["metrics"]),
            settings=CurveSettings(**settings),
            shape=shape,
            counts=tuple(content["counts"]),
            masks=masks,
            values=numpy.array([each["values"] for each in content["masks"]], dtype=numpy.float64),
            importance={task: HeadImportance.from_dict(each) for task, each in content["importance"].items()},
            labels={task: arrays[f"labels/{task}"] for task in tasks},
            predictions={task: arrays[f"predictions/{task}"] for task in tasks},
        )
        for task in tasks:
            if curve.predictions[task].shape != (len(masks), len(curve.labels[task])):
                raise ValueError(f"{task} has predictions of shape {curve.predictions[task].shape}")
        return curve


def _mask_as_dict(each: Pruned, values: Values) -> dict[str, Any]:
    return {
        "order": each.order,
        "step": each.step,
        "pruned_for": each.pruned_for,
        "repeat": each.repeat,
        "heads": numpy.argwhere(each.mask).tolist(),
        "values": values.tolist(),
    }


def _mask_from_dict(data: Mapping[str, Any], shape: tuple[int, int]) -> Pruned:
    mask = numpy.zeros(shape, dtype=bool)
    for layer, head in data["heads"]:
        mask[layer, head] = True
    return Pruned(data["order"], data["step"], data["pruned_for"], data["repeat"], mask)
