"""What figures of several panels share: checked numbers, clean texts, a grid of panels, a colour bar."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headwise.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
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
