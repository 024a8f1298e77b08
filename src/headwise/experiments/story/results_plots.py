"""Plots from a folder of `headwise sweep`: scores by guided layer, size of the training set and weight of the guides.

They are found by what the sweeps in the folder vary, whatever these are called.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwise.experiments.comparison.grouping import Seeds
from headwise.experiments.comparison.manifest import Axis
from headwise.experiments.comparison.scores import values_of
from headwise.experiments.story.found_sweeps import found_sweeps
from headwise.experiments.story.guide_weights import places_by_weight
from headwise.experiments.story.plotting import Places, Values, plot_of
from headwise.experiments.story.points import AxisRuns, Lines, runs_along
from headwise.experiments.story.time_tables import epoch_seconds
from headwise.experiments.sweeps.axes import LAYER, SIZE

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
