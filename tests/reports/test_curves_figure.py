"""A panel for every number that was logged, a line in it for every model."""

import pytest

from headwise.errors import InputError
from headwise.reports.lines import build_curves


def series(model, group, name, kind="raw", y=(3.0, 2.0)):
    return {"model": model, "group": group, "name": name, "kind": kind, "x": [1, 5], "y": list(y)}


SERIES = [
    series("m0", "guide:mdg", "mdg", "share"),
    series("m0", "loss", "task loss"),
    series("m1", "loss", "task loss", y=(1.0, 0.5)),
    series("m0", "validation", "accuracy"),
    series("m0", "guide:mdg", "mdg", "weighted"),
]
NAMES = {"m0": "plain", "m1": "$guided$"}


def test_models_share_the_panel_of_a_number():
    figure = build_curves(SERIES, NAMES)
    panels = {panel.get_title(): panel for panel in figure.axes}
    assert list(panels) == ["task loss", "accuracy on validation", "guide mdg, gradient share", "guide mdg, weighted"]
    first, second = panels["task loss"].get_lines()
    assert (list(first.get_xdata()), list(first.get_ydata())) == ([1, 5], [3.0, 2.0])
    assert list(second.get_ydata()) == [1.0, 0.5]
    assert first.get_color() != second.get_color()
    assert first.get_linestyle() != second.get_linestyle()
    (alone,) = panels["guide mdg, weighted"].get_lines()
    assert alone.get_color() == first.get_color()  # a model looks the same in all panels
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["plain", "$guided$"]


def test_one_model_needs_no_legend():
    assert not build_curves(SERIES[:2], {"m0": "plain"}).legends


def test_nothing_logged_and_unknown_models_are_refused():
    with pytest.raises(InputError, match="nothing was logged"):
        build_curves([], NAMES)
    with pytest.raises(InputError, match="no name for the model 'm1'"):
        build_curves(SERIES, {"m0": "plain"})
