"""When two texts count as the same, and what their words are."""

from __future__ import annotations

import re

from headwise.tasks.retrieval.words import plain_words

# Kana and Han, which are written without blanks: every sign counts as a word.
SIGNS = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")


def folded(text: str) -> str:
    """The text without what hardly anybody means: case, and how much white space there is."""
    return " ".join(text.casefold().split())


def words(text: str) -> list[str]:
    """Stretches of letters and digits in lower case."""
    return plain_words(text if text.isascii() else SIGNS.sub(r" \g<0> ", text))
