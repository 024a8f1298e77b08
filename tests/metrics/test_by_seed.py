import itertools
import math

import numpy as np
import pytest
from scipy import stats

from headwise.errors import InputError
from headwise.metrics import SeedScores, paired_by_seed
from headwise.metrics.significance import (
    EXACT,
    detectable_effect,
    small_sample_factor,
    smallest_permutation_p,
    t_test_power,
)


def scores(count, seed=0, shift=0.02):
    chance = np.random.default_rng([seed, count])
    first = 0.8 + 0.01 * chance.normal(size=count)
    return first.tolist(), (first + shift + 0.02 * chance.normal(size=count)).tolist()


def flips(first, second):
    """The two-sided p-value over all ways to flip signs, one by one."""
    differences = np.array(second) - np.array(first)
    sums = [abs(np.dot(signs, differences)) for signs in itertools.product((1, -1), repeat=len(first))]
    return np.mean(np.array(sums) >= abs(differences.sum()) - 1e-12)


@pytest.mark.parametrize("count", [2, 3, 5, 9])
def test_it_is_the_paired_t_test_of_scipy(count):
    first, second = scores(count)
    test, slow = paired_by_seed(first, second), stats.ttest_rel(second, first)
    differences = np.array(second) - np.array(first)
    assert test.seeds == count
    assert test.t_test_p == pytest.approx(slow.pvalue)
    assert (test.low, test.high) == pytest.approx(tuple(slow.confidence_interval(0.95)))
    assert (test.difference, test.deviation) == pytest.approx((differences.mean(), differences.std(ddof=1)))
    assert test.effect == pytest.approx(differences.mean() / differences.std(ddof=1))


@pytest.mark.parametrize("count", [2, 3, 5, 8])
@pytest.mark.parametrize("seed", range(3))
def test_all_flips_are_tried(count, seed):
    first, second = scores(count, seed, shift=0.01)
    assert paired_by_seed(first, second).permutation_p == pytest.approx(flips(first, second))


def test_the_smallest_p_is_reached_when_all_seeds_agree():
    for count in (2, 3, 5, 13):
        first, second = scores(count)
        test = paired_by_seed(first, [0.5 + 0.01 * place + value for place, value in enumerate(first)])
        assert test.permutation_p == pytest.approx(2 / 2**count) == pytest.approx(test.smallest_p)
    assert smallest_permutation_p(3) == 0.25


def test_beyond_thirteen_seeds_flips_are_sampled():
    first, second = scores(EXACT + 1, shift=0.008)
    test = paired_by_seed(first, second)
    assert test.smallest_p == pytest.approx(2e-4)
    assert test.permutation_p == pytest.approx(flips(first, second), abs=0.02)
    assert paired_by_seed(first, second) == test


def test_the_other_way_round_is_the_same_test():
    first, second = scores(5)
    one, other = paired_by_seed(first, second), paired_by_seed(second, first)
    assert (other.difference, other.low, other.high) == pytest.approx((-one.difference, -one.high, -one.low))
    assert (other.effect, other.effect_corrected) == pytest.approx((-one.effect, -one.effect_corrected))
    for name in ("t_test_p", "permutation_p", "deviation", "detectable"):
        assert getattr(other, name) == pytest.approx(getattr(one, name))


def test_one_seed_has_a_difference_only():
    test = paired_by_seed([0.7], [0.8])
    assert test.difference == pytest.approx(0.1)
    assert set(test.as_data().values()) - {test.difference} == {1, None}


def test_equal_systems_do_not_differ():
    test = paired_by_seed([0.7, 0.8, 0.75], [0.7, 0.8, 0.75])
    assert (test.difference, test.low, test.high, test.effect) == (0, 0, 0, 0)
    assert (test.t_test_p, test.permutation_p) == (1, 1)
    assert test.detectable is None


def test_differences_that_are_all_the_same_have_no_spread():
    test = paired_by_seed([0.1, 0.2, 0.3], [0.2, 0.3, 0.4])
    assert test.difference == pytest.approx(0.1)
    assert (test.t_test_p, test.low, test.high, test.effect, test.detectable) == (None,) * 5
    assert test.permutation_p == 0.25


def test_scores_over_seeds():
    values = [0.61, 0.63, 0.60, 0.62]
    found = SeedScores.of(values)
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert (found.mean, found.deviation) == pytest.approx((np.mean(values), np.std(values, ddof=1)))
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.as_data()["values"] == values
    assert SeedScores.of([0.5]) == SeedScores((0.5,), 0.5, None, None, None)


# -- effects -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3, 4, 5, 10, 40])
def test_the_detectable_effect_has_the_power_by_the_non_central_t(count):
    effect = detectable_effect(count)
    critical = stats.t.ppf(0.975, count - 1)
    shifted = stats.nct(count - 1, effect * math.sqrt(count))
    assert shifted.sf(critical) == pytest.approx(0.8, abs=1e-6)  # the other side adds less than that


def test_the_detectable_effect_has_the_power_by_simulation():
    chance, count = np.random.default_rng(1), 5
    samples = chance.normal(detectable_effect(count), 1.0, size=(20_000, count))
    found = stats.ttest_1samp(samples, 0, axis=1).pvalue < 0.05
    assert found.mean() == pytest.approx(0.8, abs=0.015)


def test_without_an_effect_the_power_is_the_level():
    assert t_test_power(0.0, 6) == pytest.approx(0.05)
    assert t_test_power(0.0, 6, level=0.2) == pytest.approx(0.2)


def test_the_detectable_difference_is_in_units_of_the_score():
    first, second = scores(4)
    test = paired_by_seed(first, second)
    assert test.detectable == pytest.approx(detectable_effect(4) * test.deviation)


def test_more_seeds_detect_less():
    effects = [detectable_effect(count) for count in range(2, 12)]
    assert effects == sorted(effects, reverse=True)


@pytest.mark.parametrize(
    ("call", "message"), [((1,), "at least 2"), ((3, 0.01), "power 0.01"), ((3, 1.0), "power 1.0")]
)
def test_impossible_powers_are_refused(call, message):
    count, *power = call
    with pytest.raises(InputError, match=message):
        detectable_effect(count, **({"power": power[0]} if power else {}))


def test_the_correction_takes_the_bias_away():
    """The mean of d over many small samples is the true effect only with the correction."""
    chance, true = np.random.default_rng(2), 0.7
    samples = chance.normal(true, 1.0, size=(200_000, 5))
    effects = samples.mean(1) / samples.std(1, ddof=1)
    assert effects.mean() > 1.1 * true
    assert (effects * small_sample_factor(4)).mean() == pytest.approx(true, abs=0.01)


def test_the_correction_by_hand():
    # Two degrees of freedom: gamma(1) / (sqrt(1) gamma(1/2)) = 1 / sqrt(pi).
    assert small_sample_factor(2) == pytest.approx(1 / math.sqrt(math.pi))
    first, second = scores(3)
    test = paired_by_seed(first, second)
    assert test.effect_corrected == pytest.approx(test.effect / math.sqrt(math.pi))
    assert paired_by_seed(first[:2], second[:2]).effect_corrected is None
