"""The D-scores of random masks against every way of giving them to tasks."""

import json
from itertools import permutations, product

import numpy as np
import pytest

from headwise.errors import InputError
from headwise.heads.dissociation import d_scores, dissociation, over_percents
from headwise.heads.dissociation_tests import layer_matched_null, null_dissociation


def slow_null(values, base, choices):
    """From values [K,S,R,T]: the scores of each choice, percentage by percentage."""
    return np.array(
        [
            [dissociation([values[k, s, r] for s, r in enumerate(choice)], base).scores for k in range(len(values))]
            for choice in choices
        ]
    )


def test_the_null_tries_every_way_of_giving_random_masks_to_tasks():
    chance = np.random.default_rng(2)
    values, base, observed = chance.random((2, 4, 3)), np.array([0.9, 0.8, 0.7]), chance.random((2, 3, 3))
    found = null_dissociation(values, base, observed=observed, tasks="abc")
    slow = slow_null(np.stack([values] * 3, axis=1), base, permutations(range(4), 3))  # [24,K,V,T+1]
    assert (found.masks, found.draws) == (4, 24)
    for number, each in enumerate(found.percentages):
        np.testing.assert_allclose(each.mean, slow[:, number].mean(0), atol=1e-9)
        np.testing.assert_allclose(each.deviation, slow[:, number].std(0))
    averaged = slow.mean(1)
    np.testing.assert_allclose((found.mean.low, found.mean.high), np.quantile(averaged, [0.025, 0.975], axis=0))
    score = over_percents([dissociation(each, base) for each in observed]).scores
    np.testing.assert_allclose(found.mean.p, (1 + (averaged >= score).sum(0)) / 25)


def test_the_null_of_random_masks_is_centred():
    """Whatever the masks do, a score by column, and the mean by row, is 0 on average: no task has its own heads."""
    chance = np.random.default_rng(4)
    values, base = chance.random((2, 5, 3)) * [0.9, 0.3, 0.6], np.array([0.9, 0.5, 0.7])
    found = null_dissociation(values, base).mean
    assert found.mean[2] == pytest.approx(np.zeros(4), abs=1e-9)
    assert found.mean[1, -1] == pytest.approx(0, abs=1e-9)
    assert abs(found.mean[1, 0]) > 1  # one task alone may be frailer than others
    assert (found.low[1:, -1] < 0).all()
    assert (found.high[1:, -1] > 0).all()


def test_many_masks_are_drawn_by_seed_and_never_twice_for_two_tasks():
    values = np.arange(40.0).reshape(1, 20, 2) + 1
    one, same, other = (null_dissociation(values, [1, 1], draws=100, seed=seed).as_dict() for seed in (1, 1, 2))
    assert one == same != other
    assert one["draws"] == 100
    # One mask given to both tasks would score 0 by column.
    two = np.array([[[0.1, 0.1], [0.2, 0.3]]])
    drawn = [null_dissociation(two, [1, 1], draws=1, seed=seed).mean.mean[2, 0] for seed in range(20)]
    assert {round(each) for each in drawn} == {-10, 10}


def test_an_observed_score_beyond_all_random_ones_has_the_smallest_p():
    values = np.random.default_rng(6).uniform(0.7, 0.8, (1, 6, 2))
    strong = null_dissociation(values, [0.8, 0.8], observed=[[[0.1, 0.8], [0.8, 0.1]]])
    assert strong.draws == 30
    assert strong.mean.p[:, -1] == pytest.approx(np.full(3, 1 / 31))
    weak = null_dissociation(values, [0.8, 0.8], observed=[[[0.8, 0.1], [0.1, 0.8]]])
    assert weak.mean.p[:, -1] == pytest.approx(np.ones(3))


def test_masks_that_change_nothing_are_reached_by_every_draw():
    base = np.array([0.9, 0.7])
    found = null_dissociation(np.broadcast_to(base, (1, 3, 2)), base, observed=np.broadcast_to(base, (1, 2, 2)))
    assert (found.mean.p == 1).all()


def test_p_values_of_masks_that_are_random_themselves_are_spread_evenly():
    chance, found = np.random.default_rng(7), []
    for _ in range(200):
        values = chance.random((1, 14, 2))
        found.append(null_dissociation(values[:, 2:], [0.8, 0.6], observed=values[:, :2]).mean.p[2, -1])
    assert np.mean(found) == pytest.approx(0.5, abs=0.07)
    assert np.mean(np.array(found) <= 0.1) == pytest.approx(0.1, abs=0.07)


def test_layer_matched_masks_stay_in_their_rows():
    chance = np.random.default_rng(9)
    values, base, observed = chance.random((2, 3, 2, 3)), np.array([0.9, 0.8, 0.7]), chance.random((2, 3, 3))
    found = layer_matched_null(values, base, observed=observed, tasks="abc")
    slow = slow_null(values, base, product(range(2), repeat=3))
    assert (found.masks, found.draws) == (2, 8)
    np.testing.assert_allclose(found.percentages[1].mean, slow[:, 1].mean(0), atol=1e-9)
    np.testing.assert_allclose(found.mean.deviation, slow.mean(1).std(0))
    scores = d_scores(observed, base).mean(0)
    np.testing.assert_allclose(found.mean.p, (1 + (slow.mean(1) >= scores).sum(0)) / 9)
    some = layer_matched_null(chance.random((2, 3, 30, 3)), base, draws=50)
    assert some.draws == 50


def test_one_matched_mask_per_task_is_one_score():
    matrix = np.random.default_rng(1).random((1, 3, 3))
    found = layer_matched_null(matrix[:, :, None], [0.9, 0.8, 0.7])
    np.testing.assert_allclose(found.mean.mean, dissociation(matrix[0], [0.9, 0.8, 0.7]).scores)
    assert found.mean.p is None


def test_a_null_without_a_base_is_marked_in_json():
    chance = np.random.default_rng(3)
    found = null_dissociation(chance.random((1, 4, 3)), [0.9, 0.0, 0.7], observed=chance.random((1, 3, 3)), tasks="abc")
    data = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert data["mean"]["p"]["row"]["tasks"]["b"] is None
    assert data["mean"]["p"]["row"]["tasks"]["a"] > 0
    assert data["percentages"][0]["low"]["column"]["mean"] is not None
    assert null_dissociation(chance.random((1, 4, 3)), [0.9, 0.8, 0.7]).as_dict()["mean"]["p"] is None


@pytest.mark.parametrize(
    ("null", "shape", "options", "message"),
    [
        (null_dissociation, (1, 1, 2), {}, "at least as many random masks R as tasks"),
        (null_dissociation, (1, 5, 3), {}, r"\[1, 5, 3\] for 2 tasks"),
        (null_dissociation, (0, 5, 2), {}, r"\[0, 5, 2\]"),
        (null_dissociation, (1, 5, 2), {"observed": np.zeros((2, 2))}, r"an observed matrix \[2, 2\]"),
        (null_dissociation, (1, 5, 2), {"tasks": ["a"]}, "1 task names"),
        (layer_matched_null, (1, 2, 0, 2), {}, "K and R at least 1"),
        (layer_matched_null, (1, 3, 4, 2), {}, r"\[1, 3, 4, 2\] for 2 tasks"),
        (layer_matched_null, (1, 4, 2), {}, r"expected \[K,2,R,2\]"),
    ],
)
def test_a_null_of_the_wrong_shape_is_refused(null, shape, options, message):
    with pytest.raises(InputError, match=message):
        null(np.ones(shape), [0.9, 0.8], **options)
