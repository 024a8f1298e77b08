"""Ways through the page by mouse, by keyboard and by link."""

import pytest
from explorer_payloads import tiny

pytest_plugins = ["explorer_browser"]

MAKER = tiny()
ORDER = [(str(each["layer"]), str(each["head"])) for each in MAKER.views["heads"]["changes"]]


def head(tab):
    return tab.hash["layer"], tab.hash["head"]


def test_a_click_on_a_head_shows_it_everywhere_and_no_value_is_said_to_be_none(tab):
    tab.click("[data-grid=m1] .cell[data-layer='0'][data-head='1']")
    assert head(tab) == ("0", "1")
    assert (tab.run("return layer.value"), tab.run("return document.getElementById('head').value")) == ("0", "1")
    assert tab.texts("#detail .maps figcaption") == ["plain", "guided", "guided minus plain"]
    assert "layer 0, head 1" in tab.run("return document.querySelector('#detail canvas').getAttribute('aria-label')")
    assert len(tab.all("#heads .cell[aria-selected=true]")) == 3
    empty = "return document.querySelector('[data-grid=m0] .empty').getAttribute('aria-label')"
    assert tab.run(empty) == "layer 1, head 0: no value"


def test_pointing_at_a_head_shows_mean_and_error_of_the_statistic(tab):
    cell = "[data-grid=m1] .cell[data-layer='0'][data-head='1']"
    tab.run("document.querySelector(arguments[0]).dispatchEvent(new PointerEvent('pointerenter'))", cell)
    values = MAKER.views["heads"]["values"]["m1"]["entropy"]
    wanted = f"{values['mean'][0][1]:.3f} ± {values['error'][0][1]:.3f}"
    assert tab.text("#heads-readout") == f"guided, layer 0, head 1: Entropy (nats) {wanted}"
    before = tab.run("return document.querySelector('[data-grid=m1] .cell').style.background")
    tab.choose("#statistic", "sink")
    assert tab.hash["statistic"] == "sink"
    assert tab.run("return document.querySelector('[data-grid=m1] .cell').style.background") != before
    assert "What sink means." in tab.text("#heads")


def test_the_list_of_changed_heads_and_a_point_select(tab):
    listed = [(each.get_attribute("data-layer"), each.get_attribute("data-head")) for each in tab.all(".change")]
    assert listed == ORDER
    last = ORDER[-1]
    tab.click(f".change[data-layer='{last[0]}'][data-head='{last[1]}']")
    assert head(tab) == last
    assert tab.one(".change[aria-current]").get_attribute("data-layer") == last[0]
    tab.run(
        "document.querySelector(`#points circle[data-layer='0'][data-head='1']`).dispatchEvent(new MouseEvent('click'))"
    )
    assert head(tab) == ("0", "1")
    assert len(tab.all("#points circle")) == 4 + 4


def test_one_choice_of_example_for_all_views(tab):
    tab.choose("#example", "e1")
    assert tab.hash["example"] == "e1"
    for view in ("means", "points", "ssa"):
        assert "test 11" in tab.text(f"#{view}")
    assert len(tab.all("#detail .lines-figure:first-child .from .token")) == 9
    assert "Not available for this example." in tab.text("#ssa")


def test_pointing_into_a_map_by_keys_or_mouse_shows_the_values_of_both_models(tab):
    tab.choose("#layer", "0")
    tab.choose("#head", "0")
    tab.focus("#detail canvas")
    for key in ("\ue015", "\ue014", "\ue014"):  # down, right, right
        tab.press(key)
    first, second = (MAKER.maps[model, "e0"][0, 1, 2] for model in ("m0", "m1"))
    readout = tab.text("#detail-readout")
    assert readout.startswith("From “a” (1) to “patient” (2): plain ")
    told = [float(part.split()[-1].replace("−", "-")) for part in readout.split(": ")[1].split("; ")]
    assert told == pytest.approx([first, second, second - first], abs=0.006)
    script = """
      const canvas = document.querySelector('#detail canvas');
      const box = canvas.getBoundingClientRect();
      const cell = (box.width - 2 - arguments[0]) / 7;
      canvas.dispatchEvent(new PointerEvent('pointermove', {
        clientX: box.right - 2 - 0.5 * cell, clientY: box.bottom - 2 - 1.5 * cell, bubbles: true }));
      return document.querySelector('#detail-readout').textContent"""
    assert tab.run(script, 40).startswith("From “given” (5) to “[SEP]” (6)")


