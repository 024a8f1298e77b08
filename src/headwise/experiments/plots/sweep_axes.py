"""The sweeps that a folder of results holds, and what each of them varies."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwise.errors import InputError
from headwise.experiments import record
from headwise.experiments.comparison.comparison import check_worlds
from headwise.experiments.comparison.comparison_tables import choose_metrics, choose_split, progress_note
from headwise.experiments.comparison.gather import SEED, Asked, Axis, Gathered, Manifest, gather, read_manifest
from headwise.experiments.comparison.grouping import Group, Seeds, choose_dimensions, group
from headwise.experiments.results import FAILED, SWEEPS, check_mark, read_json, run_files
from headwise.experiments.sweeps.sweep_folder import MARK
from headwise.metrics import SeedScores


@dataclass(frozen=True)
class FoundSweep:
    """A sweep with at least one finished run."""

    folder: Path
    title: str
    manifest: Manifest

    def axes(self, wanted: Callable[[str, Axis], bool]) -> list[str]:
        """The names of its axes of some kind, of two points or more."""
        axes = self.manifest.axes.items()
        return [name for name, axis in axes if name != SEED and len(axis.labels) > 1 and wanted(name, axis)]


def found_sweeps(folder: Path, sweep: str | None = None) -> list[FoundSweep]:
    """All sweeps of a folder, or the one that is named; those of which nothing is finished yet are left out.

    Args:
        folder: of `headwise sweep`.
        sweep: the name of one.
    """
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}: give the results of `headwise sweep`.")
    if not (folder / MARK).is_file():
        what = "is a run of `headwise train`" if (folder / record.NAME).is_file() else f"has no {MARK}"
        raise InputError(f"{folder} {what}: expected a folder of results that `headwise sweep` made.")
    check_mark(folder)
    names = sorted(path.stem for path in (folder / SWEEPS).glob("*.json") if not path.name.startswith("."))
    found = [_read(folder, name) for name in ([sweep] if sweep is not None else names)]
    done = {key for key, path in run_files(folder).items() if not path.name.endswith(FAILED)}
    return [each for each in found if any(key in done for key, _ in each.manifest.points)]


def _read(folder: Path, name: str) -> FoundSweep:
    manifest = read_manifest(folder, name)
    if manifest is None:
        raise InputError(f"{folder} holds no sweep {name}: run `headwise sweep` first.")
    title = read_json(folder / SWEEPS / f"{name}.json").get("title")
    return FoundSweep(folder, title if isinstance(title, str) and title else manifest.name, manifest)


# The runs of a sweep along one of its axes: of every system and every point, the seeds that are there.


@dataclass(frozen=True)
class Lines:
    """What belongs into one plot."""

    where: str
    """The labels that all of it has in common, for its title."""
    metric: str
    systems: dict[str, dict[str, Seeds]] = field(default_factory=dict)
    """System -> label on the axis -> runs by seed; the one system of a sweep without systems has no name."""


@dataclass(frozen=True)
class AxisRuns:
    """A sweep along one of its axes."""

    sweep: FoundSweep
    axis: str
    split: str
    lines: tuple[Lines, ...]
    notes: tuple[str, ...]
    """What is missing."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Of the points on the axis."""
        return self.sweep.manifest.axes[self.axis].labels


def runs_along(sweep: FoundSweep, axis: str) -> AxisRuns:
    """Put the runs of a sweep where they belong; refuses, as `headwise compare` does, runs that differ otherwise.

    Args:
        sweep: which.
        axis: the one to go along. The others tell systems apart, if the sweep compares by them or says nothing, or
            plots.
    """
    manifest = sweep.manifest
    others = [name for name in manifest.axes if name not in (SEED, axis)]
    systems = [name for name in others if not manifest.by or name in manifest.by]
    plots = [name for name in others if name not in systems]
    asked = Asked(
        sweep=manifest.name,
        by=tuple(systems) or (axis,),
        within=tuple([*plots, axis] if systems else plots),
    )
    gathered, groups = grouped(sweep, asked)
    split = choose_split([run for each in groups for run in each.runs], None)
    found: dict[tuple[str, str], Lines] = {}
    for each, (metric,) in zip(groups, choose_metrics(groups, split, asked), strict=True):
        where = ", ".join(f"{name} {each.within[name]}" for name in plots)
        lines = found.setdefault((where, metric), Lines(where, metric))
        for label, seeds in each.systems.items():
            system, point = (label, each.within[axis]) if systems else ("", label)
            lines.systems.setdefault(system, {})[point] = seeds
    return AxisRuns(sweep, axis, split, tuple(found.values()), tuple(missing_notes(gathered)))


def grouped(sweep: FoundSweep, asked: Asked) -> tuple[Gathered, list[Group]]:
    """The runs of a sweep in blocks; refuses those that differ in what nobody named."""
    gathered = gather([sweep.folder], sweep.manifest.name)
    dimensions = choose_dimensions(gathered, asked)
    groups = group(gathered, dimensions, asked)
    check_worlds(groups, dimensions, ())
    return gathered, groups


def missing_notes(gathered: Gathered) -> list[str]:
    """How many runs are still to come, and how many of these failed."""
    progress, failed = progress_note(gathered), len(gathered.failed)
    notes = [] if progress is None else [progress]
    return notes + ([f"{failed} failed {'run is' if failed == 1 else 'runs are'} left out."] if failed else [])


# From runs along an axis to plots: a mean over seeds with its interval for every point.


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
