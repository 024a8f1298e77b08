"""Plots and tables of sweeps: scores by guided layer, size of the training set and weight of the guides.

A sweep is recognised by the keys that its axes vary, not by its name. A plot is {title, x, y, categories, series:
[{name, x, mean, low, high}], notes}; a table {title, columns, rows, notes}.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwise.errors import InputError
from headwise.experiments import record
from headwise.experiments.comparison.comparison import times_of
from headwise.experiments.comparison.gather import SEED, CompareOptions, Manifest, RunTable, read_manifest
from headwise.experiments.comparison.grouping import (
    BASELINES,
    Seeds,
    choose_metrics,
    choose_split,
    epoch_seconds,
    group_runs,
    scores_of,
)
from headwise.experiments.record import canonical
from headwise.experiments.sweeps.control_arms import ARM
from headwise.experiments.sweeps.result_folder import FAILED, MARK, SWEEPS, check_mark, run_files
from headwise.metrics.significance import SeedScores

LAYER, SIZE = "layer", "size"
FRACTION, LIMIT, GUIDES, SHARE = "data.fraction", "data.limit.train", "guides", "share"
NOTHING = "\N{EN DASH}"

Axis = Mapping[str, Sequence[str]]
# The labels of an axis at their positions on a scale, or None where these say no more than their order.
Scale = tuple[str, Mapping[str, float], Sequence[str] | None]


def sweeps_of(folder: Path, sweep: str | None = None) -> list[Manifest]:
    """All sweeps of a folder, or the one of this name, that have a finished run."""
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}: give one with the results of a sweep.")
    if not (folder / MARK).is_file():
        what = "is a single run" if (folder / record.NAME).is_file() else f"has no {MARK}"
        raise InputError(f"{folder} {what}: expected a folder with the results of a sweep.")
    check_mark(folder)
    names = sorted(path.stem for path in (folder / SWEEPS).glob("*.json") if not path.name.startswith("."))
    done = {key for key, path in run_files(folder).items() if not path.name.endswith(FAILED)}
    manifests = [read_manifest(folder, name) for name in ([sweep] if sweep is not None else names)]
    return [each for each in manifests if each is not None and any(run["key"] in done for run in each.points)]


def layer_plots(folder: Path, sweep: str | None = None) -> list[dict[str, Any]]:
    """Scores by guided layer (Figure 3 of arXiv 2204.02922).

    Args:
        folder: the results of a sweep.
        sweep: one sweep of the folder; all if left out.

    Returns:
        A plot for each group of each sweep over layers; none without such a sweep.
    """

    def over_layers(name: str, axis: Axis) -> bool:
        return name == LAYER or (_of_guides(axis) and all(key.endswith(".layers") for key in axis["keys"]))

    lines = _lines(folder, sweep, over_layers)
    return [each.score_plot(_scale("layer that is guided, from 0", each.labels)) for each in lines]


def size_plots(folder: Path, sweep: str | None = None) -> list[dict[str, Any]]:
    """Scores by the size of the training set (Figure 6 of arXiv 2204.02922); see `layer_plots`."""

    def over_sizes(name: str, axis: Axis) -> bool:
        return name == SIZE or (bool(axis["keys"]) and set(axis["keys"]) <= {FRACTION, LIMIT})

    plots = []
    for lines in _lines(folder, sweep, over_sizes):
        names: dict[Sequence[str], str] = {(FRACTION,): "part of the training set", (LIMIT,): "training examples"}
        # Parts and numbers of examples have no common scale.
        name = names.get(tuple(lines.manifest.axes[lines.axis]["keys"]))
        plots.append(lines.score_plot(_scale(name or "size of the training set", lines.labels, number=bool(name))))
    return plots


def weight_plots(folder: Path, sweep: str | None = None) -> list[dict[str, Any]]:
    """Scores, and seconds of an epoch, by the weight of the guides; see `layer_plots`."""
    plots = []
    for lines in _lines(folder, sweep, lambda _, axis: _of_guides(axis)):
        scale = _weight_scale(lines)
        if scale is not None:
            seconds = lines.plot(scale, "seconds of an epoch", epoch_seconds, about="what it costs")
            plots += [lines.score_plot(scale), *([seconds] if seconds["series"] else [])]
    return plots


def time_tables(folder: Path, sweep: str | None = None) -> list[dict[str, Any]]:
    """Seconds of an epoch for every system, and their ratio to the baseline (Table 4 of arXiv 2204.02922).

    Args:
        folder: the results of a sweep.
        sweep: one sweep of the folder; all if left out.

    Returns:
        A table for each sweep whose runs have times.
    """
    tables = []
    for manifest in sweeps_of(folder, sweep):
        by, within = _systems_and_others(manifest)
        if not by:
            continue
        grouped, rows = group_runs([folder], CompareOptions(by, within, sweep=manifest.name)), []
        for group in grouped.groups:
            base = next((name for name in (manifest.baseline, *BASELINES) if name in group.systems), None)
            times = {} if base is None else times_of(group, base)
            for system in sorted(group.systems, key=lambda name: name != base):
                seconds = epoch_seconds(group.systems[system])
                if seconds is None:
                    continue
                scores, ratio = SeedScores.of(seconds), times[system].ratio if system in times else None
                interval = NOTHING if scores.low is None else f"{scores.low:.2f} to {scores.high:.2f}"
                ends = [f"{scores.mean:.2f}", interval, NOTHING if ratio is None else f"{ratio:.2f}"]
                rows.append([*(group.within[name] for name in within), system, str(len(seconds)), *ends])
        notes = [
            "Seconds of an epoch: mean over epochs and seeds, with the 95 % t interval over seeds.",
            "Times depend on the machine and on what else ran there.",
        ]
        columns = [*within, ", ".join(by), "seeds", "seconds", "95 % interval", "× baseline"]
        title = f"{manifest.title}: seconds of an epoch"
        tables.append({"title": title, "columns": columns, "rows": rows, "notes": notes + _missing(grouped.table)})
    return [table for table in tables if table["rows"]]


@dataclass
class _Lines:
    """The runs of one plot, which goes along an axis of a sweep."""

    manifest: Manifest
    axis: str
    title: str
    metric: str
    split: str
    notes: list[str]
    systems: dict[str, dict[str, Seeds]] = field(default_factory=dict)
    """System -> label on the axis -> runs by seed; the only system of a sweep has no name."""

    @property
    def labels(self) -> Sequence[str]:
        return self.manifest.axes[self.axis]["labels"]

    def score_plot(self, scale: Scale) -> dict[str, Any]:
        """The metric over the axis."""
        return self.plot(
            scale, f"{self.metric} on {self.split}", lambda seeds: scores_of(seeds, self.metric, self.split)
        )

    def plot(
        self, scale: Scale, y: str, values: Callable[[Seeds], list[float] | None], about: str = ""
    ) -> dict[str, Any]:
        """A series for each system, from left to right; None where a point has no runs."""
        x, at, categories = scale
        scores: dict[str, dict[str, SeedScores]] = {}
        for system, points in self.systems.items():
            numbers = {label: values(seeds) for label, seeds in points.items()}
            guides = [run.recipe.get("guides") for seeds in points.values() for run in seeds.values()]
            name = system or next(("+".join(each) for each in guides if each), "plain")
            scores[name] = {label: SeedScores.of(each) for label, each in numbers.items() if each}
        # All series have the same positions: a line must not cross a point that has no runs.
        present = [label for label in self.labels if any(label in points for points in scores.values())]
        present.sort(key=lambda label: at[label])
        series = [
            {"name": system, "x": [at[label] for label in present]}
            | {end: [getattr(points.get(label), end, None) for label in present] for end in ("mean", "low", "high")}
            for system, points in scores.items()
            if points
        ]
        counts = [len(each.values) for points in scores.values() for each in points.values()]
        return {
            "title": f"{self.title}: {about}" if about else self.title,
            "x": x,
            "y": y,
            "categories": None if categories is None else list(categories),
            "series": series,
            "notes": [*self._notes_on_seeds(counts), *self.notes],
        }

    def _notes_on_seeds(self, counts: Sequence[int]) -> list[str]:
        """How many seeds there are, and points that are not means over the same seeds as the others there."""
        fewest, most = min(counts, default=0), max(counts, default=0)
        seeds = str(most) if fewest == most else f"{fewest} to {most}"
        alone = "; of one seed without" if fewest == 1 else ""
        notes = [f"Means over {seeds} seeds with 95 % t intervals{alone}."] if most > 1 else []
        if most == 1:
            notes = ["One seed: nothing is known about other seeds, so there is no interval."]
        fewer = []
        for label in self.labels:
            own = {system: set(points.get(label, {})) for system, points in self.systems.items()}
            everyone = set().union(*own.values())
            parts = [f"{system} {len(each)} of {len(everyone)}" for system, each in own.items() if each < everyone]
            fewer += [f"{self.axis} {label}: {', '.join(parts)}"] if parts else []
        if fewer:
            where = "; ".join(fewer)
            notes.append(f"Not all systems have the same seeds, so their means are not quite comparable ({where}).")
        return notes


def _lines(folder: Path, sweep: str | None, chosen: Callable[[str, Axis], bool]) -> list[_Lines]:
    """The plots of all sweeps along their axes of one kind that have two points or more."""
    plots: list[_Lines] = []
    for manifest in sweeps_of(folder, sweep):
        for axis, each in manifest.axes.items():
            if axis in (SEED, ARM) or len(each["labels"]) < 2 or not chosen(axis, each):
                continue
            systems, titles = _systems_and_others(manifest, axis)
            within = (*titles, axis) if systems else titles
            options = CompareOptions(systems or (axis,), within, sweep=manifest.name)
            grouped = group_runs([folder], options)
            split = choose_split([run for group in grouped.groups for run in group.runs])
            found: dict[tuple[str, str], _Lines] = {}
            for group in grouped.groups:
                (metric,) = choose_metrics(group, split, options)
                where = ", ".join(f"{name} {group.within[name]}" for name in titles)
                title = ": ".join(part for part in (manifest.title, where) if part)
                lines = _Lines(manifest, axis, title, metric, split, _missing(grouped.table))
                lines = found.setdefault((where, metric), lines)
                for label, seeds in group.systems.items():
                    system, point = (label, group.within[axis]) if systems else ("", label)
                    lines.systems.setdefault(system, {})[point] = seeds
            plots += found.values()
    return plots


def _systems_and_others(manifest: Manifest, along: str = SEED) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The axes that separate systems, if the sweep compares by them or does not say what to compare; and the others."""
    axes = [name for name in manifest.axes if name not in (SEED, along)]
    systems = tuple(name for name in axes if not manifest.by or name in manifest.by)
    return systems, tuple(name for name in axes if name not in systems)


