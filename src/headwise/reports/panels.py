"""What figures of several panels share: checked numbers, clean texts, a grid of panels, a colour bar."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headwise.errors import InputError
from headwise.reports.figure_files import house_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure


Numbers = Sequence[Sequence[float]]
Array = np.ndarray[Any, np.dtype[np.float64]]
BAR = (1.04, 0.0, 0.05, 1.0)  # left, bottom, width and height, in units of the panel: exactly as high as it


def tables(given: Mapping[str, Numbers], rows: int, columns: int, wanted: str) -> dict[str, Array]:
    """The variants' numbers as arrays [rows, columns], or one sentence about what is wrong with them."""
    if not given:
        raise InputError(f"there is no variant to draw: give {wanted} for one or more.")
    arrays = {name: _array(name, values) for name, values in given.items()}
    for name, array in arrays.items():
        if array.shape != (rows, columns):
            raise InputError(f"{name!r} has the shape {list(array.shape)}: expected {wanted}, [{rows}, {columns}].")
        if not np.isfinite(array).all():
            raise InputError(f"{name!r} has a value that is not finite: it cannot be drawn.")
    return arrays


def _array(name: str, values: Numbers) -> Array:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name!r} is not a table of numbers in rows of one length.") from None


def plain(text: str, longest: int | None = None) -> str:
    """The text without what cannot be printed, shortened with an ellipsis."""
    printable = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
    if longest is None or len(printable) <= longest:
        return printable
    return printable[: longest - 1] + "…"


def panels(count: int, columns: int, size: tuple[float, float], title: str) -> tuple[Figure, list[Axes]]:
    """A figure with `count` empty panels, row by row; `size` is that of one panel in inches."""
    from matplotlib.figure import Figure

    columns = min(count, columns)
    rows = math.ceil(count / columns)
    figure = Figure((size[0] * columns, size[1] * rows), layout="compressed")
    if title:
        figure.suptitle(plain(title), parse_math=False)
    return figure, [figure.add_subplot(rows, columns, place + 1) for place in range(count)]


def colour_bar(
    figure: Figure, panel: Axes, coloured: ScalarMappable, label: str, ticks: Mapping[float, str] | None
) -> None:
    """A scale beside the panel; `ticks` are the values to mark and what to write there."""
    bar = figure.colorbar(coloured, cax=panel.inset_axes(BAR), label=label)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=2, width=0.6, labelsize=8)
    if ticks is None:
        bar.ax.locator_params(nbins=6)
    else:
        bar.set_ticks(list(ticks), labels=list(ticks.values()))


# Who is hurt by losing whose heads: tables of numbers as coloured squares, each with its number in it.


COLUMNS = 2
PANEL = (4.4, 4.2)
LONGEST = 36  # letters of a label
DARK = 0.45  # on colours below this part of the scale, letters are white
NOTHING = "\N{EN DASH}"

Matrix = Mapping[str, Any]


def build_matrices(matrices: Sequence[Matrix], *, title: str = "", label: str = "percent left") -> Figure:
    """The figure, not yet written: a panel for each matrix, all on one scale.

    Args:
        matrices: see above.
        title: stands above all panels; "" for none.
        label: what the numbers are.
    """
    arrays = [_matrix_array(each) for each in matrices]
    known = np.concatenate([array[np.isfinite(array)] for array in arrays]) if arrays else np.array([])
    if not known.size:
        raise InputError("there is no value to draw: give one matrix or more with numbers.")
    low, high = float(known.min()), float(known.max())
    with house_style():
        figure, axes = panels(len(arrays), COLUMNS, PANEL, title)
        for panel, each, array in zip(axes, matrices, arrays, strict=True):
            mesh = _draw(panel, array, low, high)
            _label(panel, each, array)
        colour_bar(figure, axes[min(len(arrays), COLUMNS) - 1], mesh, label, None)
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


def _draw(panel: Axes, array: Array, low: float, high: float) -> QuadMesh:
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


def _label(panel: Axes, matrix: Matrix, array: Array) -> None:
    rows, columns = ([plain(str(name), LONGEST) for name in matrix[side]] for side in ("rows", "columns"))
    panel.set_title("\n".join(textwrap.wrap(plain(str(matrix["title"])), 50)), parse_math=False)
    panel.set_xticks(range(array.shape[1]), columns, parse_math=False, rotation=45, ha="right")
    panel.set_yticks(range(array.shape[0]), rows, parse_math=False)
    panel.tick_params(length=0, labelsize=8)
    # Each matrix has notes of its own, which stand below it.
    notes = [line for note in matrix["notes"] for line in textwrap.wrap(plain(str(note)), 66)]
    panel.set_xlabel("\n".join(notes), parse_math=False, fontsize=7.5, linespacing=1.4)
