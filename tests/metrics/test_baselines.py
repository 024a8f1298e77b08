"""Baselines find what is planted, and nothing where nothing is."""

import random

import numpy as np
import pytest

from headwise.metrics.baselines import (
    PENALTIES,
    bag_of_words,
    held_out_fifth,
    length_only,
    logistic_regression,
    usual,
)

FILLERS = "cat dog bird man woman house tree river sees likes finds holds".split()


def planted(count, seed, place, texts=2):
    """Examples of two classes whose sign stands in one of the texts."""
    chance = random.Random(seed)
    labels = np.array([number % 2 for number in range(count)])
    examples = []
    for label in labels:
        words = [chance.choices(FILLERS, k=6) for _ in range(texts)]
        words[place].insert(chance.randint(0, 6), ("yes", "no")[label])
        examples.append([" ".join(each) for each in words])
    return examples, labels


def test_a_bag_finds_the_word_that_decides_and_only_in_its_text():
    (train, labels), (test, right) = planted(400, 0, place=1), planted(400, 1, place=1)
    assert (bag_of_words(train, labels, test, seed=0) == right).mean() > 0.95
    for place, expected, tolerance in ((1, 1.0, 0.049), (0, 0.5, 0.099)):
        one_train, one_test = ([[texts[place]] for texts in examples] for examples in (train, test))
        found = bag_of_words(one_train, labels, one_test, seed=0)
        assert (found == right).mean() == pytest.approx(expected, abs=tolerance)


def test_every_text_has_separate_columns_and_pairs_of_words_count():
    # The same word means the opposite in the other text: a common column could not tell.
    train = [["yes", "dog"], ["dog", "yes"]] * 50
    labels = np.array([0, 1] * 50)
    assert bag_of_words(train, labels, [["yes", "dog"], ["dog", "yes"]], seed=0).tolist() == [0, 1]
    train = [["not good"], ["good not"]] * 50
    assert bag_of_words(train, labels, [["not good"], ["good not"], [""]], seed=0).tolist()[:2] == [0, 1]


def test_numbers_are_predicted_from_words():
    train, labels = planted(400, 0, 0)
    test, right = planted(400, 1, 0)
    found = bag_of_words(train, 3.0 * labels - 1.0, test, seed=0, numbers=True)
    assert found.dtype == np.float64
    assert np.corrcoef(found, right)[0, 1] > 0.9
    assert abs(found.mean() - 0.5) < 0.1


def test_length_finds_a_band():
    lengths = np.random.default_rng(0).integers(1, 40, size=(600, 2))
    labels = ((lengths[:, 1] > 10) & (lengths[:, 1] < 20)).astype(int)
    asked = np.array([[5, 5], [5, 15], [15, 30], [39, 12]])
    assert length_only(lengths, labels, asked, seed=0).tolist() == [0, 1, 0, 1]
    found = length_only(lengths, labels * 2.5, asked, seed=0, numbers=True)
    assert np.allclose(found, [0, 2.5, 0, 2.5], atol=0.3)


def test_the_most_frequent_class_and_the_mean():
    assert usual(np.array([2, 1, 1, 0, 2]), 3).tolist() == [1, 1, 1]  # of equals, the first
    assert usual(np.array([1.0, 2.0, 6.0]), 2, numbers=True).tolist() == [3.0, 3.0]
    # Of one class, as may happen in a fold, nothing else can be predicted.
    assert bag_of_words([["a"], ["b"]], np.array([4, 4]), [["c"], ["a"], ["b"]], seed=0).tolist() == [4, 4, 4]


def clouds(count, seed, scale):
    """Features of three classes, of very different size, of which two columns tell the class and one is constant."""
    random = np.random.default_rng(seed)
    labels = random.integers(3, size=count)
    features = random.normal(size=(count, 6))
    features[:, 0] += 3 * (labels == 1)
    features[:, 1] += 3 * (labels == 2)
    features[:, 5] = 7.0
    return features * scale, labels


def test_logistic_regression_does_not_depend_on_the_size_of_features():
    found = []
    for scale in (1.0, np.array([1e-4, 1e3, 1.0, 1e5, 1.0, 1.0])):
        (train, labels), (new, right) = clouds(300, 0, scale), clouds(200, 1, scale)
        fitted = logistic_regression(train, labels, new, lambda predictions, right=right: (predictions == right).mean())
        found.append(fitted.predict(new))
        assert (found[-1] == right).mean() > 0.85
    assert (found[0] == found[1]).mean() > 0.99


def test_the_penalty_is_the_one_that_scores_best_and_of_equals_the_strongest():
    train, labels = clouds(120, 0, 1.0)
    seen = []

    def third_is_best(predictions):
        seen.append(predictions)
        return float(len(seen) == 3)

    fitted = logistic_regression(train, labels, train, third_is_best)
    assert fitted.penalty == PENALTIES[2]
    assert (fitted.predict(train) == seen[2]).all()  # its own weights, not those of the last one
    assert logistic_regression(train, labels, train, lambda predictions: 0.0).penalty == PENALTIES[0]
    state = np.random.get_state()[1].tolist()
    logistic_regression(train, labels, train, lambda predictions: 0.0)
    assert np.random.get_state()[1].tolist() == state


def test_one_class_is_predicted_as_it_is():
    train, _ = clouds(20, 0, 1.0)
    fitted = logistic_regression(train, np.full(20, 2), train, lambda predictions: 0.0)
    assert fitted.penalty is None
    assert fitted.predict(train[:3]).tolist() == [2, 2, 2]


def test_a_fifth_is_held_out():
    learned, held_out = held_out_fifth(52, 3)
    assert sorted([*learned, *held_out]) == list(range(52))
    assert len(held_out) == 10
    assert held_out.tolist() != held_out_fifth(52, 4)[1].tolist()
