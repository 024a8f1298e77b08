"""The D-scores of a pruning curve, how sure they are, and what they would be by chance.

Shapes: K steps of the curve, T tasks, V = 3 variants of the score.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy

from headwise.experiments.head_studies.head_files import several
from headwise.experiments.head_studies.prune_curve import ASCENDING, PruneCurve
from headwise.heads.dissociation import VARIANTS, Dissociation, dissociation, over_percents
from headwise.heads.dissociation_tests import (
    DissociationIntervals,
    NullDissociation,
    bootstrap_dissociation,
    null_dissociation,
)

NAME = "dissociation"
# In place of the name of a task; no task can be called so.
MEAN = "(mean)"


@dataclass(frozen=True, eq=False)
class CurveDissociation:
    """The D-scores of a curve."""

    curve: PruneCurve
    seed: int
    steps: tuple[Dissociation, ...]
    """[K]"""
    mean: Dissociation
    """Over the steps."""
    intervals: DissociationIntervals
    random: NullDissociation | None
    layer_matched: NullDissociation | None
    ascending: tuple[Dissociation, ...]
    """[K], and the mean over steps last; none if the curve has no such control."""
    missing: dict[str, str]
    """The controls that are not there, and why."""

    @property
    def undefined(self) -> dict[str, str]:
        """Tasks that lack a score, and why."""
        return self.mean.undefined

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON; null where there is no number."""
        curve, settings = self.curve, self.curve.settings
        within = self.intervals.as_dict()
        nulls = {
            name: None if null is None else null.as_dict()
            for name, null in (("random", self.random), ("layer_matched", self.layer_matched))
        }
        steps = [
            {
                "percent": curve.percent(step),
                "heads": curve.counts[step],
                **each.as_dict(),
                "interval": within["percentages"][step],
                "null": {name: null and null["percentages"][step] for name, null in nulls.items()},
                "ascending": self.ascending[step].as_dict() if self.ascending else None,
            }
            for step, each in enumerate(self.steps)
        ]
        mean = {
            **self.mean.as_dict(),
            "interval": within["mean"],
            "null": {name: null and null["mean"] for name, null in nulls.items()},
            "ascending": self.ascending[-1].as_dict() if self.ascending else None,
        }
        return {
            "run": dict(curve.run),
            "tasks": list(curve.tasks),
            "metrics": curve.metrics,
            "split": settings.split,
            "examples": {task: len(labels) for task, labels in curve.labels.items()},
            "order": settings.order,
            "exact": settings.exact,
            "pruned_for": list(curve.pruned_for),
            "base": curve.base.tolist(),
            "base_interval": within["base"],
            "resamples": self.intervals.resamples,
            "dropped": self.intervals.dropped,
            "seed": self.seed,
            "null_draws": {
                name: null and {"masks": null["masks"], "draws": null["draws"]} for name, null in nulls.items()
            },
            "missing": self.missing,
            "steps": steps,
            "mean": mean,
        }

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row for each step, variant and task; the means are rows of their own."""
        for place, each in enumerate((*self.steps, self.mean)):
            whole = place == len(self.steps)
            within = self.intervals.mean_scores if whole else self.intervals.scores
            low, high = (bound if whole else bound[place] for bound in (within.low, within.high))
            for (variant, task), score in numpy.ndenumerate(each.scores):
                yield {
                    "percent": MEAN if whole else self.curve.percent(place),
                    "heads": None if whole else self.curve.counts[place],
                    "variant": VARIANTS[variant],
                    "task": (*each.tasks, MEAN)[task],
                    "score": _number(score),
                    "low": _number(low[variant, task]),
                    "high": _number(high[variant, task]),
                    **self._controls(place, (variant, task)),
                }

    def _controls(self, place: int, at: tuple[int, ...]) -> dict[str, float | None]:
        found: dict[str, float | None] = {}
        for name, null in (("random", self.random), ("layer_matched", self.layer_matched)):
            part = null and (*null.percentages, null.mean)[place]
            found[name] = _number(part.mean[at]) if part else None
            found[f"{name}_p"] = _number(part.p[at]) if part and part.p is not None else None
        found["ascending"] = _number(self.ascending[place].scores[at]) if self.ascending else None
        return found


def dissociate(curve: PruneCurve, *, resamples: int, seed: int = 0) -> CurveDissociation:
    """The D-scores of a curve; at least two tasks.

    Args:
        curve: the curve.
        resamples: how often the evaluated examples are drawn for the intervals.
        seed: decides these draws.
    """
    several(curve.tasks, "a D-score")
    observed = curve.matrix(curve.settings.order)
    steps = _of_matrix(curve, observed)
    random, matched, missing = _nulls(curve, observed, seed)
    ascending: tuple[Dissociation, ...] = ()
    if curve.settings.order != ASCENDING and ASCENDING in curve.settings.orders:
        ascending = _of_matrix(curve, curve.matrix(ASCENDING))
        ascending = (*ascending, over_percents(ascending))
    return CurveDissociation(
        curve=curve,
        seed=seed,
        steps=steps,
        mean=over_percents(steps),
        intervals=bootstrap_dissociation(
            curve.task_predictions(), pruned=curve.pruned_for, resamples=resamples, seed=seed
        ),
        random=random,
        layer_matched=matched,
        ascending=ascending,
        missing=missing,
    )


def _of_matrix(curve: PruneCurve, matrices: Any) -> tuple[Dissociation, ...]:
    return tuple(dissociation(matrix, curve.base, tasks=curve.tasks) for matrix in matrices)


def _nulls(
    curve: PruneCurve, observed: Any, seed: int
) -> tuple[NullDissociation | None, NullDissociation | None, dict[str, str]]:
    repeats, tasks = curve.settings.repeats, len(curve.tasks)
    if not repeats:
        reason = "the curve was made without random masks"
        return None, None, {"random": reason, "layer_matched": reason}
    options: Mapping[str, Any] = {"observed": observed, "tasks": curve.tasks, "seed": seed}
    matched = null_dissociation(curve.layer_matched, curve.base, **options)
    if len(curve.pruned_for) < tasks:
        # A random mask for every task would give rows that the observed matrix has not.
        return None, matched, {"random": "not every task's heads were pruned"}
    if repeats < tasks:
        reason = f"{tasks} tasks need {tasks} random masks for each step: make the curve with --random {tasks}"
        return None, matched, {"random": reason}
    return null_dissociation(curve.random, curve.base, **options), matched, {}


def _number(value: Any) -> float | None:
    return float(value) if numpy.isfinite(value) else None
