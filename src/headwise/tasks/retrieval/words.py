"""How text becomes words for the search."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from headwise.errors import InputError, choices
from headwise.tasks.retrieval.cache import digest

INSTALL = "pip install 'headwise[retrieval]'"
NONE = "none"


@dataclass(frozen=True)
class Words:
    """Cuts a text into words: the same for documents and for claims, or they would not meet.

    A word is a stretch of letters and digits in lower case, or a number such as 0.05, much as in Lucene. The default of
    bm25s drops words of one letter: of "IL-6", "vitamin D" and "type 2 diabetes" it would keep "il", "vitamin" and
    "type diabetes". Hyphens part words, since authors disagree about them: "IL-6" and "IL 6" are both "il" and "6".
    Languages written without spaces are not cut into words.
    """

    stem: str = "english"
    """Language whose endings are cut off (Snowball), or none."""
    stop_words: str = "english"
    """Language whose commonest words are left out, or none."""

    def __post_init__(self) -> None:
        """Refuse languages that nobody knows."""
        _check("stem", self.stem, stemmers())
        _check("stop_words", self.stop_words, tuple(stop_word_lists()))

    def cut(self, text: str) -> list[str]:
        """The words of a text, in its order."""
        stop, stem = self.left_out(), self.stemmer()
        # Stop words go first: the lists hold whole words, and stems could be mistaken for them ("doe" of "does").
        return [stem(word) for word in plain_words(text) if word not in stop]

    def left_out(self) -> frozenset[str]:
        """The words that count for nothing."""
        return _stop_words(self.stop_words)

    def stemmer(self) -> Callable[[str], str]:
        """What cuts the ending off a word."""
        return str if self.stem == NONE else _stemmer(self.stem)

    def fingerprint(self) -> dict[str, Any]:
        """What decides the words: options, and versions of what they are made with."""
        made_with = {"pattern": digest(_pattern().pattern), "unicode": unicodedata.unidata_version}
        if self.stem != NONE:
            made_with["PyStemmer"] = _import_stemmer().version()
        return {"stem": self.stem, "stop_words": sorted(self.left_out()), **made_with}


def plain_words(text: str) -> list[str]:
    """The words of a text before anything is left out or cut off."""
    # NFKC makes one of what only looks different: e + accent and é, the micro sign and Greek mu, the ligature ﬁ and fi.
    # Most text is ASCII, where there is nothing to do.
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return _pattern().findall(text.lower())


@cache
def stemmers() -> tuple[str, ...]:
    """The languages that can be stemmed."""
    return tuple(_import_stemmer().algorithms())


def stop_word_lists() -> Mapping[str, tuple[str, ...]]:
    """The lists of stop words that bm25s brings along."""
    stopwords = import_bm25s().stopwords
    names = {"EN": "english", "EN_PLUS": "english_plus"}
    lists = {name[10:]: value for name, value in vars(stopwords).items() if name.startswith("STOPWORDS_")}
    return {names.get(name, name.lower()): value for name, value in lists.items()}


def import_bm25s() -> Any:
    """The library of the search, or the line that installs it."""
    try:
        import bm25s  # type: ignore[import-untyped]
    except ImportError:
        raise InputError(f"the search needs bm25s: install it by {INSTALL}.") from None
    return bm25s


def _import_stemmer() -> Any:
    try:
        import Stemmer  # type: ignore[import-not-found]
    except ImportError:
        raise InputError(f"stemming needs PyStemmer: install it by {INSTALL}, or choose stem {NONE}.") from None
    return Stemmer


def _check(name: str, value: str, known: tuple[str, ...]) -> None:
    if value != NONE and value not in known:
        raise InputError(f"{name} {value!r}: expected a language; {choices(value, [*known, NONE])}.")


@cache
def _stemmer(language: str) -> Callable[[str], str]:
    stem: Callable[[str], str] = _import_stemmer().Stemmer(language).stemWord
    return stem


@cache
def _stop_words(language: str) -> frozenset[str]:
    """The list of a language, cut as texts are: "aren't" is "aren" and "t" there."""
    if language == NONE:
        return frozenset()
    return frozenset(word for entry in stop_word_lists()[language] for word in plain_words(entry))


@cache
def _pattern() -> re.Pattern[str]:
    # Numbers stay whole, or the 0 of every "p < 0.05" would answer to "0-dimensional". Vowel signs, as in Hindi, and
    # accents that are signs of their own are no letters to \w, which would cut words in two; the underscore is one.
    marks = "".join(sign for sign in map(chr, range(0x10000)) if unicodedata.category(sign)[0] == "M")
    return re.compile(rf"\d+(?:[.,]\d+)+|[^\W_]+(?:[{marks}]+[^\W_]*)*")
