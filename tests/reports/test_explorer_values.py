"""The numbers on the page and in its files are those of the arrays."""

import struct
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from explorer_payloads import root, tiny

pytest_plugins = ["explorer_browser"]

MAKER = tiny()
SVG = "{http://www.w3.org/2000/svg}"
VIEWS = [*MAKER.views, "detail", "means", "points", "ssa"]


def kept(model, example, head):
    """What the page can know: rounded to bytes, and only the three largest of a row in the third example."""
    true = MAKER.maps[model, example][head]
    stored = (root(true) / 255.0) ** 2
    if example != "e2":
        return stored
    rank = np.argsort(np.argsort(-true, axis=-1, kind="stable"), axis=-1)
    return np.where((rank < 3) & (stored > 0), stored, np.nan)


@pytest.mark.parametrize("example", ["e0", "e1", "e2"])
def test_the_file_of_a_head_holds_its_map(tab, example):
    tab.open(f"#example={example}&layer=1&head=1")
    columns, *rows = tab.csv("detail")
    assert columns == ["From", "From token", "To", "To token", "plain", "guided", "Difference"]
    size = len(MAKER.examples[int(example[1])]["tokens"])
    read = np.full((2, size, size), np.nan)
    for row in rows:
        for place in (0, 1):
            read[place, int(row[0]), int(row[2])] = float(row[4 + place] or "nan")
    for place, model in enumerate(("m0", "m1")):
        np.testing.assert_allclose(read[place], kept(model, example, 3), atol=1e-6)
    differences = [float(row[6]) for row in rows if row[6]]
    assert differences == pytest.approx([float(row[5]) - float(row[4]) for row in rows if row[6]], abs=1e-6)


def test_the_table_of_a_head_holds_the_three_largest_of_each_row(tab):
    tab.open("#example=e1&layer=0&head=1")
    _, *rows = tab.table("detail")
    truth = [kept(model, "e1", 1) for model in ("m0", "m1")]
    for place in range(9):
        shown = {int(row[2]): row for row in rows if row[0] == str(place)}
        largest = {int(each) for values in truth for each in np.argsort(-values[place], kind="stable")[:3]}
        assert set(shown) == largest
        for column, row in shown.items():
            assert [float(cell) for cell in row[4:6]] == pytest.approx(
                [values[place, column] for values in truth], abs=6e-4
            )


