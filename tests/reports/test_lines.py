"""Lines show the means and intervals that they were given, and can be told apart without colours."""

import math

import numpy as np
import pytest

from headwise.errors import InputError
from headwise.reports.lines import APART, build_line_panels, build_lines

X = [0.2, 0.6, 1.0]
PLAIN = {"name": "plain", "x": X, "mean": [0.3, 0.4, 0.5], "low": [0.2, None, 0.4], "high": [0.4, None, 0.6]}
GUIDED = {"name": "$a_b$", "x": X, "mean": [0.35, None, 0.7], "low": None, "high": None}
PLOT = {
    "title": "By size",
    "x": "part",
    "y": "accuracy on test",
    "categories": None,
    "series": [PLAIN, GUIDED],
    "notes": ["Means over 3 seeds."],
}


def lines_of(panel):
    return {line.get_label(): line for line in panel.get_lines() if not line.get_label().startswith("_")}


def texts(figure):
    return [text.get_text() for text in figure.findobj(lambda each: hasattr(each, "get_text"))]


def test_lines_hold_the_means_given_and_break_where_there_is_none():
    (panel,) = build_lines(PLOT).axes
    lines = lines_of(panel)
    assert list(lines) == ["plain", "$a_b$"]
    assert list(lines["plain"].get_ydata()) == PLAIN["mean"]
    first, middle, last = lines["$a_b$"].get_ydata()
    assert (first, last) == (0.35, 0.7)
    assert math.isnan(middle)
    for line in lines.values():
        assert np.abs(np.subtract(line.get_xdata(), X)).max() <= APART * 0.8


def test_intervals_are_bars_where_there_are_some():
    (panel,) = build_lines(PLOT).axes
    (bars,) = panel.collections  # the second series has none
    ends = [[tuple(map(float, sorted(bar[:, 1])))] for bar in bars.get_segments()]
    assert ends == [[(0.2, 0.4)], [(0.4, 0.6)]]


def test_of_many_points_intervals_are_a_band():
    x = list(range(40))
    wide = {"name": "a", "x": x, "mean": x, "low": [value - 1 for value in x], "high": [value + 2 for value in x]}
    (panel,) = build_lines(PLOT | {"series": [wide]}).axes
    (band,) = panel.collections
    low, high = band.get_datalim(panel.transData).intervaly
    assert (low, high) == (-1, 41)


def test_texts_are_shown_as_they_are():
    figure = build_lines(PLOT | {"title": "$x_1$ \n " + "long " * 40})
    written = texts(figure)
    assert "$a_b$" in written
    assert "Means over 3 seeds." in written
    assert max(map(len, figure.get_suptitle().split("\n"))) <= 60
    assert not any(text.get_parse_math() for text in figure.axes[0].get_legend().get_texts())
    (panel,) = figure.axes
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("part", "accuracy on test")


def test_several_plots_are_panels_with_common_notes_once():
    other = PLOT | {"title": "Other", "notes": ["Means over 3 seeds.", "More."]}
    figure = build_line_panels([PLOT, other])
    assert [panel.get_title() for panel in figure.axes] == ["By size", "Other"]
    assert figure.get_supxlabel() == "Means over 3 seeds.\nMore."


BAD = [
    pytest.param({key: value for key, value in PLOT.items() if key != "y"}, "has no y", id="part"),
    pytest.param(PLOT | {"series": []}, "no point to draw", id="series"),
    pytest.param(PLOT | {"series": [GUIDED | {"mean": [None] * 3}]}, "no point to draw", id="values"),
    pytest.param(PLOT | {"series": [PLAIN | {"low": [0.1]}]}, "1 values of low for 3 places", id="length"),
]


@pytest.mark.parametrize(("plot", "message"), BAD)
def test_what_cannot_be_drawn_is_refused(plot, message):
    with pytest.raises(InputError, match=message):
        build_lines(plot)
    with pytest.raises(InputError, match="there is no plot"):
        build_line_panels([])
