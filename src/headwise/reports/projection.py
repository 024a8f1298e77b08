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
    Array,
    Numbers,
    colour_bar,
    figure_style,
    panels,
    plain,
    save,
    variant_arrays,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.figure import Figure

TITLE = "Heads by what they look at: first two principal components"
COLUMNS = 2
WIDTH = 4.8  # of a panel, in inches
LABELS = 0.9  # inches that titles and labels take of its height
MARGIN = 1.08  # room around the outermost points
FLATTEST = 0.5  # a panel is at least half as high as wide, and half as wide as high
Limits = tuple[tuple[float, float], tuple[float, float]]  # of the two axes


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
    shares = _checked_shares(explained, points)
    limits = _common_limits(np.concatenate(list(points.values())))
    with figure_style():
        figure, axes = panels(len(points), COLUMNS, _panel_size(limits), title)
        for panel, (name, array) in zip(axes, points.items(), strict=True):
            drawn = _draw(panel, array, layers, limits)
            _label(panel, name, shares.get(name))
        colour_bar(figure, axes[min(len(points), COLUMNS) - 1], drawn, "layer", _ticks(layers))
    return figure


def _checked_shares(explained: Mapping[str, Sequence[float]] | None, points: Mapping[str, Array]) -> dict[str, Array]:
    if explained is None:
        return {}
    if explained.keys() != points.keys():
        raise InputError(f"explained has the variants {list(explained)}: expected {list(points)}.")
    rows = variant_arrays(
        {name: [shares] for name, shares in explained.items()}, 1, 2, "the shares that two axes explain"
    )
    return {name: row[0] for name, row in rows.items()}


def _common_limits(points: Array) -> Limits:
    low, high = points.min(0), points.max(0)
    half = (high - low) / 2
    half = MARGIN * np.maximum(half, FLATTEST * half.max()) if half.any() else np.ones(2)
    (left, bottom), (right, top) = (low + high) / 2 - half, (low + high) / 2 + half
    return (float(left), float(right)), (float(bottom), float(top))


def _panel_size(limits: Limits) -> tuple[float, float]:
    (left, right), (bottom, top) = limits
    return WIDTH, LABELS + (WIDTH - LABELS) * (top - bottom) / (right - left)


def _draw(panel: Axes, array: Array, layers: Sequence[int], limits: Limits) -> PathCollection:
    from matplotlib import colormaps

    low, high = min(layers), max(layers)
    panel.set(xlim=limits[0], ylim=limits[1], aspect="equal")
    panel.axhline(0, color="#dddddd", lw=0.6, zorder=0)
    panel.axvline(0, color="#dddddd", lw=0.6, zorder=0)
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(length=2, width=0.6, labelsize=8)
    return panel.scatter(
        array[:, 0],
        array[:, 1],
        c=layers,
        cmap=colormaps["viridis"].resampled(high - low + 1),  # one colour per layer
        vmin=low - 0.5,
        vmax=high + 0.5,
        s=34,
        edgecolors=INK,  # the yellow of the last layers would fade on white
        linewidths=0.3,
    )


def _label(panel: Axes, name: str, shares: Array | None) -> None:
    ends = ["", ""] if shares is None else [f" ({share:.0%} of variance)" for share in shares]
    panel.set_title(plain(name), parse_math=False)
    panel.set_xlabel(f"component 1{ends[0]}")
    panel.set_ylabel(f"component 2{ends[1]}")


def _ticks(layers: Sequence[int]) -> dict[float, str]:
    """At most a dozen of the layers in even steps."""
    low, high = min(layers), max(layers)
    return {layer: str(layer) for layer in range(low, high + 1, (high - low) // 12 + 1)}
