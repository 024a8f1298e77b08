"""Intervals of D-scores against a slow bootstrap, and the scores of random masks against all ways to draw them."""

import json
from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest

from headwise.errors import InputError
from headwise.heads.dissociation import (
    TaskPredictions,
    bootstrap_dissociation,
    dissociation,
    dissociations,
    null_dissociation,
)
from headwise.metrics.classification import METRICS

METRIC_OF = {"rte": "accuracy", "cola": "matthews", "stsb": "pearson"}


def some_predictions(tasks=METRIC_OF, percents=2, seed=0, rows=None):
    chance, found = np.random.default_rng(seed), {}
    for number, (name, metric) in enumerate(tasks.items()):
        examples = 40 + 7 * number
        labels = chance.integers(2, size=examples)

        def guess(right, labels=labels, metric=metric):
            classes = np.where(chance.random(len(labels)) < right, labels, 1 - labels)
            return classes + 0.5 * chance.normal(size=len(labels)) if metric == "pearson" else classes

        rows = len(tasks) if rows is None else rows
        masked = np.array([[guess(0.7) for _ in range(rows)] for _ in range(percents)])
        found[name] = TaskPredictions(metric, labels, guess(0.9), masked)
    return found


def draw_weights(seed, name, examples, resamples):
    """[R,n] how often each example of a task is drawn."""
    drawn = np.random.default_rng([seed, *name.encode()]).integers(examples, size=(resamples, examples))
    return np.array([np.bincount(row, minlength=examples) for row in drawn])


def slow_bootstrap(predictions, resamples, seed):
    """For each resample the D-scores of every percentage, one after the other."""
    names = list(predictions)
    weights = {name: draw_weights(seed, name, len(task.labels), resamples) for name, task in predictions.items()}
    everything = []
    for number in range(resamples):
        base, matrix = [], []
        for name, task in predictions.items():
            drawn = np.repeat(np.arange(len(task.labels)), weights[name][number])
            metric, labels = METRICS[task.metric], task.labels[drawn]
            base.append(metric(task.base[drawn], labels))
            matrix.append([[metric(row[drawn], labels) for row in rows] for rows in task.masked])
        matrix = np.moveaxis(np.array(matrix), 0, 2)  # [K,S,T]
        everything.append((base, dissociations(matrix, base, tasks=names)))
    return everything


def assert_interval(found, values):
    low, high = np.quantile(np.array(values), [0.025, 0.975], axis=0)
    np.testing.assert_allclose(found.low, low, atol=1e-9)
    np.testing.assert_allclose(found.high, high, atol=1e-9)


def test_it_is_the_slow_bootstrap_whatever_the_size_of_the_pieces(monkeypatch):
    predictions = some_predictions()
    found = bootstrap_dissociation(predictions, resamples=60, seed=3)
    slow = slow_bootstrap(predictions, 60, seed=3)
    assert (found.resamples, found.dropped) == (60, 0)
    assert_interval(found.base, [base for base, _ in slow])
    assert_interval(found.scores, [[each.scores for each in steps] for _, steps in slow])
    double = np.mean([[list(each.double.values()) for each in steps] for _, steps in slow], axis=0)
    np.testing.assert_allclose(found.double, double)
    assert ((double > 0) & (double < 1)).any()
    assert not np.array_equal(found.scores.low, bootstrap_dissociation(predictions, resamples=60, seed=2).scores.low)
    monkeypatch.setattr("headwise.metrics.resampling.AT_A_TIME", 170)
    pieces = bootstrap_dissociation(predictions, resamples=60, seed=3)
    assert np.array_equal(pieces.base.low, found.base.low)
    np.testing.assert_allclose(pieces.scores.low, found.scores.low)


def test_the_draws_of_a_task_do_not_depend_on_the_other_tasks():
    predictions, order = some_predictions(), [2, 0, 1]
    changed = {
        name: replace(predictions[name], masked=predictions[name].masked[:, order])
        for name in (list(predictions)[number] for number in order)
    }
    one, other = bootstrap_dissociation(predictions, resamples=30), bootstrap_dissociation(changed, resamples=30)
    np.testing.assert_allclose(other.base.high, one.base.high[order])
    np.testing.assert_allclose(other.scores.low, one.scores.low[:, :, [*order, 3]])


