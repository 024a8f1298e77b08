"""Sentences as abstracts have them, and passages drawn from them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.errors import InputError
from headwise.retrieval.pairs import passages, split_sentences

# Sentences that one splitter or another breaks; a bar stands between two.
TEXTS = {
    "plain": "One is here. | Two is there! | Is three? | Four.",
    "decimals": "The mean was 0.05 in all. | It rose by 1.5 kg.",
    "probability": "It fell (p < 0.05). | Controls did not (P=.03). | 12 died.",
    "number at the end": "It fell to 0.05. | The rest rose to 7. | All was well.",
    "latin": "Some drugs, e.g. Aspirin and i.e. Zinc, work. | Others do not.",
    "authors": "Smith et al. Found it (Lee et al. 2004). | J. R. Smith did not.",
    "species": "We grew E. coli and S. Aureus spp. Both grew. | They died.",
    "references": "See Fig. 2 and Eq. 3 vs. Table 1. | Dr. Who agreed.",
    "no abbreviation before a question mark": "Was it vitamin C? | It was.",
    "country": "It is used in the U.S. Army only. | It works.",
    "quotation": 'He said "it works." | (It did.) | [Yes.] | "No," they said.',
    "greek": "Nothing changed. | α-Synuclein rose. | Σ was 1.",
    "lower case goes on": "The mean was approx. ten. then it fell. | Last.",
    "line feeds": "First one.\n | Second\none.",
    "no stop": "No stop at the end",
}


@pytest.mark.parametrize("case", TEXTS)
def test_sentences(case):
    parts = TEXTS[case].split(" | ")
    assert split_sentences("".join(part if part[-1] == "\n" else f"{part} " for part in parts)) == [
        part.strip() for part in parts
    ]


@pytest.mark.parametrize("text", ["", "  \n", "..."])
def test_hardly_any_text(text):
    assert split_sentences(text) == ([text] if text.strip() else [])
    assert passages(text, 3, np.random.default_rng(0)) == []


@settings(deadline=None)
@given(st.text(alphabet='aB1.!? ()"\n', max_size=60))
def test_nothing_is_lost(text):
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


def numbered(count):
    return " ".join(f"Sentence number {place} is here." for place in range(count))


@settings(deadline=None)
@given(st.integers(0, 9), st.integers(0, 12), st.integers(1, 5), st.integers(0, 9))
def test_passages_are_runs_of_sentences_and_never_the_whole(length, count, sentences, seed):
    text = numbered(length)
    found = passages(text, count, np.random.default_rng(seed), sentences=sentences)
    size = min(sentences, length - 1)
    windows = length - size + 1 if size > 0 else 0
    assert len(found) == len(set(found)) == min(count, windows)
    assert all(part in text and part != text for part in found)
    assert all(len(split_sentences(part)) == size for part in found)
    assert [text.index(part) for part in found] == sorted(text.index(part) for part in found)


def test_every_passage_has_its_turn():
    drawn = {part for seed in range(40) for part in passages(numbered(6), 1, np.random.default_rng(seed))}
    assert len(drawn) == 4


def test_a_passage_that_is_there_twice_is_drawn_once():
    assert passages("Yes. Yes. Yes. No.", 9, np.random.default_rng(0), sentences=1) == ["Yes.", "No."]


@pytest.mark.parametrize(("count", "sentences"), [(-1, 3), (1, 0)])
def test_numbers_without_meaning(count, sentences):
    with pytest.raises(InputError, match=rf"passages: expected .* got {count} and {sentences}; .*\.$"):
        passages("A. B. C.", count, np.random.default_rng(0), sentences=sentences)
