"""How figures are styled and written.

No pyplot: a figure belongs to its caller, no window opens, and the user's own settings are left as they are.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.disk import save_content
from headwise.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
def house_style() -> Iterator[None]:
    """Our settings in place of the user's for the time of the block."""
    try:
        from matplotlib import style
    except ImportError:
        raise InputError("figures need matplotlib: install it by pip install 'headwise[reports]'.") from None
    with style.context(["default", STYLE]):
        yield


def save(figure: Figure, path_without_suffix: Path) -> list[Path]:
    """Write the figure as .png and .svg; the same figure always gives the same SVG."""
    drawn = {suffix: _drawn(figure, suffix) for suffix in (".png", ".svg")}
    path = Path(path_without_suffix)
    path.parent.mkdir(parents=True, exist_ok=True)
    paths = {path.with_name(path.name + suffix): content for suffix, content in drawn.items()}
    for each, content in paths.items():
        save_content(each, content)
    return list(paths)


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
    with house_style(), warnings.catch_warnings():
        # Tokens of any script may come: a letter that the font lacks is a box in the PNG, and itself in the SVG.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        options = {"format": suffix[1:], "bbox_inches": "tight", "facecolor": "white", **KINDS[suffix]}
        figure.savefig(content, dpi=RESOLUTION, **options)
    return content.getvalue()
