import math

import numpy as np
import pytest
from scipy import stats

from headwise.errors import InputError
from headwise.metrics import mcnemar, twice_the_median


def by_counting(better, worse):
    """Twice the smaller tail of a fair coin."""
    total = better + worse
    tail = sum(math.comb(total, k) for k in range(min(better, worse) + 1)) / 2**total
    return min(1.0, 2 * tail)


@pytest.mark.parametrize("seed", range(5))
def test_mcnemar_counts_the_examples_that_one_has_right(seed):
    chance = np.random.default_rng(seed)
    labels = chance.integers(3, size=60)
    first, second = (np.where(chance.random(60) < 0.7, labels, chance.integers(3, size=60)) for _ in range(2))
    better = sum(a != y == b for a, b, y in zip(first, second, labels, strict=True))
    worse = sum(a == y != b for a, b, y in zip(first, second, labels, strict=True))
    test = mcnemar(first, second, labels)
    assert (test.better, test.worse) == (better, worse)
    assert test.p == pytest.approx(by_counting(better, worse))
    assert test.p == pytest.approx(stats.binomtest(better, better + worse).pvalue)


def test_the_other_way_round_is_the_same_test():
    labels, first, second = np.zeros(9, int), np.array([0] * 3 + [1] * 6), np.array([1] * 3 + [0] * 6)
    one, other = mcnemar(first, second, labels), mcnemar(second, first, labels)
    assert (one.better, one.worse) == (other.worse, other.better) == (6, 3)
    assert one.p == pytest.approx(other.p)


def test_classifiers_that_are_right_on_the_same_examples_do_not_differ():
    assert mcnemar(np.array([0, 1]), np.array([0, 2]), np.array([0, 0])).p == 1


def test_rows_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="three rows of the same length"):
        mcnemar(np.array([0]), np.array([0, 1]), np.array([0, 1]))


def test_twice_the_median_by_hand():
    assert twice_the_median([0.03]) == 0.03  # one test is what it is
    assert twice_the_median([0.9, 0.01, 0.04]) == pytest.approx(0.08)
    assert twice_the_median([0.01, 0.03, 0.05, 0.9]) == pytest.approx(0.08)
    assert twice_the_median([0.6, 0.7]) == 1
    with pytest.raises(InputError, match="at least one"):
        twice_the_median([])


@pytest.mark.parametrize("dependence", ["none", "the same", "opposite"])
def test_twice_the_median_is_valid_whatever_the_dependence(dependence):
    chance = np.random.default_rng(3)
    one = chance.random(20_000)
    others = {"none": chance.random((2, 20_000)), "the same": [one, one], "opposite": [1 - one, one]}
    seeds = np.stack([one, *others[dependence]])  # [3,trials]
    combined = np.array([twice_the_median(column) for column in seeds.T.tolist()])
    for level in (0.01, 0.05, 0.2):
        assert (combined <= level).mean() <= level * 1.1
