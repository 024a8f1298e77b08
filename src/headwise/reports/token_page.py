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
    spell = _Speller(spelling or guessed_spelling(tokens))
    found: list[Piece] = []
    for token in tokens:
        display, blank = spell(token)
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


class _Speller:
    """Spells token after token; remembers the bytes of a character that is not complete."""

    def __init__(self, spelling: str) -> None:
        self.spelling = spelling
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def __call__(self, token: ScoredToken) -> tuple[str, bool]:
        """What to show, and whether a blank comes before it."""
        if token.score is None or (_STAND_IN.fullmatch(token.text) and not _ONE_BYTE.fullmatch(token.text)):
            self.decoder.reset()
            return token.text or PART, True  # a tokenizer takes the blank before <mask> away
        if self.spelling == "wordpiece":
            goes_on = token.text.startswith("##") and len(token.text) > 2
            return (token.text[2:] if goes_on else token.text.translate(_BLANKS)) or PART, not goes_on
        return self._shown(*self._decoded(token.text))

    def _decoded(self, text: str) -> tuple[str, bool]:
        """The characters that are complete by now, and whether bytes are left over."""
        fallback = _ONE_BYTE.fullmatch(text) if self.spelling == "sentencepiece" else None
        data = bytes.fromhex(fallback[1]) if fallback else _as_bytes(text) if self.spelling == "bytes" else None
        if data is None:  # the characters themselves
            self.decoder.reset()
            return text, False
        return self.decoder.decode(data), bool(self.decoder.getstate()[0])

    @staticmethod
    def _shown(text: str, unfinished: bool) -> tuple[str, bool]:
        blank = text[:1] in (" ", "▁")
        rest = text[1:] if blank else text
        if rest or unfinished:
            return rest.translate(_BLANKS) or PART, blank
        return ("␣", False) if blank else (PART, False)


def _byte_alphabet() -> dict[str, int]:
    """Character -> byte: what can be seen stands for itself, the others are counted up from Ā."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(256 + place): byte for place, byte in enumerate(hidden)}


_BYTES = _byte_alphabet()


def _as_bytes(text: str) -> bytes | None:
    """The bytes of a byte-level token; None for one that was added as it is, in characters of its own."""
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
    sections = "\n".join(_section(text) for text in examples)
    style, page = (
        (files("headwise.reports") / "assets" / f"tokens.{kind}").read_text("utf-8") for kind in ("css", "html")
    )
    return Template(page).substitute(title=_clean(title), style=style, legend=_legend(examples), texts=sections)


def _legend(examples: Sequence[ScoredText]) -> str:
    thresholds = sorted({text.threshold for text in examples if text.threshold is not None})
    marks = "".join(f'<span class="mark" style="left:{100 * each:.4g}%"></span>' for each in thresholds)
    scale = f'<p class="note">Score: 0 <span class="scale" aria-hidden="true">{marks}</span> 1</p>'
    return f'{scale}\n<p class="note">{_pooling(thresholds)} Small grey tokens frame the texts and have no score.</p>'


def _pooling(thresholds: Sequence[float]) -> str:
    if not thresholds:
        return "No token is pooled here: the scores were learned beside the task."
    least = " or ".join(f"{each:.4g}" for each in thresholds)
    left_out = '<span class="left-out">in italics with dots below</span>'
    return f"Tokens are pooled from the threshold {least} on; those below it are {left_out}."


def _section(text: ScoredText) -> str:
    written = "\n".join(f'<p class="text" dir="auto">{_line(line, text)}</p>' for line in lines(text))
    classes = "".join(f"<li>{_clean(name)} {value:.1%}</li>" for name, value in text.probabilities.items())
    return f"""<section>
{written}
<p class="note">Predicted: <strong>{_clean(text.prediction)}</strong></p>
{f'<ul class="classes">{classes}</ul>' if classes else ""}
{_table(text)}
</section>"""


def _line(line: Sequence[Piece], text: ScoredText) -> str:
    """Words with a blank between them, and their pieces without."""
    words: list[list[Piece]] = []
    for piece in line:
        if piece.blank_before or not words:
            words.append([])
        words[-1].append(piece)
    return " ".join(f'<span class="word">{"".join(_piece(piece, text) for piece in word)}</span>' for word in words)


def _piece(piece: Piece, text: ScoredText) -> str:
    display, score = escape(piece.display), piece.token.score
    if score is None:
        return f'<bdi class="frame">{display}</bdi>'  # bdi: the direction of a line is that of its text
    shape = "token left-out" if _fate(piece.token, text) == "not pooled" else "token"
    title = ", ".join(part for part in (f"{score:.3f}", _fate(piece.token, text), _clean(piece.token.text)) if part)
    return f'<span class="{shape}" style="--score:{score:.3f}" title="{title}">{display}</span>'


def _fate(token: ScoredToken, text: ScoredText) -> str:
    if text.threshold is None:
        return ""
    return "pooled" if token.kept else "not pooled"


def _table(text: ScoredText) -> str:
    """The same for those who cannot hover."""
    rows = "".join(
        f"<tr><td><bdi>{_clean(token.text)}</bdi></td><td>{token.score:.3f}</td><td>{_fate(token, text)}</td></tr>"
        for token in text.tokens
        if token.score is not None
    )
    head = "<tr><th>Token</th><th>Score</th><th>Pooling</th></tr>"
    return f"<details><summary>All scores</summary><table>{head}{rows}</table></details>"


def _clean(text: str) -> str:
    return escape(printable(text))
