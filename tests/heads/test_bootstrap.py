"""Intervals of D-scores against a slow bootstrap, and their coverage."""

import json
from itertools import combinations

import numpy as np
import pytest

from headwise.errors import InputError
from headwise.heads import dissociation_tests as bootstrap
from headwise.heads.dissociation import d_scores, dissociation, over_percents
from headwise.heads.dissociation_tests import TaskPredictions, bootstrap_dissociation, draw_weights
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


def slow_bootstrap(predictions, resamples, seed):
    """For each resample the D-scores of every percentage, one after the other."""
    names = list(predictions)
    weights = {
        name: draw_weights(np.random.default_rng([seed, *name.encode()]), len(task.labels), resamples)
        for name, task in predictions.items()
    }
    everything = []
    for number in range(resamples):
        base, matrix = [], []
        for name, task in predictions.items():
            drawn = np.repeat(np.arange(len(task.labels)), weights[name][number])
            metric, labels = METRICS[task.metric], task.labels[drawn]
            base.append(metric(task.base[drawn], labels))
            matrix.append([[metric(row[drawn], labels) for row in rows] for rows in task.masked])
        matrix = np.moveaxis(np.array(matrix), 0, 2)  # [K,S,T]
        everything.append((base, matrix, [dissociation(each, base, tasks=names) for each in matrix]))
    return everything


def middle(values):
    return np.quantile(np.array(values), [0.025, 0.975], axis=0)


def assert_interval(found, values):
    low, high = middle(values)
    np.testing.assert_allclose(found.low, low, atol=1e-9)
    np.testing.assert_allclose(found.high, high, atol=1e-9)


def test_it_is_the_slow_bootstrap():
    predictions = some_predictions()
    found = bootstrap_dissociation(predictions, resamples=60, seed=3)
    slow = slow_bootstrap(predictions, 60, seed=3)
    assert (found.tasks, found.resamples, found.dropped) == (("rte", "cola", "stsb"), 60, 0)
    assert_interval(found.base, [base for base, _, _ in slow])
    assert_interval(found.matrix, [matrix for _, matrix, _ in slow])
    assert_interval(found.scores, [[each.scores for each in parts] for _, _, parts in slow])
    assert_interval(found.mean_scores, [over_percents(parts).scores for _, _, parts in slow])
    double = np.mean([[list(each.double.values()) for each in parts] for _, _, parts in slow], axis=0)
    np.testing.assert_allclose(found.double, double)
    mean_double = np.mean([list(over_percents(parts).double.values()) for _, _, parts in slow], axis=0)
    np.testing.assert_allclose(found.mean_double, mean_double)
    assert ((double > 0) & (double < 1)).any()


def test_every_resample_draws_as_many_examples_as_there_are():
    weights = draw_weights(np.random.default_rng(0), 30, 4000)
    assert (weights.sum(1) == 30).all()
    assert weights.mean(0) == pytest.approx(np.ones(30), abs=0.1)
    assert weights.var(0) == pytest.approx(np.full(30, 29 / 30), abs=0.15)


def test_a_seed_decides_and_the_size_of_the_pieces_does_not(monkeypatch):
    predictions = some_predictions()
    one, same = (bootstrap_dissociation(predictions, resamples=25, seed=1).as_dict() for _ in range(2))
    assert one == same
    assert one != bootstrap_dissociation(predictions, resamples=25, seed=2).as_dict()
    monkeypatch.setattr(bootstrap, "AT_A_TIME", 170)
    pieces = bootstrap_dissociation(predictions, resamples=25, seed=1).as_dict()
    assert json.dumps(pieces["base"]) == json.dumps(one["base"])
    assert pieces["mean"]["low"]["row"]["mean"] == pytest.approx(one["mean"]["low"]["row"]["mean"])


def test_the_draws_of_a_task_do_not_depend_on_the_other_tasks():
    predictions = some_predictions()
    order = [2, 0, 1]
    names = [list(predictions)[number] for number in order]
    changed = {
        name: TaskPredictions(task.metric, task.labels, task.base, task.masked[:, order])
        for name, task in ((name, predictions[name]) for name in names)
    }
    one, other = bootstrap_dissociation(predictions, resamples=30), bootstrap_dissociation(changed, resamples=30)
    np.testing.assert_allclose(other.mean_scores.low, one.mean_scores.low[:, [*order, 3]])
    np.testing.assert_allclose(other.matrix.high, one.matrix.high[:, order][:, :, order])


def test_masks_that_change_nothing_have_intervals_of_zero():
    """Base and masks are scored on the same draw."""
    predictions = {
        name: TaskPredictions(task.metric, task.labels, task.base, np.broadcast_to(task.base, (1, 3, len(task.base))))
        for name, task in some_predictions().items()
    }
    found = bootstrap_dissociation(predictions, resamples=50)
    assert (found.base.high > found.base.low).all()
    for bound in (found.scores.low, found.scores.high):
        assert (bound[:, 1:] == 0).all()
    assert (found.double == 0).all()


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    """Two tasks of known accuracies; by row that is 100 (0.8 / 0.9 - 0.5 / 0.8) and 100 (0.7 / 0.8 - 0.6 / 0.9)."""
    chance = np.random.default_rng(8)
    base, matrix = np.array([0.8, 0.9]), np.array([[0.5, 0.8], [0.7, 0.6]])
    truth, inside = d_scores(matrix, base), []
    labels, count = np.zeros(150, dtype=int), 120
    for number in range(count):
        predictions = {
            name: TaskPredictions(
                "accuracy",
                labels,
                (chance.random(150) > base[at]).astype(int),
                (chance.random((1, 2, 150)) > matrix[None, :, at, None]).astype(int),
            )
            for at, name in enumerate("ab")
        }
        scores = bootstrap_dissociation(predictions, resamples=200, seed=number).scores
        inside.append((scores.low[0] <= truth) & (truth <= scores.high[0]))
    share = np.mean(inside, axis=0)  # [V,T+1]
    assert (share > 0.87).all()
    assert (share < 1).any()
    assert truth[1] == pytest.approx([26.389, 20.833, 23.611], abs=1e-3)


