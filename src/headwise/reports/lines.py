"""Plots of several systems over an axis: a mean and its interval at every point (Figures 3 and 6 of arXiv 2204.02922).

A plot is plain data: {title, x, y, categories, series: [{name, x, mean, low, high}], notes}; None where there is no
value. Series differ in colour, marker and dashes, so that they differ without colours too.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headwise.errors import InputError
from headwise.reports.figures import figure_style, panels, plain

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
    own = str(plot.get("title", ""))
    return build_line_panels([{**plot, "title": ""}], title=own if title is None else title)


def build_line_panels(plots: Sequence[Plot], *, title: str = "") -> Figure:
    """Several plots, a panel each."""
    if not plots:
        raise InputError("there is no plot to draw: give one or more.")
    for plot in plots:
        _check(plot)
    with figure_style():
        figure, axes = panels(len(plots), COLUMNS, PANEL, "")
        if title:
            lines = textwrap.wrap(plain(title), 60 * min(len(plots), COLUMNS))
            figure.suptitle("\n".join(lines), parse_math=False)
        for panel, plot in zip(axes, plots, strict=True):
            _draw(panel, plot)
            _label(panel, plot)
        write_notes(figure, [str(note) for plot in plots for note in plot["notes"]], 95 * min(len(plots), COLUMNS))
    return figure


def write_notes(figure: Figure, notes: Sequence[str], letters: int) -> None:
    """Each note once, below all panels, in lines of so many letters.

    What intervals are belongs to the figure: without it they can be read as anything.
    """
    lines = [line for note in dict.fromkeys(notes) for line in textwrap.wrap(plain(note), letters)]
    if lines:
        text = figure.supxlabel("\n".join(lines), fontsize=7.5, x=0.02, ha="left", linespacing=1.4)
        text.set_parse_math(False)


def style_of(number: int) -> dict[str, Any]:
    """Colour, marker and dashes of a series by its place; no two of the first 280 are alike."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": DASHES[number % len(DASHES)],
        "linewidth": 1.4,
        "markersize": 4.5,
    }


def _draw(panel: Axes, plot: Plot) -> None:
    places = [value for series in plot["series"] for value in series["x"]]
    step = APART * (max(places) - min(places) or 1.0)
    count = len(plot["series"])
    few = len(set(places)) <= MOST_BARS
    for number, series in enumerate(plot["series"]):
        # Bars of one place would hide each other.
        aside = step * (number - (count - 1) / 2) if few and count > 1 else 0.0
        x = [value + aside for value in series["x"]]
        mean, low, high = (_numbers(series.get(key), len(x)) for key in ("mean", "low", "high"))
        style = style_of(number)
        panel.plot(x, mean, label=plain(str(series["name"]), 40), zorder=3, **style)
        if few:
            _draw_bars(panel, x, low, high, style["color"])
        else:
            panel.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)


def _draw_bars(panel: Axes, x: Sequence[float], low: Sequence[float], high: Sequence[float], colour: str) -> None:
    known = [place for place, ends in enumerate(zip(low, high, strict=True)) if all(map(math.isfinite, ends))]
    if known:
        at, below, above = ([values[place] for place in known] for values in (x, low, high))
        panel.vlines(at, below, above, colors=colour, linewidth=0.9, alpha=0.7)
        panel.plot(at, below, linestyle="", marker="_", color=colour, markersize=5, alpha=0.7)
        panel.plot(at, above, linestyle="", marker="_", color=colour, markersize=5, alpha=0.7)


