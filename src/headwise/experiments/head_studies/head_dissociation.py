"""`heads dissociation`: the D-scores of a pruning curve, their intervals, and the scores to expect by chance.

Shapes: K steps of the curve, T tasks, V = 3 variants of the score. What has K+1 entries has the mean over steps last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

from headwise.errors import Stopped
from headwise.experiments import record
from headwise.experiments.apply import Source, load_tasks
from headwise.experiments.head_studies.curve_masks import ASCENDING, CurveSettings
from headwise.experiments.head_studies.head_files import (
    CURVE,
    DISSOCIATION,
    check_file,
    new_results,
    result_folder,
    write_result,
)
from headwise.experiments.head_studies.head_importance import several
from headwise.experiments.head_studies.prune_curve import PruneCurve, find_curve, measure_curve, write_curve
from headwise.heads.dissociation import (
    VARIANTS,
    Dissociation,
    DissociationIntervals,
    NullDissociation,
    bootstrap_dissociation,
    dissociation,
    null_dissociation,
    over_percents,
    plain,
)
from headwise.training import Listener, Silence

# Instead of the name of a task, which cannot have parentheses.
MEAN = "(mean)"


@dataclass(frozen=True, eq=False)
class CurveDissociation:
    """The D-scores of a curve."""

    curve: PruneCurve
    seed: int
    steps: tuple[Dissociation, ...]
    """[K+1]"""
    intervals: DissociationIntervals
    nulls: dict[str, NullDissociation | None]
    """By the kind of mask, random and layer_matched; None without such masks."""
    ascending: tuple[Dissociation, ...]
    """[K+1] the scores of the least important heads; empty without that control."""
    missing: dict[str, str]
    """The kinds of mask without a result, and why."""

    @property
    def mean(self) -> Dissociation:
        """The mean over steps."""
        return self.steps[-1]

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON; null where there is no number."""
        curve, settings, tasks = self.curve, self.curve.settings, self.curve.tasks
        parts = [
            {
                **each.as_dict(),
                "interval": self.intervals.as_dict(step, tasks),
                "null": {name: null and null.as_dict(step, tasks) for name, null in self.nulls.items()},
                "ascending": self.ascending[step].as_dict() if self.ascending else None,
            }
            for step, each in enumerate(self.steps)
        ]
        return {
            "run": dict(curve.run),
            "tasks": list(tasks),
            "metrics": curve.metrics,
            "split": settings.split,
            "examples": {task: len(labels) for task, labels in curve.labels.items()},
            "order": settings.order,
            "exact": settings.exact,
            "pruned_for": list(curve.pruned_for),
            "base": curve.base.tolist(),
            "base_interval": {"low": plain(self.intervals.base.low), "high": plain(self.intervals.base.high)},
            "resamples": self.intervals.resamples,
            "dropped": self.intervals.dropped,
            "seed": self.seed,
            "null_draws": {
                name: null and {"masks": null.masks, "draws": null.draws} for name, null in self.nulls.items()
            },
            "missing": self.missing,
            "steps": [
                {"percent": curve.percent(step), "heads": heads, **parts[step]}
                for step, heads in enumerate(curve.counts)
            ],
            "mean": parts[-1],
        }

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row for each step, variant and task; the means are rows too."""
        for step, each in enumerate(self.steps):
            is_mean = step == len(self.curve.counts)
            for (variant, task), score in numpy.ndenumerate(each.scores):
                at = (step, variant, task)
                row: dict[str, Any] = {
                    "percent": MEAN if is_mean else self.curve.percent(step),
                    "heads": None if is_mean else self.curve.counts[step],
                    "variant": VARIANTS[variant],
                    "task": (*each.tasks, MEAN)[task],
                    "score": _number(score),
                    "low": _number(self.intervals.scores.low[at]),
                    "high": _number(self.intervals.scores.high[at]),
                }
                for name, null in self.nulls.items():
                    row[name] = None if null is None else _number(null.mean[at])
                    row[f"{name}_p"] = None if null is None or null.p is None else _number(null.p[at])
                row["ascending"] = _number(self.ascending[step].scores[variant, task]) if self.ascending else None
                yield row


def _number(value: Any) -> float | None:
    return float(value) if numpy.isfinite(value) else None


def dissociate(curve: PruneCurve, *, resamples: int, seed: int = 0) -> CurveDissociation:
    """The D-scores of a curve of two tasks or more.

    Args:
        curve: the curve.
        resamples: how often the evaluated examples are drawn for the intervals.
        seed: decides these draws.
    """
    several(curve.tasks, "a D-score")
    settings, tasks = curve.settings, len(curve.tasks)

    def scores(order: str) -> tuple[Dissociation, ...]:
        steps = [dissociation(matrix, curve.base, tasks=curve.tasks) for matrix in curve.matrix(order)]
        return (*steps, over_percents(steps))

    missing = {}
    if not settings.repeats:
        missing = dict.fromkeys(("random", "layer_matched"), "the curve was measured without random masks")
    elif len(curve.pruned_for) < tasks:
        # A random mask for every task would give rows that the observed matrix does not have.
        missing["random"] = "not every task's heads were pruned"
    elif settings.repeats < tasks:
        missing["random"] = f"{tasks} tasks need {tasks} random masks for each step: measure the curve with so many"
    observed = curve.matrix(settings.order)
    nulls = {
        name: None if name in missing else null_dissociation(matrix, curve.base, observed=observed, seed=seed)
        for name, matrix in (("random", curve.random), ("layer_matched", curve.layer_matched))
    }
    return CurveDissociation(
        curve=curve,
        seed=seed,
        steps=scores(settings.order),
        intervals=bootstrap_dissociation(
            curve.task_predictions(), pruned=curve.pruned_for, resamples=resamples, seed=seed
        ),
        nulls=nulls,
        ascending=scores(ASCENDING) if ASCENDING in settings.orders and settings.order != ASCENDING else (),
        missing=missing,
    )


def study_dissociation(
    run: Path,
    required: Mapping[str, Any],
    source: Source,
    *,
    resamples: int = 1000,
    seed: int = 0,
    batch: int | None = None,
    output: Path | None = None,
    overwrite: bool = False,
    listener: Listener | None = None,
) -> tuple[CurveDissociation, list[Path]]:
    """Compute the D-scores of a run; writes dissociation.json and dissociation.csv.

    The curve in the folder is used; without one it is measured first and written too.

    Args:
        run: a finished run on several tasks.
        required: settings that the curve must have, by the names of `CurveSettings`.
        source: the location of the data.
        resamples: how often the evaluated examples are drawn for the intervals.
        seed: decides these draws, and the masks of a curve that is measured now.
        batch: examples at a time in the evaluation.
        output: the folder of the results; RUN/heads if None.
        overwrite: replace earlier D-scores; a curve is never replaced.
        listener: receives progress.
    """
    listener, folder = listener or Silence(), result_folder(run, output)
    settings = CurveSettings(**required, seed=seed)
    with new_results(run, folder, [folder / f"{DISSOCIATION}.json"], overwrite=overwrite):
        recipe = record.recipe_of(record.read(run), run)
        tasks = tuple(recipe.parts)
        several(tasks, "a D-score")
        curve = find_curve(folder, run, tasks, required)
        if curve is None:
            check_file(folder / f"{CURVE}.json")
            curve = measure_curve(load_tasks(run), settings, source, batch=batch, listener=listener)
            write_curve(folder, curve)
            listener.log(f"the curve is saved in {folder}")
        else:
            steps = ", ".join(curve.settings.label(step, count) for step, count in enumerate(curve.counts))
            examples = ", ".join(f"{task} {len(labels)}" for task, labels in curve.labels.items())
            listener.log(
                f"with the curve in {folder}: {curve.settings.order}, pruned {steps}, {curve.settings.split} examples: "
                f"{examples}"
            )
        try:
            scores = dissociate(curve, resamples=resamples, seed=seed)
            return scores, write_result(folder, DISSOCIATION, scores.as_dict(), rows=scores.rows())
        except KeyboardInterrupt:
            raise Stopped(f"{folder / CURVE}.json is kept, and the same command uses it") from None
