"""Words and sub-words: splitting texts into words, the word of each token, and knowledge of words spread over tokens.

Shapes: T tokens of an example, W words of it, P words that have tokens, C pairs of a token and a word.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.patterns.base import WordMatrix

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
    spans = []
    for match in _word().finditer(text):
        start, end = match.span()
        word = match[0]
        ending = _ENDING.search(word) if "'" in word or "’" in word else None
        if ending is None:
            spans.append((start, end))
        else:
            spans += [(start, start + ending.start()), (start + ending.start(), end)]
    return spans


def words_of(texts: Sequence[str]) -> tuple[list[str], NDArray[np.int32]]:
    """The words of all texts of an example, and their spans: [W,3] text, first character, one after the last."""
    spans = [(number, start, end) for number, text in enumerate(texts) for start, end in words(text)]
    return [texts[text][start:end] for text, start, end in spans], np.array(spans, np.int32).reshape(-1, 3)


def plain(word: str) -> str:
    """A word without differences of case and of apostrophes."""
    return word.casefold().replace("’", "'")


@functools.cache
def _word() -> re.Pattern[str]:
    """Compiled on first use, since finding the marks takes a while."""
    # What belongs to the letter before it without being one: accents, vowel signs, invisible joiners. All accents and
    # vowel signs lie in the first two planes, but for the selectors at U+E0100.
    marks = "".join(chr(code) for code in range(0x20000) if unicodedata.category(chr(code))[0] == "M")
    run = rf"{_LETTER}(?:{_LETTER}|[{marks}\u00ad\u200c\u200d\U000e0100-\U000e01ef])*+"
    return re.compile(rf"{_INITIALS}|{run}(?:{_JOINT}{run})*|(?<!\S){_SHORT}(?!\w)|\S")


def words_of_tokens(offsets: NDArray[np.int32], texts: NDArray[np.int8], spans: NDArray[np.int32]) -> NDArray[np.int32]:
    """The word of every token of an example.

    A token belongs to the word that it shares most characters with, the first of equals, also if the token begins with
    the space before its word. Special tokens and tokens without characters have no word.

    Args:
        offsets: [T,2] first character of each token, and the one after its last, within the token's text.
        texts: [T] the number of that text; -1 for special tokens.
        spans: [W,3] as in `WordMatrix.spans`, in any order.

    Returns:
        [T] the index of the word, -1 for none.
    """
    word_of = np.full(len(texts), -1, np.int32)
    if not len(texts) or not len(spans):
        return word_of
    # On one line of characters: the texts one after another, special tokens before the first.
    length = max(int(offsets.max()), int(spans[:, 2].max())) + 1
    order = np.lexsort((spans[:, 1], spans[:, 0]))
    words = spans[order, 0].astype(np.int64)[:, None] * length + spans[order, 1:]  # [W,2]
    tokens = texts.astype(np.int64)[:, None] * length + offsets  # [T,2]
    # [C] and [C]: every token with every word that it may share a character with.
    reach = np.maximum.accumulate(words[:, 1])  # sorted even where words overlap
    first = np.searchsorted(reach, tokens[:, 0], side="right")
    count = np.maximum(np.searchsorted(words[:, 0], tokens[:, 1], side="left") - first, 0)
    token = np.repeat(np.arange(len(tokens)), count)
    word = np.repeat(first - np.cumsum(count) + count, count) + np.arange(len(token))
    shared = np.minimum(tokens[token, 1], words[word, 1]) - np.maximum(tokens[token, 0], words[word, 0])
    # What is written last stays: the most shared, the first word of equals.
    ranked = np.lexsort((-word, shared))
    ranked = ranked[shared[ranked] > 0]
    word_of[token[ranked]] = order[word[ranked]]
    return word_of


def token_matrix(matrix: WordMatrix, words: NDArray[np.int32]) -> NDArray[np.float32]:
    """A matrix of words, for tokens: [T,T], entry [i,j] is W[word(i), word(j)], 0 where a token has no word.

    Tokens of the same word x have W[x,x].

    Args:
        matrix: of the words of an example.
        words: [T] the word of each token, from `words_of_tokens`.
    """
    present = np.unique(words[words >= 0])  # [P] the others were cut off, and may be many
    # The last index stands for all words without tokens, and -1 leads there as well.
    index = np.full(len(matrix.spans) + 1, len(present))
    index[present] = np.arange(len(present))
    rows, columns = index[matrix.rows], index[matrix.columns]
    small = np.zeros((len(present) + 1, len(present) + 1), np.float32)
    small[rows, columns] = matrix.values
    small[columns, rows] = matrix.values
    small[-1] = small[:, -1] = 0
    spread = index[words]  # [T]
    return np.asarray(small[spread[:, None], spread], np.float32)


def token_vector(matrix: WordMatrix, words: NDArray[np.int32]) -> NDArray[np.float32]:
    """[T] the column means of `token_matrix` over the tokens that have a word, without building that matrix.

    With n_x tokens of word x: entry j is (sum over x of n_x W[x, word(j)]) / (sum over x of n_x).

    Args:
        matrix: of the words of an example.
        words: [T] the word of each token, from `words_of_tokens`.
    """
    size = len(matrix.spans)
    with_word = words[words >= 0]
    counts = np.bincount(with_word, minlength=size)  # [W]
    sums = np.bincount(matrix.columns, matrix.values * counts[matrix.rows], size)  # [W]
    other = matrix.rows != matrix.columns  # the diagonal counts once
    sums += np.bincount(matrix.rows[other], (matrix.values * counts[matrix.columns])[other], size)
    means = np.append(sums / max(len(with_word), 1), 0.0)  # one more, where -1 leads
    return means[words].astype(np.float32)
