"""The page of `headwise mark` in Chromium: words are marked with keyboard, mouse and finger, and saved."""

import json

import pytest
from explorer_pages import Tab
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from headwise.cli.loopback_server import serve
from headwise.cli.mark_server import Marker
from headwise.data.marking import Marking, read_rows

pytest_plugins = ["explorer_browser"]

TWEETS = [
    {"text": "so good 😀 but, not bad", "label": "positive"},
    {"text": "<b>what</b> a day", "label": "<i>"},
    {"text": "…", "label": ""},
    {"text": "one two three four five six", "label": "negative"},
]
PAIRS = [
    {"sentence1": "A man plays.", "sentence2": "Nobody plays at all.", "label": "no"},
    {"sentence1": "a", "sentence2": "b", "label": "yes"},
]


class MarkTab(Tab):
    """The page, and the file that it saves to."""

    def __init__(self, browser, marking, address):
        super().__init__(browser, address)
        self.marking = marking

    def settle(self):
        self.wait(lambda: not self.all("#texts[aria-busy]"), "no answer")

    @property
    def marked(self):
        return self.texts(".word[aria-selected=true]")

    @property
    def here(self):
        """The word of the cursor, as a screen reader finds it."""
        return self.run(
            "return document.getElementById(texts.getAttribute('aria-activedescendant'))?.textContent ?? null"
        )

    @property
    def saved(self):
        return [json.loads(line) for line in self.marking.output.read_text(encoding="utf-8").splitlines()]

    def keys(self, *keys):
        for key in keys:
            self.press(key)

    def word(self, number):
        return self.one(f"#word-{number}")


@pytest.fixture
def mark(browser, silent, tmp_path):
    servers = []

    def open(rows):
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
        marking = Marking(read_rows(path), tmp_path / "rows.marks.jsonl")
        servers.append(serve(Marker(marking, path.name)))
        silent.append(MarkTab(browser, marking, servers[-1].__enter__()))
        return silent[-1].open()

    yield open
    for server in servers:
        server.__exit__(None, None, None)


def test_words_are_marked_with_keys_and_mouse_and_saved(mark):
    tab = mark(TWEETS)
    tab.requests()  # forget those of earlier tests in the same browser; the page is loaded again below
    assert (tab.text("#position"), tab.text("#label"), tab.here) == ("1 of 4", "positive", "so")
    tab.keys(Keys.ARROW_RIGHT, " ", Keys.ARROW_RIGHT, " ", " ", Keys.END, Keys.SHIFT + Keys.ARROW_LEFT)
    assert (tab.marked, tab.here) == (["good", "not", "bad"], "not")
    assert tab.text("#state") == "3 words marked, not saved yet"
    tab.press(Keys.ENTER)
    text = TWEETS[0]["text"]
    assert tab.saved == [{**TWEETS[0], "marks": [[3, 7], [15, 22]]}]
    assert [text[start:end] for start, end in tab.saved[0]["marks"]] == ["good", "not bad"]  # in characters, not UTF-16
    # The second: text of users is never markup; a click toggles.
    assert (tab.text("#label"), tab.texts(".word")[:2]) == ("<i>", ["b>what", "b"])
    tab.word(0).click()
    tab.word(3).click()
    tab.word(3).click()
    assert tab.marked == ["b>what"]
    tab.keys("u", " ", "S")
    assert tab.saved[1] == {**TWEETS[1], "marks": [], "skipped": True}
    tab.press(Keys.ENTER)  # the third has no word
    assert (tab.saved[2]["marks"], tab.text("#position")) == ([], "4 of 4")
    tab.browser.refresh()
    tab.wait(lambda: tab.run("return document.documentElement.dataset.ready"), "not ready")
    assert (tab.text("#position"), tab.marked) == ("4 of 4", [])
    drag = ActionChains(tab.browser).move_to_element(tab.word(4)).click_and_hold().move_to_element(tab.word(1))
    drag.move_to_element(tab.word(2)).release().perform()
    assert (tab.marked, tab.here) == (["three", "four", "five"], "three")
    tab.click("#save")
    assert tab.saved[3]["marks"] == [[8, 23]]
    assert "2 with marks, 1 without, 1 skipped" in tab.text("#summary")
    # All the way back by both keys, and forward again: nothing changes but what is changed.
    before = tab.saved
    tab.keys(Keys.BACKSPACE, Keys.ARROW_LEFT, Keys.ARROW_LEFT, Keys.ARROW_LEFT, Keys.BACKSPACE, Keys.ARROW_LEFT)
    assert (tab.text("#position"), tab.text("#state")) == ("1 of 4", "3 words marked, saved")
    tab.keys(*4 * [Keys.ENTER])
    assert tab.saved == before
    assert tab.text("#position") == "4 of 4"
    tab.keys(Keys.BACKSPACE, "u", Keys.ENTER)
    assert [line["marks"] for line in tab.saved] == [*(line["marks"] for line in before[:3]), []]
    assert {address for address in tab.requests() if not address.startswith(("data:", "about:", "chrome:"))} == {
        tab.address,
        f"{tab.address}example",
        f"{tab.address}save",
    }


