"""Tokens as people read them, and the page that shows them: complete in itself, and harmless whatever a text says."""

import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
from chromium import FLAGS

from headwise.errors import InputError
from headwise.reports.token_page import PART, ScoredText, ScoredToken, guessed_spelling, lines, pieces, token_page

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
VOID = {"meta"}


def token(text, score=0.5, kept=True, segment=0):
    return ScoredToken(text, score, kept, segment)


def scored(*tokens, prediction="yes", probabilities=None, threshold=0.3, spelling=None):
    shown = tuple(each if isinstance(each, ScoredToken) else token(each) for each in tokens)
    return ScoredText(shown, prediction, probabilities or {"yes": 0.75, "no": 0.25}, threshold, spelling)


def read(*texts, spelling=None):
    """The tokens' texts with blanks where words begin and | where pieces meet."""
    found = pieces([token(text) for text in texts], spelling)
    assert all(piece.display for piece in found)
    assert not found[0].blank_before
    return found[0].display + "".join((" " if piece.blank_before else "|") + piece.display for piece in found[1:])


# -- spelling ----------------------------------------------------------------------------------------------------------


def in_bytes(text):
    """The text as byte-level tokenizers write it, by the table of the alphabet in full."""
    bytes_seen = [byte for byte in range(256) if chr(byte).isprintable() and byte != 0x20 and byte != 0xAD]
    others = [byte for byte in range(256) if byte not in bytes_seen]
    table = {byte: chr(byte) for byte in bytes_seen} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    return "".join(table[byte] for byte in text.encode())


FACE = in_bytes(" 😀")
SPELLED = {
    "word pieces": ("a play ##ing ##s [UNK] # ## x", "a play|ing|s [UNK] # ## x"),
    "bytes": ("Un bel iev able Ġplay ing <mask> Ġx", "Un|bel|iev|able play|ing <mask> x"),
    "cut after a byte": (f"a {FACE[:2]} {FACE[2:]} Ġx", f"a {PART}|😀 x"),
    "cut after three": (f"a {FACE[:4]} {FACE[4:]} Ġx", f"a {PART}|😀 x"),
    "cut at the end": (f"Ġa {in_bytes('日')[:1]}", f"a|{PART}"),
    "sentence pieces": ("▁play ing ▁the ▁ 我 ▁▁x", "play|ing the|␣|我 ␣x"),
    "bytes of sentence pieces": ("▁a <0xE8> <0xAA> <0x9E> ▁b", f"a|{PART}|{PART}|語 b"),
}


@pytest.mark.parametrize(("tokens", "expected"), SPELLED.values(), ids=SPELLED)
def test_pieces_are_joined_and_characters_shown_where_they_are_complete(tokens, expected):
    assert read(*tokens.split(" ")) == expected


def test_a_character_that_is_cut_is_seen_all_the_same():
    first, second = in_bytes("é 日")[:-1], in_bytes("ab")
    text = scored(token(first), token("</s>", None), token(second, segment=1))
    assert [piece.display for line in lines(text) for piece in line] == ["é␣", "</s>", "ab"]


def test_the_spelling_is_guessed():
    for text, expected in {
        "the cat": "wordpiece",
        "caf ##é": "wordpiece",
        "café": "wordpiece",  # é alone would be the beginning of a character of three bytes
        "był naïve": "wordpiece",
        "the Ġcat": "bytes",
        "cafÃ©": "bytes",
        "▁the ## cat": "sentencepiece",
    }.items():
        tokens = [token("<s>", None), *map(token, text.split()), token("</s>", None)]
        assert guessed_spelling(tokens) == expected, text


@pytest.mark.parametrize("closing", [1, 2])  # RoBERTa closes the first text and opens the second
def test_each_text_of_a_pair_has_its_line(closing):
    frames = [token("</s>", None, segment=place) for place in range(closing)]
    text = scored(token("<s>", None), "a", *frames, token("b", segment=1), token("</s>", None, segment=1))
    first, second = ([piece.display for piece in line] for line in lines(text))
    assert first == ["<s>", "a", "</s>"]
    assert second == ["</s>"] * (closing - 1) + ["b", "</s>"]


