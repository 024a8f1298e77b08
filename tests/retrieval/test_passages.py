"""Sentences as abstracts have them, and passages drawn from them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.retrieval.pairs import draw_passages, split_sentences

# Sentences that one splitter or another breaks; a bar stands between two.
TEXTS = {
    "decimals": "The mean was 0.05 in all. | It rose by 1.5 kg.",
    "probability": "It fell (p < 0.05). | Controls did not (P=.03). | 12 died.",
    "latin": "Some drugs, e.g. Aspirin and i.e. Zinc, work. | Others do not.",
    "authors": "Smith et al. Found it (Lee et al. 2004). | J. R. Smith did not.",
    "no abbreviation before a question mark": "Was it vitamin C? | It was.",
    "country": "It is used in the U.S. Army only. | It works.",
    "quotation": 'He said "it works." | (It did.) | [Yes.] | "No," they said.',
    "greek": "Nothing changed. | α-Synuclein rose. | Σ was 1.",
    "lower case goes on": "The mean was approx. ten. then it fell. | Last.",
}


@pytest.mark.parametrize("case", TEXTS)
def test_sentences(case):
    parts = TEXTS[case].split(" | ")
    assert split_sentences("".join(part if part[-1] == "\n" else f"{part} " for part in parts)) == [
        part.strip() for part in parts
    ]


@settings(deadline=None)
@given(st.text(alphabet='aB1.!? ()"\n', max_size=60))
def test_nothing_is_lost(text):
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


def numbered(count):
    return " ".join(f"Sentence number {place} is here." for place in range(count))


@settings(deadline=None)
@given(st.integers(0, 9), st.integers(0, 12), st.integers(0, 9))
def test_passages_are_runs_of_sentences_and_never_the_whole(length, count, seed):
    text = numbered(length)
    found = draw_passages(text, count, np.random.default_rng(seed))
    size = min(3, length - 1)
    windows = length - size + 1 if size > 0 else 0
    assert len(found) == len(set(found)) == min(count, windows)
    assert all(part in text and part != text for part in found)
    assert all(len(split_sentences(part)) == size for part in found)
    assert [text.index(part) for part in found] == sorted(text.index(part) for part in found)
