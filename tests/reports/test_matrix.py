"""Squares have the numbers they were given, in colours of one scale."""

import pytest

from headwise.errors import InputError
from headwise.reports.heatmap import build_matrices

FIRST = {
    "title": "20 %",
    "rows": ["without a", "without $b$"],
    "columns": ["a", "b", "c"],
    "values": [[50.0, 100.0, None], [90.25, 75.0, 101.0]],
    "notes": ["Mean D-score 3."],
}
SECOND = FIRST | {"title": "mean", "values": [[10.0, 20.0, 30.0], [40.0, 50.0, 60.0]], "notes": []}


def test_every_square_shows_its_number():
    first, _ = (panel for panel in build_matrices([FIRST, SECOND]).axes if panel.get_title())
    found = {(text.get_position(), text.get_text()) for text in first.texts}
    assert found == {
        *(((0, 0), "50.0"), ((1, 0), "100.0"), ((2, 0), "–")),
        *(((0, 1), "90.2"), ((1, 1), "75.0"), ((2, 1), "101.0")),
    }
    assert [label.get_text() for label in first.get_yticklabels()] == ["without a", "without $b$"]
    assert first.get_xlabel() == "Mean D-score 3."


def test_one_scale_for_all_and_readable_numbers():
    panels = [panel for panel in build_matrices([FIRST, SECOND], title="T").axes if panel.get_title()]
    assert [panel.collections[0].get_clim() for panel in panels] == [(10, 101)] * 2
    shades = {text.get_text(): text.get_color() for panel in panels for text in panel.texts}
    assert (shades["10.0"], shades["101.0"]) == ("white", "black")


@pytest.mark.parametrize("values", [[[1.0, 2.0, 3.0]], [["x"] * 3] * 2])
def test_what_is_no_matrix_is_refused(values):
    with pytest.raises(InputError, match="expected numbers in 2 rows and 3 columns"):
        build_matrices([FIRST | {"values": values}])
