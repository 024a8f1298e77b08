"""Metrics against slow references that read like their definitions, and against scikit-learn and scipy."""

import math

import numpy as np
import pytest

from headwise.errors import InputError
from headwise.metrics.classification import METRICS, score


def counts(predictions, labels, name):
    pairs = list(zip(predictions, labels, strict=True))
    hit = sum(p == name and y == name for p, y in pairs)
    false = sum(p == name and y != name for p, y in pairs)
    missed = sum(p != name and y == name for p, y in pairs)
    return hit, false, missed


def ratio(above, below):
    return above / below if below else 0.0


def slow_accuracy(predictions, labels):
    return sum(p == y for p, y in zip(predictions, labels, strict=True)) / len(labels)


def slow_macro(predictions, labels, one):
    classes = sorted({*predictions, *labels})
    return sum(one(*counts(predictions, labels, name)) for name in classes) / len(classes)


def slow_precision(hit, false, missed):
    return ratio(hit, hit + false)


def slow_recall(hit, false, missed):
    return ratio(hit, hit + missed)


def slow_f1(hit, false, missed):
    precision, recall = slow_precision(hit, false, missed), slow_recall(hit, false, missed)
    return ratio(2 * precision * recall, precision + recall)


def slow_matthews(predictions, labels):
    """The covariance of indicator vectors, class by class."""
    classes = sorted({*predictions, *labels})

    def covariance(first, second):
        total = 0.0
        for name in classes:
            one, two = [float(x == name) for x in first], [float(x == name) for x in second]
            mean_one, mean_two = sum(one) / len(one), sum(two) / len(two)
            total += sum((a - mean_one) * (b - mean_two) for a, b in zip(one, two, strict=True)) / len(one)
        return total

    spread = covariance(predictions, predictions) * covariance(labels, labels)
    return covariance(predictions, labels) / math.sqrt(spread) if spread > 1e-12 else 0.0


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


SLOW = {
    "accuracy": slow_accuracy,
    "macro_precision": lambda p, y: slow_macro(p, y, slow_precision),
    "macro_recall": lambda p, y: slow_macro(p, y, slow_recall),
    "macro_f1": lambda p, y: slow_macro(p, y, slow_f1),
    "f1": lambda p, y: slow_f1(*counts(p, y, 1)),
    "matthews": slow_matthews,
    "pearson": slow_pearson,
    "spearman": slow_spearman,
}
CLASSES = ["accuracy", "macro_precision", "macro_recall", "macro_f1", "f1", "matthews"]
NUMBERS = ["pearson", "spearman"]


def test_every_metric_has_a_reference():
    assert set(SLOW) == set(METRICS) == {*CLASSES, *NUMBERS}


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("classes", [1, 2, 3, 5])
@pytest.mark.parametrize("size", [1, 2, 7, 60])
def test_classes_against_the_slow_reference(name, classes, size):
    draw = np.random.default_rng([classes, size])
    for _ in range(5):
        predictions, labels = draw.integers(0, classes, size), draw.integers(0, classes, size)
        expected = SLOW[name](predictions.tolist(), labels.tolist())
        assert score([name], predictions, labels)[name] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("size", [1, 2, 7, 60])
@pytest.mark.parametrize("ties", [True, False])
def test_numbers_against_the_slow_reference(name, size, ties):
    draw = np.random.default_rng([size, ties])
    for _ in range(5):
        predictions, labels = draw.normal(size=size), draw.normal(size=size)
        if ties:
            predictions, labels = predictions.round(), labels.round()
        expected = SLOW[name](predictions.tolist(), labels.tolist())
        assert score([name], predictions, labels)[name] == pytest.approx(expected, abs=1e-9)


def test_against_the_libraries():
    from scipy import stats
    from sklearn import metrics

    draw = np.random.default_rng(0)
    labels = draw.integers(0, 4, 300)
    predictions = np.where(draw.random(300) < 0.6, labels, draw.integers(0, 4, 300))
    found = score([*CLASSES[:4], "matthews", *NUMBERS], predictions, labels)
    assert found == pytest.approx(
        {
            "accuracy": metrics.accuracy_score(labels, predictions),
            "macro_precision": metrics.precision_score(labels, predictions, average="macro"),
            "macro_recall": metrics.recall_score(labels, predictions, average="macro"),
            "macro_f1": metrics.f1_score(labels, predictions, average="macro"),
            "matthews": metrics.matthews_corrcoef(labels, predictions),
            "pearson": stats.pearsonr(labels, predictions).statistic,
            "spearman": stats.spearmanr(labels, predictions).statistic,
        }
    )
    binary = score(["f1"], predictions % 2, labels % 2)["f1"]
    assert binary == pytest.approx(metrics.f1_score(labels % 2, predictions % 2))


def test_by_hand():
    # class 0: 1 of 2 found, 1 of 1 right; class 1: 2 of 2 found, 2 of 3 right
    found = score(CLASSES, np.array([0, 1, 1, 1]), np.array([0, 0, 1, 1]))
    assert found["accuracy"] == 0.75
    assert found["macro_recall"] == 0.75
    assert found["macro_precision"] == pytest.approx((1 + 2 / 3) / 2)
    assert found["f1"] == pytest.approx(0.8)
    assert found["macro_f1"] == pytest.approx((2 / 3 + 0.8) / 2)
    assert found["matthews"] == pytest.approx(1 / math.sqrt(3))


@pytest.mark.parametrize("name", [*CLASSES, *NUMBERS])
@pytest.mark.parametrize(("predictions", "labels"), [([0, 0, 0], [0, 1, 2]), ([0, 1, 2], [1, 1, 1]), ([0, 0], [0, 0])])
def test_constant_sides_have_a_score_and_no_warning(name, predictions, labels):
    value = score([name], np.array(predictions), np.array(labels))[name]
    assert isinstance(value, float)
    assert 0.0 <= value <= 1.0
    if name in ("matthews", *NUMBERS):
        assert value == 0.0


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
