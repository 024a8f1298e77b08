"""Heads as points: near each other if they look at the same tokens (Figure 5 of arXiv 2204.02922).

Shapes: M maps = heads of all layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headwise.errors import InputError
from headwise.reports.figures import (
    INK,
    Numbers,
    colour_bar,
    figure_style,
    open_axes,
    panels,
    plain,
    save,
    variant_arrays,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Heads by what they look at: first two principal components"
COLUMNS = 2
WIDTH = 4.8  # of a panel, in inches
LABELS = 0.9  # inches that titles and labels take of its height
MARGIN = 1.08  # room around the outermost points
FLATTEST = 0.5  # a panel is at least half as high as wide, and half as wide as high


def projection(
    coordinates: Mapping[str, Numbers],
    layers: Sequence[int],
    path_without_suffix: Path,
    *,
    explained: Mapping[str, Sequence[float]] | None = None,
    title: str = TITLE,
) -> list[Path]:
    """Draw one panel per variant, one point per head, coloured by layer.

    All panels have the same axes, and both axes the same scale, so distances may be compared.

    Args:
        coordinates: for each variant [M,2].
        layers: the layer of each of the M heads.
        path_without_suffix: where to write; .png and .svg are added.
        explained: for each variant the share of the variance, 0 to 1, that either axis explains.
        title: stands above all panels; "" for none.

    Returns:
        The two files.
    """
    return save(build_projection(coordinates, layers, explained=explained, title=title), path_without_suffix)


def build_projection(
    coordinates: Mapping[str, Numbers],
    layers: Sequence[int],
    *,
    explained: Mapping[str, Sequence[float]] | None = None,
    title: str = TITLE,
) -> Figure:
    """The figure of `projection`, not yet written."""
    if not layers:
        raise InputError("layers is empty: expected the layer of every head.")
    points = variant_arrays(coordinates, len(layers), 2, "two coordinates for every head")
    ends: dict[str, Sequence[str]] = dict.fromkeys(points, ("", ""))
    if explained is not None:
        if explained.keys() != points.keys():
            raise InputError(f"explained has the variants {list(explained)}: expected {list(points)}.")
        rows = {name: [shares] for name, shares in explained.items()}
        shares_of = variant_arrays(rows, 1, 2, "the shares that two axes explain")
        ends = {name: [f" ({share:.0%} of variance)" for share in row[0]] for name, row in shares_of.items()}
    every = np.concatenate(list(points.values()))
    lowest, highest = every.min(0), every.max(0)
    half = (highest - lowest) / 2
    half = MARGIN * np.maximum(half, FLATTEST * half.max()) if half.any() else np.ones(2)
    centre = (lowest + highest) / 2
    size = (WIDTH, LABELS + (WIDTH - LABELS) * half[1] / half[0])
    first, last = min(layers), max(layers)
    with figure_style():
        from matplotlib import colormaps

        colours = colormaps["viridis"].resampled(last - first + 1)  # one colour per layer
        figure, axes = panels(len(points), COLUMNS, size, plain(title))
        for panel, (name, array) in zip(axes, points.items(), strict=True):
            (left, bottom), (right, top) = centre - half, centre + half
            panel.set(xlim=(left, right), ylim=(bottom, top), aspect="equal")
            panel.axhline(0, color="#dddddd", lw=0.6, zorder=0)
            panel.axvline(0, color="#dddddd", lw=0.6, zorder=0)
            open_axes(panel)
            drawn = panel.scatter(
                array[:, 0],
                array[:, 1],
                c=layers,
                cmap=colours,
                vmin=first - 0.5,
                vmax=last + 0.5,
                s=34,
                edgecolors=INK,  # the yellow of the last layers would fade on white
                linewidths=0.3,
            )
            panel.set(title=plain(name), xlabel=f"component 1{ends[name][0]}", ylabel=f"component 2{ends[name][1]}")
        # At most a dozen of the layers, in even steps.
        ticks: dict[float, str] = {layer: str(layer) for layer in range(first, last + 1, (last - first) // 12 + 1)}
        colour_bar(figure, axes[min(len(points), COLUMNS) - 1], drawn, "layer", ticks)
    return figure
