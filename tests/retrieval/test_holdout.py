"""Near-duplicates among claims, against a comparison of all pairs; no claim on one side has one on the other."""

from itertools import chain, combinations, product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headwise.errors import InputError
from headwise.retrieval.holdout import claim_words, near_duplicates, nearest_duplicates, split_claims, without_leaks

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


def test_a_similarity_of_exactly_the_threshold_counts():
    # 0.56 * 25 is a little more than 14 in floats. One text is the beginning of the other: similarity size / words.
    for words, threshold in product(range(1, 60), (0.56, 0.6, 0.7)):
        names = [f"w{number}x" for number in range(words)]
        least = next(size for size in range(words + 1) if size / words >= threshold)
        both, fewer = ([" ".join(names), " ".join(names[:size])] for size in (least, least - 1))
        assert near_duplicates(both, threshold=threshold) == [0, 0]
        assert near_duplicates(fewer, threshold=threshold) == [0, 1]


def test_a_chain_is_one_cluster():
    # By hand: 4 of 6 words are shared by neighbours (0.67), 3 of 7 by the ends (0.43); one has no neighbour.
    chain = ["aa bb cc dd ee", "zz yy", "bb cc dd ee ff", "cc dd ee ff gg"]
    assert near_duplicates(chain) == [0, 1, 0, 0]
    assert near_duplicates([chain[0], chain[3]]) == [0, 1]


# The kinds of rewriting that a collection of claims has, in other words.
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


def test_a_claim_rewritten_is_a_near_duplicate_and_another_claim_is_none():
    assert {case: near_duplicates(pair) for case, pair in REWRITTEN.items()} == dict.fromkeys(REWRITTEN, [0, 0])
    assert {case: near_duplicates(pair) for case, pair in DIFFERENT.items()} == dict.fromkeys(DIFFERENT, [0, 1])
    assert near_duplicates([]) == []
    assert nearest_duplicates([], ["a"]) == []
    assert nearest_duplicates(["a"], []) == [None]


def test_many_texts_are_not_all_compared():
    # All pairs would be 200 million.
    texts = ["Aspirin thins blood.", "Aspirin thickens soup."] * 10_000
    assert near_duplicates(texts) == [0, 1] * 10_000
    rows = np.random.default_rng(0).integers(0, 10**6, (10_000, 6)).tolist()
    texts = [" ".join(["cancer", "patients", *(f"w{number}x" for number in row)]) for row in rows]
    assert near_duplicates([*texts, texts[70]])[-1] == 70


def test_a_threshold_without_meaning():
    for threshold in (0, 1.01, float("nan")):
        with pytest.raises(InputError, match=r"threshold: expected a number above 0 and at most 1, got .*\.$"):
            near_duplicates(["a"], threshold=threshold)
        with pytest.raises(InputError, match="threshold"):
            nearest_duplicates(["a"], ["b"], threshold=threshold)


# -- holding claims out ------------------------------------------------------------------------------------------------

words = st.sampled_from("ant bee cat dog elk fox gnu hen raises lowers not".split())
claims_of_few_words = st.lists(st.lists(words, min_size=1, max_size=6).map(" ".join), max_size=16).map(
    lambda texts: {f"c{place}": text for place, text in enumerate(texts)}
)


def leaking(first, second):
    """All pairs of near-duplicates across, the slow way."""
    return [
        (one, other)
        for one in first
        for other in second
        if len(claim_words(one) & claim_words(other)) / len(claim_words(one) | claim_words(other)) >= 0.6
    ]


@settings(deadline=None)
@given(claims_of_few_words, claims_of_few_words)
def test_what_is_kept_has_no_near_duplicate_and_what_is_removed_has_one(train, others):
    found = without_leaks(train, others)
    assert leaking([train[claim] for claim in found.kept], others.values()) == []
    assert all(leaking([train[claim]], [others[other]]) for claim, other in found.removed.items())
    assert [claim for claim in train if claim in found.kept or claim in found.removed] == list(train)
    assert list(found.kept) == [claim for claim in train if claim not in found.removed]


def test_a_removed_claim_comes_with_the_claim_that_is_most_like_it():
    others = {"o1": "Zinc raises appetite in old adults.", "o2": "Zinc raises appetite in young adults.", "o3": "No."}
    train = {"t1": "Copper turns green.", "t2": "Zinc lowers appetite in young adults."}
    found = without_leaks(train, others)
    assert found.kept == ("t1",)
    assert found.removed == {"t2": "o2"}
    assert without_leaks(train, others, threshold=1.0).removed == {"t2": "o2"}


@settings(deadline=None)
@given(claims_of_few_words, st.sampled_from([0.05, 0.1, 0.3, 0.5, 0.95]), st.integers(0, 5))
def test_a_split_parts_no_near_duplicates(claims, fraction, seed):
    assume(len(set(near_duplicates(list(claims.values())))) > 1)
    stay, held = split_claims(claims, fraction, seed)
    assert leaking([claims[claim] for claim in stay], [claims[claim] for claim in held]) == []
    assert sorted([*stay, *held]) == sorted(claims)
    assert [claim for claim in claims if claim in set(stay)] == stay
    assert [claim for claim in claims if claim in set(held)] == held
    assert stay
    assert held


@settings(deadline=None)
@given(st.lists(st.integers(1, 5), min_size=2, max_size=7), st.floats(0.01, 0.99), st.integers(0, 3))
def test_a_split_is_as_near_to_the_fraction_as_clusters_allow(sizes, fraction, seed):
    claims = {f"{cluster}-{copy}": f"w{cluster}x" for cluster, size in enumerate(sizes) for copy in range(size)}
    _, held = split_claims(claims, fraction, seed)
    choices = chain.from_iterable(combinations(sizes, count) for count in range(1, len(sizes)))
    assert abs(len(held) - fraction * len(claims)) == min(abs(sum(one) - fraction * len(claims)) for one in choices)


def test_the_seed_decides_and_nothing_else():
    claims = {f"c{number}": f"w{number}x" for number in range(50)}
    found = [split_claims(claims, 0.2, seed) for seed in (3, 3, 4)]
    assert found[0] == found[1] != found[2]
    assert [len(held) for _, held in found] == [10, 10, 10]
    # Every claim has its turn.
    assert len({claim for seed in range(60) for claim in split_claims(claims, 0.2, seed)[1]}) == 50


def test_what_cannot_be_split():
    for claims in ({}, {"a": "x"}, {"a": "Zinc raises appetite.", "b": "Zinc lowers appetite."}):
        with pytest.raises(InputError, match=rf"^{len(claims)} claims to split: expected two or more .*\.$"):
            split_claims(claims, 0.5, 0)
    for fraction in (0, 1, float("nan")):
        with pytest.raises(InputError, match=r"fraction: expected a number between 0 and 1, got .*\.$"):
            split_claims({"a": "x", "b": "y"}, fraction, 0)
    with pytest.raises(InputError, match=r"seed: expected 0 or more, got -1"):
        split_claims({"a": "x", "b": "y"}, 0.5, -1)
