"""Near-duplicates: against a comparison of all pairs, and on claims as people write them."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.errors import InputError
from headwise.retrieval.holdout import claim_words, near_duplicates, nearest_duplicates

# Few words, so that many sets overlap; a Zipf-like choice, so that some are rare.
texts_of_few_words = st.lists(
    st.lists(st.sampled_from("ant bee cat cat cat dog dog elk fox gnu gnu hen".split()), max_size=8).map(" ".join),
    max_size=25,
)
thresholds = st.sampled_from([0.2, 1 / 3, 0.5, 0.55, 0.6, 2 / 3, 0.7, 0.75, 0.8, 0.9, 1.0])


def alike(first, second, threshold):
    first, second = set(claim_words(first)), set(claim_words(second))
    return len(first & second) / len(first | second) >= threshold


def slow_clusters(texts, threshold):
    """Spread the smaller number over near-duplicates until nothing changes."""
    found, before = list(range(len(texts))), None
    while found != before:
        before = list(found)
        for one, other in combinations(range(len(texts)), 2):
            if alike(texts[one], texts[other], threshold):
                found[one] = found[other] = min(found[one], found[other])
    return found


@settings(deadline=None)
@given(texts_of_few_words, thresholds)
def test_clusters_are_those_of_all_pairs(texts, threshold):
    assert near_duplicates(texts, threshold=threshold) == slow_clusters(texts, threshold)


@settings(deadline=None)
@given(texts_of_few_words, texts_of_few_words, thresholds)
def test_the_nearest_is_that_of_all_pairs(texts, others, threshold):
    def slow(text):
        words = claim_words(text)
        scores = [len(words & claim_words(other)) / len(words | claim_words(other)) for other in others]
        return scores.index(max(scores)) if scores and max(scores) >= threshold else None

    assert nearest_duplicates(texts, others, threshold=threshold) == [slow(text) for text in texts]


@pytest.mark.parametrize("threshold", [0.56, 0.6, 0.7])
def test_a_similarity_of_exactly_the_threshold_counts(threshold):
    # 0.56 * 25 is a little more than 14 in floats. One text is the beginning of the other: similarity size / words.
    for words in range(1, 60):
        names = [f"w{number}x" for number in range(words)]
        least = next(size for size in range(words + 1) if size / words >= threshold)
        both, fewer = ([" ".join(names), " ".join(names[:size])] for size in (least, least - 1))
        assert near_duplicates(both, threshold=threshold) == [0, 0]
        assert near_duplicates(fewer, threshold=threshold) == [0, 1]


def test_a_chain_is_one_cluster():
    # By hand: 4 of 6 words are shared by neighbours (0.67), 3 of 7 by the ends (0.43); the last stands alone.
    chain = ["aa bb cc dd ee", "zz yy", "bb cc dd ee ff", "cc dd ee ff gg"]
    assert near_duplicates(chain) == [0, 1, 0, 0]
    assert near_duplicates([chain[0], chain[3]]) == [0, 1]


# The kinds of rewriting that a collection of claims has, in other words than its own.
REWRITTEN = {
    "direction": ("Drug X decreases stress of the reticulum.", "Drug X raises stress of the reticulum."),
    "direction in a short claim": ("Zinc raises appetite.", "Zinc lowers appetite."),
    "negation": ("Tea is associated with gout.", "Tea is not associated with gout."),
    "verb with negation": ("Running does not improve sleep in adults.", "Running improves sleep in adults."),
    "percentage": ("61% of patients relapse.", "1-1% of patients relapse."),
    "ratio": ("1 in 5 million in Wales carry the variant.", "1/2,000 in Wales carry the variant."),
    "numbers": ("Glucose at 0.05% halves the span of yeast.", "Glucose at 2.5% halves the span of yeast."),
    "one word of five": ("Thin fibres lack elastic memory proteins.", "Thin fibres show elastic memory proteins."),
    "order": ("Sleep is more frequent in cats than in dogs.", "Sleep is more frequent in dogs than in cats."),
    "case and punctuation": ("IL-10 (mice): secretion.", "il-10 MICE secretion"),
    "plural": ("Mutation of the gene, in a study", "Mutations of genes, in studies"),
    "ligature": ("\ufb01brosis of kidney", "fibrosis of kidney"),
    "nothing but grammar": ("It is not so.", "it IS not, so"),
    "no words": (" -- ", "--"),
}
DIFFERENT = {
    "cause": ("Lack of folate increases levels of leucine.", "Lack of vitamin B12 increases levels of leucine."),
    "effect": ("Surgery reduces colon cancer.", "Surgery reduces late breast cancer."),
    "name with a number": ("IL-10 drives fever.", "IL-6 drives fever."),
    "short": ("Fat shortens life.", "Fat shortens naps."),
    "topic": ("Weight at birth is associated with breast cancer.", "Gene TP9 is not associated with breast cancer."),
    "grammar": ("It is not so.", "They were there."),
    "no words": ("--", "!"),
    "nothing": ("", "a"),
}


@pytest.mark.parametrize("case", REWRITTEN)
def test_a_claim_rewritten_is_a_near_duplicate(case):
    assert near_duplicates(REWRITTEN[case]) == [0, 0]


@pytest.mark.parametrize("case", DIFFERENT)
def test_another_claim_is_none(case):
    assert near_duplicates(DIFFERENT[case]) == [0, 1]


def test_no_texts():
    assert near_duplicates([]) == []
    assert nearest_duplicates([], ["a"]) == []
    assert nearest_duplicates(["a"], []) == [None]


def test_many_equal_texts_are_compared_once():
    # All pairs would be 200 million.
    texts = ["Aspirin thins blood.", "Aspirin thickens soup."] * 10_000
    assert near_duplicates(texts) == [0, 1] * 10_000


def test_a_common_word_in_ten_thousand_texts_is_no_meeting_place():
    rows = np.random.default_rng(0).integers(0, 10**6, (10_000, 6)).tolist()
    texts = [" ".join(["cancer", "patients", *(f"w{number}x" for number in row)]) for row in rows]
    assert near_duplicates([*texts, texts[70]])[-1] == 70


@pytest.mark.parametrize("threshold", [0, -0.1, 1.01, float("nan")])
def test_a_threshold_without_meaning(threshold):
    with pytest.raises(InputError, match=r"threshold: expected a number above 0 and at most 1, got .*\.$"):
        near_duplicates(["a"], threshold=threshold)
    with pytest.raises(InputError, match="threshold"):
        nearest_duplicates(["a"], ["b"], threshold=threshold)