def test_a_task_without_a_score_in_the_data_has_none_in_any_resample():
    predictions = some_predictions()
    cola = predictions["cola"]
    predictions["cola"] = replace(cola, base=np.ones_like(cola.labels))
    found = bootstrap_dissociation(predictions, resamples=40)
    assert found.dropped == 0
    assert np.isnan(found.scores.low[:, :, 1]).all()
    assert np.isfinite(found.scores.low[:, :, [0, 2, 3]]).all()
    assert np.isnan(found.double[:, [0, 2]]).all()
    assert np.isfinite(found.double[:, 1]).all()
    assert found.base.low[1] == 0.0
    data = json.loads(json.dumps(found.as_dict(-1, list(predictions)), allow_nan=False))
    assert data["low"]["row"]["tasks"]["cola"] is None
    assert data["double_dissociation"][0] == {"tasks": ["rte", "cola"], "holds": None}
    # A correlation of -0.2, with resamples in which it is positive.
    labels, worse = np.array([0, 1] * 10), np.array([1, 0] * 6 + [0, 1] * 4)
    predictions = {
        "cola": TaskPredictions("matthews", labels, worse, np.broadcast_to(labels, (1, 2, 20))),
        "rte": TaskPredictions("accuracy", labels, labels, np.broadcast_to(worse, (1, 2, 20))),
    }
    found = bootstrap_dissociation(predictions, resamples=50)
    assert found.base.low[0] < 0 < found.base.high[0]
    assert found.dropped == 0
    assert np.isnan(found.scores.low).all()


def test_resamples_that_lose_a_task_are_dropped_and_counted():
    """Two of sixteen positives are found, so that some resamples have a correlation of 0 or below."""
    chance = np.random.default_rng(0)
    labels = np.array([1] * 16 + [0] * 16)
    weak = np.array([1, 1] + [0] * 29 + [1])
    strong = np.where(chance.random((1, 2, 32)) < 0.8, labels, 1 - labels)
    predictions = {
        "cola": TaskPredictions("matthews", labels, weak, strong),
        "rte": TaskPredictions("accuracy", labels, labels, strong),
    }
    found = bootstrap_dissociation(predictions, resamples=200)
    draws = draw_weights(0, "cola", 32, 200)
    lost = sum(METRICS["matthews"](*(np.repeat(each, row) for each in (weak, labels))) <= 0 for row in draws)
    assert 0 < lost < 200
    assert found.dropped == lost
    assert np.isfinite(found.scores.low).all()
    # All of them: there is no interval, and no warning.
    labels = np.array([0, 1])
    predictions = {
        name: TaskPredictions("matthews", labels, labels, np.broadcast_to(labels, (1, 2, 2))) for name in "ab"
    }
    one_class = next(seed for seed in range(100) if (draw_weights(seed, "a", 2, 1) == 2).any())
    found = bootstrap_dissociation(predictions, resamples=1, seed=one_class)
    assert found.dropped == 1
    assert np.isnan(found.scores.low).all()
    assert np.isnan(found.double).all()


def test_only_some_tasks_were_pruned():
    found = bootstrap_dissociation(some_predictions(rows=2), pruned=["stsb", "rte"], resamples=30)
    assert np.isnan(found.scores.low[:, :, 1]).all()
    assert np.isfinite(found.scores.low[:, 1, [0, 2]]).all()


def test_bad_input_is_refused_in_one_sentence():
    for change, options, message in (
        ({}, {"resamples": -1}, "-1 resamples: expected 1 or more"),
        ({}, {"pruned": ["rte", "mnli"]}, "pruned tasks rte, mnli: expected some of rte, cola, stsb"),
        ({"cola": {"base": np.zeros(3)}}, {}, r"task cola: labels \[47\], base \[3\]"),
        ({"cola": {"masked": np.zeros((1, 3, 47))}}, {}, r"task cola: .* and \[K,3,n\], K at least 1 and the same"),
        ({"stsb": {"metric": "f2"}}, {}, "unknown metric 'f2'"),
    ):
        predictions = some_predictions()
        predictions |= {name: replace(predictions[name], **parts) for name, parts in change.items()}
        with pytest.raises(InputError, match=message):
            bootstrap_dissociation(predictions, **options)


