"""Who looks at whom: mean attention maps of one example side by side (Figure 4 of arXiv 2204.02922).

Shapes: T tokens of the example.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from headwise.errors import InputError, choices
from headwise.reports.figure_files import house_style, save
from headwise.reports.panels import Array, Numbers, colour_bar, panels, plain, tables

if TYPE_CHECKING:
    from matplotlib.colors import Normalize

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure


# Which colours stand for which values.


Scale = Literal["root", "linear"]
SCALES = ("root", "linear")


@dataclass(frozen=True)
class Colours:
    """A row of colours between two values; on the root scale it follows their square root, with their sign."""

    name: str
    lowest: float
    highest: float
    scale: Scale

    def norm(self) -> Normalize:
        """The same, as matplotlib wants it."""
        from matplotlib.colors import FuncNorm, Normalize

        if self.scale == "linear":
            return Normalize(self.lowest, self.highest)
        return FuncNorm((_root, _square), self.lowest, self.highest)

    def ticks(self) -> dict[float, str] | None:
        """Values to mark on a root scale, which stand closer near zero; None where even steps do well."""
        if self.scale == "linear":
            return None
        end = max(abs(self.lowest), abs(self.highest))
        power = math.floor(math.log10(end))
        sizes = [digit * 10.0**exponent for exponent in (power - 1, power) for digit in (1, 2, 5)]
        marked = [sign * size for size in sizes if size >= end / 10 for sign in (-1, 1)]
        values = [value for value in (0.0, *marked) if self.lowest <= value <= self.highest]
        return {value: f"{value:g}".replace("-", "\N{MINUS SIGN}") for value in sorted(values)}


def _root(values: Array) -> Array:
    return np.sign(values) * np.sqrt(np.abs(values))


def _square(values: Array) -> Array:
    return np.sign(values) * np.square(values)


TITLE = "Mean attention over all heads and layers"
LONGEST_TOKEN = 12
COLUMNS = 3
PANEL = (3.4, 3.7)


def heatmap(
    maps: Mapping[str, Numbers],
    tokens: Sequence[str],
    path_without_suffix: Path,
    *,
    first: int = 15,
    title: str = TITLE,
    scale: Scale = "root",
) -> list[Path]:
    """Draw one panel per variant on one colour scale; of exactly two variants also the difference.

    Args:
        maps: for each variant [T,T]; rows are the tokens that look, columns those looked at.
        tokens: the T tokens.
        path_without_suffix: where to write; .png and .svg are added.
        first: how many tokens to show.
        title: stands above all panels; "" for none.
        scale: "root" lets colours follow the square root of a value (of a difference: with its sign), since [CLS] and
            [SEP] often receive so much that on a "linear" scale nothing else is seen.

    Returns:
        The two files.
    """
    return save(build_heatmap(maps, tokens, first=first, title=title, scale=scale), path_without_suffix)


def build_heatmap(
    maps: Mapping[str, Numbers],
    tokens: Sequence[str],
    *,
    first: int = 15,
    title: str = TITLE,
    scale: Scale = "root",
) -> Figure:
    """The figure of `heatmap`, not yet written."""
    _check(first, tokens, scale)
    whole = tables(maps, len(tokens), len(tokens), "a map over all tokens")
    shown = {name: array[:first, :first] for name, array in whole.items()}
    labels = [plain(token, LONGEST_TOKEN) for token in tokens[:first]]
    with house_style():
        figure, axes = panels(len(shown) + (len(shown) == 2), COLUMNS, PANEL, title)
        colours = Colours("Blues", *_ends(list(shown.values())), scale)
        meshes = [_draw(panel, array, colours) for panel, array in zip(axes, shown.values(), strict=False)]
        colour_bar(figure, axes[min(len(shown), COLUMNS) - 1], meshes[-1], "attention", colours.ticks())
        names = [*shown, *_draw_difference(figure, axes[-1], shown, scale)]
        for place, (panel, name) in enumerate(zip(axes, names, strict=True)):
            _label(panel, name, labels, with_rows=place % COLUMNS == 0)
    return figure


def _check(first: int, tokens: Sequence[str], scale: str) -> None:
    if first < 1 or not tokens:
        raise InputError(f"the first {first} of {len(tokens)} tokens are nothing to draw: expected 1 or more of both.")
    if scale not in SCALES:
        raise InputError(f"scale={scale!r}: {choices(str(scale), SCALES)}.")


def _ends(arrays: Sequence[Array]) -> tuple[float, float]:
    """From nothing to the largest value of all variants."""
    lowest = min(0.0, *(float(array.min()) for array in arrays))
    highest = max(float(array.max()) for array in arrays)
    return lowest, highest if highest > lowest else lowest + 1


def _draw(panel: Axes, array: Array, colours: Colours) -> QuadMesh:
    edges = np.arange(len(array) + 1) - 0.5  # cells are centred on whole numbers
    panel.set_aspect("equal")
    panel.invert_yaxis()  # the first token on top, as in a matrix
    # Cells as shapes, not as a picture: an SVG viewer would blur the picture's few dots.
    return panel.pcolormesh(edges, edges, array, cmap=colours.name, norm=colours.norm(), ec="white", lw=0.4)


def _draw_difference(figure: Figure, panel: Axes, shown: Mapping[str, Array], scale: Scale) -> list[str]:
    """Of exactly two variants the second minus the first, white where they agree; returns the panel's name, if any."""
    if len(shown) != 2:
        return []
    (before, base), (after, other) = shown.items()
    largest = float(np.abs(other - base).max()) or 1.0
    colours = Colours("RdBu_r", -largest, largest, scale)
    mesh = _draw(panel, other - base, colours)
    colour_bar(figure, panel, mesh, "difference", colours.ticks())
    return [f"{after} − {before}"]


def _label(panel: Axes, name: str, labels: Sequence[str], *, with_rows: bool) -> None:
    """Tokens on both axes; the rows are named once per line of panels, for they go on to the right."""
    size = min(8.0, 130 / len(labels))
    panel.set_title(plain(name), parse_math=False)
    panel.set_xticks(range(len(labels)), labels, rotation=90, fontsize=size, parse_math=False)
    panel.set_yticks(range(len(labels)), labels, fontsize=size, parse_math=False)
    panel.tick_params(length=0, labelleft=with_rows)
    panel.set_xlabel("to")
    panel.set_ylabel("from" if with_rows else "")
