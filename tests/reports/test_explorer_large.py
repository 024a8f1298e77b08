"""Pages as large as they get: 12 x 12 heads on 20 examples, and 512 tokens."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from explorer_pages import Tab, write_page
from explorer_payloads import big, long, root

pytest_plugins = ["explorer_browser"]


def test_a_big_page_opens_and_unpacks_only_what_is_looked_at(show):
    tab = show(big())
    assert tab.run("return performance.getEntriesByName('headwise-ready')[0].startTime") < 20000
    assert len(tab.all("#heads [data-grid] .cell")) == 3 * 144
    tab.choose("#example", "e19")
    tab.choose("#layer", "11")
    tab.choose("#head", "11")
    rows = tab.csv("detail")[1:]
    true = big().maps["m1", "e19"][143]
    largest = true.max(-1)
    for place in (0, 31, 63):
        read = max(float(row[5] or 0) for row in rows if row[0] == str(place))
        assert read == pytest.approx(largest[place], abs=0.005)


def test_512_tokens_are_drawn_read_and_saved(show):
    maker = long()
    tab = show(maker, "#layer=1&head=0")
    assert len(tab.all("#detail canvas")) == 3
    # One canvas per map and two columns of tokens per model, but nothing per cell.
    assert tab.run("return document.querySelectorAll('*').length") < 10000
    drawn = """
      const canvas = document.querySelectorAll('#detail canvas')[arguments[0]];
      const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
      const colours = new Set();
      for (let place = 0; place < data.length; place += 4) colours.add(data.slice(place, place + 3).join());
      return colours.size"""
    assert min(tab.run(drawn, place) for place in range(3)) > 50
    exact = (root(maker.maps["m0", "e0"][2]) / 255.0) ** 2
    columns, *rows = tab.table("detail")
    first = [row for row in rows if row[0] == "0"]
    top = np.argsort(-exact[0], kind="stable")[:3]
    assert {int(row[2]) for row in first} >= {int(place) for place in top}
    for row in first:
        assert float(row[4]) == pytest.approx(exact[0, int(row[2])], abs=6e-4)
    # Indices of two bytes: columns beyond 255 are read as well.
    order = np.argsort(-maker.maps["m1", "e0"][2], axis=-1, kind="stable")[:, :3]
    (place, *_) = np.flatnonzero(order.min(-1) > 255)
    line = {int(row[2]): row[5] for row in rows if row[0] == str(place)}
    assert all(line[int(column)] for column in order[place])
    picture = ElementTree.fromstring(tab.saved("detail", "svg")[1])
    images = list(picture.iter("{http://www.w3.org/2000/svg}image"))
    assert [each.get("href").split(",")[0] for each in images] == ["data:image/png;base64"] * 3
    assert tab.saved("detail", "png")[1].startswith(b"\x89PNG")


def test_an_array_that_is_cut_short_is_reported_and_the_rest_works(browser, tmp_path):
    maker = long()
    maker.arrays["m0e0"] = maker.arrays["m0e0"][:-1]
    tab = Tab(browser, write_page(maker, tmp_path / "page.html")).open()
    assert ["bytes instead of" in each for each in tab.problems()] == [True]
    assert len(tab.all("#means canvas")) == 2
