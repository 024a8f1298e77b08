"""Near-duplicates, and splits of claims without near-duplicates on the other side."""

from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headwise.errors import InputError
from headwise.retrieval.holdout import claim_words, near_duplicates, split_claims, without_leaks

# Few words, so that many sets overlap; some are rare.
words = st.sampled_from("ant bee cat cat cat dog dog elk fox gnu gnu hen raises lowers not".split())
texts_of_few_words = st.lists(st.lists(words, max_size=8).map(" ".join), max_size=20)
claims_of_few_words = texts_of_few_words.map(lambda texts: {f"c{place}": text for place, text in enumerate(texts)})
thresholds = st.sampled_from([0.2, 1 / 3, 0.55, 0.6, 2 / 3, 0.75, 0.9, 1.0])


def similarity(first, second):
    first, second = claim_words(first), claim_words(second)
    return len(first & second) / len(first | second)


def slow_clusters(texts, threshold):
    """Spread the smaller number over near-duplicates until nothing changes."""
    found, before = list(range(len(texts))), None
    while found != before:
        before = list(found)
        for one, other in combinations(range(len(texts)), 2):
            if similarity(texts[one], texts[other]) >= threshold:
                found[one] = found[other] = min(found[one], found[other])
    return found


@settings(deadline=None)
@given(texts_of_few_words, thresholds)
def test_clusters_equal_those_of_comparing_all_pairs(texts, threshold):
    assert near_duplicates(texts, threshold=threshold) == slow_clusters(texts, threshold)


@settings(deadline=None)
@given(claims_of_few_words, claims_of_few_words, thresholds)
def test_a_claim_is_removed_for_the_most_similar_claim_of_the_other_side(train, others, threshold):
    leaks = without_leaks(train, others, threshold=threshold)
    expected = {}
    for claim, text in train.items():
        scores = [similarity(text, other) for other in others.values()]
        if scores and max(scores) >= threshold:
            expected[claim] = list(others)[scores.index(max(scores))]
    assert leaks.removed == expected
    assert list(leaks.kept) == [claim for claim in train if claim not in expected]


@pytest.mark.parametrize("threshold", [0.56, 0.6, 0.7])
def test_a_similarity_of_exactly_the_threshold_counts(threshold):
    # 0.56 * 25 is a little more than 14 in floats. One text is the beginning of the other: similarity size / words.
    for count in range(1, 60):
        names = [f"w{number}x" for number in range(count)]
        least = next(size for size in range(count + 1) if size / count >= threshold)
        both, fewer = ([" ".join(names), " ".join(names[:size])] for size in (least, least - 1))
        assert near_duplicates(both, threshold=threshold) == [0, 0]
        assert near_duplicates(fewer, threshold=threshold) == [0, 1]


# The kinds of rewriting that a collection of claims has, in other words than its own.
REWRITTEN = {
    "direction": ("Drug X decreases stress of the reticulum.", "Drug X raises stress of the reticulum."),
    "negation": ("Running does not improve sleep in adults.", "Running improves sleep in adults."),
    "ratio": ("1 in 5 million in Wales carry the variant.", "1/2,000 in Wales carry the variant."),
    "numbers": ("Glucose at 0.05% halves the span of yeast.", "Glucose at 2.5% halves the span of yeast."),
    "one word of five": ("Thin fibres lack elastic memory proteins.", "Thin fibres show elastic memory proteins."),
    "case and punctuation": ("IL-10 (mice): secretion.", "il-10 MICE secretion"),
    "plural": ("Mutation of the gene, in a study", "Mutations of genes, in studies"),
    "nothing but grammar": ("It is not so.", "it IS not, so"),
    "no words": (" -- ", "--"),
}
DIFFERENT = {
    "cause": ("Lack of folate increases levels of leucine.", "Lack of vitamin B12 increases levels of leucine."),
    "name with a number": ("IL-10 drives fever.", "IL-6 drives fever."),
    "short": ("Fat shortens life.", "Fat shortens naps."),
    "grammar": ("It is not so.", "They were there."),
    "no words": ("--", "!"),
    "nothing": ("", "a"),
}


def test_rewritten_claims_are_near_duplicates_and_other_claims_are_not():
    assert [case for case, texts in REWRITTEN.items() if near_duplicates(texts) != [0, 0]] == []
    assert [case for case, texts in DIFFERENT.items() if near_duplicates(texts) != [0, 1]] == []


def test_ten_thousand_texts_are_compared_quickly():
    # All pairs would be 200 million: equal texts are compared once, and a common word is no meeting place.
    texts = ["Aspirin thins blood.", "Aspirin thickens soup."] * 10_000
    assert near_duplicates(texts) == [0, 1] * 10_000
    rows = np.random.default_rng(0).integers(0, 10**6, (10_000, 6)).tolist()
    texts = [" ".join(["cancer", "patients", *(f"w{number}x" for number in row)]) for row in rows]
    assert near_duplicates([*texts, texts[70]])[-1] == 70


@settings(deadline=None)
@given(claims_of_few_words, st.sampled_from([0.05, 0.3, 0.95]), st.integers(0, 5))
def test_a_split_separates_no_near_duplicates(claims, fraction, seed):
    assume(len(set(near_duplicates(list(claims.values())))) > 1)
    stay, held = split_claims(claims, fraction, seed)
    assert not any(similarity(claims[one], claims[other]) >= 0.6 for one in stay for other in held)
    assert stay == [claim for claim in claims if claim not in held]
    assert held == [claim for claim in claims if claim not in stay]
    assert stay
    assert held


@settings(deadline=None)
@given(st.lists(st.integers(1, 5), min_size=2, max_size=7), st.floats(0.01, 0.99), st.integers(0, 3))
def test_a_split_is_as_near_to_the_fraction_as_clusters_allow(sizes, fraction, seed):
    claims = {f"{cluster}-{copy}": f"w{cluster}x" for cluster, size in enumerate(sizes) for copy in range(size)}
    _, held = split_claims(claims, fraction, seed)
    choices = chain.from_iterable(combinations(sizes, count) for count in range(1, len(sizes)))
    assert abs(len(held) - fraction * len(claims)) == min(abs(sum(one) - fraction * len(claims)) for one in choices)


def test_the_seed_decides_what_is_held_out():
    claims = {f"c{number}": f"w{number}x" for number in range(50)}
    found = [split_claims(claims, 0.2, seed) for seed in (3, 3, 4)]
    assert found[0] == found[1] != found[2]
    assert [len(held) for _, held in found] == [10, 10, 10]
    assert len({claim for seed in range(60) for claim in split_claims(claims, 0.2, seed)[1]}) == 50


def test_values_without_meaning_are_refused():
    two = {"a": "x", "b": "y"}
    with pytest.raises(InputError, match=r"threshold: expected a number above 0 and at most 1, got nan; .*\.$"):
        near_duplicates(["a"], threshold=float("nan"))
    with pytest.raises(InputError, match=r"fraction: expected a number between 0 and 1, got 1; .*\.$"):
        split_claims(two, 1, 0)
    with pytest.raises(InputError, match="seed: expected 0 or more, got -1"):
        split_claims(two, 0.5, -1)
    with pytest.raises(InputError, match=r"^2 claims to split: expected two or more .*\.$"):
        split_claims({"a": "Zinc raises appetite.", "b": "Zinc lowers appetite."}, 0.5, 0)
