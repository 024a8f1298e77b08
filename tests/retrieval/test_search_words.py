"""How text becomes words."""

import sys

import pytest
import Stemmer

from headwise.errors import InputError
from headwise.retrieval.bm25 import Words, plain_words

PLAIN = Words("none", "none")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("IL-6 and IL 6", ["il", "6", "and", "il", "6"]),
        ("p53, TNF-α; β-Catenin", ["p53", "tnf", "α", "β", "catenin"]),
        ("vitamin D (hepatitis B)", ["vitamin", "d", "hepatitis", "b"]),
        ("p<0.05 in 1,000 of 2.5mg.", ["p", "0.05", "in", "1,000", "of", "2.5", "mg"]),
        ("snake_case", ["snake", "case"]),
        ("Übelkeit ЖАР 発熱", ["übelkeit", "жар", "発熱"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("", []),
        (" -- ... \n", []),
    ],
)
def test_letters_digits_and_numbers_are_words(text, expected):
    assert PLAIN.cut(text) == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [("cafe\u0301", "caf\u00e9"), ("5 \u00b5g", "5 \u03bcg"), ("\ufb01brosis", "FIBROSIS"), ("IL\u20116", "IL-6")],
)
def test_what_only_looks_different_is_the_same(one, other):
    assert one != other
    assert plain_words(one) == plain_words(other)


def test_stop_words_go_before_endings_are_cut():
    # The stem of "its" is "it", a stop word; "its" itself is none.
    assert Words("english", "english").cut("The cat and its fevers") == ["cat", "it", "fever"]
    assert Words("none", "english").cut("The cat and its fevers") == ["cat", "its", "fevers"]
    assert Words("english", "none").cut("The fevers") == ["the", "fever"]


@pytest.mark.parametrize("language", ["german", "none"])
def test_every_language_of_the_stemmer_can_be_chosen(language):
    expected = ["fevers"] if language == "none" else Stemmer.Stemmer(language).stemWords(["fevers"])
    assert Words(language, "none").cut("fevers") == expected


def test_an_unknown_language_is_answered_with_all_of_them():
    with pytest.raises(
        InputError, match=r"stem 'englisch': expected a language; did you mean 'english'\? known: .*none"
    ):
        Words("englisch")
    with pytest.raises(InputError, match=r"stop_words 'klingon': expected a language; known: chinese, .*none.*turkish"):
        Words(stop_words="klingon")


def test_what_is_missing_is_said_with_the_line_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(InputError, match=r"pip install 'headwise\[retrieval\]'"):
        Words("none", "german")
