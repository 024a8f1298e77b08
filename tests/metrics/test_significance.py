"""Tests of differences against scipy, against enumeration and by hand."""

import itertools
import math
import random
from dataclasses import asdict

import numpy as np
import pytest
from scipy import stats

from headwise.errors import InputError
from headwise.metrics.significance import (
    EXACT,
    SeedScores,
    detectable_effect,
    holm,
    mcnemar,
    paired_by_seed,
    paired_test,
    smallest_permutation_p,
    twice_the_median,
)

# Six pairs; on one the systems are equal.
FIRST = [0.5, 1.0, 0.0, 0.25, 1.0, 0.2]
SECOND = [1.0, 0.5, 0.5, 1.0, 1.0, 1.0]


def many(seed, count=300, shift=0.05):
    chance = np.random.default_rng(seed)
    first = chance.random(count)
    return first, first + chance.normal(shift, 0.3, count) * (chance.random(count) < 0.5)


def enumerated(first, second):
    """The two-sided p-value over all ways to swap the systems, one by one."""
    differences = [b - a for a, b in zip(first, second, strict=True)]
    sums = [
        sum(s * d for s, d in zip(signs, differences, strict=True))
        for signs in itertools.product((1, -1), repeat=len(first))
    ]
    return sum(abs(value) >= abs(sum(differences)) - 1e-12 for value in sums) / len(sums)


def test_six_pairs_are_tested_exactly():
    for seed in range(5):
        chance = random.Random(seed)
        first, second = ([chance.choice([0, 1 / 3, 0.5, 1.0]) for _ in range(6)] for _ in range(2))
        assert paired_test(first, second).p == pytest.approx(enumerated(first, second))
    test = paired_test(FIRST, SECOND)
    assert test.p == pytest.approx(enumerated(FIRST, SECOND))
    assert test.difference == pytest.approx(2.05 / 6)
    assert (test.better, test.worse, test.equal) == (4, 1, 1)
    # Pairs that are equal do not cost exactness.
    padded = [paired_test([*FIRST, *[0.3] * 300], [*SECOND, *[0.3] * 300], seed=seed) for seed in (0, 1)]
    assert padded[0].p == padded[1].p == test.p
    assert padded[0].equal == 301


def test_many_pairs_agree_with_the_t_test_and_with_random_swaps():
    first, second = many(1, shift=0.1)
    test, differences = paired_test(first, second), second - first
    chance = np.random.default_rng(9)
    swapped = [abs((differences * chance.choice([-1, 1], len(first))).mean()) for _ in range(4000)]
    assert test.p == pytest.approx(np.mean(np.array(swapped) >= abs(differences.mean())), abs=0.02)
    assert 0.001 < test.p < 0.2
    assert test.p == pytest.approx(test.t_test_p, abs=0.02)
    assert test.t_test_p == pytest.approx(stats.ttest_rel(second, first).pvalue)
    assert test.effect == pytest.approx(differences.mean() / differences.std(ddof=1))


def test_the_interval_is_that_of_the_bootstrap():
    first, second = many(2)
    differences, chance = second - first, random.Random(3)
    means = sorted(np.mean(chance.choices(list(differences), k=len(differences))) for _ in range(2000))
    test = paired_test(first, second)
    assert test.low == pytest.approx(means[50], abs=0.004)
    assert test.high == pytest.approx(means[1949], abs=0.004)
    assert test.low < test.difference < test.high


def test_the_other_way_round_is_the_same_test():
    for first, second in ((FIRST, SECOND), many(4)):
        one, other = paired_test(first, second), paired_test(second, first)
        assert (other.difference, other.low, other.high) == pytest.approx((-one.difference, -one.high, -one.low))
        assert other.effect == pytest.approx(-one.effect)
        assert (other.p, other.t_test_p) == pytest.approx((one.p, one.t_test_p))
        assert (other.better, other.worse, other.equal) == (one.worse, one.better, one.equal)


@pytest.mark.parametrize("count", [1, 300])
def test_equal_systems_do_not_differ(count):
    values = [0.1 * (index % 7) for index in range(count)]
    test = paired_test(values, values)
    assert (test.difference, test.low, test.high, test.effect) == (0, 0, 0, 0)
    assert (test.p, test.t_test_p, test.equal) == (1, 1, count)
    test = paired_by_seed(values, values)
    assert (test.difference, test.permutation_p, test.detectable) == (0, 1 if count > 1 else None, None)
    test = paired_test([0.1 + 0.2, 1.0, 0.5], [0.3, 1.0, 0.5])  # rounding is no difference
    assert (test.p, test.equal) == (1, 3)


