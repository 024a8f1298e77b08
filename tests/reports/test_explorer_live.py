"""Explore mode: the form asks a server, which here makes its answers up."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from explorer_pages import Tab
from explorer_payloads import HOSTILE, Maker, sentence, tiny

from headwise.reports.report_page import packed, page

pytest_plugins = ["explorer_browser"]


class Answers(BaseHTTPRequestHandler):
    """GET: the page. POST: an example of five tokens whose title is the first text; or an error."""

    def do_GET(self):
        self.reply(self.server.page if self.path == "/t/" else "", "text/html; charset=utf-8")

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        texts = asked["texts"]
        self.server.asked.append((self.path, texts))
        self.server.off.append(asked["off"])
        self.server.gate.wait(10)
        if texts[0] == "bad":
            self.reply(json.dumps({"error": f"no: {HOSTILE}"}), "application/json", 400)
        elif texts[0] == "broken":
            self.reply("<h1>what?</h1>", "text/html", 500)
        else:
            maker = Maker(2, 2, seed=len(self.server.asked))
            maker.add_example(*sentence(5), title=texts[0], texts=texts)
            maker.add_ssa(0)
            arrays = {name: packed(content) for name, content in maker.arrays.items()}
            self.server.made.append(maker)
            self.reply(json.dumps({"example": maker.examples[0], "arrays": arrays}), "application/json")

    def reply(self, text, kind, status=200):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as opened:
        opened.asked, opened.off, opened.made, opened.gate = [], [], [], threading.Event()
        opened.gate.set()
        thread = threading.Thread(target=opened.serve_forever, daemon=True)
        thread.start()
        yield opened
        opened.shutdown()
        thread.join()


@pytest.fixture
def live(browser, server, silent):
    def open(maker, pair=True):
        payload = {**maker.payload(), "live": {"url": "/t/look", "pair": pair, "longest_characters": 40}}
        server.page = page(payload, maker.arrays, live=True)
        silent.append(Tab(browser, f"http://127.0.0.1:{server.server_port}/t/").open())
        return silent[0]

    return open


def send(tab, *texts, wait=True):
    for area, text in zip(tab.all("#live textarea"), texts, strict=True):
        area.clear()
        area.send_keys(text)
    tab.run("document.getElementById('live-send').click()")
    if wait:
        answered(tab)


def answered(tab):
    tab.wait(lambda: not tab.all("#live-form[aria-busy]"), "no answer")
    tab.settle()


def test_a_text_becomes_an_example(live, server):
    tab = live(tiny())
    server.gate.clear()
    send(tab, "one dog", "an animal", wait=False)
    assert tab.run("return document.querySelector('#live fieldset').disabled")
    server.gate.set()
    answered(tab)
    assert server.asked == [("/t/look", ["one dog", "an animal"])]
    assert not tab.run("return document.querySelector('#live fieldset').disabled")
    assert tab.texts("#example option")[-1] == "one dog"
    assert tab.hash["example"] == "e0-live1"
    send(tab, "two dogs", "animals")  # the server gives its arrays the same names again
    rows = tab.csv("detail")[1:]
    assert len(rows) == 25
    layer, head = int(tab.hash["layer"]), int(tab.hash["head"])
    wanted = server.made[1].maps["m1", "e0"][2 * layer + head].ravel()
    assert [float(row[5]) for row in rows] == pytest.approx(wanted.tolist(), abs=0.005)
    assert [row[:2] for row in tab.table("live")[1:]] == [
        ["one dog", "one dog | an animal"],
        ["two dogs", "two dogs | animals"],
    ]
    assert all("plain: " in row[3] and "guided: " in row[3] for row in tab.table("live")[1:])
    assert server.off == [[], []]


def test_heads_are_clicked_off_and_on_again(live, server):
    tab = live(tiny())
    tab.run("document.getElementById('live-heads').open = true")
    cell = "#live-heads .cell[data-layer='{}'][data-head='{}']"
    tab.click(cell.format(1, 0))
    tab.click(cell.format(0, 1))
    assert tab.text("#live-heads summary") == "Switch heads off (2 of 4 are off)"
    assert tab.one(cell.format(0, 1)).get_attribute("aria-label") == "layer 0, head 1: off"
    send(tab, "one dog", "an animal")
    tab.focus(cell.format(1, 0))
    tab.press(" ")  # by keyboard, which stays where it is
    assert tab.run("return document.activeElement.dataset.layer") == "1"
    assert tab.run("return document.activeElement.tabIndex") == 0
    send(tab, "one dog", "an animal")
    tab.click("#live-all-on")
    tab.click("#live-chosen")
    send(tab, "one dog", "an animal")
    chosen = [int(tab.hash["layer"]), int(tab.hash["head"])]
    assert [sorted(each) for each in server.off] == [[[0, 1], [1, 0]], [[0, 1]], [chosen]]


@pytest.mark.parametrize(
    ("text", "said"), [("bad", f"no: {HOSTILE}"), ("broken", "The server answered 500 without a reason.")]
)
def test_errors_are_shown_and_the_form_stays_usable(live, silent, text, said):
    tab = live(tiny())
    silent.clear()  # the console names the answer
    send(tab, text, "x")
    assert tab.one("#live-problem").get_attribute("role") == "alert"
    assert tab.text("#live-problem") == said
    assert tab.run("return [typeof window.owned, example.options.length]") == ["undefined", 3]
    send(tab, "good", "x")
    assert not tab.one("#live-problem").is_displayed()
    assert tab.texts("#example option")[-1] == "good"


def test_a_server_that_is_gone_is_reported(live, silent):
    tab = live(tiny())
    silent.clear()
    tab.run("window.fetch = () => Promise.reject(new TypeError('Failed to fetch'))")
    send(tab, "one", "two")
    assert tab.text("#live-problem") == "The server does not answer: is it still running?"


def test_without_examples_the_views_come_with_the_first_text(live):
    tab = live(Maker(2, 2), pair=False)
    assert tab.menu == ["live"]
    assert len(tab.all("#live textarea")) == 1
    assert tab.run("return document.querySelector('#live textarea').maxLength") == 40
    send(tab, "hello")
    assert tab.menu == ["live", "detail", "means", "points", "ssa"]
    assert len(tab.all("#detail canvas")) == 3
    assert len(tab.all("#ssa .ssa-token")) == 5