def _missing(table: RunTable) -> list[str]:
    """How many runs are not finished, and how many of these failed."""
    failed = len(table.failed)
    notes = [] if table.progress is None else [f"{table.progress} to finish them."]
    return notes + ([f"{failed} failed {'run is' if failed == 1 else 'runs are'} left out."] if failed else [])


def _of_guides(axis: Axis) -> bool:
    return bool(axis["keys"]) and all(key.split(".")[0] == GUIDES for key in axis["keys"])


def _scale(name: str, labels: Sequence[str], *, number: bool = True) -> Scale:
    """Labels at the numbers that they are, or one after the other."""
    try:
        positions = [float(label) for label in labels]
        number = number and all(map(math.isfinite, positions))
    except ValueError:
        number = False
    if number:
        return name, dict(zip(labels, positions, strict=True)), None
    return name, {label: index for index, label in enumerate(labels)}, labels


def _weight_scale(lines: _Lines) -> Scale | None:
    """The labels at their weights, runs without guides at 0; None if the axis changes more than weights, or no weight.

    Weights of two kinds, or that are no single number, have no common scale: they stand one after the other.
    """
    weights: dict[str, set[tuple[str, float] | None]] = {}
    varied = False
    for points in lines.systems.values():
        guides = {label: next(iter(seeds.values())).recipe.get("guides") or {} for label, seeds in points.items()}
        guided = [each for each in guides.values() if each]
        without = [{name: {**(options or {}), "weight": None} for name, options in each.items()} for each in guided]
        if len({canonical(each) for each in without}) > 1:
            return None
        names = [
            name for name in (guided[0] if guided else {}) if len({canonical(_weight(e[name])) for e in guided}) > 1
        ]
        varied = varied or bool(names)
        for label, each in guides.items():
            weights.setdefault(label, set()).update(_size(_weight(each[name])) for name in names if each)
    if not varied:
        return None
    sizes = {size for each in weights.values() for size in each}
    kinds = {size[0] for size in sizes if size is not None}
    if None in sizes or len(kinds) > 1 or any(len(each) > 1 for each in weights.values()):
        return _scale("weight of the guides", [label for label in lines.labels if label in weights], number=False)
    name = "gradient share of the guides" if kinds == {SHARE} else "weight of the guides"
    return name, {label: next((size[1] for size in each if size), 0.0) for label, each in weights.items()}, None


def _weight(options: Any) -> Any:
    return options.get("weight") if isinstance(options, Mapping) else None


def _size(weight: Any) -> tuple[str, float] | None:
    """Whether a weight is a number or a share of the task's gradient, and how large; None if it is neither."""
    kind = SHARE if isinstance(weight, Mapping) and SHARE in weight else "weight"
    value = weight[SHARE] if kind == SHARE else weight
    return (kind, float(value)) if isinstance(value, int | float) and not isinstance(value, bool) else None
