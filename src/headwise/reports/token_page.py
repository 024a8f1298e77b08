"""Texts with a score for each token as one HTML page, which needs nothing but itself."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from importlib.resources import files
from itertools import groupby
from string import Template
from typing import Any

from headwise.errors import InputError, choices

# Texts with a score for each token, and how the tokens are spelled for people.


SPELLINGS = ("wordpiece", "bytes", "sentencepiece")
PART = "·"
"""Stands for a token that is the beginning of a character and not yet all of it."""
_BLANKS = str.maketrans({" ": "␣", "▁": "␣", "\N{NO-BREAK SPACE}": "␣", "\n": "↵", "\r": "↵", "\t": "⇥"})
_JOINERS = "\u200c\u200d"  # of Persian words and of emoji: they cannot be seen, but they are needed
_STAND_IN = re.compile(r"<\w+>|\[[A-Z]+\]")
_ONE_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


@dataclass(frozen=True)
class ScoredToken:
    """A token as the tokenizer writes it. Those around the texts, such as [SEP], have no score."""

    text: str
    score: float | None
    kept: bool
    """Whether it is pooled."""
    segment: int
    """Which of the texts it belongs to, from 0."""

    def __post_init__(self) -> None:
        """Refuse what is no score."""
        if self.score is not None and not 0 <= self.score <= 1:
            raise InputError(f"token {self.text!r} has the score {self.score!r}: expected 0 to 1, or None for a frame.")


@dataclass(frozen=True)
class ScoredText:
    """A text, or a pair, with its tokens and what a model said of it."""

    tokens: tuple[ScoredToken, ...]
    prediction: str
    probabilities: dict[str, float]
    """By class; empty where the task asks for a number."""
    threshold: float | None
    """Tokens whose score is at least this are pooled; None where nothing is."""
    spelling: str | None = None
    """How the tokenizer marks words, one of SPELLINGS; None: guessed from the tokens, which is rarely wrong."""

    def __post_init__(self) -> None:
        """Refuse a spelling that nobody knows."""
        if self.spelling is not None and self.spelling not in SPELLINGS:
            raise InputError(f"spelling={self.spelling!r}: {choices(str(self.spelling), SPELLINGS)}.")

    def as_data(self) -> dict[str, Any]:
        """Plain data, ready for JSON, the tokens as the tokenizer writes them."""
        return {
            "tokens": [asdict(token) for token in self.tokens],
            "prediction": self.prediction,
            "probabilities": dict(self.probabilities),
            "threshold": self.threshold,
        }


@dataclass(frozen=True)
class Piece:
    """A token as people read it."""

    token: ScoredToken
    display: str
    """Never empty: blanks that are tokens of their own are seen, and PART stands for half a character."""
    blank_before: bool
    """Whether a word begins here; if not, the piece goes on where the last one ends."""


def lines(text: ScoredText) -> list[list[Piece]]:
    """The pieces of each text of a pair, one list for each; what frames a text stays on its line."""
    spelling = text.spelling or guessed_spelling(text.tokens)
    found: list[list[ScoredToken]] = []
    for _, group in groupby(text.tokens, key=lambda token: token.segment):
        part = list(group)
        if found and (all(token.score is None for token in part) or all(token.score is None for token in found[-1])):
            found[-1] += part  # a frame is no line of its own
        else:
            found.append(part)
    return [pieces(part, spelling) for part in found]


def pieces(tokens: Sequence[ScoredToken], spelling: str | None = None) -> list[Piece]:
    """The tokens of one text, or of a part of it, as people read them."""
    spelling = spelling or guessed_spelling(tokens)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")  # remembers the bytes of an incomplete character
    found: list[Piece] = []
    for token in tokens:
        text, byte, data = token.text, _ONE_BYTE.fullmatch(token.text), None
        if token.score is None or (_STAND_IN.fullmatch(text) and not byte):
            decoder.reset()
            display, blank = text or PART, True  # a tokenizer takes the blank before <mask> away
        elif spelling == "wordpiece":
            blank = not (text.startswith("##") and len(text) > 2)
            display = text.translate(_BLANKS) or PART if blank else text[2:]
        else:
            if spelling == "bytes":
                data = _as_bytes(text)
            elif byte:  # which sentencepiece falls back to
                data = bytes.fromhex(byte[1])
            if data is None:  # the characters themselves
                decoder.reset()
            else:
                text = decoder.decode(data)
            blank = text[:1] in (" ", "▁")
            display = text[1:].translate(_BLANKS) if blank else text.translate(_BLANKS)
            if blank and not display and not (data and decoder.getstate()[0]):
                display, blank = "␣", False
            display = display or PART
        starts = not found or found[-1].token.score is None or token.score is None
        found.append(Piece(token, printable(display), bool(found) and (blank or starts)))
    return found


def guessed_spelling(tokens: Sequence[ScoredToken]) -> str:
    """Which tokenizer it was, by the marks that it left.

    The bytes of a text decode to characters, which letters of other tokenizers, taken for bytes, hardly ever do.
    """
    texts = [token.text for token in tokens if token.score is not None]
    if any(text.startswith("▁") for text in texts):
        return "sentencepiece"
    if any(re.match(r"##\w", text) for text in texts) or all(text.isascii() for text in texts):
        return "wordpiece"
    runs = groupby(tokens, key=lambda token: (token.segment, token.score is None))
    return "bytes" if all(_decodes("".join(token.text for token in run)) for _, run in runs) else "wordpiece"


def printable(text: str) -> str:
    """The text without what cannot be seen and may turn or hide what follows, such as marks of direction."""
    return "".join(each if each.isprintable() or each in _JOINERS else "\N{REPLACEMENT CHARACTER}" for each in text)


# Characters of byte-level tokenizers: what can be seen stands for itself, the other bytes are counted up from Ā.
_SEEN = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_HIDDEN = [byte for byte in range(256) if byte not in _SEEN]
_BYTES = {chr(byte): byte for byte in _SEEN} | {chr(256 + number): byte for number, byte in enumerate(_HIDDEN)}


def _as_bytes(text: str) -> bytes | None:
    """The bytes of a byte-level token; None for one that was added as it is, in its characters."""
    return bytes(_BYTES[each] for each in text) if all(each in _BYTES for each in text) else None


def _decodes(text: str) -> bool:
    """Whether the text is bytes of UTF-8; the last character may be cut, if others speak for it."""
    data, decoder = _as_bytes(text), codecs.getincrementaldecoder("utf-8")("strict")
    if data is None:
        return False
    try:
        found = decoder.decode(data)
    except UnicodeDecodeError:
        return False
    return not decoder.getstate()[0] or " " in found or not found.isascii()


def token_page(examples: Sequence[ScoredText], title: str) -> str:
    """One HTML page with the tokens of each text on a colour scale of their scores, 0 to 1.

    It opens from disk, asks for nothing from outside and runs no script. Scores are shown on hovering and in a table
    below each text; tokens that are not pooled are in italics with dots below, so colour is not needed to tell them.
    """
    if not examples:
        raise InputError("there is no text to show: give one or more.")
    thresholds = sorted({text.threshold for text in examples if text.threshold is not None})
    marks = "".join(f'<span class="mark" style="left:{100 * each:.4g}%"></span>' for each in thresholds)
    pooling = "No token is pooled here: the scores were learned beside the task."
    if thresholds:
        least = " or ".join(f"{each:.4g}" for each in thresholds)
        left_out = '<span class="left-out">in italics with dots below</span>'
        pooling = f"Tokens are pooled from the threshold {least} on; those below it are {left_out}."
    legend = (
        f'<p class="note">Score: 0 <span class="scale" aria-hidden="true">{marks}</span> 1</p>\n'
        f'<p class="note">{pooling} Small grey tokens frame the texts and have no score.</p>'
    )
    style, page = (
        (files("headwise.reports") / "assets" / f"tokens.{kind}").read_text("utf-8") for kind in ("css", "html")
    )
    sections = "\n".join(_section(text) for text in examples)
    return Template(page).substitute(title=_clean(title), style=style, legend=legend, texts=sections)


def _section(text: ScoredText) -> str:
    """A text, a line for each of a pair; prediction; and a table of scores for those who cannot hover."""
    pooled = {True: "pooled", False: "not pooled"} if text.threshold is not None else {True: "", False: ""}
    written = ""
    for line in lines(text):
        words = ""  # with a blank between them, and their pieces without
        for piece in line:
            token, display = piece.token, escape(piece.display)
            if piece.blank_before and words:
                words += '</span> <span class="word">'
            if token.score is None:  # bdi: the direction of a line is that of its text
                words += f'<bdi class="frame">{display}</bdi>'
                continue
            parts = (f"{token.score:.3f}", pooled[token.kept], _clean(token.text))
            shape = "token left-out" if pooled[token.kept] == "not pooled" else "token"
            title = ", ".join(part for part in parts if part)
            words += f'<span class="{shape}" style="--score:{token.score:.3f}" title="{title}">{display}</span>'
        written += f'<p class="text" dir="auto"><span class="word">{words}</span></p>\n'
    classes = "".join(f"<li>{_clean(name)} {value:.1%}</li>" for name, value in text.probabilities.items())
    rows = "".join(
        f"<tr><td><bdi>{_clean(token.text)}</bdi></td><td>{token.score:.3f}</td><td>{pooled[token.kept]}</td></tr>"
        for token in text.tokens
        if token.score is not None
    )
    head = "<tr><th>Token</th><th>Score</th><th>Pooling</th></tr>"
    return f"""<section>
{written}<p class="note">Predicted: <strong>{_clean(text.prediction)}</strong></p>
{f'<ul class="classes">{classes}</ul>' if classes else ""}
<details><summary>All scores</summary><table>{head}{rows}</table></details>
</section>"""


def _clean(text: str) -> str:
    return escape(printable(text))
