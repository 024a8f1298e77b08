"""The bootstrap against plain loops, and intervals of scores against scipy."""

import numpy as np
import pytest
from scipy.stats import binomtest, pearsonr

from headwise.errors import InputError
from headwise.metrics import METRICS
from headwise.metrics.resampling import (
    bootstrap_means,
    bootstrap_scores,
    bootstrap_test,
    estimated_classes,
    estimated_numbers,
    fisher,
)

NUMBERS = ("pearson", "spearman")


def answers(seed=0, rows=4, examples=50, classes=3):
    chance = np.random.default_rng(seed)
    labels = chance.integers(classes, size=examples)
    rows = np.where(chance.random((rows, examples)) < 0.7, labels, chance.integers(classes, size=(rows, examples)))
    return rows, labels


@pytest.mark.parametrize("metric", ["macro_f1", "pearson", "spearman"])
def test_the_bootstrap_is_a_plain_loop_over_resamples(metric):
    """The means and the spread of a loop that draws examples one by one, system by system on the same draw."""
    rows, labels = answers(1)
    if metric in NUMBERS:
        rows = rows + 0.5 * np.random.default_rng(5).normal(size=rows.shape)
    chance = np.random.default_rng(7)
    draws = [chance.integers(len(labels), size=len(labels)) for _ in range(1500)]
    slow = np.array([[METRICS[metric](row[draw], labels[draw]) for row in rows] for draw in draws])
    fast = bootstrap_scores(metric, rows, labels, resamples=3000)
    assert fast.shape == (3000, 4)
    close = {"abs": 4 * slow.std() / np.sqrt(1500)}
    assert fast.mean(0) == pytest.approx(slow.mean(0), **close)
    differences = [each[:, 1] - each[:, 0] for each in (slow, fast)]
    assert differences[1].std() == pytest.approx(differences[0].std(), rel=0.1)


def test_means_are_those_of_a_plain_loop():
    values = np.random.default_rng(3).random((2, 40)).round(1)
    chance = np.random.default_rng(4)
    slow = np.array([values[:, chance.integers(40, size=40)].mean(1) for _ in range(2000)])
    fast = bootstrap_means(values, resamples=4000)
    assert fast.mean(0) == pytest.approx(slow.mean(0), abs=0.01)
    assert (fast[:, 1] - fast[:, 0]).std() == pytest.approx((slow[:, 1] - slow[:, 0]).std(), rel=0.08)


def test_the_test_is_the_interval_turned_round():
    draws = np.random.default_rng(0).normal(0.1, 0.05, size=1999)
    test = bootstrap_test(0.1, draws)
    assert (test.low, test.high) == pytest.approx(tuple(np.quantile(draws, [0.025, 0.975])))
    assert test.p == pytest.approx(2 * ((draws <= 0).sum() + 1) / 2000)
    for shift in np.linspace(-0.2, 0.2, 41):
        moved = bootstrap_test(0.0, draws + shift)
        assert (moved.p < 0.05) == (not moved.low <= 0 <= moved.high) or abs(moved.p - 0.05) < 0.002


def test_equal_systems_do_not_differ():
    rows, labels = answers(3, rows=2)
    scores = bootstrap_scores("matthews", np.stack([rows[0], rows[0]]), labels, resamples=200)
    test = bootstrap_test(0.0, scores[:, 1] - scores[:, 0])
    assert (test.low, test.high, test.p) == (0, 0, 1)
    assert bootstrap_test(0.0, np.array([1e-17, -1e-17, 2e-16])).p == 1  # rounding is no difference


def test_the_seed_decides_and_pieces_do_not(monkeypatch):
    rows, labels = answers(4)
    whole = bootstrap_scores("accuracy", rows, labels, resamples=300)
    assert not np.array_equal(whole, bootstrap_scores("accuracy", rows, labels, resamples=300, seed=(1,)))
    monkeypatch.setattr("headwise.metrics.resampling.AT_A_TIME", 500)
    np.testing.assert_array_equal(bootstrap_scores("accuracy", rows, labels, resamples=300), whole)


def test_wrong_shapes_and_numbers_are_refused():
    rows, labels = answers(6)
    with pytest.raises(InputError, match=r"expected \[M,n\] and \[n\]"):
        bootstrap_scores("accuracy", rows, labels[:-1])
    with pytest.raises(InputError, match="0 resamples"):
        bootstrap_scores("accuracy", rows, labels, resamples=0)
    with pytest.raises(InputError, match="unknown metric"):
        bootstrap_scores("acuracy", rows, labels)


# -- scores with intervals --------------------------------------------------------------------------------------------


def test_fisher_as_scipy_has_it():
    count = 10
    random = np.random.default_rng(count)
    first = random.normal(size=count)
    second = first + random.normal(size=count)
    found = pearsonr(first, second)
    expected = found.confidence_interval()
    assert fisher(found.statistic, count) == pytest.approx((expected.low, expected.high), abs=1e-12)
    wider = fisher(found.statistic, count, spread=1.5)
    assert wider[0] < expected.low
    assert wider[1] > expected.high
    assert fisher(0.9, 3) == (-1.0, 1.0)
    assert 0.99 < fisher(1.0, 10)[0] <= fisher(1.0, 10)[1] <= 1.0


def test_classes_are_scored_with_intervals_around_them():
    random = np.random.default_rng(0)
    labels = random.integers(3, size=200)
    predictions = np.where(random.random(200) < 0.7, labels, random.integers(3, size=200))
    found = estimated_classes(predictions, labels, seed=0)
    hits = int((predictions == labels).sum())
    wilson = binomtest(hits, 200).proportion_ci(method="wilson")
    assert (found["accuracy"].low, found["accuracy"].high) == pytest.approx((wilson.low, wilson.high))
    assert found["accuracy"].value == pytest.approx(hits / 200)
    assert found["macro_f1"].value == pytest.approx(METRICS["macro_f1"](predictions, labels))
    for each in found.values():
        assert each.low < each.value < each.high


def test_numbers():
    labels = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    found = estimated_numbers(labels**2, labels)
    assert found["spearman"].value == pytest.approx(1.0)
    assert 0.9 < found["pearson"].value < 1.0
    assert found["rmse"].value == pytest.approx(np.sqrt(np.mean((labels**2 - labels) ** 2)))
    assert found["rmse"].low < found["rmse"].value < found["rmse"].high
    found = estimated_numbers(np.full(6, labels.mean()), labels)  # a constant has no correlation
    assert found["pearson"].value == found["spearman"].value == 0
