"""Passages of an abstract: a few consecutive sentences."""

from __future__ import annotations

import re

import numpy as np

from headwise.errors import InputError

# What ends a sentence, with the quotation marks and brackets that close after it, before a likely beginning.
END = re.compile(r"([.!?])[\"'\u201d\u2019)\]]*(?=\s+[\"'\u201c\u2018(\[]*[A-Z0-9\u0370-\u03ff])")
# Letters with dots between them: e.g, i.e, U.S. A number such as 0.05 is none of these and may end a sentence.
DOTTED = re.compile(r"[^\W\d_](\.[^\W\d_])+")
ABBREVIATIONS = frozenset(
    "al approx ca cf ch co corp dept dr ed eds eq eqs esp est etc ex fig figs inc jr ltd mr mrs ms nos pp prof ref "
    "refs resp sect sp spp sr st subsp suppl tab var viz vol vols vs".split()
)


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, by rules.

    A full stop ends one if white space and a capital, a digit or a Greek letter follow, unless it belongs to an
    abbreviation ("et al.", "e.g.", "Fig.") or an initial ("J. Smith"). Where the rules err, two sentences stay one.
    """
    parts, start = [], 0
    for match in END.finditer(text):
        if match.group(1) != "." or not _abbreviated(text[start : match.start()]):
            parts.append(text[start : match.end()].strip())
            start = match.end()
    return [part for part in [*parts, text[start:].strip()] if part]


def _abbreviated(before: str) -> bool:
    word = re.split(r"[\s(\[/-]", before)[-1]
    initial = len(word) == 1 and word.isalpha()
    return bool(initial or DOTTED.fullmatch(word) or word.lower() in ABBREVIATIONS)


def passages(text: str, count: int, random: np.random.Generator, *, sentences: int = 3) -> list[str]:
    """Up to `count` different passages of a text, in the text's order, drawn from all runs of that many sentences.

    None is the whole text: of a text of n sentences a passage has at most n - 1, and one sentence has none.
    """
    if count < 0 or sentences < 1:
        raise InputError(
            f"passages: expected a count of 0 or more and 1 or more sentences in each, got {count} and {sentences}; "
            "0 passages switches them off."
        )
    parts = split_sentences(text)
    size = min(sentences, len(parts) - 1)
    if size < 1:
        return []
    # A sentence may be said twice, and so may a passage.
    windows = list(dict.fromkeys(" ".join(parts[start : start + size]) for start in range(len(parts) - size + 1)))
    drawn = random.permutation(len(windows))[:count]
    return [windows[place] for place in sorted(drawn)]
