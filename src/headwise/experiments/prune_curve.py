"""A pruning curve: what every task of a run loses when the heads that one of them needs are silenced.

Shapes: N layers, H heads, K steps of the curve, S tasks whose heads are pruned and T tasks that are evaluated (the same
ones, in the same order; a row of NaN for a task whose heads are not pruned), R random masks, P masks in all, n
examples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy
from numpy.typing import NDArray

from headwise.experiments.prune_masks import MATCHED, RANDOM, CurveSettings, Pruned
from headwise.heads.dissociation import plain
from headwise.heads.dissociation_tests import TaskPredictions
from headwise.heads.importance import HeadImportance

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