def test_pairs_and_marks_that_are_not_saved_yet(mark):
    tab = mark(PAIRS)
    assert tab.texts(".text-name") == ["sentence1", "sentence2"]
    assert tab.run("return [...document.querySelectorAll('[role=listbox] [role=group]')].map((e) => e.ariaLabel)") == [
        "sentence1",
        "sentence2",
    ]
    tab.keys(Keys.ARROW_RIGHT, Keys.SHIFT + Keys.ARROW_DOWN)  # a range ends with its text
    assert tab.marked == ["man", "plays"]
    tab.keys(Keys.SHIFT + Keys.ARROW_LEFT, Keys.ARROW_DOWN, " ", Keys.ENTER)
    assert len(tab.saved[0]["marks"]) == 2
    assert tab.saved[0]["marks"][0] == [0, 2, 5]
    assert tab.saved[0]["marks"][1][0] == 1
    tab.keys(" ", Keys.BACKSPACE)
    assert tab.text("#state") == "2 words marked, saved"
    tab.press(Keys.ENTER)
    assert (tab.marked, len(tab.saved)) == (["a"], 1)  # as it was left


def test_keys_that_come_before_the_answer_belong_to_the_next_example(mark):
    tab = mark(TWEETS)
    tab.run(
        "for (const key of ['ArrowRight', ' ', 'Enter', ' ', 'Enter', 'Enter', 'End', ' ', 'Enter'])"
        "  document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }))"
    )
    tab.wait(lambda: tab.text("#summary"), "not at the end")
    assert [line["marks"] for line in tab.saved] == [[[3, 7]], [[1, 7]], [], [[24, 27]]]


def test_a_phone_scrolls_by_finger_and_marks_by_tap(mark):
    tab = mark(TWEETS)
    size = {"width": 360, "height": 640, "deviceScaleFactor": 1, "mobile": True}
    tab.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    tab.browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
    try:
        assert tab.run("return document.documentElement.scrollWidth <= innerWidth")
        box = tab.run("const b = document.getElementById('word-1').getBoundingClientRect(); return [b.x + 5, b.y + 5]")
        point = {"x": box[0], "y": box[1]}
        tab.browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [point]})
        tab.browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        tab.wait(lambda: tab.marked == ["good"], "no word is marked")
        button = tab.run("const b = save.getBoundingClientRect(); return [b.height, b.bottom <= innerHeight]")
        assert button[0] >= 40
        assert button[1]
    finally:
        tab.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        tab.browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})


def test_a_failed_save_is_reported_and_loses_nothing(mark, silent):
    tab = mark(TWEETS)
    silent.clear()  # the console names the answer
    folder = tab.marking.output.parent
    folder.rename(folder.with_name("away"))
    tab.keys(" ", Keys.ENTER)
    assert "could not be written" in tab.text("#problem")
    assert tab.one("#problem").get_attribute("role") == "alert"
    assert (tab.text("#position"), tab.marked) == ("1 of 4", ["so"])
    folder.with_name("away").rename(folder)
    tab.press(Keys.ENTER)
    assert not tab.one("#problem").is_displayed()
    assert tab.saved[0]["marks"] == [[0, 2]]
    tab.run("window.fetch = () => Promise.reject(new TypeError('Failed to fetch'))")
    tab.press(Keys.ENTER)
    assert tab.text("#problem").startswith("The server does not answer: is the command still running?")
