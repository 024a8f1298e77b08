"""From runs along an axis to plots: a mean over seeds with its interval for every point."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwise.experiments.comparison.grouping import Seeds
from headwise.experiments.story.points import AxisRuns, Lines
from headwise.metrics import SeedScores

# The seeds of a point to a number for each; None if they do not have it.
Values = Callable[[Seeds], list[float] | None]


@dataclass(frozen=True)
class Places:
    """Where the points of an axis stand."""

    x: str
    """What the axis is called."""
    at: Mapping[str, float]
    """Label -> place."""
    categories: tuple[str, ...] | None = None
    """The labels, where places say no more than their order."""

    @classmethod
    def of(cls, x: str, labels: Sequence[str]) -> Places:
        """At the numbers that the labels are, or one after the other."""
        numbers = [_number(label) for label in labels]
        if None in numbers:
            return cls(x, {label: place for place, label in enumerate(labels)}, tuple(labels))
        return cls(x, {label: number for label, number in zip(labels, numbers, strict=True) if number is not None})


def plot_of(runs: AxisRuns, lines: Lines, places: Places, *, y: str, values: Values, about: str = "") -> dict[str, Any]:
    """One plot: a series for each system, its points from left to right; None where a point is not there.

    Args:
        runs: where the lines come from.
        lines: what to plot.
        places: of the points.
        y: what the values are called.
        values: what is plotted.
        about: what the title says beside the sweep's.
    """
    found = {
        system or name_of(points): {
            label: scores for label in runs.labels if (scores := _scores(points.get(label), values)) is not None
        }
        for system, points in lines.systems.items()
    }
    # All series have the same places: a line must not run straight across a point that is not there.
    there = [label for label in runs.labels if any(label in points for points in found.values())]
    there.sort(key=lambda label: places.at[label])
    counts = [len(scores.values) for points in found.values() for scores in points.values()]
    title = ": ".join(part for part in (runs.sweep.title, lines.where, about) if part)
    return {
        "title": title,
        "x": places.x,
        "y": y,
        "categories": None if places.categories is None else list(places.categories),
        "series": [_series(name, places, there, points) for name, points in found.items() if points],
        "notes": [*_notes(counts), *_uneven(runs, lines), *runs.notes],
    }


def name_of(points: Mapping[str, Seeds]) -> str:
    """A name for the one system of a sweep: its guides."""
    for seeds in points.values():
        for run in seeds.values():
            guides = run.recipe.get("guides")
            if guides:
                return "+".join(guides)
    return "plain"


def _scores(seeds: Seeds | None, values: Values) -> SeedScores | None:
    found = values(seeds) if seeds else None
    return SeedScores.of(found) if found else None


def _series(name: str, places: Places, labels: Sequence[str], points: Mapping[str, SeedScores]) -> dict[str, Any]:
    scores = [points.get(label) for label in labels]
    return {"name": name, "x": [places.at[label] for label in labels]} | {
        key: [None if each is None else getattr(each, key) for each in scores] for key in ("mean", "low", "high")
    }


def _notes(counts: Sequence[int]) -> list[str]:
    """What the points are means of."""
    fewest, most = min(counts, default=0), max(counts, default=0)
    if most == 0:
        return []
    if most == 1:
        return ["One seed: nothing is known about other seeds, so there is no interval."]
    seeds = str(most) if fewest == most else f"{fewest} to {most}"
    return [f"Means over {seeds} seeds with 95 % t intervals{'; of one seed without' if fewest == 1 else ''}."]


def _uneven(runs: AxisRuns, lines: Lines) -> list[str]:
    """Points that are not means over the same seeds as the others of their place."""
    told: list[str] = []
    for label in runs.labels:
        seeds = {system: set(points.get(label, {})) for system, points in lines.systems.items()}
        everyone = set().union(*seeds.values())
        fewer = [f"{system} {len(own)} of {len(everyone)}" for system, own in seeds.items() if own < everyone]
        told += [f"{runs.axis} {label}: {', '.join(fewer)}"] if fewer else []
    if not told:
        return []
    return [f"Not all systems have the same seeds, so their means are not quite comparable ({'; '.join(told)})."]


def _number(label: str) -> float | None:
    try:
        number = float(label)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
