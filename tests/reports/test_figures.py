"""Figures show the numbers that they were given, every text as it is written, and are the same bytes each time."""

import math
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from headwise.errors import DiskError, InputError
from headwise.reports import heatmap, projection
from headwise.reports.figures import save_as
from headwise.reports.heatmap import build_heatmap, build_matrices, colour_scale
from headwise.reports.lines import APART, build_curves, build_line_panels, build_lines
from headwise.reports.projection import build_projection

SQUARE = {"plain": [[0.25, 0.75], [0.5, 0.5]]}


def panels_of(figure):
    """The panels in order, without their colour bars."""
    return [axes for axes in figure.axes if axes.get_title()]


def written(path):
    return {"".join(element.itertext()).strip() for element in ElementTree.parse(path).iter() if "text" in element.tag}


# -- heat maps ---------------------------------------------------------------------------------------------------------

TOKENS = ["[CLS]", "a", "$x$", "b_c", "##ing", "[SEP]"]


def random_map(seed, tokens=6):
    """Plain lists, as they come from a file; every row sums to one."""
    values = np.random.default_rng(seed).random((tokens, tokens))
    return (values / values.sum(1, keepdims=True)).tolist()


MAPS = {"plain": random_map(1), "guided": random_map(2)}


def test_heat_maps_hold_the_values_given_on_one_scale_and_the_difference_around_zero():
    panels = panels_of(build_heatmap(MAPS, TOKENS))
    difference = np.subtract(MAPS["guided"], MAPS["plain"])
    for panel, values in zip(panels, [*MAPS.values(), difference], strict=True):
        assert np.array_equal(np.asarray(panel.collections[0].get_array()).reshape(6, 6), values)
    assert [panel.get_title() for panel in panels] == ["plain", "guided", "guided − plain"]
    scales = [panel.collections[0].get_clim() for panel in panels]
    assert scales[0] == scales[1] == (0, np.max(list(MAPS.values())))
    assert -scales[2][0] == scales[2][1] == np.abs(difference).max()


def test_colours_follow_the_root_or_the_value():
    flat = {"plain": [[1.0, 0.0], [0.0, 0.0]], "guided": [[0.0, 0.0], [0.0, 0.0]]}
    for scale, expected, around_zero in (
        ("root", [0, 0.5, 1], [0, 0.25, 0.5, 0.75, 1]),
        ("linear", [0, 0.25, 1], [0, 0.375, 0.5, 0.625, 1]),
    ):
        first, _, difference = (
            panel.collections[0].norm for panel in panels_of(build_heatmap(flat, ["a", "b"], scale=scale))
        )
        assert [float(first(value)) for value in (0, 0.25, 1)] == expected
        assert [float(difference(value)) for value in (-1, -0.25, 0, 0.25, 1)] == around_zero


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
    assert len(panels_of(figure)) == len(figure.axes) == panels
    bars = [child for panel in panels_of(figure) for child in panel.child_axes]
    assert len(bars) == (2 if count == 2 else 1)


def test_the_svg_has_every_token_as_text_of_any_script_and_unprintable_ones_too(tmp_path):
    _, svg = heatmap(MAPS, TOKENS, tmp_path / "map", title="a $title$ of_mine")
    assert {*TOKENS, "plain", "guided", "guided − plain", "a $title$ of_mine"} <= written(svg)
    _, svg = heatmap({"plain": random_map(1)}, ["東京", "\x00", "a\nb", "<&>", "", "\ud800"], tmp_path / "map")
    assert {"東京", "\ufffd", "a\ufffdb", "<&>"} <= written(svg)


# -- matrices ----------------------------------------------------------------------------------------------------------

MATRIX = {
    "title": "20 %",
    "rows": ["without a", "without $b$"],
    "columns": ["a", "b", "c"],
    "values": [[50.0, 100.0, None], [90.25, 75.0, 101.0]],
    "notes": ["Mean D-score 3."],
}


def test_every_square_shows_its_number_readable_on_one_scale():
    other = MATRIX | {"title": "mean", "values": [[10.0, 20.0, 30.0], [40.0, 50.0, 60.0]], "notes": []}
    panels = panels_of(build_matrices([MATRIX, other], title="T"))
    assert {(text.get_position(), text.get_text()) for text in panels[0].texts} == {
        *(((0, 0), "50.0"), ((1, 0), "100.0"), ((2, 0), "–")),
        *(((0, 1), "90.2"), ((1, 1), "75.0"), ((2, 1), "101.0")),
    }
    assert [label.get_text() for label in panels[0].get_yticklabels()] == ["without a", "without $b$"]
    assert panels[0].get_xlabel() == "Mean D-score 3."
    assert [panel.collections[0].get_clim() for panel in panels] == [(10, 101)] * 2
    shades = {text.get_text(): text.get_color() for panel in panels for text in panel.texts}
    assert (shades["10.0"], shades["101.0"]) == ("white", "black")


# -- heads as points ---------------------------------------------------------------------------------------------------

