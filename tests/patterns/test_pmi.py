"""PMI: against counting with plain loops."""

import itertools
import math
import random
from collections import Counter

import numpy as np
import pytest

from headwise.errors import InputError
from headwise.patterns import PMI, build_pattern
from headwise.patterns.align import words
from headwise.patterns.base import Resources


def in_parts(size):
    return lambda function, examples: (
        function(examples[start : start + size]) for start in range(0, len(examples), size)
    )


def build(corpus, *, parts=1000, **options):
    return PMI(**options).builder(corpus, Resources(), in_parts(parts))


def slow_ppmi(corpus, *, window=5, minimum=2, lower=True):
    """A function of two words, from loops over all places."""
    ordered, seen = Counter(), Counter()
    for text in itertools.chain.from_iterable(corpus):
        said = [text[start:end] for start, end in words(text)]
        said = [word.casefold() if lower else word for word in said]
        for one, two in itertools.permutations(range(len(said)), 2):
            if abs(one - two) <= window:
                ordered[said[one], said[two]] += 1
                if one < two:
                    seen[frozenset((said[one], said[two]))] += 1
    alone = Counter()
    for (word, _), count in ordered.items():
        alone[word] += count
    total = sum(ordered.values())

    def value(one, two):
        one, two = (word.casefold() if lower else word for word in (one, two))
        if seen[frozenset((one, two))] < minimum:
            return 0.0
        return max(0.0, math.log(ordered[one, two] * total / (alone[one] * alone[two])))

    return value


def random_corpus(examples=60, seed=3):
    source = random.Random(seed)
    vocabulary = "the The a patient fever cough has no x-ray of and . ,".split()

    def sentence():
        return " ".join(source.choices(vocabulary, k=source.randrange(0, 12)))

    # Examples of one and of two texts, so that a text's number says nothing about its example's.
    return [tuple(sentence() for _ in range(source.choice((1, 2)))) for _ in range(examples)]


@pytest.mark.parametrize(
    ("parts", "options"), [(7, {}), (1000, {"window": 1, "minimum": 1, "lower": False}), (7, {"window": 100})], ids=str
)
def test_equals_the_slow_reference(options, parts):
    corpus = random_corpus()
    value = slow_ppmi(corpus, **options)
    matrices = build(corpus, parts=parts, **options)(corpus)
    assert len(matrices) == len(corpus)
    assert sum(len(matrix.values) for matrix in matrices) > 50
    for texts, matrix in zip(corpus, matrices, strict=True):
        said = [text[start:end] for text in texts for start, end in words(text)]
        size = len(said)
        expected = np.array([[value(one, two) for two in said] for one in said]).reshape(size, size)
        np.fill_diagonal(expected, 0)
        np.testing.assert_allclose(matrix.dense(), expected, rtol=1e-5, atol=1e-7)
        assert (matrix.rows < matrix.columns).all()
        assert (matrix.values > 0).all()


def test_a_pair_that_is_just_by_chance_has_no_entry():
    # a and b stand beside each other as often as each beside itself: c(x,y) N = 2 * 8 = 4 * 4 = c(x) c(y).
    even = [("a a",), ("b b",), ("a b",), ("b a",)]
    with pytest.raises(InputError, match="more than by chance"):
        build(even, minimum=1)
    (matrix,) = build([*even, ("c d",)], minimum=1)([("a b",)])
    assert matrix.values.tolist() == pytest.approx([math.log(2 * 10 / 16)], rel=1e-6)


def test_an_example_without_known_words_has_an_empty_matrix():
    builder = build([("a b",), ("a b",), ("c d",)])
    for texts, size in ((("",), 0), (("", ""), 0), (("x y", "z"), 3), (("a",), 1)):
        (matrix,) = builder([texts])
        assert matrix.spans.shape == (size, 3)
        assert len(matrix.values) == 0
    assert builder([]) == []


def test_a_corpus_that_says_nothing_and_bad_options_are_refused():
    for corpus, match in [
        ([], "there are none: give a training split"),
        ([("", " "), ("one",)], "no two words in one text in any of the 2 training examples"),
        ([("a b c",)], r"pmi\(window=5, minimum=2\): none of the 3 pairs .* set minimum to 1"),
    ]:
        with pytest.raises(InputError, match=match):
            build(corpus)
    for options in ({"window": 0}, {"window": 2.0}, {"minimum": True}, {"lower": 1}):
        (name,) = options
        with pytest.raises(InputError, match=rf"pmi\({name}="):
            PMI(**options)


def test_by_name_with_options():
    assert build_pattern({"name": "pmi", "window": 3}) == PMI(window=3)
    assert PMI(window=3).key != PMI().key
    assert PMI().fingerprint(Resources())["words"]["rules"] >= 1
