"""The heat map shows the numbers it was given, and every token as it is written."""

import math
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from headwise.errors import InputError
from headwise.reports import heatmap
from headwise.reports.heatmap import build_heatmap, colour_scale

TOKENS = ["[CLS]", "a", "$x$", "b_c", "##ing", "[SEP]"]


def random_map(seed, tokens=6):
    """Plain lists, as they come from a file; every row sums to one."""
    values = np.random.default_rng(seed).random((tokens, tokens))
    return (values / values.sum(1, keepdims=True)).tolist()


PAIR = {"plain": random_map(1), "guided": random_map(2)}


def panels_of(figure):
    """The panels in order, without their colour bars."""
    return [axes for axes in figure.axes if axes.get_title()]


def cells(panel):
    return np.asarray(panel.collections[0].get_array()).reshape(len(panel.get_yticks()), -1)


def written(path):
    return {"".join(element.itertext()).strip() for element in ElementTree.parse(path).iter() if "text" in element.tag}


def test_panels_hold_the_values_given():
    first, second, difference = panels_of(build_heatmap(PAIR, TOKENS))
    assert np.array_equal(cells(first), PAIR["plain"])
    assert np.array_equal(cells(second), PAIR["guided"])
    assert np.array_equal(cells(difference), np.subtract(PAIR["guided"], PAIR["plain"]))
    assert [panel.get_title() for panel in (first, second, difference)] == ["plain", "guided", "guided − plain"]


def test_one_scale_for_the_variants_and_one_around_zero_for_the_difference():
    first, second, difference = (panel.collections[0] for panel in panels_of(build_heatmap(PAIR, TOKENS)))
    assert first.get_clim() == second.get_clim() == (0, np.max(list(PAIR.values())))
    low, high = difference.get_clim()
    assert -low == high == np.abs(np.subtract(PAIR["guided"], PAIR["plain"])).max()


def shade(panel, value):
    """Where the value lies between the two ends of the colours."""
    return float(panel.collections[0].norm(value))


def test_colours_follow_the_root_or_the_value():
    flat = {"plain": [[1.0, 0.0], [0.0, 0.0]], "guided": [[0.0, 0.0], [0.0, 0.0]]}
    root = panels_of(build_heatmap(flat, ["a", "b"]))
    linear = panels_of(build_heatmap(flat, ["a", "b"], scale="linear"))
    assert [shade(root[0], value) for value in (0, 0.25, 1)] == [0, 0.5, 1]
    assert [shade(linear[0], value) for value in (0, 0.25, 1)] == [0, 0.25, 1]
    assert [shade(root[2], value) for value in (-1, -0.25, 0, 0.25, 1)] == [0, 0.25, 0.5, 0.75, 1]
    assert [shade(linear[2], value) for value in (-1, 0, 1)] == [0, 0.5, 1]


@pytest.mark.parametrize(
    ("lowest", "highest", "expected"),
    [
        (0, 0.82, ["0", "0.1", "0.2", "0.5"]),
        (-0.19, 0.19, ["−0.1", "−0.05", "−0.02", "0", "0.02", "0.05", "0.1"]),
        (0, 2e-7, ["0", "2e−08", "5e−08", "1e−07", "2e−07"]),
    ],
)
def test_the_root_scale_is_marked_with_round_values(lowest, highest, expected):
    _, ticks = colour_scale(lowest, highest, "root")
    assert list(ticks.values()) == expected
    assert [float(text.replace("−", "-")) for text in ticks.values()] == pytest.approx(list(ticks))


@pytest.mark.parametrize(("count", "panels"), [(1, 1), (2, 3), (4, 4)])
def test_only_two_variants_have_a_difference(count, panels):
    figure = build_heatmap({f"v{seed}": random_map(seed) for seed in range(count)}, TOKENS)
    assert len(panels_of(figure)) == panels
    assert len(figure.axes) == panels
    bars = [child for panel in panels_of(figure) for child in panel.child_axes]
    assert len(bars) == (2 if count == 2 else 1)


def test_the_svg_has_every_token_as_text(tmp_path):
    _, svg = heatmap(PAIR, TOKENS, tmp_path / "map", title="a $title$ of_mine")
    assert {*TOKENS, "plain", "guided", "guided − plain", "a $title$ of_mine"} <= written(svg)


def test_tokens_of_any_script_and_unprintable_ones_can_be_drawn(tmp_path):
    tokens = ["東京", "\x00", "a\nb", "<&>", "", "\ud800"]
    _, svg = heatmap({"plain": random_map(1)}, tokens, tmp_path / "map")
    assert {"東京", "\ufffd", "a\ufffdb", "<&>"} <= written(svg)


SQUARE = [[0.5, 0.5], [0.5, 0.5]]


@pytest.mark.parametrize(
    ("maps", "tokens", "options", "message"),
    [
        pytest.param({}, ["a", "b"], {}, "no variant to draw", id="no variants"),
        pytest.param({"plain": SQUARE}, ["a"], {}, r"'plain' has the shape \[2, 2\]: .*\[1, 1\]", id="tokens"),
        pytest.param({"plain": [["x", "y"]] * 2}, ["a", "b"], {}, "not a table of numbers", id="not numbers"),
        pytest.param({"plain": [[math.nan, 1.0]] * 2}, ["a", "b"], {}, "'plain' .* not finite", id="nan"),
        pytest.param({"plain": SQUARE}, ["a", "b"], {"first": 0}, "first 0 of 2 tokens", id="first"),
        pytest.param({"plain": SQUARE}, ["a", "b"], {"scale": "lin"}, "did you mean 'linear'", id="scale"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(maps, tokens, options, message, tmp_path):
    with pytest.raises(InputError, match=message):
        heatmap(maps, tokens, tmp_path / "map", **options)
    assert list(tmp_path.iterdir()) == []