LAYERS = [0, 0, 1, 1, 2, 2]
POINTS = {
    name: (np.random.default_rng(seed).standard_normal((len(LAYERS), 2)) * scale).tolist()
    for name, seed, scale in (("plain", 1, 0.1), ("guided", 2, 1.0))
}


@pytest.mark.parametrize("stretch", [1.0, 100.0])
def test_points_are_those_given_on_axes_that_all_panels_share(stretch):
    points = {name: np.array(values) * [1, stretch] for name, values in POINTS.items()}
    figure = build_projection(points, LAYERS)
    for panel, name in zip(figure.axes, POINTS, strict=True):
        (drawn,) = panel.collections
        assert np.array_equal(drawn.get_offsets(), points[name])
        assert np.array_equal(drawn.get_array(), LAYERS)
        assert (panel.get_title(), panel.get_xlabel()) == (name, "component 1")
    ((left, right),) = {panel.get_xlim() for panel in figure.axes}
    ((bottom, top),) = {panel.get_ylim() for panel in figure.axes}
    assert {panel.get_aspect() for panel in figure.axes} == {1.0}
    every = np.concatenate(list(points.values()))
    assert ((every > [left, bottom]) & (every < [right, top])).all()
    assert 0.499 < (top - bottom) / (right - left) < 2.001


def test_axes_say_what_they_explain():
    explained = {"plain": [0.612, 0.2], "guided": [0.301, 0.25]}
    first, second = build_projection(POINTS, LAYERS, explained=explained).axes
    assert first.get_xlabel() == "component 1 (61% of variance)"
    assert first.get_ylabel() == "component 2 (20% of variance)"
    assert second.get_xlabel() == "component 1 (30% of variance)"


def test_three_variants_and_equal_points_can_be_drawn(tmp_path):
    projection({name: np.zeros((6, 2)) for name in ("a", "b", "c")}, LAYERS, tmp_path / "points", title="")


# -- lines -------------------------------------------------------------------------------------------------------------

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


def test_lines_hold_the_means_and_intervals_given_and_break_where_there_is_none():
    (panel,) = build_lines(PLOT).axes
    lines = {line.get_label(): line for line in panel.get_lines() if not line.get_label().startswith("_")}
    assert list(lines) == ["plain", "$a_b$"]
    assert list(lines["plain"].get_ydata()) == PLAIN["mean"]
    first, middle, last = lines["$a_b$"].get_ydata()
    assert (first, last) == (0.35, 0.7)
    assert math.isnan(middle)
    for line in lines.values():
        assert np.abs(np.subtract(line.get_xdata(), X)).max() <= APART * 0.8
    (bars,) = panel.collections  # the second series has none
    assert [tuple(map(float, sorted(bar[:, 1]))) for bar in bars.get_segments()] == [(0.2, 0.4), (0.4, 0.6)]
    x = list(range(40))  # of many points intervals are a band
    wide = {"name": "a", "x": x, "mean": x, "low": [value - 1 for value in x], "high": [value + 2 for value in x]}
    (panel,) = build_lines(PLOT | {"series": [wide]}).axes
    (band,) = panel.collections
    assert tuple(band.get_datalim(panel.transData).intervaly) == (-1, 41)


def test_texts_of_plots_are_shown_as_they_are_and_common_notes_once():
    figure = build_lines(PLOT | {"title": "$x_1$ \n " + "long " * 40})
    shown = [text.get_text() for text in figure.findobj(lambda each: hasattr(each, "get_text"))]
    assert {"$a_b$", "Means over 3 seeds."} <= set(shown)
    assert max(map(len, figure.get_suptitle().split("\n"))) <= 60
    (panel,) = figure.axes
    assert not any(text.get_parse_math() for text in panel.get_legend().get_texts())
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("part", "accuracy on test")
    other = PLOT | {"title": "Other", "categories": ["a", "b"], "notes": ["Means over 3 seeds.", "More."]}
    figure = build_line_panels([PLOT, other])
    assert [panel.get_title() for panel in figure.axes] == ["By size", "Other"]
    assert figure.get_supxlabel() == "Means over 3 seeds.\nMore."


def series(model, group, name, kind="raw", y=(3.0, 2.0)):
    return {"model": model, "group": group, "name": name, "kind": kind, "x": [1, 5], "y": list(y)}


def test_models_share_the_panel_of_a_number_that_was_logged():
    logged = [
        series("m0", "guide:mdg", "mdg", "share"),
        series("m0", "loss", "task loss"),
        series("m1", "loss", "task loss", y=(1.0, 0.5)),
        series("m0", "validation", "accuracy"),
        series("m0", "guide:mdg", "mdg", "weighted"),
    ]
    figure = build_curves(logged, {"m0": "plain", "m1": "$guided$"})
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
    assert not build_curves(logged[:2], {"m0": "plain"}).legends  # one model needs none


# -- refusals ----------------------------------------------------------------------------------------------------------

