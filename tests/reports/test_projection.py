"""The projection shows the points it was given, on one scale, coloured by layer."""

import numpy as np
import pytest

from headwise.errors import InputError
from headwise.reports import projection
from headwise.reports.projection import build_projection

LAYERS = [0, 0, 1, 1, 2, 2]


def random_points(seed, scale=1.0):
    return (np.random.default_rng(seed).standard_normal((len(LAYERS), 2)) * scale).tolist()


PAIR = {"plain": random_points(1, 0.1), "guided": random_points(2)}
EXPLAINED = {"plain": [0.612, 0.2], "guided": [0.301, 0.25]}


def test_points_are_those_given_and_coloured_by_layer():
    figure = build_projection(PAIR, LAYERS)
    for panel, name in zip(figure.axes, PAIR, strict=True):
        (points,) = panel.collections
        assert np.array_equal(points.get_offsets(), PAIR[name])
        assert np.array_equal(points.get_array(), LAYERS)
        assert panel.get_title() == name


@pytest.mark.parametrize("stretch", [1.0, 100.0])
def test_all_panels_have_the_same_axes_of_one_scale_and_hold_every_point(stretch):
    points = {name: np.array(values) * [1, stretch] for name, values in PAIR.items()}
    figure = build_projection(points, LAYERS)
    ((left, right),) = {panel.get_xlim() for panel in figure.axes}
    ((bottom, top),) = {panel.get_ylim() for panel in figure.axes}
    assert {panel.get_aspect() for panel in figure.axes} == {1.0}
    every = np.concatenate(list(points.values()))
    assert (every > [left, bottom]).all()
    assert (every < [right, top]).all()
    assert 0.499 < (top - bottom) / (right - left) < 2.001


def test_axes_say_what_they_explain():
    first, second = build_projection(PAIR, LAYERS, explained=EXPLAINED).axes
    assert (first.get_xlabel(), first.get_ylabel()) == (
        "component 1 (61% of variance)",
        "component 2 (20% of variance)",
    )
    assert second.get_xlabel() == "component 1 (30% of variance)"
    assert build_projection(PAIR, LAYERS).axes[0].get_xlabel() == "component 1"


def test_three_variants_and_equal_points_can_be_drawn(tmp_path):
    projection({name: np.zeros((6, 2)) for name in ("a", "b", "c")}, LAYERS, tmp_path / "points", title="")


@pytest.mark.parametrize(
    ("coordinates", "layers", "explained", "message"),
    [
        pytest.param(PAIR, LAYERS[:5], None, r"'plain' has the shape \[6, 2\]: .*\[5, 2\]", id="layers"),
        pytest.param({"plain": []}, [], None, "layers is empty", id="no heads"),
        pytest.param(
            PAIR, LAYERS, {"plain": [0.5, 0.5]}, r"expected \['plain', 'guided'\]", id="explained, one of two"
        ),
        pytest.param(PAIR, LAYERS, dict.fromkeys(PAIR, [0.5]), r"\[1, 1\]: expected the shares", id="one share"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(coordinates, layers, explained, message, tmp_path):
    with pytest.raises(InputError, match=message):
        projection(coordinates, layers, tmp_path / "points", explained=explained)
    assert list(tmp_path.iterdir()) == []
