"""Intervals against scipy, and against slow loops."""

import numpy as np
import pytest
from scipy.stats import binomtest, pearsonr

from headwise.metrics.classification import macro_f1
from headwise.metrics.resampling import ESTIMATE_RESAMPLES, estimated_classes, estimated_numbers, fisher, wilson


@pytest.mark.parametrize(("hits", "count"), [(0, 1), (1, 1), (0, 30), (30, 30), (7, 30), (671, 1000), (1, 100_000)])
def test_wilson_as_scipy_has_it(hits, count):
    expected = binomtest(hits, count).proportion_ci(method="wilson")
    assert wilson(hits, count) == pytest.approx((expected.low, expected.high), abs=1e-12)


@pytest.mark.parametrize("count", [4, 10, 300])
def test_fisher_as_scipy_has_it(count):
    random = np.random.default_rng(count)
    first = random.normal(size=count)
    second = first + random.normal(size=count)
    found = pearsonr(first, second)
    expected = found.confidence_interval()
    assert fisher(found.statistic, count) == pytest.approx((expected.low, expected.high), abs=1e-12)
    wider = fisher(found.statistic, count, spread=1.5)
    assert wider[0] < expected.low
    assert wider[1] > expected.high


def test_fisher_at_the_ends():
    assert fisher(0.9, 3) == (-1.0, 1.0)
    low, high = fisher(1.0, 10)
    assert 0.99 < low <= high <= 1.0
    low, high = fisher(-1.0, 10)
    assert -1.0 <= low <= high < -0.99


def test_classes_are_scored_with_intervals_around_them():
    random = np.random.default_rng(0)
    labels = random.integers(3, size=200)
    predictions = np.where(random.random(200) < 0.7, labels, random.integers(3, size=200))
    found = estimated_classes(predictions, labels, seed=0)
    assert found["accuracy"].value == pytest.approx((predictions == labels).mean())
    assert found["macro_f1"].value == pytest.approx(macro_f1(predictions, labels))
    for each in found.values():
        assert each.low < each.value < each.high


def test_the_bootstrap_of_macro_f1_is_that_of_examples():
    random = np.random.default_rng(1)
    labels = random.choice(3, size=150, p=[0.6, 0.3, 0.1])
    predictions = np.where(random.random(150) < 0.6, labels, random.integers(3, size=150))
    draws = [random.integers(150, size=150) for _ in range(4 * ESTIMATE_RESAMPLES)]
    slow = np.quantile([macro_f1(predictions[draw], labels[draw]) for draw in draws], [0.025, 0.975])
    found = estimated_classes(predictions, labels, seed=0)["macro_f1"]
    assert (found.low, found.high) == pytest.approx(slow, abs=0.015)


def test_a_class_that_is_only_predicted_counts():
    found = estimated_classes(np.array([0, 1, 5, 0]), np.array([0, 1, 1, 0]), seed=0)
    assert found["macro_f1"].value == pytest.approx((1 + 2 / 3 + 0) / 3)


def test_numbers():
    labels = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    found = estimated_numbers(labels**2, labels)
    assert found["spearman"].value == pytest.approx(1.0)
    assert 0.9 < found["pearson"].value < 1.0
    assert found["rmse"].value == pytest.approx(np.sqrt(np.mean((labels**2 - labels) ** 2)))
    assert found["rmse"].low < found["rmse"].value < found["rmse"].high


def test_one_value_for_all_has_no_correlation():
    labels = np.array([1.0, 2.0, 3.0, 4.0, 6.0])
    found = estimated_numbers(np.full(5, labels.mean()), labels)
    assert found["pearson"].value == found["spearman"].value == 0
    assert found["rmse"].value == pytest.approx(labels.std())
