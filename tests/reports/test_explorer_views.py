"""Every view is on the page when its data is there, and neither it nor its entry in the menu when it is not."""

import pytest
from explorer_payloads import tiny

pytest_plugins = ["explorer_browser"]

VIEWS = [
    "summary", "caveats", "curves", "heads", "detail", "means", "points", "diversity", "layers", "sizes", "weights",
    "pruning", "dissociation", "overlap", "results", "times", "ssa", "retrieval", "flips",
]  # fmt: skip
NEED = {"detail": "examples", "means": "examples", "points": "examples", "ssa": "examples"}


def test_all_views_are_there_and_the_menu_opens_each_with_a_table_and_three_files(tab):
    assert tab.menu == VIEWS
    assert tab.run("return performance.getEntriesByName('headwise-ready').length") == 1
    for view in VIEWS:
        tab.run("document.querySelector(`#menu a[data-view='${arguments[0]}']`).click()", view)
        assert tab.hash["view"] == view
        assert tab.run("return document.activeElement.parentElement.parentElement.id") == view
        assert tab.run("return document.querySelector('#menu [aria-current]').dataset.view") == view
        assert tab.one(f"#{view} h2").is_displayed()
        assert len(tab.table(view)) > 1, view
        assert [each.text for each in tab.all(f"#{view} .tools button")] == ["SVG", "PNG", "CSV"]
    assert tab.text("h1") == tab.browser.title == "A report"


def test_pictures_have_names_for_those_who_cannot_see_them(tab):
    nameless = """return [...document.querySelectorAll('canvas, main svg')]
      .filter((each) => each.getAttribute('role') !== 'img' || !each.getAttribute('aria-label')).length"""
    assert tab.run("return document.querySelectorAll('canvas, main svg').length") > 10
    assert tab.run(nameless) == 0
    controls = """return [...document.querySelectorAll('button, select, input, textarea, a')]
      .filter((each) => !(each.textContent.trim() || each.getAttribute('aria-label') || each.labels?.length)).length"""
    assert tab.run(controls) == 0


def test_nothing_leaves_the_page_and_the_console_is_silent(tab):
    tab.requests()
    tab.open()
    for view in ("heads", "detail", "diversity"):
        tab.saved(view, "png")
    asked = tab.requests()
    assert any(each.startswith("file:") for each in asked)
    assert [each for each in asked if not each.startswith(("file:", "data:", "blob:", "about:"))] == []


@pytest.mark.parametrize("kept", [("heads",), ("examples",), ("summary", "diversity")])
def test_a_view_without_data_is_not_there(show, kept):
    views = tiny().payload()["views"]
    tab = show(tiny(), views={name: views[name] for name in kept})
    shown = [view for view in VIEWS if NEED.get(view, view) in kept]
    assert tab.menu == shown
    assert [section.get_attribute("id") for section in tab.all("main section")] == shown


def test_examples_without_extras_bring_no_view_of_them(show):
    maker = tiny()
    for example in maker.examples:
        for name in ("means", "points", "ssa", "target", "answers", "gold"):
            example.pop(name, None)
        example["segments"] = [-1 if part < 0 else 0 for part in example["segments"]]
    maker.views = {}
    tab = show(maker)
    assert tab.menu == ["detail"]
    assert tab.texts("#detail .shares caption") == []


def test_one_model_alone_has_no_differences(show):
    tab = show(tiny(("guided",)))
    assert tab.texts("#heads figcaption") == ["guided"]
    assert tab.texts("#detail .maps figcaption") == ["guided"]
    assert "Difference" not in tab.table("detail")[0]
    assert not tab.all("#heads .change")
    assert not tab.all("#model-0")
    assert "flips" not in tab.menu
    tab.focus("#content")
    tab.press("n")
    assert (tab.hash["layer"], tab.hash["head"]) == ("0", "1")


def test_six_models_can_be_compared_in_pairs(show):
    maker = tiny(("one", "two", "three", "four", "five", "six"))
    tab = show(maker, "#layer=0&head=0")
    assert tab.texts("#means figcaption") == ["one", "two", "three", "four", "five", "six"]
    tab.choose("#model-0", "m4")
    assert tab.texts("#detail .maps figcaption") == ["five", "two", "two minus five"]
    tab.choose("#model-1", "m4")  # the same on both sides would compare nothing: they change sides
    assert tab.texts("#heads figcaption") == ["two", "five", "five minus two"]
    assert tab.hash["models"] == "m1,m4"


def test_light_and_dark(tab):
    colours = []
    for _ in range(2):
        colours.append(tab.run("return getComputedStyle(document.body).backgroundColor"))
        tab.click("#theme")
    assert tab.run("return getComputedStyle(document.body).backgroundColor") == colours[0]
    assert sorted(colours) == ["rgb(20, 23, 28)", "rgb(255, 255, 255)"]
    # Pictures are drawn anew, with inks that can be seen on the page.
    before = tab.run("return document.querySelector('#curves svg text').getAttribute('fill')")
    tab.click("#theme")
    assert tab.run("return document.querySelector('#curves svg text').getAttribute('fill')") != before


def test_no_sideways_scrolling_on_a_narrow_screen(tab):
    size = {"width": 480, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    tab.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        assert tab.run("return innerWidth") == 480
        assert tab.run("return document.documentElement.scrollWidth") <= 480
    finally:
        tab.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_models_of_different_sizes_and_gaps_in_the_data(show):
    """A shallower baseline, a plot with holes, a strip without points, no list of changes, texts without segments."""
    maker = tiny()
    maker.models[0]["layers"] = 1
    for example in maker.examples:
        del example["maps"]["m0"], example["means"]["m0"], example["points"]["m0"]
        example["segments"] = []
    heads = maker.views["heads"]
    heads["changes"] = None
    for values in heads["values"]["m0"].values():
        values.update(mean=values["mean"][:1], error=None)
    del heads["values"]["m1"]["sink"]
    diversity = maker.views["diversity"]
    del diversity["m0"], diversity["m1"]["points"], diversity["m1"]["entropy"]
    plot = maker.views["layers"][0]["series"]
    plot[0].update(mean=[None, 0.7, None], low=None, high=None)
    plot[1].update(low=[None, 0.7, None])
    maker.views["sizes"][0]["series"][0]["x"] = [0, 0.001, 0.1]
    tab = show(maker)
    assert len(tab.all("#heads [data-grid=m0] .cell")) == 2
    assert len(tab.all("#heads [data-grid=difference] .cell")) == 2
    tab.choose("#layer", "1")
    assert "plain has no layer 1, head 0." in tab.text("#detail .maps")
    tab.choose("#layer", "0")
    assert "plain: there is no map of this example." in tab.text("#detail .maps")
    tab.choose("#statistic", "sink")
    for view in VIEWS:
        assert tab.csv(view), view
        assert tab.saved(view, "svg")[1], view
        assert tab.table(view), view
