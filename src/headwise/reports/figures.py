"""What all figures share: style, checked numbers, clean texts, a grid of panels, a colour bar, and files.

No pyplot: a figure belongs to its caller, no window opens, and the user's own settings are left as they are.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headwise.disk import save_content
from headwise.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

Numbers = Sequence[Sequence[float]]
Array = np.ndarray[Any, np.dtype[np.float64]]
BAR = (1.04, 0.0, 0.05, 1.0)  # left, bottom, width and height, in units of the panel: exactly as high as it
INK = "#333333"
RESOLUTION = 200  # dots per inch: a figure of 10 inches is twice as wide as a README shows it, so it stays sharp
STYLE = {
    "font.family": ["DejaVu Sans"],  # comes with matplotlib, so figures are alike on every machine
    "font.size": 9,
    "figure.titlesize": 12,
    "figure.constrained_layout.h_pad": 0.08,
    "axes.titlesize": 10,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "text.color": INK,
    "text.parse_math": False,  # a $ in a name begins no formula
    "xtick.color": INK,
    "ytick.color": INK,
    "svg.fonttype": "none",  # text stays text: it can be searched, and read aloud
    "svg.hashsalt": "headwise",  # else names inside the file are random
    "pdf.fonttype": 42,  # letters as TrueType, which publishers ask for
}
# By ending: what would make two files of the same figure differ, left out.
KINDS: dict[str, dict[str, Any]] = {
    ".png": {},
    ".svg": {"metadata": {"Date": None}},
    ".pdf": {"metadata": {"CreationDate": None}},
}


@contextmanager
def figure_style() -> Iterator[None]:
    """Our settings in place of the user's for the time of the block."""
    try:
        from matplotlib import style
    except ImportError:
        raise InputError("figures need matplotlib: install it by pip install 'headwise[reports]'.") from None
    with style.context(["default", STYLE]):
        yield


def save(figure: Figure, path_without_suffix: Path) -> list[Path]:
    """Write the figure as .png and .svg; the same figure always gives the same SVG."""
    path = Path(path_without_suffix)
    drawn = {path.with_name(path.name + suffix): _drawn(figure, suffix) for suffix in (".png", ".svg")}
    path.parent.mkdir(parents=True, exist_ok=True)
    for each, content in drawn.items():
        save_content(each, content)
    return list(drawn)


def save_as(figure: Figure, path: Path) -> Path:
    """Write the figure as what the path ends in, .png, .svg or .pdf; the same figure always gives the same bytes."""
    check_ending(path)
    save_content(path, _drawn(figure, path.suffix.lower()))
    return path


def check_ending(path: Path) -> None:
    """Refuse a file of another kind."""
    if path.suffix.lower() not in KINDS:
        raise InputError(f"{path}: a figure is written as what its name ends in, expected {', '.join(KINDS)}.")


def _drawn(figure: Figure, suffix: str) -> bytes:
    content = io.BytesIO()
    with figure_style(), warnings.catch_warnings():
        # Tokens of any script may come: a letter that the font lacks is a box in the PNG, and itself in the SVG.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        options = {"format": suffix[1:], "bbox_inches": "tight", "facecolor": "white", **KINDS[suffix]}
        figure.savefig(content, dpi=RESOLUTION, **options)
    return content.getvalue()


def variant_arrays(variants: Mapping[str, Numbers], rows: int, columns: int, expected: str) -> dict[str, Array]:
    """The variants' numbers as arrays [rows, columns], or one sentence about what is wrong with them."""
    if not variants:
        raise InputError(f"there is no variant to draw: give {expected} for one or more.")
    arrays = {}
    for name, values in variants.items():
        try:
            arrays[name] = array = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(f"{name!r} is not a table of numbers in rows of one length.") from None
        if array.shape != (rows, columns):
            raise InputError(f"{name!r} has the shape {list(array.shape)}: expected {expected}, [{rows}, {columns}].")
        if not np.isfinite(array).all():
            raise InputError(f"{name!r} has a value that is not finite: it cannot be drawn.")
    return arrays


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
        figure.suptitle(title)
    return figure, [figure.add_subplot(rows, columns, number + 1) for number in range(count)]


def open_axes(panel: Axes, grid: dict[str, Any] | None = None) -> None:
    """Axes on two sides only, with small ticks; lines of a grid, if any, below what is drawn."""
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(length=2, width=0.6, labelsize=8)
    if grid is not None:
        panel.grid(**grid)
        panel.set_axisbelow(True)


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
