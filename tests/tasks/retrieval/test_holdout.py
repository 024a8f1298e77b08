"""No claim on one side has a near-duplicate on the other."""

from itertools import chain, combinations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headwise.errors import InputError
from headwise.retrieval.holdout import claim_words, near_duplicates, split_claims, without_leaks

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


@pytest.mark.parametrize("claims", [{}, {"a": "x"}, {"a": "Zinc raises appetite.", "b": "Zinc lowers appetite."}])
def test_too_few_to_split(claims):
    with pytest.raises(InputError, match=rf"^{len(claims)} claims to split: expected two or more .*\.$"):
        split_claims(claims, 0.5, 0)


@pytest.mark.parametrize("fraction", [0, 1, -0.5, 1.5, float("nan")])
def test_a_fraction_without_meaning(fraction):
    with pytest.raises(InputError, match=r"fraction: expected a number between 0 and 1, got .*\.$"):
        split_claims({"a": "x", "b": "y"}, fraction, 0)


def test_a_negative_seed():
    with pytest.raises(InputError, match=r"seed: expected 0 or more, got -1"):
        split_claims({"a": "x", "b": "y"}, 0.5, -1)
