"""Plots of several systems over an axis: a mean and its interval at every point (Figures 3 and 6 of arXiv 2204.02922).

A plot is plain data: {title, x, y, categories, series: [{name, x, mean, low, high}], notes}; None where there is no
value. Series differ in colour, marker and dashes, so that they differ without colours too.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headwise.errors import InputError
from headwise.reports.figures import figure_style, open_axes, panels, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


COLUMNS = 2
PANEL = (5.6, 4.0)
# Colours that people with any kind of colour blindness tell apart (Okabe and Ito 2008), on white.
COLOURS = ("#000000", "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MARKERS = "osD^vPX*"
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)), (0, (3, 1, 1, 1, 1, 1)))
MOST_BARS = 15  # of so many points and fewer intervals are bars, of more a band
APART = 0.012  # how far the bars of neighbours are moved aside, as a part of the axis

Plot = Mapping[str, Any]


def build_lines(plot: Plot, *, title: str | None = None) -> Figure:
    """A plot as a figure, not yet written.

    Args:
        plot: see above.
        title: stands above it in place of its own; "" for none.
    """
    return build_line_panels([{**plot, "title": ""}], title=plot["title"] if title is None else title)


def build_line_panels(plots: Sequence[Plot], *, title: str = "") -> Figure:
    """Several plots, a panel each."""
    columns = min(len(plots), COLUMNS)
    with figure_style():
        figure, axes = panels(len(plots), COLUMNS, PANEL, _wrapped(title, 60 * columns))
        for panel, plot in zip(axes, plots, strict=True):
            _draw(panel, plot)
        # Each note once. What intervals are belongs to the figure: without it they can be read as anything.
        notes = dict.fromkeys(note for plot in plots for note in plot["notes"])
        if lines := [_wrapped(note, 95 * columns) for note in notes]:
            figure.supxlabel("\n".join(lines), fontsize=7.5, x=0.02, ha="left", linespacing=1.4)
    return figure


def _wrapped(text: str, letters: int) -> str:
    return "\n".join(textwrap.wrap(plain(text), letters))


def style_of(number: int) -> dict[str, Any]:
    """Colour, marker and dashes of a series by its number; no two of the first 280 are alike."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": DASHES[number % len(DASHES)],
        "linewidth": 1.4,
        "markersize": 4.5,
    }


def _draw(panel: Axes, plot: Plot) -> None:
    positions = sorted({value for series in plot["series"] for value in series["x"]})
    step = APART * (positions[-1] - positions[0] or 1.0)
    count, few = len(plot["series"]), len(positions) <= MOST_BARS
    for number, series in enumerate(plot["series"]):
        # Bars at one position would hide each other.
        aside = step * (number - (count - 1) / 2) if few and count > 1 else 0.0
        x = [value + aside for value in series["x"]]
        # NaN where there is no value: matplotlib leaves it out.
        mean, low, high = (np.array(series.get(key) or [None] * len(x), dtype=float) for key in ("mean", "low", "high"))
        style = style_of(number)
        panel.plot(x, mean, label=plain(str(series["name"]), 40), zorder=3, **style)
        known = np.isfinite(low) & np.isfinite(high)
        if not few:
            panel.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)
        elif known.any():
            at = np.array(x)[known]
            panel.vlines(at, low[known], high[known], colors=style["color"], linewidth=0.9, alpha=0.7)
            for ends in (low[known], high[known]):
                panel.plot(at, ends, linestyle="", marker="_", color=style["color"], markersize=5, alpha=0.7)
    open_axes(panel, grid={"axis": "y", "color": "#dddddd", "linewidth": 0.6})
    if plot["categories"] is not None:
        names = [plain(str(name), 20) for name in plot["categories"]]
        panel.set_xticks(range(len(names)), names)
    elif few:
        panel.set_xticks(positions, [f"{position:g}" for position in positions])
    panel.set(title=_wrapped(plot["title"], 60), xlabel=plain(plot["x"]), ylabel=plain(plot["y"]))
    panel.legend(loc="best", fontsize=8, frameon=True, framealpha=0.8, edgecolor="none")


# How training went: a panel for every number that was logged, a line in it for every model.


TITLE = "Training curves"
CURVE_COLUMNS = 3
CURVE_PANEL = (3.4, 2.5)
MOST_MARKS = 25  # lines of more points have no marks

Series = Mapping[str, Any]


def build_curves(series: Sequence[Series], names: Mapping[str, str], *, title: str = TITLE) -> Figure:
    """The figure, not yet written.

    Args:
        series: {model, group, name, kind, x, y}, as `training_curves` gives them.
        names: what to call each model, in the order of the legend.
        title: stands above all panels; "" for none.
    """
    if not series:
        raise InputError(
            "nothing was logged, so there is no curve to draw: train with steps, and training.logging_steps."
        )
    order = {"loss": 0, "validation": 1}  # then guides
    by_panel: dict[str, list[Series]] = {}
    for each in sorted(series, key=lambda each: order.get(each["group"], 2)):
        by_panel.setdefault(panel_title(each), []).append(each)
    models = list(names)
    with figure_style():
        figure, axes = panels(len(by_panel), CURVE_COLUMNS, CURVE_PANEL, plain(title))
        for panel, (name, several) in zip(axes, by_panel.items(), strict=True):
            for each in several:
                style = style_of(models.index(each["model"])) | {"markersize": 3}
                if len(each["x"]) > MOST_MARKS:
                    style |= {"marker": "", "linewidth": 1.1}
                panel.plot(each["x"], each["y"], gid=each["model"], **style)
            panel.set(title=plain(name, 40), xlabel="step")
            panel.locator_params(axis="x", integer=True, nbins=6)
            open_axes(panel, grid={"color": "#e4e4e4", "linewidth": 0.5})
        lines = {line.get_gid(): line for panel in axes for line in panel.get_lines()}
        if len(models) > 1:
            shown = [model for model in models if model in lines]
            figure.legend(
                [lines[model] for model in shown],
                [plain(names[model], 40) for model in shown],
                loc="outside lower center",
                ncols=min(4, len(shown)),
                frameon=False,
            )
    return figure


def panel_title(series: Series) -> str:
    """What a panel shows: of guides also whether it is weighted, or a share of the gradient."""
    if series["group"].startswith("guide:"):
        ending = {"raw": "", "weighted": ", weighted", "share": ", gradient share"}[series["kind"]]
        return f"guide {series['name']}{ending}"
    return f"{series['name']} on validation" if series["group"] == "validation" else str(series["name"])