def test_a_token_draws_lines_and_the_target_can_be_outlined(tab):
    tab.focus("#detail .from .token")
    tab.press("\ue015")
    assert tab.texts("#detail .from .chosen") == ["a", "a"]
    for number, model in enumerate(("m0", "m1")):
        layer, place = (int(part) for part in head(tab))
        row = MAKER.maps[model, "e0"][2 * layer + place, 1]
        lines = tab.run(
            "const columns = document.querySelectorAll('#detail .token-lines')[arguments[0]];"
            "return [...columns.querySelectorAll('line')].map((line) => Number(line.dataset.to))",
            number,
        )
        assert lines[0] == row.argmax()
        assert len(set(lines)) == len(lines) > 1
    with_it = tab.saved("detail", "svg")[1]
    tab.click("#target")
    without = tab.saved("detail", "svg")[1]
    assert with_it.count(b"<path") == 3
    assert without.count(b"<path") == 0
    tab.choose("#example", "e1")
    assert not tab.all("#target")


def test_the_scrubber_moves_points_and_plays_and_a_strip_selects_a_step(tab):
    tab.choose("#step", "0")
    assert tab.hash["step"] == "0"
    assert "step 0" in tab.text("#diversity output")
    assert not tab.all("#diversity .charts path")
    start = tab.run("return document.querySelector('#diversity circle').getAttribute('cx')")
    tab.choose("#step", "3")
    assert tab.hash["step"] == "150"
    assert len(tab.all("#diversity .charts path")) == 8
    assert tab.run("return document.querySelector('#diversity circle').getAttribute('cx')") != start
    tab.choose("#step", "3")
    tab.click("#play")
    tab.wait(lambda: tab.hash["step"] == "200" and tab.text("#play") == "Play", "it does not arrive")
    tab.focus("#diversity canvas")
    for _ in range(3):
        tab.press("\ue013")  # up, to the first head
    tab.press("\ue012")  # left, to the step before the last
    tab.press("\ue007")
    assert (tab.hash["layer"], tab.hash["head"], tab.hash["step"]) == ("0", "0", "150")


def test_flips_lead_to_example_and_head_and_papers_show_how_they_moved(tab):
    assert [each.text for each in tab.all("#flips .filters button")] == [
        "All (4)",
        "Gained (2)",
        "Lost (1)",
        "Other (1)",
    ]
    tab.click("#flips [data-kind=lost].cards, #flips .filters [data-kind=lost]")
    assert tab.texts("#flips .card strong") == ["test 90"]
    assert len(tab.table("flips")) == 2
    tab.click("#flips .filters [data-kind=gained]")
    tab.click("#flips [data-example=e1]")
    assert (tab.hash["example"], tab.hash["view"]) == ("e1", "detail")
    tab.click("#flips .card [data-layer='0'][data-head='0']")
    assert (tab.hash["example"], *head(tab)) == ("e0", "0", "0")
    assert [each.split(" ", 2)[2] for each in tab.texts("#retrieval .moves li > span:first-child")] == [
        "▲ 3 up",
        "▼ 1 down",
    ]


def test_a_link_shows_the_same_and_a_changed_one_is_followed(tab):
    tab.choose("#statistic", "sink")
    tab.choose("#example", "e2")
    tab.choose("#layer", "0")
    tab.choose("#head", "1")
    tab.choose("#scale", "linear")
    tab.choose("#model-0", "m1")
    tab.choose("#step", "1")
    tab.run("document.querySelector('#menu a[data-view=diversity]').click()")
    link, rows = tab.run("return location.hash"), tab.table("detail")
    tab.open(link)
    assert tab.run("return location.hash") == link
    assert tab.hash == {"view": "diversity", "statistic": "sink", "layer": "0", "head": "1", "example": "e2",
                        "models": "m1,m0", "scale": "linear", "step": "50"}  # fmt: skip
    assert tab.table("detail") == rows
    assert tab.run("return [statistic.value, example.value, scale.value, step.value]") == ["sink", "e2", "linear", "1"]
    assert tab.run("return Math.abs(document.getElementById('diversity').getBoundingClientRect().top) < 60")
    tab.run("location.hash = '#example=e1&layer=0&head=0'")
    tab.wait(lambda: tab.run("return example.value") == "e1", "the hash is not followed")
    assert head(tab) == ("0", "0")


BAD = (
    "#view=nowhere&statistic=__proto__&layer=99&head=-1&example=%3Cimg%3E&models=m0,m0&scale=cubic&step=7&constructor=1"
    "&weight=x&silenced=3&ranking=1"
)


