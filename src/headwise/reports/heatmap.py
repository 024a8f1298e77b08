"""Maps and matrices as coloured squares.

Heat maps show who looks at whom: mean attention maps of one example side by side (Figure 4 of arXiv 2204.02922).
Matrices show tables of numbers, such as who is hurt by losing whose heads, each square with its number in it.

Shapes: T tokens of the example.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from headwise.errors import InputError, choices
from headwise.reports.figures import Array, Numbers, colour_bar, figure_style, panels, plain, save, variant_arrays

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

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
MATRIX_COLUMNS = 2
MATRIX_PANEL = (4.4, 4.2)
LONGEST = 36  # letters of a label
DARK = 0.45  # on colours below this part of the scale, letters are white
NOTHING = "\N{EN DASH}"

Matrix = Mapping[str, Any]


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
    whole = variant_arrays(maps, len(tokens), len(tokens), "a map over all tokens")
    shown = {name: array[:first, :first] for name, array in whole.items()}
    labels = [plain(token, LONGEST_TOKEN) for token in tokens[:first]]
    with figure_style():
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


def build_matrices(matrices: Sequence[Matrix], *, title: str = "", label: str = "percent left") -> Figure:
    """The figure, not yet written: a panel for each matrix, all on one scale.

    Args:
        matrices: {title, rows, columns, values, notes}; None where there is no value.
        title: stands above all panels; "" for none.
        label: what the numbers are.
    """
    arrays = [_matrix_array(each) for each in matrices]
    known = np.concatenate([array[np.isfinite(array)] for array in arrays]) if arrays else np.array([])
    if not known.size:
        raise InputError("there is no value to draw: give one matrix or more with numbers.")
    low, high = float(known.min()), float(known.max())
    with figure_style():
        figure, axes = panels(len(arrays), MATRIX_COLUMNS, MATRIX_PANEL, title)
        for panel, each, array in zip(axes, matrices, arrays, strict=True):
            mesh = _draw_matrix(panel, array, low, high)
            _label_matrix(panel, each, array)
        colour_bar(figure, axes[min(len(arrays), MATRIX_COLUMNS) - 1], mesh, label, None)
    return figure


def _matrix_array(matrix: Matrix) -> Array:
    shape = (len(matrix["rows"]), len(matrix["columns"]))
    try:
        array = np.array(
            [[math.nan if each is None else each for each in row] for row in matrix["values"]], dtype=float
        )
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.shape != shape or not array.size:
        raise InputError(
            f"the matrix {matrix['title']!r:.60} is {list(array.shape)}: expected numbers in {shape[0]} rows and "
            f"{shape[1]} columns, one or more of both."
        )
    return array


def _draw_matrix(panel: Axes, array: Array, low: float, high: float) -> QuadMesh:
    rows, columns = array.shape
    # Dark is little: what is lost is what is looked for.
    mesh = panel.pcolormesh(
        np.arange(columns + 1) - 0.5,
        np.arange(rows + 1) - 0.5,
        np.ma.masked_invalid(array),
        cmap="cividis",
        vmin=low,
        vmax=high if high > low else low + 1,
        edgecolors="white",
        linewidth=0.8,
    )
    panel.set_aspect("equal")
    panel.invert_yaxis()
    for (row, column), value in np.ndenumerate(array):
        known = bool(np.isfinite(value))
        dark = known and high > low and (value - low) / (high - low) < DARK
        text = f"{value:.1f}" if known else NOTHING
        panel.text(column, row, text, ha="center", va="center", fontsize=9, color="white" if dark else "black")
    return mesh


def _label_matrix(panel: Axes, matrix: Matrix, array: Array) -> None:
    rows, columns = ([plain(str(name), LONGEST) for name in matrix[side]] for side in ("rows", "columns"))
    panel.set_title("\n".join(textwrap.wrap(plain(str(matrix["title"])), 50)), parse_math=False)
    panel.set_xticks(range(array.shape[1]), columns, parse_math=False, rotation=45, ha="right")
    panel.set_yticks(range(array.shape[0]), rows, parse_math=False)
    panel.tick_params(length=0, labelsize=8)
    # Each matrix has notes of its own, which stand below it.
    notes = [line for note in matrix["notes"] for line in textwrap.wrap(plain(str(note)), 66)]
    panel.set_xlabel("\n".join(notes), parse_math=False, fontsize=7.5, linespacing=1.4)
