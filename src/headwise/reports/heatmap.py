"""Maps and matrices as coloured squares.

Heat maps show who looks at whom: mean attention maps of one example side by side (Figure 4 of arXiv 2204.02922).
Matrices show tables of numbers, such as who is hurt by losing whose heads, each square with its number in it.

Shapes: T tokens of the example.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
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
    if first < 1 or not tokens:
        raise InputError(f"the first {first} of {len(tokens)} tokens are nothing to draw: expected 1 or more of both.")
    if scale not in SCALES:
        raise InputError(f"scale={scale!r}: {choices(str(scale), SCALES)}.")
    whole = variant_arrays(maps, len(tokens), len(tokens), "a map over all tokens")
    shown = {name: array[:first, :first] for name, array in whole.items()}
    labels = [plain(token, LONGEST_TOKEN) for token in tokens[:first]]
    letters = min(8.0, 130 / len(labels))
    # From nothing to the largest value of all variants.
    low = min(0.0, *(float(array.min()) for array in shown.values()))
    high = max(float(array.max()) for array in shown.values())
    high = high if high > low else low + 1
    drawn = [(name, array, "attention", "Blues", low, high) for name, array in shown.items()]
    if len(shown) == 2:  # also the second minus the first, white where they agree
        (before, base), (after, other) = shown.items()
        most = float(np.abs(other - base).max()) or 1.0
        drawn.append((f"{after} − {before}", other - base, "difference", "RdBu_r", -most, most))
    with figure_style():
        figure, axes = panels(len(drawn), COLUMNS, PANEL, plain(title))
        for number, (panel, (name, array, about, colours, low, high)) in enumerate(zip(axes, drawn, strict=True)):
            norm, ticks = colour_scale(low, high, scale)
            mesh = _squares(panel, array, cmap=colours, norm=norm, edgecolors="white", linewidth=0.4)
            if number == min(len(shown), COLUMNS) - 1 or about == "difference":
                colour_bar(figure, panel, mesh, about, ticks)
            panel.set_xticks(range(len(labels)), labels, rotation=90, fontsize=letters)
            panel.set_yticks(range(len(labels)), labels, fontsize=letters)
            with_rows = number % COLUMNS == 0  # they are named once per line of panels
            panel.tick_params(length=0, labelleft=with_rows)
            panel.set(title=plain(name), xlabel="to", ylabel="from" if with_rows else "")
    return figure


def colour_scale(low: float, high: float, scale: Scale) -> tuple[Normalize, dict[float, str] | None]:
    """Colours between two values, and the values to mark; None where even steps do well.

    On the root scale colours follow the square root of a value, with its sign, so marks stand closer near zero.
    """
    from matplotlib.colors import FuncNorm, Normalize

    if scale == "linear":
        return Normalize(low, high), None
    end = max(abs(low), abs(high))
    power = math.floor(math.log10(end))
    sizes = [digit * 10.0**exponent for exponent in (power - 1, power) for digit in (1, 2, 5)]
    marked = [sign * size for size in sizes if size >= end / 10 for sign in (-1, 1)]
    values = sorted(value for value in (0.0, *marked) if low <= value <= high)
    functions = (
        lambda values: np.sign(values) * np.sqrt(np.abs(values)),
        lambda values: np.sign(values) * np.square(values),
    )
    return FuncNorm(functions, low, high), {value: f"{value:g}".replace("-", "\N{MINUS SIGN}") for value in values}


def _squares(panel: Axes, array: Array, **colours: Any) -> QuadMesh:
    """Cells centred on whole numbers, the first row on top, as in a matrix.

    They are shapes, not a picture: an SVG viewer would blur the picture's few dots.
    """
    rows, columns = array.shape
    panel.set_aspect("equal")
    panel.invert_yaxis()
    return panel.pcolormesh(np.arange(columns + 1) - 0.5, np.arange(rows + 1) - 0.5, array, **colours)


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
    # Dark is little: what is lost is what is looked for.
    colours = {"cmap": "cividis", "vmin": low, "vmax": high if high > low else low + 1}
    with figure_style():
        figure, axes = panels(len(arrays), MATRIX_COLUMNS, MATRIX_PANEL, plain(title))
        for panel, matrix, array in zip(axes, matrices, arrays, strict=True):
            mesh = _squares(panel, np.ma.masked_invalid(array), edgecolors="white", linewidth=0.8, **colours)
            for (row, column), value in np.ndenumerate(array):
                dark = high > low and bool((value - low) / (high - low) < DARK)
                text = f"{value:.1f}" if np.isfinite(value) else NOTHING
                panel.text(column, row, text, ha="center", va="center", fontsize=9, color="white" if dark else "black")
            rows, columns = ([plain(str(name), LONGEST) for name in matrix[side]] for side in ("rows", "columns"))
            panel.set_title("\n".join(textwrap.wrap(plain(str(matrix["title"])), 50)))
            panel.set_xticks(range(len(columns)), columns, rotation=45, ha="right")
            panel.set_yticks(range(len(rows)), rows)
            panel.tick_params(length=0, labelsize=8)
            # The notes of a matrix stand below it.
            notes = [line for note in matrix["notes"] for line in textwrap.wrap(plain(str(note)), 66)]
            panel.set_xlabel("\n".join(notes), fontsize=7.5, linespacing=1.4)
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
