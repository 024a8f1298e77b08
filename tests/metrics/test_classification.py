"""Metrics against scikit-learn, scipy and slow references, and under weights against repeated examples."""

import math
from functools import partial

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from headwise.errors import InputError
from headwise.metrics.classification import METRICS, score, weighted_score


def slow_pearson(predictions, labels):
    mean_p, mean_y = sum(predictions) / len(labels), sum(labels) / len(labels)
    shared = sum((p - mean_p) * (y - mean_y) for p, y in zip(predictions, labels, strict=True))
    spread = sum((p - mean_p) ** 2 for p in predictions) * sum((y - mean_y) ** 2 for y in labels)
    return shared / math.sqrt(spread) if spread > 1e-12 else 0.0


def slow_ranks(values):
    return [
        sum(other < value for other in values) + (sum(other == value for other in values) + 1) / 2 for value in values
    ]


def slow_spearman(predictions, labels):
    return slow_pearson(slow_ranks(predictions), slow_ranks(labels))


def of_library(function, labels, predictions):
    return function(labels, predictions, average="macro", zero_division=0)


# Labels before predictions.
EXPECTED = {
    "accuracy": metrics.accuracy_score,
    "macro_precision": partial(of_library, metrics.precision_score),
    "macro_recall": partial(of_library, metrics.recall_score),
    "macro_f1": partial(of_library, metrics.f1_score),
    "f1": lambda labels, found: metrics.f1_score(np.equal(labels, 1), np.equal(found, 1), zero_division=0),
    "matthews": metrics.matthews_corrcoef,
    "pearson": slow_pearson,
    "spearman": slow_spearman,
}
CLASSES = ["accuracy", "macro_precision", "macro_recall", "macro_f1", "f1", "matthews"]
NUMBERS = ["pearson", "spearman"]


def test_every_metric_has_a_reference():
    assert set(EXPECTED) == set(METRICS) == {*CLASSES, *NUMBERS}


@pytest.mark.filterwarnings("ignore:A single label was found")
@pytest.mark.parametrize("name", CLASSES)
def test_classes_against_the_library(name):
    for classes in (1, 2, 3, 5):
        for size in (1, 2, 7, 60):
            draw = np.random.default_rng([classes, size])
            predictions, labels = draw.integers(0, classes, (2, size))
            expected = EXPECTED[name](labels.tolist(), predictions.tolist())
            assert score([name], predictions, labels)[name] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_against_the_slow_reference(name):
    for size in (1, 2, 7, 60):
        draw = np.random.default_rng(size)
        for decimals in (0, 9):  # with ties, and without
            predictions, labels = draw.normal(size=(2, size)).round(decimals)
            expected = EXPECTED[name](labels.tolist(), predictions.tolist())
            assert score([name], predictions, labels)[name] == pytest.approx(expected, abs=1e-9)


def test_numbers_against_the_library():
    labels, predictions = np.random.default_rng(0).normal(size=(2, 300)).round(1)
    assert score(NUMBERS, predictions, labels) == pytest.approx(
        {
            "pearson": stats.pearsonr(labels, predictions).statistic,
            "spearman": stats.spearmanr(labels, predictions).statistic,
        }
    )


def test_by_hand():
    # class 0: 1 of 2 found, 1 of 1 right; class 1: 2 of 2 found, 2 of 3 right
    found = score(CLASSES, np.array([0, 1, 1, 1]), np.array([0, 0, 1, 1]))
    assert found["accuracy"] == 0.75
    assert found["macro_recall"] == 0.75
    assert found["macro_precision"] == pytest.approx((1 + 2 / 3) / 2)
    assert found["f1"] == pytest.approx(0.8)
    assert found["macro_f1"] == pytest.approx((2 / 3 + 0.8) / 2)
    assert found["matthews"] == pytest.approx(1 / math.sqrt(3))


@pytest.mark.parametrize(("predictions", "labels"), [([0, 0, 0], [0, 1, 2]), ([0, 1, 2], [1, 1, 1]), ([0, 0], [0, 0])])
def test_constant_sides_have_a_score_and_no_warning(predictions, labels):
    values = score(list(METRICS), np.array(predictions), np.array(labels))
    assert all(isinstance(value, float) and 0.0 <= value <= 1.0 for value in values.values())
    assert [values[name] for name in ("matthews", *NUMBERS)] == [0.0] * 3


