"""`heads dissociation`: the D-scores of a pruning curve, their intervals, and the scores to expect by chance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from headwise.documents import finite
from headwise.errors import Stopped
from headwise.experiments import record
from headwise.experiments.apply import Source, load_tasks
from headwise.experiments.head_studies.curve_masks import ASCENDING, CurveSettings, step_label
from headwise.experiments.head_studies.head_files import CURVE, DISSOCIATION, check_file, write_result
from headwise.experiments.head_studies.head_importance import several
from headwise.experiments.head_studies.prune_curve import PruneCurve, find_curve, measure_curve, write_curve
from headwise.heads.dissociation import (
    VARIANTS,
    bootstrap_dissociation,
    dissociations,
    null_dissociation,
)
from headwise.training import Listener

# Instead of the name of a task, which cannot have parentheses.
MEAN = "(mean)"


def dissociate(curve: PruneCurve, *, resamples: int, seed: int = 0) -> dict[str, Any]:
    """The D-scores of a curve of two tasks or more: the content of dissociation.json.

    Args:
        curve: the curve.
        resamples: how often the evaluated examples are drawn for the intervals.
        seed: decides these draws.
    """
    tasks, settings, base = curve.tasks, curve.settings, curve.base
    several(tasks, "a D-score")
    missing = {}
    if not settings.repeats:
        missing = dict.fromkeys(("random", "layer_matched"), "the curve was measured without random masks")
    elif len(curve.pruned_for) < len(tasks):
        # A random mask for every task would give rows that the observed matrix does not have.
        missing["random"] = "not every task's heads were pruned"
    elif settings.repeats < len(tasks):
        count = len(tasks)
        missing["random"] = f"{count} tasks need {count} random masks for each step: measure the curve with so many"
    observed = curve.matrix(settings.order)
    nulls = {
        name: None if name in missing else null_dissociation(matrix, base, observed=observed, seed=seed)
        for name, matrix in (("random", curve.random), ("layer_matched", curve.layer_matched))
    }
    intervals = bootstrap_dissociation(
        curve.task_predictions(), pruned=curve.pruned_for, resamples=resamples, seed=seed
    )

    def scores(order: str) -> list[dict[str, Any]]:
        """Of every step and, last, of their mean."""
        return [each.as_dict() for each in dissociations(curve.matrix(order), base, tasks=tasks)]

    control = ASCENDING in settings.orders and settings.order != ASCENDING
    ascending = scores(ASCENDING) if control else [None] * (len(curve.counts) + 1)
    *steps, mean = (
        {
            **each,
            "interval": intervals.as_dict(step, tasks),
            "null": {name: null and null.as_dict(step, tasks) for name, null in nulls.items()},
            "ascending": ascending[step],
        }
        for step, each in enumerate(scores(settings.order))
    )
    return {
        "run": dict(curve.run),
        "tasks": list(tasks),
        "metrics": curve.metrics,
        "split": settings.split,
        "examples": {task: len(labels) for task, labels in curve.labels.items()},
        "order": settings.order,
        "exact": settings.exact,
        "pruned_for": list(curve.pruned_for),
        "base": base.tolist(),
        "base_interval": finite(intervals.base),
        "resamples": intervals.resamples,
        "dropped": intervals.dropped,
        "seed": seed,
        "null_draws": {name: null and {"masks": null.masks, "draws": null.draws} for name, null in nulls.items()},
        "missing": missing,
        "steps": [
            {"percent": curve.percent(step), "heads": heads, **steps[step]} for step, heads in enumerate(curve.counts)
        ],
        "mean": mean,
    }


def dissociation_rows(content: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of dissociation.csv: one for each step, variant and task; the means are rows too."""
    mean = {"percent": MEAN, "heads": None, **content["mean"]}
    for step, variant, task in product((*content["steps"], mean), VARIANTS, (*content["tasks"], MEAN)):

        def of(part: Any, variant: str = variant, task: str = task) -> Any:
            """The score of this row in a part of the step, None if there is no such part."""
            scores = part and part[variant]
            return scores and (scores["mean"] if task == MEAN else scores["tasks"][task])

        row: dict[str, Any] = {"percent": step["percent"], "heads": step["heads"], "variant": variant, "task": task}
        row |= {"score": of(step), "low": of(step["interval"]["low"]), "high": of(step["interval"]["high"])}
        for name, null in step["null"].items():
            row |= {name: of(null and null["mean"]), f"{name}_p": of(null and null["p"])}
        yield row | {"ascending": of(step["ascending"])}


def study_dissociation(
    run: Path,
    folder: Path,
    required: Mapping[str, Any],
    source: Source,
    *,
    resamples: int = 1000,
    seed: int = 0,
    batch: int | None = None,
    progress: Listener,
) -> tuple[dict[str, Any], list[Path]]:
    """Compute the D-scores of a run and write them; returns them and their files.

    The curve in the folder is used; without one it is measured first and written too.

    Args:
        run: a finished run on several tasks.
        folder: the folder of the curve and of the results.
        required: settings that the curve must have, by the names of `CurveSettings`.
        source: the location of the data.
        resamples: how often the evaluated examples are drawn for the intervals.
        seed: decides these draws, and the masks of a curve that is measured now.
        batch: examples at a time in the evaluation.
        progress: shows how far it is.
    """
    settings = CurveSettings(**required, seed=seed)
    tasks = tuple(record.recipe_of(record.read(run), run).parts)
    several(tasks, "a D-score")
    curve = find_curve(folder, run, tasks, required)
    if curve is None:
        check_file(folder / f"{CURVE}.json")
        curve = measure_curve(load_tasks(run), settings, source, batch=batch, progress=progress)
        write_curve(folder, curve)
        progress.log(f"the curve is saved in {folder}")
    else:
        steps = ", ".join(step_label(curve.percent(step), count) for step, count in enumerate(curve.counts))
        examples = ", ".join(f"{task} {len(labels)}" for task, labels in curve.labels.items())
        progress.log(
            f"with the curve in {folder}: {curve.settings.order}, pruned {steps}, {curve.settings.split} examples: "
            f"{examples}"
        )
    try:
        scores = dissociate(curve, resamples=resamples, seed=seed)
        return scores, write_result(folder, DISSOCIATION, scores, rows=dissociation_rows(scores))
    except KeyboardInterrupt:
        raise Stopped(f"{folder / CURVE}.json is kept, and the same command uses it") from None
