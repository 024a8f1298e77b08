"""`heads prune-curve`: what every task of a run loses when the heads that one of them needs are silenced.

Shapes: N layers, H heads, K steps of the curve, S tasks whose heads are pruned and T tasks that are evaluated (the same
ones, in the same order; a row of NaN for a task whose heads are not pruned), R random masks, P masks in all, n
examples.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray
from pydantic import TypeAdapter

from headwise.attention import encoder_of, family_of
from headwise.documents import plain
from headwise.errors import InputError, choices
from headwise.experiments.apply import RunTasks, Source
from headwise.experiments.head_studies.curve_masks import (
    MATCHED,
    RANDOM,
    CurveSettings,
    Pruned,
    planned_masks,
    setting_text,
)
from headwise.experiments.head_studies.head_files import BROKEN, CURVE, damaged, identity, read_result, write_result
from headwise.experiments.head_studies.head_importance import labelled_examples, task_importance
from headwise.heads.dissociation import TaskPredictions
from headwise.heads.importance import HeadImportance
from headwise.heads.pruning import Mask
from headwise.metrics import score
from headwise.training import Listener, predictions_of
from headwise.training.predict import predict_under_masks

Values = NDArray[numpy.float64]
# What the file says of a mask beside its heads.
DESCRIBED = ("order", "step", "pruned_for", "repeat")

# -- the curve ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PruneCurve:
    """The metric of every task under every mask."""

    run: Mapping[str, Any]
    """The identity of the run."""
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
    """Task -> [n] true classes or numbers."""
    predictions: dict[str, NDArray[Any]]
    """Task -> [P,n] predicted classes or numbers."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """[T] the names of the tasks."""
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
        """[K,S,R,T]; masks of no task are in the first row."""
        values = numpy.full((len(self.counts), len(self.tasks), repeats, len(self.tasks)), numpy.nan)
        for each, row in zip(self.masks, self.values, strict=True):
            if each.order == order:
                source = 0 if each.pruned_for is None else self.tasks.index(each.pruned_for)
                values[each.step, source, each.repeat or 0] = row
        return values

    def task_predictions(self) -> dict[str, TaskPredictions]:
        """For the bootstrap: predictions by task, with all heads and under the masks [K,S] of `settings.order`."""
        index = {(each.order, each.step, each.pruned_for): index for index, each in enumerate(self.masks)}
        rows = [
            [index[self.settings.order, step, task] for task in self.pruned_for] for step in range(len(self.counts))
        ]
        return {
            task: TaskPredictions(metric, self.labels[task], self.predictions[task][0], self.predictions[task][rows])
            for task, metric in self.metrics.items()
        }

    def percent(self, step: int | None) -> float | None:
        """The percentage of a step; None without a mask, and for numbers of heads."""
        return None if step is None or not self.settings.percent else self.settings.percent[step]

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON; null in the rows of tasks whose heads were not pruned."""
        settings = self.settings
        return plain(
            {
                "run": self.run,
                "tasks": self.tasks,
                "metrics": self.metrics,
                "split": settings.split,
                "examples": {task: len(labels) for task, labels in self.labels.items()},
                "percents": settings.percent or None,
                "counts": self.counts,
                "shape": self.shape,
                "pruned_for": self.pruned_for,
                "settings": settings,
                "base": self.base,
                "matrix": {order: self.matrix(order) for order in settings.orders},
                "random": self.random,
                "layer_matched": self.layer_matched,
                "masks": [
                    {name: getattr(each, name) for name in DESCRIBED}
                    | {"heads": numpy.argwhere(each.mask), "values": values}
                    for each, values in zip(self.masks, self.values, strict=True)
                ],
                "importance": self.importance,
            }
        )

    @classmethod
    def from_files(cls, content: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> PruneCurve:
        """The curve that `write_curve` wrote."""
        shape = (int(content["shape"][0]), int(content["shape"][1]))
        masks = []
        for each in content["masks"]:
            mask = numpy.zeros(shape, dtype=bool)
            for head in each["heads"]:
                mask[tuple(head)] = True
            masks.append(Pruned(**{name: each[name] for name in DESCRIBED}, mask=mask))
        curve = cls(
            run=content["run"],
            metrics=dict(content["metrics"]),
            settings=TypeAdapter(CurveSettings).validate_json(json.dumps(content["settings"]), strict=True),
            shape=shape,
            counts=tuple(content["counts"]),
            masks=tuple(masks),
            values=numpy.array([each["values"] for each in content["masks"]], dtype=numpy.float64),
            importance={task: HeadImportance.from_dict(each) for task, each in content["importance"].items()},
            labels={task: arrays[f"labels/{task}"] for task in content["metrics"]},
            predictions={task: arrays[f"predictions/{task}"] for task in content["metrics"]},
        )
        if len(curve.counts) != len(curve.settings.steps):
            raise ValueError(f"counts has {len(curve.counts)} steps, and the settings {len(curve.settings.steps)}")
        for task, predictions in curve.predictions.items():
            if predictions.shape != (len(masks), len(curve.labels[task])):
                raise ValueError(f"{task} has predictions of shape {predictions.shape}")
        return curve

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


def measure_curve(
    tasks: RunTasks, settings: CurveSettings, source: Source, *, batch: int | None = None, progress: Listener
) -> PruneCurve:
    """Silence heads and evaluate every task.

    Differences from the authors' code: the base is always measured; percentages keep the order in which they are
    given; tasks are matched by their whole names; random masks obey the same protection as ranked ones.

    Args:
        tasks: a run with all its tasks.
        settings: the options of the curve.
        source: the location of the data.
        batch: examples at a time in the evaluation; as in training if None.
        progress: shows how far it is.
    """
    tasks.refuse_pruned("a curve")
    shape = family_of(encoder_of(tasks.first.model)).shape
    for task in settings.task:
        if task not in tasks.runs:
            raise InputError(f"task={task}: {choices(task, tasks.runs)}.")
    settings = replace(settings, task=tuple(task for task in tasks.runs if task in (settings.task or tasks.runs)))
    counts = settings.counts(shape)
    ranking = labelled_examples({task: tasks.runs[task] for task in settings.task}, settings.importance_split, source)
    evaluated = labelled_examples(tasks.runs, settings.split, source, settings.limit)

    def importance_of(task: str, mask: Mask | None = None) -> HeadImportance:
        return task_importance(task, tasks.runs[task], ranking[task], settings.importance, progress, mask)

    importance = {task: importance_of(task) for task in ranking}
    masks = planned_masks(importance, settings, lambda task, mask: importance_of(task, mask).scores)
    different, where = numpy.unique(numpy.stack([each.mask for each in masks]), axis=0, return_inverse=True)
    predictions, values = {}, []
    for task, examples in evaluated.items():
        run = tasks.runs[task]
        progress.start(f"{task} under {len(different)} masks", len(examples))
        logits = predict_under_masks(
            run.model,
            examples.encoded,
            examples.collate,
            different,
            batch=batch or run.recipe.training.per_device_eval_batch_size,
            after_batch=progress.advance,
        )  # [P',n,C]
        progress.end()
        kind = numpy.float32 if run.task.kind == "regression" else numpy.int32
        predictions[task] = numpy.stack([predictions_of(each) for each in logits]).astype(kind)[where.ravel()]
        metric = run.task.primary
        values.append([score([metric], row, examples.labels)[metric] for row in predictions[task]])
    return PruneCurve(
        run=identity(tasks.folder),
        metrics={task: run.task.primary for task, run in tasks.runs.items()},
        settings=settings,
        shape=shape,
        counts=counts,
        masks=masks,
        values=numpy.array(values).T,
        importance=importance,
        labels={task: examples.labels for task, examples in evaluated.items()},
        predictions=predictions,
    )


# -- files -------------------------------------------------------------------------------------------------------------


def write_curve(folder: Path, curve: PruneCurve) -> list[Path]:
    """Write prune-curve.json, .csv and .safetensors; returns their paths."""
    arrays = {f"labels/{task}": labels for task, labels in curve.labels.items()}
    arrays |= {f"predictions/{task}": predictions for task, predictions in curve.predictions.items()}
    return write_result(folder, CURVE, curve.as_dict(), rows=curve.rows(), arrays=arrays)


def find_curve(folder: Path, run: Path, tasks: tuple[str, ...], required: Mapping[str, Any]) -> PruneCurve | None:
    """The curve of a run in a folder, or None if there is none.

    Args:
        folder: the folder of the results.
        run: the run; a curve of another run is refused.
        tasks: its tasks.
        required: settings that the curve must have, by the names of `CurveSettings`.
    """
    result, path = read_result(folder, CURVE, run), folder / f"{CURVE}.json"
    if result is None:
        return None
    try:
        curve = PruneCurve.from_files(*result)
    except BROKEN as error:
        raise damaged(folder, CURVE, error) from error
    if curve.tasks != tasks:
        raise InputError(
            f"{path} is about {', '.join(curve.tasks)}, the run about {', '.join(tasks)}: measure it again and "
            "replace it."
        )
    for name, value in required.items():
        theirs = getattr(curve.settings, name)
        if theirs != value and not (name == "task" and set(theirs) == set(value)):
            raise InputError(
                f"{path} was measured with {setting_text(name, theirs)}, not {setting_text(name, value)}: leave that "
                f"out, or measure the curve again with {setting_text(name, value)} and replace it."
            )
    return curve
