"""Plots from a folder of `headwise sweep`: scores by guided layer, size of the training set and weight of the guides.

They are found by what the sweeps in the folder vary, whatever these are called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from headwise.experiments.comparison.comparison_tables import times_of, values_of
from headwise.experiments.comparison.gather import SEED, Asked, Axis
from headwise.experiments.comparison.grouping import BASELINES, Group, Seeds
from headwise.experiments.plots.sweep_axes import (
    AxisRuns,
    FoundSweep,
    Lines,
    Places,
    Values,
    found_sweeps,
    grouped,
    missing_notes,
    plot_of,
    runs_along,
)
from headwise.experiments.results import canonical
from headwise.experiments.sweeps.sweep_file import LAYER, SIZE
from headwise.metrics import SeedScores

# Whether the runs along an axis differ in the weights of their guides alone, and how large these are.


SHARE = "share"
# Of a weight: whether it is a number or a share of the task's gradient, and how large.
Size = tuple[str, float]

Guides = Mapping[str, Mapping[str, Any]]


def places_by_weight(runs: AxisRuns, lines: Lines) -> Places | None:
    """Where the labels stand, runs without guides at 0; None if the axis changes more than weights, or no weight."""
    sizes: dict[str, set[Size | None]] = {}
    varied = False
    for points in lines.systems.values():
        guides = {label: _guides_of(seeds) for label, seeds in points.items()}
        guided = [each for each in guides.values() if each]
        if len({canonical(_without_weights(each)) for each in guided}) > 1:
            return None
        changed = [name for name in (guided[0] if guided else {}) if len({_weight(each, name) for each in guided}) > 1]
        varied = varied or bool(changed)
        for label, each in guides.items():
            sizes.setdefault(label, set()).update(_size(each[name].get("weight")) for name in changed if each)
    return _places(runs, sizes) if varied else None


def _places(runs: AxisRuns, sizes: Mapping[str, set[Size | None]]) -> Places:
    """By the weights, if every label has one, all of one kind; else one after the other."""
    kinds = {kind for found in sizes.values() for kind, _ in (size for size in found if size is not None)}
    single = all(None not in found and len(found) <= 1 for found in sizes.values())
    if not single or len(kinds) != 1:
        labels = [label for label in runs.labels if label in sizes]
        return Places("weight of the guides", {label: at for at, label in enumerate(labels)}, tuple(labels))
    name = "gradient share of the guides" if kinds == {SHARE} else "weight of the guides"
    at = {label: next((number for each in found if each for number in each[1:]), 0.0) for label, found in sizes.items()}
    return Places(name, {label: float(number) for label, number in at.items()})


def _guides_of(seeds: Seeds) -> Guides:
    run = next(iter(seeds.values()))
    return {
        name: options if isinstance(options, Mapping) else {}
        for name, options in (run.recipe.get("guides") or {}).items()
    }


def _without_weights(guides: Guides) -> dict[str, dict[str, Any]]:
    return {name: {key: value for key, value in each.items() if key != "weight"} for name, each in guides.items()}


def _weight(guides: Guides, name: str) -> str:
    return canonical(guides[name].get("weight"))


def _size(weight: Any) -> Size | None:
    """None for a weight that is no single number, such as one that changes with the steps."""
    kind = SHARE if isinstance(weight, Mapping) and SHARE in weight else "weight"
    value = weight[SHARE] if kind == SHARE else weight
    return (kind, float(value)) if isinstance(value, int | float) and not isinstance(value, bool) else None


# How long an epoch takes: a table for each sweep (Table 4 of arXiv 2204.02922).


NOTHING = "\N{EN DASH}"
ABOUT = "Seconds of an epoch: mean over epochs and seeds, with the 95 % t interval over seeds."
CAVEAT = "Times depend on the machine and on what else ran there."


def time_tables(folder: Path, sweep: str | None = None) -> list[dict[str, Any]]:
    """Seconds of an epoch for every system, and how much longer it takes than the baseline.

    Args:
        folder: of `headwise sweep`.
        sweep: one sweep of it; all if left out.

    Returns:
        A table for each sweep whose runs have times.
    """
    tables = [_table(each) for each in found_sweeps(folder, sweep)]
    return [table for table in tables if table["rows"]]


def epoch_seconds(seeds: Seeds) -> list[float] | None:
    """The mean over the epochs of every seed; None if one has no times."""
    if not all(run.seconds for run in seeds.values()):
        return None
    return [float(np.mean(run.seconds)) for run in seeds.values()]


def _table(sweep: FoundSweep) -> dict[str, Any]:
    manifest = sweep.manifest
    axes = [name for name in manifest.axes if name != SEED]
    by = [name for name in axes if not manifest.by or name in manifest.by]
    within = [name for name in axes if name not in by]
    if not by:
        return {"rows": []}
    gathered, groups = grouped(sweep, Asked(sweep=manifest.name, by=tuple(by), within=tuple(within)))
    return {
        "title": f"{sweep.title}: seconds of an epoch",
        "columns": [*within, ", ".join(by), "seeds", "seconds", "95 % interval", "× baseline"],
        "rows": [
            [*(each.within[name] for name in within), *row] for each in groups for row in _rows(each, manifest.baseline)
        ],
        "notes": [ABOUT, CAVEAT, *missing_notes(gathered)],
    }


def _rows(group: Group, baseline: str | None) -> list[list[str]]:
    """The baseline first, as in all tables."""
    named = next((name for name in (baseline, *BASELINES) if name in group.systems), None)
    ratios = {} if named is None else times_of(group, named)
    rows = []
    for system in sorted(group.systems, key=lambda name: name != named):
        seconds = epoch_seconds(group.systems[system])
        if seconds is None:
            continue
        scores = SeedScores.of(seconds)
        ratio = ratios[system].ratio if system in ratios else None
        rows.append(
            [
                system,
                str(len(seconds)),
                f"{scores.mean:.2f}",
                NOTHING if scores.low is None or scores.high is None else f"{scores.low:.2f} to {scores.high:.2f}",
                NOTHING if ratio is None else f"{ratio:.2f}",
            ]
        )
    return rows


FRACTION, LIMIT = "data.fraction", "data.limit.train"
GUIDES = "guides"

Plots = list[dict[str, Any]]


def layer_plots(folder: Path, sweep: str | None = None) -> Plots:
    """Scores by the layer that the guides look at (Figure 3 of arXiv 2204.02922).

    Args:
        folder: of `headwise sweep`.
        sweep: one sweep of it; all if left out.

    Returns:
        A plot for each block of each sweep over layers; none without such a sweep.
    """
    return _plots(folder, sweep, _over_layers, lambda runs: Places.of("layer that is guided, from 0", runs.labels))


def size_plots(folder: Path, sweep: str | None = None) -> Plots:
    """Scores by the size of the training set (Figure 6 of arXiv 2204.02922); see `layer_plots`."""
    return _plots(folder, sweep, _over_sizes, _places_by_size)


def weight_plots(folder: Path, sweep: str | None = None) -> Plots:
    """Scores, and seconds of an epoch, by how much the guides count; see `layer_plots`."""
    plots = []
    for each in found_sweeps(folder, sweep):
        for axis in each.axes(lambda _, axis: bool(axis.keys) and all(_of_guides(key) for key in axis.keys)):
            runs = runs_along(each, axis)
            for lines in runs.lines:
                places = places_by_weight(runs, lines)
                if places is None:
                    continue
                plots.append(_score_plot(runs, lines, places))
                seconds = plot_of(
                    runs, lines, places, y="seconds of an epoch", values=epoch_seconds, about="what it costs"
                )
                plots += [seconds] if seconds["series"] else []
    return plots


def _plots(
    folder: Path, sweep: str | None, wanted: Callable[[str, Axis], bool], places: Callable[[AxisRuns], Places]
) -> Plots:
    found = [runs_along(each, axis) for each in found_sweeps(folder, sweep) for axis in each.axes(wanted)]
    return [_score_plot(runs, lines, places(runs)) for runs in found for lines in runs.lines]


def _score_plot(runs: AxisRuns, lines: Lines, places: Places) -> dict[str, Any]:
    return plot_of(runs, lines, places, y=f"{lines.metric} on {runs.split}", values=_values(lines.metric, runs.split))


def _values(metric: str, split: str) -> Values:
    def values(seeds: Seeds) -> list[float]:
        return values_of(seeds, metric, split)

    return values


def _over_layers(name: str, axis: Axis) -> bool:
    return name == LAYER or (bool(axis.keys) and all(_of_guides(key) and key.endswith(".layers") for key in axis.keys))


def _over_sizes(name: str, axis: Axis) -> bool:
    return name == SIZE or (bool(axis.keys) and set(axis.keys) <= {FRACTION, LIMIT})


def _places_by_size(runs: AxisRuns) -> Places:
    keys = set(runs.sweep.manifest.axes[runs.axis].keys)
    if keys == {FRACTION}:
        return Places.of("part of the training set", runs.labels)
    if keys == {LIMIT}:
        return Places.of("training examples", runs.labels)
    # Parts and numbers have no common scale.
    return Places(
        "size of the training set", {label: at for at, label in enumerate(runs.labels)}, categories=runs.labels
    )


def _of_guides(key: str) -> bool:
    return key == GUIDES or key.startswith(f"{GUIDES}.")
