"""Texts of users that try to be markup, scripts or formulas stay texts."""

import xml.etree.ElementTree as ElementTree

import pytest
from explorer_payloads import HOSTILE, hostile

pytest_plugins = ["explorer_browser"]

VIEWS = [
    "summary", "caveats", "curves", "heads", "detail", "means", "points", "diversity", "layers", "sizes", "weights",
    "pruning", "dissociation", "overlap", "results", "times", "ssa", "retrieval", "flips",
]  # fmt: skip


def test_texts_of_users_stay_texts_in_views_files_and_choices(show):
    tab = show(hostile(), title=HOSTILE)
    assert tab.run("return [typeof window.owned, document.images.length]") == ["undefined", 0]
    assert tab.browser.title == HOSTILE
    assert tab.text("h1") == HOSTILE
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
    assert tab.texts("#detail .from .token")[1] == HOSTILE
    assert tab.texts("#example option") == [HOSTILE]
    assert HOSTILE in tab.text("#detail .answers")
    tab.focus("#detail canvas")
    tab.press("\ue015")
    tab.press("\ue014")
    assert f"From “{HOSTILE}” (1) to “{HOSTILE}” (1)" in tab.text("#detail-readout")
    assert tab.run("return typeof window.owned") == "undefined"


@pytest.mark.parametrize("text", ["=1+1", "\tx", "\r=1"])
def test_formulas_are_disarmed_in_files(show, text):
    maker = hostile()
    maker.examples.clear()
    maker.views = {"times": [{"title": "x", "columns": ["a", text], "rows": [[text, 'q"u,o']], "notes": []}]}
    assert show(maker).csv("times") == [["a", f"'{text}"], [f"'{text}", 'q"u,o']]


def test_signs_that_xml_does_not_know_do_not_spoil_a_picture(show):
    maker = hostile()
    maker.examples[0]["tokens"][2] = "\x00\x1b\ufffe"
    assert ElementTree.fromstring(show(maker).saved("detail", "svg")[1]) is not None