# -- random masks ------------------------------------------------------------------------------------------------------


def slow_null(values, base, choices):
    """From values [K,S,R,T]: the scores of each choice, percentage by percentage."""
    return np.array(
        [
            [dissociation([values[k, s, r] for s, r in enumerate(choice)], base).scores for k in range(len(values))]
            for choice in choices
        ]
    )


@pytest.mark.parametrize("matched", [False, True])
def test_the_null_tries_every_way_of_giving_random_masks_to_tasks(matched):
    """Any two masks for two tasks, but a layer-matched one only for the task that it matches."""
    chance = np.random.default_rng(2)
    shape, masks, draws = ((2, 3, 2, 3), 2, 8) if matched else ((2, 4, 3), 4, 24)
    values, base, observed = chance.random(shape), np.array([0.9, 0.8, 0.7]), chance.random((2, 3, 3))
    found = null_dissociation(values, base, observed=observed)
    ways = product(range(2), repeat=3) if matched else permutations(range(4), 3)
    slow = slow_null(values if matched else np.stack([values] * 3, axis=1), base, ways)  # [C,K,V,T+1]
    assert (found.masks, found.draws) == (masks, draws)
    averaged = slow.mean(1)
    for step, each in enumerate([slow[:, 0], slow[:, 1], averaged]):
        np.testing.assert_allclose(found.mean[step], each.mean(0), atol=1e-9)
        np.testing.assert_allclose(found.deviation[step], each.std(0))
        np.testing.assert_allclose((found.low[step], found.high[step]), np.quantile(each, [0.025, 0.975], axis=0))
    score = dissociations(observed, base)[-1].scores
    np.testing.assert_allclose(found.p[-1], (1 + (averaged >= score).sum(0)) / (1 + draws))


def test_many_masks_are_drawn_by_seed_and_never_twice_for_two_tasks():
    values = np.arange(40.0).reshape(1, 20, 2) + 1
    one, same, other = (null_dissociation(values, [1, 1], draws=100, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one.mean, same.mean)
    assert not np.array_equal(one.mean, other.mean)
    assert one.draws == 100
    # One mask given to both tasks would score 0 by column.
    two = np.array([[[0.1, 0.1], [0.2, 0.3]]])
    drawn = [null_dissociation(two, [1, 1], draws=1, seed=seed).mean[-1, 2, 0] for seed in range(20)]
    assert {round(each) for each in drawn} == {-10, 10}
    assert null_dissociation(np.random.default_rng(9).random((2, 3, 30, 3)), [0.9, 0.8, 0.7], draws=50).draws == 50


def test_a_null_without_a_base_is_marked_in_json():
    chance = np.random.default_rng(3)
    found = null_dissociation(chance.random((1, 4, 3)), [0.9, 0.0, 0.7], observed=chance.random((1, 3, 3)))
    data = json.loads(json.dumps(found.as_dict(-1, "abc"), allow_nan=False))
    assert data["p"]["row"]["tasks"]["b"] is None
    assert data["p"]["row"]["tasks"]["a"] > 0
    assert data["low"]["column"]["mean"] is not None
    assert null_dissociation(chance.random((1, 4, 3)), [0.9, 0.8, 0.7]).as_dict(-1, "abc")["p"] is None


def test_a_null_of_the_wrong_shape_is_refused():
    for shape, options, message in (
        ((1, 1, 2), {}, "at least as many random masks R as tasks"),
        ((1, 5, 2), {"observed": np.zeros((2, 2))}, r"an observed matrix \[2, 2\]"),
        ((1, 2, 0, 2), {}, "K and R at least 1"),
        ((1, 3, 4, 2), {}, r"\[1, 3, 4, 2\] for 2 tasks: expected \[K,2,R,2\]"),
    ):
        with pytest.raises(InputError, match=message):
            null_dissociation(np.ones(shape), [0.9, 0.8], **options)