def _label(panel: Axes, plot: Plot) -> None:
    panel.set_title("\n".join(textwrap.wrap(plain(str(plot["title"])), 60)), parse_math=False)
    panel.set_ylabel(plain(str(plot["y"])), parse_math=False)
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(axis="y", color="#dddddd", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.tick_params(length=2, width=0.6, labelsize=8)
    _mark_places(panel, plot)
    panel.set_xlabel(plain(str(plot["x"])), parse_math=False)
    legend = panel.legend(loc="best", fontsize=8, frameon=True, framealpha=0.8, edgecolor="none")
    for text in legend.get_texts():
        text.set_parse_math(False)


def _mark_places(panel: Axes, plot: Plot) -> None:
    """The names of places, or their numbers where they are few."""
    places = sorted({value for series in plot["series"] for value in series["x"]})
    if plot["categories"] is not None:
        names = [plain(str(name), 20) for name in plot["categories"]]
        panel.set_xticks(range(len(names)), names, parse_math=False)
    elif len(places) <= MOST_BARS:
        panel.set_xticks(places, [f"{place:g}" for place in places])


def _numbers(values: Sequence[float | None] | None, count: int) -> list[float]:
    """NaN where there is no value: matplotlib leaves it out."""
    return [math.nan] * count if values is None else [math.nan if value is None else float(value) for value in values]


def _check(plot: Plot) -> None:
    lacking = [key for key in ("title", "x", "y", "categories", "series", "notes") if key not in plot]
    if lacking:
        raise InputError(f"the plot has no {lacking[0]}: expected title, x, y, categories, series and notes.")
    if not any(value is not None for series in plot["series"] for value in series["mean"]):
        raise InputError(f"the plot {plot['title']!r:.60} has no point to draw: give one series or more with values.")
    for series in plot["series"]:
        for key in ("mean", "low", "high"):
            values = series.get(key)
            if values is not None and len(values) != len(series["x"]):
                raise InputError(
                    f"series {series['name']!r:.40} has {len(values)} values of {key} for {len(series['x'])} places: "
                    "expected one for each."
                )


# How training went: a panel for every number that was logged, a line in it for every model.


TITLE = "Training curves"
CURVE_COLUMNS = 3
CURVE_PANEL = (3.4, 2.5)
MOST_MARKS = 25  # lines of more points have no marks
GUIDE = "guide:"

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
    unknown = [each["model"] for each in series if each["model"] not in names]
    if unknown:
        raise InputError(f"there is no name for the model {unknown[0]!r}: expected one of {', '.join(names)}.")
    by_panel: dict[str, list[Series]] = {}
    for each in sorted(series, key=_group):
        by_panel.setdefault(panel_title(each), []).append(each)
    with figure_style():
        figure, axes = panels(len(by_panel), CURVE_COLUMNS, CURVE_PANEL, title)
        for panel, (name, found) in zip(axes, by_panel.items(), strict=True):
            _draw_curve(panel, name, found, list(names))
        lines = {line.get_gid(): line for panel in axes for line in panel.get_lines()}
        if len(names) > 1:
            shown = [model for model in names if model in lines]
            legend = figure.legend(
                [lines[model] for model in shown],
                [plain(names[model], 40) for model in shown],
                loc="outside lower center",
                ncols=min(4, len(shown)),
                frameon=False,
            )
            for text in legend.get_texts():
                text.set_parse_math(False)
    return figure


def panel_title(series: Series) -> str:
    """What a panel shows: of guides also whether it is weighted, or a share of the gradient."""
    if series["group"].startswith(GUIDE):
        ending = {"raw": "", "weighted": ", weighted", "share": ", gradient share"}[series["kind"]]
        return f"guide {series['name']}{ending}"
    return f"{series['name']} on validation" if series["group"] == "validation" else str(series["name"])


def _group(series: Series) -> int:
    """Losses, then scores, then guides."""
    return {"loss": 0, "validation": 1}.get(series["group"], 2)


def _draw_curve(panel: Axes, name: str, found: Sequence[Series], models: Sequence[str]) -> None:
    for each in found:
        style = style_of(models.index(each["model"])) | {"markersize": 3}
        if len(each["x"]) > MOST_MARKS:
            style |= {"marker": "", "linewidth": 1.1}
        panel.plot(each["x"], each["y"], gid=each["model"], **style)
    panel.set_title(plain(name, 40), parse_math=False)
    panel.set_xlabel("step")
    panel.locator_params(axis="x", integer=True, nbins=6)
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(color="#e4e4e4", linewidth=0.5)
    panel.set_axisbelow(True)
    panel.tick_params(length=2, width=0.6, labelsize=8)