def test_the_quadrants_are_mean_shares(tab):
    tab.open("#example=e0&layer=0&head=0")
    table = tab.run(
        "const { rows } = document.querySelector('#detail .shares table');"
        "return [...rows].map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    segments = np.array(MAKER.examples[0]["segments"])
    for model, row in zip(("m0", "m1"), table[1:], strict=True):
        values = kept(model, "e0", 0)
        wanted = [
            values[segments == start][:, segments == end].sum(-1).mean() for start in (0, 1) for end in (0, 1, -1)
        ]
        assert [float(row[place]) for place in (1, 2, 3, 5, 6, 7)] == pytest.approx(wanted, abs=6e-4)


def test_what_was_not_kept_is_marked(tab):
    tab.open("#example=e2&layer=0&head=0")
    values = kept("m0", "e2", 0)[0]
    missing = int(np.flatnonzero(np.isnan(values))[0])
    tab.focus("#detail canvas")
    for _ in range(missing):
        tab.press("\ue014")
    if missing == 0:
        tab.press("\ue012")
    told = tab.text("#detail-readout").split("plain ")[1]
    bound, rest = (
        float(part.split()[-1]) for part in (told.split(")")[0], told.split(" of this row")[0].replace("(", " "))
    )
    assert told.startswith("not kept (at most ")
    assert bound == pytest.approx(np.nanmin(values), abs=6e-4)
    assert rest == pytest.approx(1 - np.nansum(values), abs=2e-3)


PIXELS = """
  const canvas = document.querySelectorAll('#detail canvas')[arguments[0]];
  const ratio = canvas.width / parseFloat(canvas.style.width);
  const [left, top] = [parseFloat(canvas.style.width) - 2 - 7 * 30, parseFloat(canvas.style.height) - 2 - 7 * 30];
  const found = [];
  for (let row = 0; row < 7; row += 1) for (let column = 0; column < 7; column += 1) {
    const [x, y] = [left + (column + 0.3) * 30, top + (row + 0.3) * 30];
    found.push([...canvas.getContext('2d').getImageData(x * ratio, y * ratio, 1, 1).data.slice(0, 3)]);
  }
  return found"""


def test_more_is_orange_and_less_is_blue(tab):
    tab.open("#example=e0&layer=0&head=0")
    difference = (kept("m1", "e0", 0) - kept("m0", "e0", 0)).ravel()
    red, _, blue = np.array(tab.run(PIXELS, 2)).T.astype(int)
    clear = np.abs(difference) > 0.02
    assert {*np.sign(difference[clear])} == {-1, 1}
    assert (np.sign(red - blue)[clear] == np.sign(difference)[clear]).all()
    cells = tab.run(
        "return [...document.querySelectorAll('[data-grid=difference] .cell')].map((each) => each.style.background)"
    )
    first, second = (MAKER.views["heads"]["values"][model]["entropy"]["mean"] for model in ("m0", "m1"))
    for place, colour in enumerate(cells):
        before, after = first[place // 2][place % 2], second[place // 2][place % 2]
        if before is None:
            assert colour == ""
        else:
            red, _, blue = (int(part) for part in colour[4:-1].split(","))
            assert (red > blue) == (after > before)


def test_more_attention_is_darker_on_white_and_brighter_on_black_on_either_scale(tab):
    tab.open("#example=e0&layer=0&head=0")
    values = kept("m0", "e0", 0)
    for _ in range(2):
        dark = tab.run("return getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
        grey = np.array(tab.run(PIXELS, 0)) @ [0.3, 0.6, 0.1] * (1 if dark else -1)
        order = np.argsort(values.ravel(), kind="stable")
        assert (np.diff(grey[order]) > -3).all()
        assert grey[order[-1]] - grey[order[0]] > 120
        tab.click("#theme")
    rows, picture = tab.csv("detail"), tab.saved("detail", "svg")[1]
    tab.choose("#scale", "linear")
    assert tab.csv("detail") == rows
    assert tab.saved("detail", "svg")[1] != picture


def test_the_file_of_the_heads_holds_all_statistics_and_the_table_the_difference(tab):
    columns, *rows = tab.csv("heads")
    assert columns == ["Model", "Statistic", "Layer", "Head", "Mean", "Standard error"]
    values = MAKER.views["heads"]["values"]
    names = {"plain": "m0", "guided": "m1"}
    statistics = [row for row in rows if row[1] != "change"]
    assert len(statistics) == 2 * 2 * 4
    for name, statistic, layer, head, mean, error in statistics:
        entry = values[names[name]][statistic]
        assert (float(mean) if mean else None) == entry["mean"][int(layer)][int(head)]
        assert float(error) == entry["error"][int(layer)][int(head)]
    assert [float(row[4]) for row in rows if row[1] == "change"] == [
        each["change"] for each in MAKER.views["heads"]["changes"]
    ]
    tab.open("#statistic=sink")  # and its table the difference
    _, *rows = tab.table("heads", 0)
    first, second = (values[model]["sink"]["mean"] for model in ("m0", "m1"))
    for row in rows:
        layer, head = int(row[1]), int(row[2])
        if first[layer][head] is None:
            assert (row[3], row[7]) == ("", "")
        else:
            assert float(row[7]) == pytest.approx(second[layer][head] - first[layer][head], abs=6e-4)


def test_the_other_files_hold_the_numbers_of_the_payload(tab):
    views = MAKER.views
    curves = tab.csv("curves")[1:]
    assert [float(row[5]) for row in curves] == [y for each in views["curves"]["series"] for y in each["y"]]
    plot = views["sizes"][0]["series"]
    assert [[float(cell) for cell in row[1:]] for row in tab.csv("sizes")[1:]] == [
        list(point) for each in plot for point in zip(each["x"], each["mean"], each["low"], each["high"], strict=True)
    ]
    points = [point for each in views["diversity"].values() for step in each["points"] for point in step]
    assert [[float(cell) for cell in row[6:]] for row in tab.csv("diversity")[1:]] == points
    means = np.array([[float(cell) for cell in row[4:]] for row in tab.csv("means")[1:]])
    for place, model in enumerate(("m0", "m1")):
        stored = (root(MAKER.maps[model, "e0"].mean(0)) / 255.0) ** 2
        np.testing.assert_allclose(means[:, place], stored.ravel(), atol=1e-6)
    scores = MAKER.examples[0]["ssa"]["m1"]["scores"]
    assert [float(row[2]) if row[2] else None for row in tab.csv("ssa")[1:]] == scores
    assert tab.csv("dissociation")[1:] == [["nli", "-0.31", "-0.02"], ["topic", "-0.04", ""]]


def test_files_of_every_view_can_be_read(tab):
    tab.open("#layer=0&head=0")
    for view in VIEWS:
        type_, content = tab.saved(view, "svg")
        picture = ElementTree.fromstring(content)
        assert (type_, picture.tag) == ("image/svg+xml", f"{SVG}svg"), view
        assert len(list(picture.iter(f"{SVG}text"))) > 1, view
        wide, high = float(picture.get("width")), float(picture.get("height"))
        type_, content = tab.saved(view, "png")
        assert (type_, content[:8]) == ("image/png", b"\x89PNG\r\n\x1a\n"), view
        assert struct.unpack(">II", content[16:24]) == (round(2 * wide), round(2 * high)), view
        assert len(tab.csv(view)) > 1, view
