"""The page of a search: hostile text stays text, and nothing is asked for from outside."""

import re
from html.parser import HTMLParser

from reports.explorer_payloads import HOSTILE

from headwise.reports.search_page import search_page
from headwise.retrieval.reasons import Match, Nearest, Passage, Reasons


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.text, self.shades = [], [], "", []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if ("class", "token") in attributes:
            self.shades.append(float(re.search(r"--score:([\d.]+)", dict(attributes)["style"])[1]))

    def handle_data(self, data):
        self.text += data


def reasons(title, sentence, word):
    text = f"{title} {sentence}"
    start = text.index(word, len(title))
    drops = ({"bm25": 0.5, "cosine": 0.25}, {"bm25": -0.1, "cosine": 0.0})
    return Reasons(
        "d<1>",
        word,
        text,
        1.5,
        (Match(word, ((start, start + len(word)),), 0.5, 1.0),),
        (Nearest(word, "near&by", start, start + len(word), 0.75),),
        (
            Passage(0, len(title), title, True, -0.05, drops[1]),
            Passage(len(title) + 1, len(text), sentence, False, 0.4, drops[0]),
        ),
    )


def test_the_page_shades_passages_and_marks_words():
    page = Page()
    page.feed(search_page("sleep", ["rank", "paper"], [["1", "d<1>"]], [reasons("Title", "A sleep study.", "sleep")]))
    assert page.shades == [0.0, 1.0]
    assert page.tags.count("b") == 1
    assert "Title A sleep study." in page.text
    for words in ("d<1>", "near&by", "+0.4000", "-0.0500", "100.0%", "0.750", "+0.5000"):
        assert words in page.text, words


def test_hostile_text_is_escaped_and_nothing_is_loaded():
    page, html = Page(), search_page(HOSTILE, [HOSTILE], [[HOSTILE]], [reasons(HOSTILE, HOSTILE, HOSTILE)], HOSTILE)
    page.feed(html)
    assert not {"script", "img", "link", "iframe"} & {*page.tags}
    assert not [name for name, _ in page.attributes if name.startswith("on") or name in ("src", "href")]
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes
    assert "\u202e" not in html
    assert HOSTILE.split("\u202e")[0] in page.text
    assert not re.search(r"https?:", html)