@pytest.mark.parametrize("bad", [BAD, "#%E0%A4%A", "#layer=1e0&head=0x1", "#content", "#weight=7", "#silenced=-1"])
def test_bad_links_are_ignored(tab, bad):
    start = tab.run("return [statistic.value, example.value, scale.value, layer.value, step.value]")
    tab.open(bad)
    assert tab.run("return [statistic.value, example.value, scale.value, layer.value, step.value]") == start
    assert tab.texts("#detail .maps figcaption") == ["plain", "guided", "guided minus plain"]
    assert tab.text("#weights output") == tab.text("#pruning output") == "what is varied: 10"


def test_arrows_and_enter_in_the_head_grid(tab):
    tab.click("[data-grid=m0] .cell[data-layer='0'][data-head='0']")
    tab.press("\ue014")  # right
    tab.press("\ue015")  # down
    tab.press("\ue015")  # there is no more: it stays
    focused = """const at = document.activeElement;
      return [at.dataset.layer, at.dataset.head, at.closest("[data-grid]").dataset.grid]"""
    assert tab.run(focused) == ["1", "1", "m0"]
    assert head(tab) == ("0", "0")
    tab.press("\ue007")
    assert head(tab) == ("1", "1")
    assert tab.run(focused) == ["1", "1", "m0"]
    assert tab.run("return document.querySelectorAll('[data-grid=m0] .cell[tabindex=\"0\"]').length") == 1
    assert "solid" in tab.run("return getComputedStyle(document.activeElement).outline")


def test_letters_walk_through_heads_and_examples_and_open_the_help(tab):
    tab.focus("#content")
    tab.press("n")
    assert head(tab) == ORDER[1]
    tab.press("pp")
    assert head(tab) == ORDER[-1]
    tab.press("e")
    assert tab.hash["example"] == "e1"
    tab.press("EE")
    assert tab.hash["example"] == "e2"
    tab.focus("#scale")
    tab.press("n")  # in a list of choices a letter means a choice
    assert head(tab) == ORDER[-1]
    tab.focus("#content")
    tab.press("?")
    assert tab.one("#help").is_displayed()
    assert "next / previous most changed head" in tab.text("#help")
    tab.press("\ue00c")  # escape
    assert not tab.one("#help").is_displayed()
    tab.click("#help-open")
    tab.click("#help-close")
    assert not tab.one("#help").is_displayed()


def test_a_slider_goes_over_the_weights_that_were_tried(tab):
    first = tab.texts("#weights .at-point td")
    tab.choose("#weights-point-0", "2")
    assert tab.hash["weight"] == "2"
    assert tab.text("#weights output") == "what is varied: 1000"
    plot = MAKER.views["weights"][0]
    rows = tab.run(
        "return [...document.querySelectorAll('#weights .at-point tbody tr')].map((r) => "
        "[...r.cells].map((c) => c.textContent))"
    )
    for row, series in zip(rows, plot["series"], strict=True):
        assert row == [
            f"Accuracy by weight: {series['name']}",
            "accuracy",
            f"{series['mean'][2]:.3f}",
            f"{series['low'][2]:.3f} to {series['high'][2]:.3f}",
            f"+{series['mean'][2] - series['mean'][0]:.3f}",
        ]
    assert first != tab.texts("#weights .at-point td")
    assert len(tab.all("#weights svg .at")) == 1


def test_heads_are_silenced_along_the_pruning_curve(tab):
    off = "return [...document.querySelectorAll('#pruning .cell.off')].map((e) => [e.dataset.layer, e.dataset.head])"
    assert tab.run(off) == []
    tab.choose("#pruning-point-0", "1")
    assert (tab.hash["silenced"], tab.run(off)) == ("1", [["1", "1"]])
    tab.click("#pruning .cell[data-layer='1'][data-head='0']")  # goes to the first point without it
    assert (tab.hash["silenced"], tab.run(off)) == ("2", [["1", "0"], ["1", "1"]])
    assert "layer 1, head 0 is gone from what is varied 1000 on" in tab.text("#pruning .silenced .note")
    tab.click("#pruning .cell[data-layer='0'][data-head='0']")
    assert tab.text("#pruning .silenced .note") == "layer 0, head 0 is never silenced here."
    assert tab.run("return document.activeElement.tabIndex") == 0
    assert tab.table("pruning")[1:] == [["plain", "10", ""], ["plain", "100", "1.1"], ["plain", "1000", "1.1 1.0"]]