HALF = {"plain": [[0.5, 0.5]] * 2}
REFUSED = {
    "no variants": (heatmap, ({}, ["a", "b"]), {}, "no variant to draw"),
    "tokens": (heatmap, (HALF, ["a"]), {}, r"'plain' has the shape \[2, 2\]: .*\[1, 1\]"),
    "not numbers": (heatmap, ({"plain": [["x", "y"]] * 2}, ["a", "b"]), {}, "not a table of numbers"),
    "nan": (heatmap, ({"plain": [[math.nan, 1.0]] * 2}, ["a", "b"]), {}, "'plain' .* not finite"),
    "first": (heatmap, (HALF, ["a", "b"]), {"first": 0}, "first 0 of 2 tokens"),
    "scale": (heatmap, (HALF, ["a", "b"]), {"scale": "lin"}, "did you mean 'linear'"),
    "layers": (projection, (POINTS, LAYERS[:5]), {}, r"'plain' has the shape \[6, 2\]: .*\[5, 2\]"),
    "no heads": (projection, ({"plain": []}, []), {}, "layers is empty"),
    "explained, one of two": (
        *(projection, (POINTS, LAYERS)),
        *({"explained": {"plain": [0.5, 0.5]}}, r"expected \['plain', 'guided'\]"),
    ),
    "one share": (
        *(projection, (POINTS, LAYERS)),
        *({"explained": dict.fromkeys(POINTS, [0.5])}, r"\[1, 1\]: expected the shares"),
    ),
}


@pytest.mark.parametrize(("draw", "given", "options", "message"), REFUSED.values(), ids=REFUSED)
def test_bad_input_is_refused_before_anything_is_written(draw, given, options, message, tmp_path):
    with pytest.raises(InputError, match=message):
        draw(*given, tmp_path / "figure", **options)
    assert list(tmp_path.iterdir()) == []


def test_nothing_logged_and_what_is_no_matrix_are_refused():
    with pytest.raises(InputError, match="nothing was logged"):
        build_curves([], {"m0": "plain"})
    for values in ([[1.0, 2.0, 3.0]], [["x"] * 3] * 2):
        with pytest.raises(InputError, match="expected numbers in 2 rows and 3 columns"):
            build_matrices([MATRIX | {"values": values}])
    with pytest.raises(InputError, match="there is no value to draw"):
        build_matrices([MATRIX | {"values": [[None] * 3] * 2}])


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ending", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".PDF", b"%PDF")])
def test_equal_figures_give_equal_bytes(ending, start, tmp_path):
    paths = [save_as(build_heatmap(SQUARE, ["a", "b"]), tmp_path / f"{name}{ending}") for name in "ab"]
    first, second = (path.read_bytes() for path in paths)
    assert first.startswith(start)
    assert first == second
    # Both may fall into one second, so that equal bytes say nothing of dates.
    assert not any(date in first for date in (b"CreationDate", b"ModDate", b"<dc:date>", b"tIME"))
    for name in ("figure.jpg", "figure"):
        with pytest.raises(InputError, match=r"expected .png, .svg, .pdf"):
            save_as(build_heatmap(SQUARE, ["a", "b"]), tmp_path / name)
    assert sorted(tmp_path.iterdir()) == paths


def test_a_full_disk_is_reported_and_leaves_the_old_file(tmp_path, monkeypatch):
    def crash(*_):
        raise OSError(28, "No space left on device")

    (tmp_path / "figure.pdf").write_text("old")
    monkeypatch.setattr(Path, "replace", crash)  # by which new content takes its place
    with pytest.raises(DiskError, match="could not be written: No space left"):
        save_as(build_heatmap(SQUARE, ["a", "b"]), tmp_path / "figure.pdf")
    assert [path.name for path in tmp_path.iterdir()] == ["figure.pdf"]
    assert (tmp_path / "figure.pdf").read_text() == "old"


def test_the_users_settings_neither_change_nor_matter(tmp_path):
    expected = [path.read_bytes() for path in heatmap(SQUARE, ["a", "b"], tmp_path / "first")]
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "black", "svg.fonttype": "path"}):
        before = dict(matplotlib.rcParams)
        paths = heatmap(SQUARE, ["a", "b"], tmp_path / "second")
        assert dict(matplotlib.rcParams) == before
    assert [path.read_bytes() for path in paths] == expected


def test_pyplot_is_never_imported(tmp_path):
    code = (
        "import sys; from pathlib import Path; from headwise.reports import heatmap\n"
        f"heatmap({SQUARE!r}, ['a', 'b'], Path({str(tmp_path / 'figure')!r}))\n"
        "sys.exit('matplotlib.pyplot' in sys.modules or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_without_matplotlib_the_way_out_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for draw, second in ((heatmap, ["a", "b"]), (projection, [0, 1])):
        with pytest.raises(InputError, match=r"pip install 'headwise\[reports\]'"):
            draw(SQUARE, second, tmp_path / "figure")
    assert list(tmp_path.iterdir()) == []