def test_differences_that_are_all_the_same_have_no_spread():
    first, second = [0.1, 0.2, 0.3], [0.2, 0.3, 0.4]
    test = paired_test(first, second)
    assert (test.t_test_p, test.effect, test.p) == (None, None, 0.25)  # 2 of 8 ways
    test = paired_by_seed(first, second)
    assert test.difference == pytest.approx(0.1)
    assert (test.t_test_p, test.low, test.high, test.effect, test.detectable) == (None,) * 5
    assert test.permutation_p == test.smallest_p == smallest_permutation_p(3) == 0.25
    alone = paired_by_seed([0.7], [0.8])
    assert set(asdict(alone).values()) - {alone.difference} == {1, None}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: paired_test([], []), "two rows of the same length"),
        (lambda: paired_test([1.0], [1.0, 2.0]), "two rows of the same length"),
        (lambda: paired_test([1.0, float("nan")], [1.0, 2.0]), "not finite"),
        (lambda: holm([0.5, 1.1]), "from 0 to 1"),
        (lambda: mcnemar(np.array([0]), np.array([0, 1]), np.array([0, 1])), "three rows of the same length"),
        (lambda: twice_the_median([]), "at least one"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(InputError, match=words):
        call()


# -- holm --------------------------------------------------------------------------------------------------------------


def test_holm_rejects_what_the_step_by_step_rule_rejects():
    assert (holm([0.5, 0.6, 0.9]), holm([0.04]), holm([])) == ([1, 1, 1], [0.04], [])
    chance = random.Random(1)
    p_values = [chance.random() ** 3 for _ in range(20)]
    for level in (0.01, 0.05, 0.2):
        rejected = set()
        for step, place in enumerate(sorted(range(20), key=p_values.__getitem__)):
            if p_values[place] > level / (20 - step):
                break
            rejected.add(place)
        assert {index for index, value in enumerate(holm(p_values)) if value <= level} == rejected


# -- examples ----------------------------------------------------------------------------------------------------------


def test_mcnemar_counts_the_examples_that_one_has_right():
    chance = np.random.default_rng(0)
    labels = chance.integers(3, size=60)
    first, second = (np.where(chance.random(60) < 0.7, labels, chance.integers(3, size=60)) for _ in range(2))
    better = sum(a != y == b for a, b, y in zip(first, second, labels, strict=True))
    worse = sum(a == y != b for a, b, y in zip(first, second, labels, strict=True))
    test = mcnemar(first, second, labels)
    assert (test.better, test.worse) == (better, worse)
    total = better + worse  # twice the smaller tail of a fair coin
    tail = sum(math.comb(total, k) for k in range(min(better, worse) + 1)) / 2**total
    assert test.p == pytest.approx(min(1.0, 2 * tail))
    assert mcnemar(np.array([0, 1]), np.array([0, 2]), np.array([0, 0])).p == 1


@pytest.mark.parametrize("dependence", ["none", "opposite"])
def test_twice_the_median_is_valid_whatever_the_dependence(dependence):
    chance = np.random.default_rng(3)
    one = chance.random(20_000)
    others = {"none": chance.random((2, 20_000)), "opposite": [1 - one, one]}
    seeds = np.stack([one, *others[dependence]])  # [3,trials]
    combined = np.array([twice_the_median(column) for column in seeds.T.tolist()])
    for level in (0.01, 0.05, 0.2):
        assert (combined <= level).mean() <= level * 1.1


# -- scores over seeds -------------------------------------------------------------------------------------------------


def scores(count, seed=0, shift=0.02):
    chance = np.random.default_rng([seed, count])
    first = 0.8 + 0.01 * chance.normal(size=count)
    return first.tolist(), (first + shift + 0.02 * chance.normal(size=count)).tolist()


@pytest.mark.parametrize("count", [2, 5])
def test_seeds_are_compared_by_the_paired_t_test_of_scipy(count):
    first, second = scores(count)
    test, slow = paired_by_seed(first, second), stats.ttest_rel(second, first)
    differences = np.array(second) - np.array(first)
    assert test.seeds == count
    assert test.t_test_p == pytest.approx(slow.pvalue)
    assert (test.low, test.high) == pytest.approx(tuple(slow.confidence_interval(0.95)))
    assert (test.difference, test.deviation) == pytest.approx((differences.mean(), differences.std(ddof=1)))
    assert test.effect == pytest.approx(differences.mean() / differences.std(ddof=1))
    assert test.detectable == pytest.approx(detectable_effect(count) * test.deviation)
    # Of 4 degrees of freedom (Hedges 1981): gamma(2) / (sqrt(2) gamma(3/2)).
    expected = None if count == 2 else pytest.approx(test.effect * math.sqrt(2 / math.pi))
    assert test.effect_corrected == expected


def test_all_flips_are_tried_up_to_thirteen_seeds_and_sampled_beyond():
    for count, seed in itertools.product((2, 3, 5, 8), range(3)):
        first, second = scores(count, seed, shift=0.01)
        assert paired_by_seed(first, second).permutation_p == pytest.approx(enumerated(first, second))
    first, second = scores(EXACT + 1, shift=0.008)
    test = paired_by_seed(first, second)
    assert test.smallest_p == pytest.approx(2e-4)
    assert test.permutation_p == pytest.approx(enumerated(first, second), abs=0.02)
    assert paired_by_seed(first, second) == test


def test_scores_over_seeds():
    values = [0.61, 0.63, 0.60, 0.62]
    found = SeedScores.of(values)
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert (found.mean, found.deviation) == pytest.approx((np.mean(values), np.std(values, ddof=1)))
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.values == tuple(values)
    assert SeedScores.of([0.5]) == SeedScores((0.5,), 0.5, None, None, None)


def test_the_detectable_effect_has_the_power_by_the_non_central_t():
    for count in (2, 3, 4, 5, 10, 40):
        critical = stats.t.ppf(0.975, count - 1)
        shifted = stats.nct(count - 1, detectable_effect(count) * math.sqrt(count))
        assert shifted.sf(critical) == pytest.approx(0.8, abs=3e-6)  # the other side adds less than that