def test_what_is_no_score_no_spelling_and_no_text_is_refused():
    for score in (1.1, float("nan")):
        with pytest.raises(InputError, match=r"token 'a' has the score .*: expected 0 to 1, or None"):
            token("a", score)
    with pytest.raises(InputError, match="did you mean 'bytes'"):
        scored("a", spelling="byts")
    with pytest.raises(InputError, match="there is no text to show"):
        token_page([], "T")


# -- the page ----------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Reads a page and insists that every element is closed where it should be."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.open, self.elements, self.text = [], [], ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        assert len(dict(attributes)) == len(attributes)
        element = {"tag": tag, **dict(attributes), "text": ""}
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        assert self.open.pop()["tag"] == tag

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def of(self, shape):
        return [each for each in self.elements if shape in each.get("class", "").split()]


def test_every_token_is_there_with_its_score_and_whether_it_is_pooled():
    tokens = [token("[CLS]", None), token("a", 0.2, kept=False), token("##b", 0.875), token("[SEP]", None)]
    html = token_page([scored(*tokens)], "T")
    page = Page(html)
    assert [each["text"] for each in page.of("frame")] == ["[CLS]", "[SEP]"]
    assert [(each["text"], each["title"]) for each in page.of("token")] == [
        ("a", "0.200, not pooled, a"),
        ("b", "0.875, pooled, ##b"),
    ]
    assert [each["text"] for each in page.of("word")] == ["[CLS]", "ab", "[SEP]"]
    assert [each["text"] for each in page.of("text")] == ["[CLS] ab [SEP]"]
    assert [each["text"] for each in page.elements if each["tag"] == "td"] == [
        *("a", "0.200", "not pooled"),
        *("##b", "0.875", "pooled"),
    ]
    # What is not pooled is marked by more than colour.
    assert [each["text"] for each in page.of("token") if "left-out" in each["class"]] == ["a"]
    (rule,) = re.findall(r"\.left-out \{([^}]*)\}", html)
    assert "font-style: italic" in rule
    assert "underline" in rule


def test_the_prediction_and_the_probabilities_are_below():
    page = Page(token_page([scored("a"), scored("b", prediction="3.21", probabilities={"": 0.5})], "T"))
    assert [each["text"] for each in page.elements if each["tag"] == "strong"] == ["yes", "3.21"]
    assert [each["text"] for each in page.elements if each["tag"] == "li"] == ["yes 75.0%", "no 25.0%", " 50.0%"]
    number = ScoredText((token("a"),), "3.21", {}, 0.3)
    assert "<ul" not in token_page([number], "T")


def test_without_pooling_there_is_no_threshold_and_no_mark():
    html = token_page([scored(token("a", 0.1, kept=False), threshold=None)], "T")
    page = Page(html)
    assert page.of("mark") == page.of("left-out") == []
    assert "No token is pooled" in html
    assert [each["title"] for each in page.of("token")] == ["0.100, a"]


