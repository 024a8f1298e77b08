"""Similarity of tasks by the importance of heads, against loops over heads."""

import json
from itertools import combinations

import numpy as np
import pytest

from headwise.errors import InputError
from headwise.heads.task_similarity import importance_similarity
from headwise.metrics.classification import METRICS


def some_scores(tasks=3, shape=(4, 5)):
    chance = np.random.default_rng(0)
    return {f"task{number}": chance.random(shape) for number in range(tasks)}


def slow_top(scores, count):
    ranked = sorted(np.ndindex(scores.shape), key=lambda head: -scores[head])
    return set(ranked[:count])


def test_importance_is_compared_between_all_tasks():
    scores = some_scores()
    found = importance_similarity(scores, shares=(0.2, 0.5))
    for (i, one), (j, other) in combinations(enumerate(scores.values()), 2):
        for name in ("pearson", "spearman"):
            expected = METRICS[name](one.ravel(), other.ravel())
            assert getattr(found, name)[i, j] == getattr(found, name)[j, i] == pytest.approx(expected)
        for share, count in ((0.2, 4), (0.5, 10)):
            first, second = slow_top(one, count), slow_top(other, count)
            assert found.overlap[share][i, j] == pytest.approx(len(first & second) / len(first | second))
            assert found.per_layer[share][i].tolist() == [sum(head[0] == at for head in first) for at in range(4)]
    assert np.diagonal(found.pearson) == pytest.approx(np.ones(3))
    assert np.diagonal(found.overlap[0.2]) == pytest.approx(np.ones(3))


def test_overlap_by_chance_is_that_of_random_heads():
    found = importance_similarity(some_scores(), shares=(0.2, 1.0)).chance
    heads = set(range(4))
    overlaps = [len(heads & set(other)) / len(heads | set(other)) for other in combinations(range(20), 4)]
    assert found == pytest.approx({0.2: sum(overlaps) / len(overlaps), 1.0: 1.0})


def test_shares_that_mean_no_head_are_left_out_and_all_is_plain_data():
    found = importance_similarity(some_scores(shape=(2, 4)))
    data = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert list(data["overlap"]) == ["0.2", "0.3", "0.5"]
    assert data["per_layer"]["0.5"][0] == [int(count) for count in found.per_layer[0.5][0]]
    assert len(data["spearman"]) == 3


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (some_scores(tasks=1), "importance of task0: similarity needs two tasks"),
        ({}, "importance of no task"),
        ({"a": np.ones((2, 3)), "b": np.ones((3, 2))}, r"importance of a \[2, 3\], b \[3, 2\]"),
        ({"a": np.ones((2, 3)), "b": np.full((2, 3), np.nan)}, "not finite|expected finite"),
        ({"a": np.ones(6), "b": np.ones(6)}, r"expected \[layers,heads\]"),
    ],
)
def test_importance_that_cannot_be_compared_is_refused(scores, message):
    with pytest.raises(InputError, match=message):
        importance_similarity(scores)
