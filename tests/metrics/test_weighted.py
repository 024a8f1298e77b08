"""Metrics under weights against the plain ones, on examples repeated as often as their weight says."""

import math

import numpy as np
import pytest

from headwise.errors import InputError
from headwise.metrics.classification import METRICS, WEIGHTED, weighted_score

NUMBERS = ("pearson", "spearman")


def slow(name, predictions, labels, weights):
    rows = [np.repeat(np.arange(len(labels)), each) for each in weights]
    return np.array([[METRICS[name](each[row], labels[row]) for each in predictions] for row in rows])


def resamples(chance, count, examples):
    return np.stack([np.bincount(chance.integers(examples, size=examples), minlength=examples) for _ in range(count)])


def test_every_metric_has_a_weighted_one():
    assert list(WEIGHTED) == list(METRICS)


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize(("examples", "classes"), [(1, 2), (3, 2), (7, 3), (60, 2), (200, 5)])
def test_it_is_the_plain_metric_on_the_resample(name, examples, classes):
    chance = np.random.default_rng([examples, classes])
    labels = chance.integers(classes, size=examples)
    predictions = np.where(chance.random((4, examples)) < 0.6, labels, chance.integers(classes, size=(4, examples)))
    predictions[3] = 1  # a collapsed model
    if name in NUMBERS:
        predictions = predictions + np.where(np.arange(4)[:, None] < 2, chance.normal(size=(4, examples)), 0)
    weights = resamples(chance, 40, examples)
    found = weighted_score(name, predictions, labels, weights)
    assert found.shape == (40, 4)
    np.testing.assert_allclose(found, slow(name, predictions, labels, weights), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", METRICS)
def test_weights_of_one_give_the_plain_metric(name):
    labels, predictions = np.array([0, 1, 1, 0, 1]), np.array([[0, 1, 0, 0, 0]])
    found = weighted_score(name, predictions, labels, np.ones((1, 5), dtype=int))
    assert found[0, 0] == pytest.approx(METRICS[name](predictions[0], labels))


def test_f1_and_macro_f1_by_hand():
    labels, predictions, weights = np.array([1, 1, 0]), np.array([[1, 0, 0]]), np.array([[2, 1, 3], [0, 0, 2]])
    # First: 2 hits, 2 predicted and 3 right of class 1; 3 hits, 4 predicted and 3 right of class 0.
    np.testing.assert_allclose(weighted_score("f1", predictions, labels, weights)[:, 0], [4 / 5, 0.0])
    # Second: class 1 was not drawn, so it has no part in the mean.
    np.testing.assert_allclose(
        weighted_score("macro_f1", predictions, labels, weights)[:, 0], [(4 / 5 + 6 / 7) / 2, 1.0]
    )


@pytest.mark.parametrize("name", NUMBERS)
def test_a_resample_without_the_one_example_that_differs_is_constant(name):
    predictions, labels = np.array([[0.3, 0.3, 0.3, 0.3, 7.1]]), np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    weights = np.array([[1, 1, 2, 1, 0], [1, 1, 1, 1, 1]])
    found = weighted_score(name, predictions, labels, weights)[:, 0]
    assert found[0] == 0.0
    assert found[1] > 0.5


def test_pearson_is_exact_where_moments_cancel():
    """Without the outlier all that is left are differences far below it."""
    chance = np.random.default_rng(0)
    labels = chance.normal(size=50)
    predictions = labels[None] + 0.5 * chance.normal(size=(1, 50)) + 100
    predictions[0, -1] = 1e9
    weights = np.stack([np.ones(50, dtype=int), np.array([2, *[1] * 48, 0])])
    np.testing.assert_allclose(
        weighted_score("pearson", predictions, labels, weights),
        slow("pearson", predictions, labels, weights),
        rtol=1e-9,
    )


def test_the_order_of_examples_does_not_matter():
    chance = np.random.default_rng(3)
    labels, weights = chance.normal(size=30).round(), resamples(chance, 5, 30)
    predictions, order = chance.normal(size=(2, 30)).round(1), chance.permutation(30)
    for name in NUMBERS:
        np.testing.assert_allclose(
            weighted_score(name, predictions[:, order], labels[order], weights[:, order]),
            weighted_score(name, predictions, labels, weights),
        )


@pytest.mark.parametrize(
    ("name", "shapes", "message"),
    [
        ("acuracy", ((2, 3), (3,), (4, 3)), "unknown metric 'acuracy': did you mean 'accuracy'"),
        ("accuracy", ((3,), (3,), (4, 3)), r"predictions \[3\]"),
        ("accuracy", ((2, 3), (4,), (4, 3)), r"labels \[4\]"),
        ("accuracy", ((2, 3), (3,), (3,)), r"weights \[3\]"),
        ("accuracy", ((2, 0), (0,), (4, 0)), "n at least 1"),
    ],
)
def test_wrong_shapes_and_names_are_refused(name, shapes, message):
    with pytest.raises(InputError, match=message):
        weighted_score(name, *(np.ones(shape, dtype=int) for shape in shapes))


@pytest.mark.parametrize("weights", [[[0.5, 0.5]], [[-1, 2]], [[0, 0]]])
def test_weights_are_counts(weights):
    with pytest.raises(InputError, match="whole numbers from 0"):
        weighted_score("accuracy", np.array([[0, 1]]), np.array([0, 1]), np.array(weights))


def test_predictions_must_be_numbers():
    with pytest.raises(InputError, match="1 predictions are not finite"):
        weighted_score("pearson", np.array([[0.5, math.nan]]), np.array([0, 1]), np.ones((1, 2), dtype=int))
