"""Texts of users that try to be markup, scripts or formulas stay texts."""

import xml.etree.ElementTree as ElementTree

import pytest
from explorer_pages import Tab, write_page
from explorer_payloads import HOSTILE, hostile

pytest_plugins = ["explorer_browser"]

VIEWS = [
    "summary", "caveats", "curves", "heads", "detail", "means", "points", "diversity", "layers", "sizes", "weights",
    "pruning", "dissociation", "overlap", "results", "times", "ssa", "retrieval", "flips",
]  # fmt: skip


@pytest.fixture(scope="module")
def tab(browser, tmp_path_factory):
    opened = Tab(browser, write_page(hostile(), tmp_path_factory.mktemp("page") / "page.html", title=HOSTILE)).open()
    yield opened
    assert opened.run("return typeof window.owned") == "undefined"
    assert opened.complaints() == []


def test_nothing_is_run_and_no_element_comes_of_it(tab):
    assert tab.run("return [typeof window.owned, document.images.length]") == ["undefined", 0]
    assert tab.browser.title == HOSTILE
    assert tab.text("h1") == HOSTILE
    assert tab.problems() == []


def test_views_and_their_files_show_it_as_it_is(tab):
    for view in VIEWS:
        found = tab.run(
            "const all = document.querySelectorAll(`#${arguments[0]}, #${arguments[0]} [aria-label]`);"
            "return [...all].map((each) => each.textContent + each.ariaLabel).join()",
            view,
        )
        assert HOSTILE[:12] in found, view  # long ones are cut in pictures
        assert HOSTILE[:12] in str(tab.table(view, 0)), view
        picture = ElementTree.fromstring(tab.saved(view, "svg")[1])
        assert {each.tag.split("}")[1] for each in picture.iter()} <= {
            "svg", "rect", "text", "line", "path", "g", "circle", "title", "image",
        }, view  # fmt: skip
        assert not [name for each in picture.iter() for name in each.keys() if name.startswith("on")], view
        assert any(HOSTILE[:12] in (each.text or "") for each in picture.iter()), view
        assert HOSTILE[:12] in str(tab.csv(view)), view


def test_tokens_answers_and_choices_hold_the_whole_text(tab):
    assert tab.texts("#detail .from .token")[1] == HOSTILE
    assert tab.texts("#example option") == [HOSTILE]
    assert HOSTILE in tab.text("#detail .answers")
    tab.focus("#detail canvas")
    tab.press("\ue015")
    tab.press("\ue014")
    assert f"From “{HOSTILE}” (1) to “{HOSTILE}” (1)" in tab.text("#detail-readout")


@pytest.mark.parametrize("text", ["=1+1", "\tx", "\r=1"])
def test_formulas_are_disarmed_in_files(browser, tmp_path, text):
    maker = hostile()
    maker.examples.clear()
    maker.views = {"times": [{"title": "x", "columns": ["a", text], "rows": [[text, 'q"u,o']], "notes": []}]}
    tab = Tab(browser, write_page(maker, tmp_path / "page.html")).open()
    assert tab.csv("times") == [["a", f"'{text}"], [f"'{text}", 'q"u,o']]


def test_signs_that_xml_does_not_know_do_not_spoil_a_picture(browser, tmp_path):
    maker = hostile()
    maker.examples[0]["tokens"][2] = "\x00\x1b\ufffe"
    tab = Tab(browser, write_page(maker, tmp_path / "page.html")).open()
    assert ElementTree.fromstring(tab.saved("detail", "svg")[1]) is not None
