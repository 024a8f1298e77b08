"""Splitting a text into words by its characters.

A word is

* a run of letters and digits with their accents. Single points and commas stay inside numbers (3.5, 1,000), single
  hyphens and apostrophes inside words (follow-up, o'clock, COVID-19), but not between digits (2-3 is three words);
* initials with points: U.S., b.i.d., p.o.;
* an English ending 's 'm 'd 're 've 'll n't, cut off from its word as word vectors expect it: patient 's, do n't;
* a Chinese character, since nothing says where Chinese words end;
* any other character but white space, alone.

Scripts that neither leave spaces between words nor are Chinese (Thai, kana) give one word for each run of letters.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# What decides where words are, besides the text: raise `rules` when the rules below change.
RULES: dict[str, Any] = {"rules": 1, "unicode": unicodedata.unidata_version}

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_LETTER = rf"[^\W_{_HAN}]"
_JOINT = r"(?:(?<=\d)[.,](?=\d)|(?<!\d)['’‐‑-]|['’‐‑-](?!\d))"
_INITIALS = r"(?<!\w)(?:[^\W\d_]\.)+[^\W\d_](?:\.(?!\w)|(?!\w))"
_SHORT = r"(?i:['’](?:s|m|d|re|ve|ll))"
_ENDING = re.compile(rf"(?<=\w)(?:(?i:n['’]t)|{_SHORT})$")


def words(text: str) -> list[tuple[int, int]]:
    """The words of a text, each as its first character and the one after its last; only white space is left out."""
    found = []
    for match in _word().finditer(text):
        start, end = match.span()
        word = match[0]
        ending = _ENDING.search(word) if "'" in word or "’" in word else None
        if ending is None:
            found.append((start, end))
        else:
            found += [(start, start + ending.start()), (start + ending.start(), end)]
    return found


def words_of(texts: Sequence[str]) -> tuple[list[str], NDArray[np.int32]]:
    """The words of all texts of an example, and where they stand: [W,3] text, first character, one after the last."""
    spans = [(number, start, end) for number, text in enumerate(texts) for start, end in words(text)]
    return [texts[text][start:end] for text, start, end in spans], np.array(spans, np.int32).reshape(-1, 3)


def plain(word: str) -> str:
    """A word without differences of case and of apostrophes."""
    return word.casefold().replace("’", "'")


@functools.cache
def _word() -> re.Pattern[str]:
    """Made when it is first needed, since finding the marks takes a while."""
    run = rf"{_LETTER}(?:{_LETTER}|[{_marks()}])*+"
    return re.compile(rf"{_INITIALS}|{run}(?:{_JOINT}{run})*|(?<!\S){_SHORT}(?!\w)|\S")


def _marks() -> str:
    """What belongs to the letter before it without being one: accents, vowel signs, invisible joiners.

    All accents and vowel signs lie in the first two planes, but for the selectors at U+E0100.
    """
    marks = (chr(code) for code in range(0x20000) if unicodedata.category(chr(code))[0] == "M")
    return "".join(marks) + "\u00ad\u200c\u200d\U000e0100-\U000e01ef"