HOSTILE = [
    "<script>alert(1)</script>",
    "</style><img src=x onerror=y>",
    "\"' onmouseover='x",
    "&lt;b&gt;&amp;",
    "$title ${style} {x} %s",
    "-->]]>",
    "שלום\u202eabc\u2066",
    "👩\u200d💻",
    "\x00\x1b[31m\ud800",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text(text):
    harmless = Page(token_page([scored("a", prediction="p", probabilities={"c": 0.5}, spelling="wordpiece")], "T"))
    html = token_page([scored(text, prediction=text, probabilities={text: 0.5}, spelling="wordpiece")], text)
    html.encode("utf-8")
    page = Page(html)
    parts, expected = (
        [{name: value for name, value in each.items() if name not in ("title", "text")} for each in found.elements]
        for found in (page, harmless)
    )
    assert parts == expected
    assert not set(html) & set("\u202e\u2066\x00\x1b\ud800")
    if text.isprintable() or "\u200d" in text:
        assert page.of("token")[0]["text"] == text.replace(" ", "␣")
        assert page.of("token")[0]["title"].endswith(text)
        assert [each["text"] for each in page.elements if each["tag"] in ("h1", "strong")] == [text, text]


def test_nothing_comes_from_outside_and_nothing_runs():
    html = token_page([scored("a", "http://x.org/")], "T")
    page = Page(html)
    assert {each["tag"] for each in page.elements}.isdisjoint(
        {"script", "link", "img", "iframe", "a", "object", "base"}
    )
    for element in page.elements:
        assert not {name for name in element if name in ("src", "href", "srcset", "action") or name.startswith("on")}
    (style,) = (each["text"] for each in page.elements if each["tag"] == "style")
    assert "url(" not in style
    assert "@import" not in style
    (policy,) = (each["content"] for each in page.elements if "http-equiv" in each)
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


def test_the_direction_of_a_line_is_that_of_its_text():
    page = Page(token_page([scored(token("[CLS]", None), "مرحبا")], "T"))
    assert [each["dir"] for each in page.of("text")] == ["auto"]
    assert [each["tag"] for each in page.of("frame")] == ["bdi"]  # which is passed over in finding the direction


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_a_page_opens_from_disk_in_a_browser_and_a_hostile_text_is_only_text(tmp_path):
    script = '<script>document.title="owned"</script>'
    words = [token("[CLS]", None), token("a", 0.1, kept=False), token(script, 0.9), token("ünï", 0.4)]
    page = tmp_path / "page.html"
    page.write_text(token_page([scored(*words)], "Tokens"), encoding="utf-8")
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "<title>Tokens</title>" in shown
    assert "<script" not in shown
    assert script.replace("<", "&lt;").replace(">", "&gt;") in shown
    assert [float(score) for score in re.findall(r'style="--score:\s*([\d.]+)', shown)] == [0.1, 0.9, 0.4]


# -- colours -----------------------------------------------------------------------------------------------------------


def palettes(html):
    """The colours of the light and of the dark mode: each 0 to 255."""
    found = []
    for rules in re.findall(r":root \{ (--page[^}]*)\}", html):
        named = dict(re.findall(r"--(\w+): ([^;]+?)(?:;| *$)", rules))
        hexadecimal = {name: bytes.fromhex(value[1:]) for name, value in named.items() if value.startswith("#")}
        found.append({**hexadecimal, "heat": [int(each) for each in named["heat"].split()]})
    return found


def luminance(colour):
    parts = [value / 255 for value in colour]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first, second):
    darker, lighter = sorted([luminance(first), luminance(second)])
    return (lighter + 0.05) / (darker + 0.05)


def behind(palette, score):
    return [heat * score + page * (1 - score) for heat, page in zip(palette["heat"], palette["page"], strict=True)]


def test_the_colour_grows_with_the_score():
    scores = [0, 0.001, 0.25, 0.5, 0.75, 0.999, 1]
    html = token_page([scored(*(token("a", score) for score in scores))], "T")
    shown = [float(each["style"].removeprefix("--score:")) for each in Page(html).of("token")]
    assert shown == scores
    assert ".token { background: rgb(var(--heat) / var(--score));" in html
    assert len(palettes(html)) == 2
    for palette in palettes(html):
        distances = [contrast(behind(palette, score), palette["page"]) for score in shown]
        assert distances == sorted(set(distances))
        assert distances[-1] > 1.8


def test_text_can_be_read_on_every_colour_in_both_modes():
    light, dark = palettes(token_page([scored("a")], "T"))
    assert luminance(light["page"]) > 0.8 > 0.1 > luminance(dark["page"])
    for palette in (light, dark):
        for ink in ("ink", "faint"):
            assert min(contrast(behind(palette, score / 50), palette[ink]) for score in range(51)) >= 4.5