def test_very_large_and_nearly_constant_numbers():
    values = np.array([1.0, 2.0, 4.0])
    for scale in (1e300, 1e-300):
        assert score(NUMBERS, values * scale, values) == pytest.approx({"pearson": 1.0, "spearman": 1.0})
    assert score(["pearson"], np.array([0.1] * 7, np.float32), np.arange(7.0)) == {"pearson": 0.0}


def test_the_worst_case_is_minus_one():
    assert score(["matthews"], np.array([0, 1]), np.array([1, 0])) == {"matthews": -1.0}
    found = score(NUMBERS, np.array([3.0, 2.0, 1.0]), np.array([1.0, 2.0, 3.0]))
    assert found == pytest.approx({"pearson": -1.0, "spearman": -1.0})
    assert min(found.values()) >= -1.0


@pytest.mark.parametrize(
    ("names", "predictions", "labels", "words"),
    [
        (["acuracy"], [0], [0], "unknown metric 'acuracy': did you mean 'accuracy'"),
        (["accuracy"], [], [], "at least 1"),
        (["accuracy"], [0, 1], [0], "same length"),
        (["accuracy"], [[0.1, 0.9]], [1], "argmax"),
        (["pearson"], [math.nan, 1.0], [1.0, 2.0], "1 of 2 predictions are not finite"),
        (["pearson"], [1.0, 2.0], [math.inf, 2.0], "1 of 2 labels are not finite"),
    ],
)
def test_bad_input(names, predictions, labels, words):
    with pytest.raises(InputError, match=words):
        score(names, np.array(predictions), np.array(labels))


# -- weights -----------------------------------------------------------------------------------------------------------


def repeated(name, predictions, labels, weights):
    """The plain metric on examples repeated as often as their weight says."""
    rows = [np.repeat(np.arange(len(labels)), each) for each in weights]
    return np.array([[METRICS[name](each[row], labels[row]) for each in predictions] for row in rows])


def resamples(chance, count, examples):
    return np.stack([np.bincount(chance.integers(examples, size=examples), minlength=examples) for _ in range(count)])


@pytest.mark.parametrize("name", METRICS)
def test_a_weighted_metric_is_the_plain_one_on_the_resample(name):
    for examples, classes in [(1, 2), (3, 2), (7, 3), (200, 5)]:
        chance = np.random.default_rng([examples, classes])
        labels = chance.integers(classes, size=examples)
        predictions = np.where(chance.random((4, examples)) < 0.6, labels, chance.integers(classes, size=(4, examples)))
        predictions[3] = 1  # a collapsed model
        if name in NUMBERS:
            predictions = predictions + np.where(np.arange(4)[:, None] < 2, chance.normal(size=(4, examples)), 0)
        weights = np.concatenate([np.ones((1, examples), dtype=int), resamples(chance, 40, examples)])
        found = weighted_score(name, predictions, labels, weights)
        assert found.shape == (41, 4)
        np.testing.assert_allclose(found, repeated(name, predictions, labels, weights), rtol=1e-9, atol=1e-12)


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
        repeated("pearson", predictions, labels, weights),
        rtol=1e-9,
    )


@pytest.mark.parametrize(
    ("name", "shapes", "message"),
    [
        ("acuracy", ((2, 3), (3,), (4, 3)), "unknown metric 'acuracy': did you mean 'accuracy'"),
        ("accuracy", ((3,), (3,), (4, 3)), r"predictions \[3\]"),
        ("accuracy", ((2, 3), (3,), (3,)), r"weights \[3\]"),
        ("accuracy", ((2, 0), (0,), (4, 0)), "n at least 1"),
    ],
)
def test_wrong_shapes_and_names_of_weighted_scores_are_refused(name, shapes, message):
    with pytest.raises(InputError, match=message):
        weighted_score(name, *(np.ones(shape, dtype=int) for shape in shapes))


@pytest.mark.parametrize("weights", [[[0.5, 0.5]], [[-1, 2]], [[0, 0]]])
def test_weights_are_counts(weights):
    with pytest.raises(InputError, match="whole numbers from 0"):
        weighted_score("accuracy", np.array([[0, 1]]), np.array([0, 1]), np.array(weights))


def test_predictions_must_be_numbers():
    with pytest.raises(InputError, match="1 of 2 predictions are not finite"):
        weighted_score("pearson", np.array([[0.5, math.nan]]), np.array([0, 1]), np.ones((1, 2), dtype=int))
