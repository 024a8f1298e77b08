"""Words and sub-words: against slow loops, and with real tokenizers of the three common kinds."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from patterns.small_tokenizers import KINDS, byte_level

from headwise.patterns.align import token_matrix, token_vector, words_of_tokens
from headwise.patterns.base import WordMatrix

TEXT = "The patient's hyperlipidaemia didn't worsen: café 🙂 naïveté,  untreated."
PAIR = (TEXT, "No hyperlipidaemia was seen in the patient.")


def slow_words(offsets, texts, spans):
    """For every token look at every word, in the order of their first characters."""
    words = []
    order = sorted(range(len(spans)), key=lambda word: (tuple(spans[word][:2]), word))
    for (start, end), text in zip(offsets, texts, strict=True):
        best, most = -1, 0
        for word in order:
            characters = set(range(*spans[word][1:])) if spans[word][0] == text else set()
            if len(characters & set(range(start, end))) > most:
                best, most = word, len(characters & set(range(start, end)))
        words.append(best)
    return words


def slow_matrix(dense, words):
    """Entry by entry."""
    return [[dense[x, y] if x >= 0 and y >= 0 else 0.0 for y in words] for x in words]


def words_in(*texts):
    """[W,3] letters and digits that stand together, and every other character, as a parser might split."""
    found = [
        (number, *each.span()) for number, text in enumerate(texts) for each in re.finditer(r"'?\w+|[^\w\s]", text)
    ]
    return np.array(found, np.int32).reshape(-1, 3)


def tokens_of(encoding):
    """[T,2] and [T] of what a tokenizer gives."""
    numbers = [-1 if number is None else number for number in encoding.sequence_ids]
    return np.array(encoding.offsets, np.int32).reshape(-1, 2), np.array(numbers, np.int8)


def matrix_of(size, entries):
    """A matrix of words from {(row, column): value} with row <= column."""
    rows, columns = np.array(list(entries), np.int32).reshape(-1, 2).T
    spans = np.array([(0, 2 * word, 2 * word + 1) for word in range(size)], np.int32).reshape(-1, 3)
    return WordMatrix(spans, rows, columns, np.array(list(entries.values()), np.float32))


def spans_within(limit):
    return st.tuples(st.integers(0, limit), st.integers(0, limit)).map(sorted)


TOKENS = st.lists(st.tuples(st.integers(-1, 1), spans_within(20)), max_size=12)
WORDS = st.lists(st.tuples(st.integers(0, 1), spans_within(20)), max_size=12)


@given(TOKENS, WORDS)
def test_words_equal_the_slow_reference_whatever_the_spans(tokens, words):
    offsets = np.array([span for _, span in tokens], np.int32).reshape(-1, 2)
    texts = np.array([text for text, _ in tokens], np.int8)
    spans = np.array([(text, *span) for text, span in words], np.int32).reshape(-1, 3)
    found = words_of_tokens(offsets, texts, spans)
    assert found.dtype == np.int32
    assert found.tolist() == slow_words(offsets.tolist(), texts.tolist(), spans.tolist())


TOKENIZERS = {
    "WordPiece": KINDS["minilm"],
    "byte-level BPE": lambda: byte_level(trim_offsets=False),
    "byte-level BPE, trimmed": byte_level,
    "Unigram": KINDS["xlm-r"],
}


@pytest.fixture(scope="module", params=TOKENIZERS)
def tokenizer(request):
    backend = TOKENIZERS[request.param]().backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    return backend


def test_every_token_with_letters_is_in_its_word(tokenizer):
    assert len(tokenizer.encode(TEXT).ids) > len(words_in(TEXT)) + 2  # so sub-words are really tested
    spans, encoding = words_in(*PAIR), tokenizer.encode(*PAIR)
    words = words_of_tokens(*tokens_of(encoding), spans)
    assert words.tolist() == slow_words(encoding.offsets, tokens_of(encoding)[1].tolist(), spans.tolist())
    for (start, end), number, word in zip(encoding.offsets, encoding.sequence_ids, words, strict=True):
        if number is None or not PAIR[number][start:end].strip():
            assert word == -1
        else:
            text, first, last = spans[word]
            assert text == number
            assert PAIR[number][start:end].strip() in PAIR[number][first:last]
    assert set(words) - {-1} == set(range(len(spans)))  # and every word has tokens


@st.composite
def matrices(draw):
    size = draw(st.integers(0, 7))
    pairs = [(row, column) for column in range(size) for row in range(column + 1)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    values = st.floats(0.0625, 10, width=32)
    matrix = matrix_of(size, {pair: draw(values) for pair in chosen})
    return matrix, np.array(draw(st.lists(st.integers(-1, size - 1), max_size=9)), np.int32)


@given(matrices())
def test_matrix_and_vector_equal_the_slow_reference(case):
    matrix, words = case
    full = token_matrix(matrix, words)
    assert full.shape == (len(words), len(words))
    assert full.dtype == np.float32
    assert full.tolist() == slow_matrix(matrix.dense(), words)
    vector = token_vector(matrix, words)
    assert vector.dtype == np.float32
    assert vector.shape == words.shape
    with_word = words >= 0
    expected = full[with_word].astype(float).mean(0) if with_word.any() else np.zeros(len(words))
    np.testing.assert_allclose(vector, expected, rtol=1e-6)
