import itertools
import random
import time

import numpy as np
import pytest
from scipy import stats

from headwise.errors import InputError
from headwise.metrics import holm, mean_over_seeds, paired_test
from headwise.metrics.significance import mean_interval

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
        sum(s * d for s, d in zip(signs, differences, strict=True)) for signs in itertools.product((1, -1), repeat=6)
    ]
    return sum(abs(value) >= abs(sum(differences)) - 1e-12 for value in sums) / len(sums)


def test_six_pairs_are_tested_exactly():
    test = paired_test(FIRST, SECOND)
    assert test.p == pytest.approx(enumerated(FIRST, SECOND))
    assert test.difference == pytest.approx(2.05 / 6)
    assert (test.better, test.worse, test.equal) == (4, 1, 1)


@pytest.mark.parametrize("seed", range(5))
def test_any_six_pairs_are_tested_exactly(seed):
    chance = random.Random(seed)
    first, second = ([chance.choice([0, 1 / 3, 0.5, 1.0]) for _ in range(6)] for _ in range(2))
    assert paired_test(first, second).p == pytest.approx(enumerated(first, second))


def test_pairs_that_are_equal_do_not_cost_exactness():
    padded = [paired_test([*FIRST, *[0.3] * 300], [*SECOND, *[0.3] * 300], seed=seed) for seed in (0, 1)]
    assert padded[0].p == padded[1].p == paired_test(FIRST, SECOND).p
    assert padded[0].difference == pytest.approx(2.05 / 306)
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


def test_the_seed_decides():
    first, second = many(5)
    assert paired_test(first, second, seed=1) == paired_test(first, second, seed=1)
    assert paired_test(first, second, seed=1) != paired_test(first, second, seed=2)


def test_resampling_in_pieces_changes_nothing(monkeypatch):
    first, second = many(6)
    whole = paired_test(first, second)
    monkeypatch.setattr("headwise.metrics.significance.AT_A_TIME", 70_000)
    assert paired_test(first, second) == whole


@pytest.mark.parametrize("count", [1, 2, 300])
def test_equal_systems_do_not_differ(count):
    values = [0.1 * (place % 7) for place in range(count)]
    test = paired_test(values, values)
    assert (test.difference, test.low, test.high, test.effect) == (0, 0, 0, 0)
    assert (test.p, test.t_test_p) == (1, 1)
    assert (test.better, test.worse, test.equal) == (0, 0, count)


def test_rounding_is_no_difference():
    test = paired_test([0.1 + 0.2, 1.0, 0.5], [0.3, 1.0, 0.5])
    assert (test.p, test.equal) == (1, 3)


def test_differences_that_are_all_the_same_have_no_spread():
    test = paired_test([0.1, 0.2, 0.3], [0.2, 0.3, 0.4])
    assert (test.t_test_p, test.effect) == (None, None)
    assert test.p == 0.25  # 2 of 8 ways
    assert test.difference == pytest.approx(0.1)


def test_one_difference_proves_nothing():
    assert paired_test([0.0], [1.0]).p == 1
    assert paired_test([0.0, 1.0, 1.0], [1.0, 1.0, 1.0]).p == 1


def test_three_hundred_claims_are_quick():
    first, second = many(7)
    paired_test(first, second)
    start = time.process_time()
    paired_test(first, second)
    assert time.process_time() - start < 1


@pytest.mark.parametrize(("first", "second"), [([], []), ([1.0], [1.0, 2.0]), ([[1.0]], [[1.0]])])
def test_rows_that_do_not_fit_are_refused(first, second):
    with pytest.raises(InputError, match="two rows of the same length"):
        paired_test(first, second)


def test_values_that_are_not_finite_are_refused():
    with pytest.raises(InputError, match="not finite"):
        paired_test([1.0, float("nan")], [1.0, 2.0])


# -- holm --------------------------------------------------------------------------------------------------------------


def test_holm_by_hand():
    # In order: 0.005 x 4, 0.01 x 3, 0.03 x 2, and 0.04 x 1, which may not be below the one before.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_holm_stays_at_most_one_and_leaves_one_test_alone():
    assert holm([0.5, 0.6, 0.9]) == [1, 1, 1]
    assert holm([0.04]) == [0.04]
    assert holm([]) == []


def test_holm_rejects_what_the_step_by_step_rule_rejects():
    chance = random.Random(1)
    p_values = [chance.random() ** 3 for _ in range(20)]
    for level in (0.01, 0.05, 0.2):
        rejected = set()
        for step, place in enumerate(sorted(range(20), key=p_values.__getitem__)):
            if p_values[place] > level / (20 - step):
                break
            rejected.add(place)
        assert {place for place, value in enumerate(holm(p_values)) if value <= level} == rejected


@pytest.mark.parametrize("bad", [-0.1, 1.1, float("nan")])
def test_holm_refuses_what_is_no_p_value(bad):
    with pytest.raises(InputError, match="from 0 to 1"):
        holm([0.5, bad])


# -- seeds -------------------------------------------------------------------------------------------------------------


def test_the_mean_over_seeds_is_taken_claim_by_claim():
    seeds = [{"a": {"mrr": 1.0}, "b": {"mrr": 0.0}}, {"b": {"mrr": 0.5}, "a": {"mrr": 0.5}}]
    assert mean_over_seeds(seeds) == {"a": {"mrr": 0.75}, "b": {"mrr": 0.25}}


def test_seeds_on_other_claims_are_refused():
    with pytest.raises(InputError, match="2 claims, such as 'b', are in only one of seeds 1 and 3"):
        mean_over_seeds([{"a": {}, "b": {}}, {"a": {}, "b": {}}, {"a": {}, "c": {}}])
    with pytest.raises(InputError, match="at least one"):
        mean_over_seeds([])


# -- a mean ------------------------------------------------------------------------------------------------------------


def test_the_interval_of_a_mean_is_that_of_scipy():
    values = np.array([61.2, 63.0, 60.1, 62.4])
    mean, deviation, half_width = mean_interval(values)
    low, high = stats.t.interval(0.95, 3, loc=values.mean(), scale=stats.sem(values))
    assert (mean, deviation) == pytest.approx((values.mean(), values.std(ddof=1)))
    assert (mean - half_width, mean + half_width) == pytest.approx((low, high))


def test_one_value_has_no_interval():
    assert mean_interval(np.array([3.0]))[0] == 3.0
    assert np.isnan(mean_interval(np.array([3.0]))[1:]).all()
    assert np.isnan(mean_interval(np.array([]))).all()
