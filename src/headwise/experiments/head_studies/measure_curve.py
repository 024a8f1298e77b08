"""Measure a pruning curve: importance, masks, and every task under all of them in one pass; or find one on disk.

Shapes: N layers, H heads, P masks, T tasks, n examples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from headwise.attention import encoder_of, family_of
from headwise.errors import InputError, choices
from headwise.experiments.apply import Loaded, RunTasks, Source
from headwise.experiments.head_studies.head_files import (
    Examples,
    again,
    damaged,
    identity,
    labelled_examples,
    read_answers,
    write_answers,
)
from headwise.experiments.head_studies.head_importance import task_importance
from headwise.experiments.head_studies.head_schemas import CurveFile
from headwise.experiments.head_studies.prune_curve import NAME, CurveSettings, PruneCurve, Pruned, planned_masks
from headwise.metrics import score
from headwise.training import Listener, predictions_of
from headwise.training.predict import predict_under_masks

# Setting -> how its two values are typed.
FLAGS = {"controls": ("--no-controls", "--controls"), "exact": ("--one-shot", "--exact")}


def measure_curve(
    tasks: RunTasks, settings: CurveSettings, source: Source, *, batch: int | None = None, listener: Listener
) -> PruneCurve:
    """Silence heads and see what is left of every task.

    Where we differ from the authors' code: the base is always measured; percentages keep the order in which they are
    given; tasks are found by their whole names; random masks obey the same protection as ranked ones.

    Args:
        tasks: a run with all its tasks.
        settings: what to measure.
        source: where the data are.
        batch: examples at a time in the evaluation; as in training if not given.
        listener: shows progress.
    """
    shape = _shape(tasks)
    settings = replace(settings, task=_pruned_for(tasks, settings))
    counts = settings.counts(shape)
    ranking = labelled_examples(_some(tasks.runs, settings.task), settings.importance_split, source)
    evaluated = labelled_examples(tasks.runs, settings.split, source, settings.limit)
    importance = {
        task: task_importance(task, tasks.runs[task], examples, settings.importance, listener)
        for task, examples in ranking.items()
    }
    masks = planned_masks(
        importance,
        settings,
        lambda task, mask: (
            task_importance(task, tasks.runs[task], ranking[task], settings.importance, listener, mask).scores
        ),
    )
    predictions = {
        task: _predictions(task, tasks.runs[task], examples, masks, batch, listener)
        for task, examples in evaluated.items()
    }
    metrics = {task: run.task.primary for task, run in tasks.runs.items()}
    values = [_scores(metrics[task], predictions[task], examples.labels) for task, examples in evaluated.items()]
    return PruneCurve(
        run=identity(tasks.folder),
        metrics=metrics,
        settings=settings,
        shape=shape,
        counts=counts,
        masks=masks,
        values=numpy.array(values).T,
        importance=importance,
        labels={task: examples.labels for task, examples in evaluated.items()},
        predictions=predictions,
    )


def write_curve(folder: Path, curve: PruneCurve) -> list[Path]:
    """Write a curve; returns the paths of its files."""
    return write_answers(folder, NAME, curve.as_dict(), rows=curve.rows(), arrays=curve.arrays())


def find_curve(folder: Path, run: Path, tasks: tuple[str, ...], asked: Mapping[str, Any]) -> PruneCurve | None:
    """The curve of a run that lies in a folder; None if there is none.

    Args:
        folder: where to look.
        run: the run; a curve of another is refused.
        tasks: its tasks.
        asked: settings that the curve must have, by the names of `CurveSettings`.
    """
    found = read_answers(folder, NAME, run, CurveFile)
    if found is None:
        return None
    path, remedy = folder / f"{NAME}.json", again(NAME, run, folder)
    try:
        curve = PruneCurve.from_files(*found)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise damaged(NAME, run, folder, error) from error
    if curve.tasks != tasks:
        raise InputError(f"{path} is about {', '.join(curve.tasks)}, the run about {', '.join(tasks)}: {remedy}.")
    for name, value in asked.items():
        theirs = getattr(curve.settings, name)
        if theirs != value and not (name == "task" and set(theirs) == set(value)):
            raise InputError(
                f"{path} was made with {_option(name, theirs)}, not {_option(name, value)}: leave that out, or "
                f"{remedy} and {_option(name, value)}."
            )
    return curve


def _option(name: str, value: Any) -> str:
    """A setting as it is typed."""
    if isinstance(value, bool):
        return FLAGS[name][value]
    option = f"--{name.replace('_', '-')}"
    words = value if isinstance(value, tuple) else (value,)
    typed = (f"{word:g}" if isinstance(word, float) else str(word) for word in words)
    return f"no {option}" if value is None else f"{option} {' '.join(typed)}"


def _shape(tasks: RunTasks) -> tuple[int, int]:
    """Layers and heads; all must be there."""
    tasks.refuse_pruned("a curve")
    return family_of(encoder_of(tasks.first.model)).shape


def _pruned_for(tasks: RunTasks, settings: CurveSettings) -> tuple[str, ...]:
    """In the order of the run, by whole names."""
    for task in settings.task:
        if task not in tasks.runs:
            raise InputError(f"--task {task}: {choices(task, tasks.runs)}.")
    return tuple(task for task in tasks.runs if not settings.task or task in settings.task)


def _some(runs: Mapping[str, Loaded], names: tuple[str, ...]) -> dict[str, Loaded]:
    return {name: runs[name] for name in names}


def _predictions(
    task: str, run: Loaded, examples: Examples, masks: tuple[Pruned, ...], batch: int | None, listener: Listener
) -> NDArray[Any]:
    """[P,n] for every mask, each different one computed once."""
    different, places = numpy.unique(numpy.stack([each.mask for each in masks]), axis=0, return_inverse=True)
    listener.start(f"{task} under {len(different)} masks", len(examples))
    logits = predict_under_masks(
        run.model,
        examples.encoded,
        examples.collate,
        different,
        batch=batch or run.recipe.training.per_device_eval_batch_size,
        after_batch=listener.advance,
    )  # [P',n,C]
    listener.end()
    kind = numpy.float32 if run.task.kind == "regression" else numpy.int32
    return numpy.stack([predictions_of(each) for each in logits]).astype(kind)[places.ravel()]


def _scores(metric: str, predictions: NDArray[Any], labels: NDArray[Any]) -> list[float]:
    """[P] the metric under every mask."""
    return [score([metric], row, labels)[metric] for row in predictions]