def test_a_task_with_a_base_of_zero_is_left_out_and_marked():
    predictions = some_predictions()
    cola = predictions["cola"]
    predictions["cola"] = TaskPredictions("matthews", cola.labels, np.ones_like(cola.labels), cola.masked)
    found = bootstrap_dissociation(predictions, resamples=40)
    assert found.dropped == 0
    assert np.isnan(found.scores.low[:, :, 1]).all()
    assert np.isfinite(found.scores.low[:, :, [0, 2, 3]]).all()
    assert np.isnan(found.double[:, [0, 2]]).all()
    assert np.isfinite(found.double[:, 1]).all()
    data = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert data["mean"]["low"]["row"]["tasks"]["cola"] is None
    assert data["base"]["low"][1] == 0.0
    assert data["percentages"][0]["double_dissociation"][0] == {"tasks": ["rte", "cola"], "holds": None}


def test_a_task_without_a_score_has_none_in_a_lucky_resample_either():
    labels = np.array([0, 1] * 10)
    worse = np.array([1, 0] * 6 + [0, 1] * 4)  # 8 of 20 right: a correlation of -0.2
    predictions = {
        "cola": TaskPredictions("matthews", labels, worse, np.broadcast_to(labels, (1, 2, 20))),
        "rte": TaskPredictions("accuracy", labels, labels, np.broadcast_to(worse, (1, 2, 20))),
    }
    found = bootstrap_dissociation(predictions, resamples=50)
    assert found.base.low[0] < 0 < found.base.high[0]
    assert found.dropped == 0
    assert np.isnan(found.scores.low).all()
    assert np.isnan(found.double).all()


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
    draws = draw_weights(np.random.default_rng([0, *b"cola"]), 32, 200)
    lost = sum(METRICS["matthews"](*(np.repeat(each, row) for each in (weak, labels))) <= 0 for row in draws)
    assert 0 < lost < 200
    assert found.dropped == lost
    assert np.isfinite(found.scores.low).all()


def test_when_every_resample_is_dropped_there_is_no_interval_and_no_warning():
    labels = np.array([0, 1])
    predictions = {
        name: TaskPredictions("matthews", labels, labels, np.broadcast_to(labels, (1, 2, 2))) for name in "ab"
    }
    seed = next(
        seed
        for seed in range(100)
        if (draw_weights(np.random.default_rng([seed, *b"a"]), 2, 1) == 2).any()  # a resample of one class
    )
    found = bootstrap_dissociation(predictions, resamples=1, seed=seed)
    assert found.dropped == 1
    assert np.isnan(found.scores.low).all()
    assert np.isnan(found.mean_double).all()


def test_only_some_tasks_were_pruned():
    predictions = some_predictions(rows=2)
    found = bootstrap_dissociation(predictions, pruned=["stsb", "rte"], resamples=30)
    assert np.isnan(found.matrix.low[:, 1]).all()
    assert np.isnan(found.scores.low[:, :, 1]).all()
    weights = draw_weights(np.random.default_rng([0, *b"cola"]), len(predictions["cola"].labels), 30)
    task = predictions["cola"]
    drawn = [np.repeat(np.arange(len(task.labels)), row) for row in weights]
    first_row = [METRICS["matthews"](task.masked[1, 0][each], task.labels[each]) for each in drawn]
    assert found.matrix.low[1, 2, 1] == pytest.approx(middle(first_row)[0])  # stsb's heads, cola's metric


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"resamples": 0}, "0 resamples: expected 1 or more"),
        ({}, {"pruned": ["rte", "mnli"]}, "pruned tasks rte, mnli: expected some of rte, cola, stsb"),
        ({}, {"pruned": []}, "pruned tasks none"),
        ({}, {"pruned": ["rte"]}, r"task rte: .* expected \[n\], \[n\] and \[K,1,n\]"),
        ({"cola": {"base": np.zeros(3)}}, {}, r"task cola: labels \[47\], base \[3\]"),
        ({"cola": {"masked": np.zeros((1, 3, 47))}}, {}, "task cola: .* the same for all"),
        ({"stsb": {"metric": "f2"}}, {}, "unknown metric 'f2'"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(change, options, message):
    predictions = some_predictions()
    for name, parts in change.items():
        predictions[name] = TaskPredictions(**{**vars(predictions[name]), **parts})
    with pytest.raises(InputError, match=message):
        bootstrap_dissociation(predictions, **options)


def test_one_task_no_task_and_no_percentage_are_refused():
    predictions = some_predictions()
    with pytest.raises(InputError, match=r"got one task \(rte\)"):
        bootstrap_dissociation({"rte": predictions["rte"]})
    with pytest.raises(InputError, match="got none"):
        bootstrap_dissociation({})
    with pytest.raises(InputError, match="K at least 1"):
        bootstrap_dissociation(some_predictions(percents=0))


def test_pairs_are_in_the_order_of_tasks():
    found = bootstrap_dissociation(some_predictions(), resamples=3).as_dict()
    assert [tuple(each["tasks"]) for each in found["mean"]["double_dissociation"]] == list(combinations(METRIC_OF, 2))
