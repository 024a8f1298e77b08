"""Metrics against scikit-learn, scipy and slow references, and under weights against repeated examples."""

import math
from functools import partial

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from headwise.errors import InputError
from headwise.metrics import METRICS, score
from headwise.metrics.classification import weighted_score


def of_library(function, labels, predictions):
    return function(labels, predictions, average="macro", zero_division=0)


def correlation(function, labels, predictions):
    constant = np.ptp(labels) == 0 or np.ptp(predictions) == 0
    return 0.0 if constant else function(labels, predictions).statistic


# Labels before predictions.
EXPECTED = {
    "accuracy": metrics.accuracy_score,
    "macro_precision": partial(of_library, metrics.precision_score),
    "macro_recall": partial(of_library, metrics.recall_score),
    "macro_f1": partial(of_library, metrics.f1_score),
    "f1": lambda labels, found: metrics.f1_score(np.equal(labels, 1), np.equal(found, 1), zero_division=0),
    "matthews": metrics.matthews_corrcoef,
    "pearson": partial(correlation, stats.pearsonr),
    "spearman": partial(correlation, stats.spearmanr),
}
NUMBERS = ("pearson", "spearman")


@pytest.mark.filterwarnings("ignore:A single label was found")
@pytest.mark.parametrize("name", METRICS)
def test_every_metric_is_that_of_the_library(name):
    for classes in (1, 2, 3, 5):
        for size in (1, 2, 7, 60):
            draw = np.random.default_rng([classes, size])
            predictions, labels = draw.integers(0, classes, (2, size))
            if name in NUMBERS:  # few classes: with ties
                predictions, labels = draw.normal(size=(2, max(3, size))).round(0 if classes < 3 else 9)
            expected = EXPECTED[name](labels, predictions)
            assert score([name], predictions, labels)[name] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("predictions", "labels"), [([0, 0, 0], [0, 1, 2]), ([0, 1, 2], [1, 1, 1]), ([0, 0], [0, 0])])
def test_constant_sides_have_a_score_and_no_warning(predictions, labels):
    values = score(list(METRICS), np.array(predictions), np.array(labels))
    assert all(isinstance(value, float) and 0.0 <= value <= 1.0 for value in values.values())
    assert [values[name] for name in ("matthews", *NUMBERS)] == [0.0] * 3


def test_very_large_and_nearly_constant_numbers():
    values = np.array([1.0, 2.0, 4.0])
    for scale in (1e300, 1e-300, -1.0):
        sign = math.copysign(1.0, scale)
        assert score(NUMBERS, values * scale, values) == pytest.approx({"pearson": sign, "spearman": sign})
    assert score(["pearson"], np.array([0.1] * 7, np.float32), np.arange(7.0)) == {"pearson": 0.0}


# -- weights -----------------------------------------------------------------------------------------------------------


def repeated(name, predictions, labels, weights):
    """The plain metric on examples repeated as often as their weight says."""
    rows = [np.repeat(np.arange(len(labels)), each) for each in weights]
    return np.array([[METRICS[name](each[row], labels[row]) for each in predictions] for row in rows])


@pytest.mark.parametrize("name", METRICS)
def test_a_weighted_metric_is_the_plain_one_on_the_resample(name):
    for examples, classes in [(1, 2), (3, 2), (7, 3), (200, 5)]:
        chance = np.random.default_rng([examples, classes])
        labels = chance.integers(classes, size=examples)
        predictions = np.where(chance.random((4, examples)) < 0.6, labels, chance.integers(classes, size=(4, examples)))
        predictions[3] = 1  # a collapsed model
        if name in NUMBERS:
            predictions = predictions + np.where(np.arange(4)[:, None] < 2, chance.normal(size=(4, examples)), 0)
        draws = [np.bincount(chance.integers(examples, size=examples), minlength=examples) for _ in range(40)]
        weights = np.stack([np.ones(examples, dtype=int), *draws])
        found = weighted_score(name, predictions, labels, weights)
        assert found.shape == (41, 4)
        np.testing.assert_allclose(found, repeated(name, predictions, labels, weights), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", NUMBERS)
def test_a_resample_without_the_outlier_is_exact(name):
    """Without it, the first row is constant; of the second, all that is left are differences far below it."""
    chance = np.random.default_rng(0)
    labels = chance.normal(size=50)
    predictions = np.stack([np.full(50, 0.3), labels + 0.5 * chance.normal(size=50) + 100])
    predictions[:, -1] = 7.1, 1e9
    weights = np.stack([np.ones(50, dtype=int), np.array([2, *[1] * 48, 0])])
    found = weighted_score(name, predictions, labels, weights)
    assert found[1, 0] == 0.0
    np.testing.assert_allclose(found, repeated(name, predictions, labels, weights), rtol=1e-9)


REFUSED = [
    (score, (["acuracy"], [0], [0]), "unknown metric 'acuracy': did you mean 'accuracy'"),
    (score, (["accuracy"], [], []), "at least 1"),
    (score, (["accuracy"], [[0.1, 0.9]], [1]), "argmax"),
    (score, (["pearson"], [1.0, 2.0], [math.inf, 2.0]), "1 of 2 labels are not finite"),
    (weighted_score, ("acuracy", [[0, 1]], [0, 1], [[1, 1]]), "unknown metric 'acuracy': did you mean 'accuracy'"),
    (weighted_score, ("accuracy", [0, 1], [0, 1], [[1, 1]]), r"predictions \[2\]"),
    (weighted_score, ("accuracy", [[0, 1]], [0, 1], [1, 1]), r"weights \[2\]"),
    (weighted_score, ("accuracy", [[0, 1]], [0, 1], [[0.5, 0.5]]), "whole numbers from 0"),
    (weighted_score, ("accuracy", [[0, 1]], [0, 1], [[0, 0]]), "whole numbers from 0"),
    (weighted_score, ("pearson", [[0.5, math.nan]], [0, 1], [[1, 1]]), "1 of 2 predictions are not finite"),
]


@pytest.mark.parametrize(("function", "given", "message"), REFUSED)
def test_bad_input(function, given, message):
    with pytest.raises(InputError, match=message):
        function(*given)
