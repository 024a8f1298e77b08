"""D-scores against their formulas written out, and by hand."""

import json
import math
from statistics import fmean as mean

import numpy as np
import pytest

from headwise.errors import InputError
from headwise.heads.dissociation import VARIANTS, d_scores, dissociation, dissociations

BASE = (0.9, 0.7)
EXAMPLE = ((0.60, 0.68), (0.88, 0.50))
NAN = math.nan


def slow_scores(matrix, base):
    """Variant -> scores, from the formulas, for tasks that all have a base and were pruned."""
    tasks = range(len(base))
    kept = [[matrix[s][t] / base[t] for t in tasks] for s in tasks]

    return {
        "reference": [100 * (mean(matrix[t][j] for j in tasks if j != t) - matrix[t][t]) / base[t] for t in tasks],
        "row": [100 * (mean(kept[t][j] for j in tasks if j != t) - kept[t][t]) for t in tasks],
        "column": [100 * (mean(kept[s][t] for s in tasks if s != t) - kept[t][t]) for t in tasks],
    }


def of(found, variant):
    return found.scores[VARIANTS.index(variant), :-1]


def random_case(tasks, seed=0):
    chance = np.random.default_rng([seed, tasks])
    return chance.random((tasks, tasks)), chance.uniform(0.2, 1, tasks)


def test_the_example_of_the_specification():
    found = dissociation(EXAMPLE, BASE, tasks=["qnli", "sst-2"])
    assert of(found, "reference") == pytest.approx([8.89, 54.29], abs=0.005)
    assert of(found, "row") == pytest.approx([30.476, 26.349], abs=0.001)
    assert of(found, "column") == pytest.approx([31.11, 25.71], abs=0.005)
    assert found.means == pytest.approx({"reference": 31.59, "row": 28.41, "column": 28.41}, abs=0.005)
    assert found.retained == pytest.approx(np.array([[2 / 3, 0.68 / 0.7], [0.88 / 0.9, 5 / 7]]))
    assert found.double == {("qnli", "sst-2"): True}
    assert found.undefined == {}
    # No effect is no dissociation, except by the authors' formula.
    found = dissociation([BASE, BASE], BASE)
    assert (found.scores[1:] == 0).all()
    assert of(found, "reference") == pytest.approx([-22.222, 28.571], abs=1e-3)
    assert found.double == {("0", "1"): False}
    # Nor is it if all tasks fall to the same share.
    base = np.array([0.9, 0.7, 0.3])
    found = dissociation(np.outer([1 / 3, 1 / 3, 1 / 3], base), base)
    assert np.abs(found.scores[1:]).max() < 1e-10
    assert set(found.double.values()) == {False}


def test_scores_follow_their_formulas_and_row_and_column_have_one_mean():
    tasks = 5
    matrix, base = random_case(tasks)
    found = dissociation(matrix, base)
    for variant, expected in slow_scores(matrix, base).items():
        assert of(found, variant) == pytest.approx(expected)
        assert found.means[variant] == pytest.approx(sum(expected) / tasks)
    assert found.means["row"] == pytest.approx(found.means["column"], abs=1e-10)
    matrices, bases = np.stack([[matrix, matrix / 2]] * 4), np.random.default_rng(1).uniform(-0.2, 1, (4, 1, tasks))
    scores = d_scores(matrices, bases)
    for at in np.ndindex(4, 2):
        np.testing.assert_array_equal(scores[at], d_scores(matrices[at], bases[at[0], 0]))


def test_a_double_dissociation_needs_both_sides():
    for matrix, base, expected in (
        ([[0.8, 0.6], [0.9, 0.4]], [1.0, 0.6], True),  # by shares of the base, not by metrics
        ([[0.5, 0.6], [0.4, 0.5]], [1.0, 1.0], False),  # only the first is hurt more by its own heads
        ([[0.7, 0.6], [0.6, 0.5]], [1.0, 1.0], False),  # only the second
        ([[0.6, 0.6], [0.6, 0.5]], [1.0, 1.0], False),  # as much is not more
        ([[0.1 * 0.5, 0.1 * 0.8], [0.7 * 0.5, 0.7 * 0.8]], [0.5, 0.8], False),  # more only by rounding
    ):
        assert dissociation(matrix, base).double == {("0", "1"): expected}


@pytest.mark.parametrize(("bad", "reason"), [(0.0, "is 0: there is nothing"), (-0.1, "is -0.1"), (NAN, "not a number")])
def test_tasks_without_a_base_have_no_score_and_the_others_are_compared_without_them(bad, reason):
    matrix, base = random_case(4)
    base[1] = bad
    found = dissociation(matrix, base, tasks=("rte", "cola", "sst2", "sick"))
    assert list(found.undefined) == ["cola"]
    assert reason in found.undefined["cola"]
    assert np.isnan(found.scores[:, 1]).all()
    assert np.isnan(found.retained[:, 1]).all()
    rest = [0, 2, 3]
    alone = dissociation(matrix[rest][:, rest], base[rest], tasks=("rte", "sst2", "sick"))
    np.testing.assert_allclose(found.scores[:, [0, 2, 3, 4]], alone.scores)
    assert found.double == {pair: alone.double.get(pair) for pair in found.double}
    assert found.double["rte", "cola"] is None
    assert found.double["rte", "sst2"] is not None
    # One task that is left is not enough.
    found = dissociation(EXAMPLE, (0.9, bad), tasks=("rte", "cola"))
    assert np.isnan(found.scores).all()
    assert found.undefined["rte"] == "no other task has a metric above 0 to compare with"
    assert found.double == {("rte", "cola"): None}


def test_a_task_that_was_not_pruned_has_no_score_but_is_compared_with():
    matrix, base = random_case(3)
    matrix[1] = NAN
    found = dissociation(matrix, base, tasks="abc")
    assert found.undefined == {"b": "its heads were not pruned"}
    assert np.isnan(found.scores[:, 1]).all()
    kept = matrix / base
    assert of(found, "row")[0] == pytest.approx(100 * ((kept[0, 1] + kept[0, 2]) / 2 - kept[0, 0]))
    assert of(found, "column")[0] == pytest.approx(100 * (kept[2, 0] - kept[0, 0]))
    assert found.means["row"] == pytest.approx(of(found, "row")[[0, 2]].mean())
    assert [flag is None for flag in found.double.values()] == [True, False, True]
    found = dissociation([[0.6, 0.68], [NAN, NAN]], BASE, tasks="ab")
    assert of(found, "row")[0] == pytest.approx(30.476, abs=1e-3)
    assert np.isnan(of(found, "column")[0])
    assert "by column" in found.undefined["a"]


def test_json_has_null_for_what_is_no_number():
    found = dissociation([[0.6, 0.68, 0.1], [0.88, 0.5, 0.2], [NAN, NAN, NAN]], (0.9, 0.7, 0.0), tasks="abc")
    data = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert data["tasks"] == ["a", "b", "c"]
    assert data["retained"][0][2] is None
    assert data["row"]["tasks"]["c"] is None
    assert data["column"]["mean"] == pytest.approx(28.41, abs=0.005)
    pairs = [{"tasks": ["a", "b"], "holds": True}, {"tasks": ["a", "c"], "holds": None}]
    assert data["double_dissociation"][:2] == pairs
    assert list(data["undefined"]) == ["c"]
    assert dissociation(EXAMPLE, (5e-324, 0.7)).as_dict()["reference"]["tasks"]["0"] is None


def test_the_mean_over_percentages_is_that_of_the_mean_matrix():
    chance = np.random.default_rng(5)
    matrices, base = chance.random((3, 3, 3)), np.array([0.9, 0.7, -0.1])
    *steps, found = dissociations(matrices, base, tasks="abc")
    assert [each.as_dict() for each in steps] == [dissociation(each, base, tasks="abc").as_dict() for each in matrices]
    expected = dissociation(matrices.mean(0), base, tasks="abc")
    np.testing.assert_allclose(found.scores, expected.scores)
    np.testing.assert_allclose(found.retained, expected.retained)
    assert (found.double, found.undefined) == (expected.double, expected.undefined)
    with pytest.raises(InputError, match="no percentages to take the mean of"):
        dissociations([], base)


def test_bad_input_is_refused_in_one_sentence():
    for matrix, base, tasks, message in (
        ([[0.5]], [0.9], ["rte"], r"expected two or more, got one task \(rte\); train with `tasks:`"),
        ([[0.5, 0.6]], BASE, [], r"a matrix \[1, 2\], a base \[2\]"),
        (EXAMPLE, BASE, ["rte"], "1 task names"),
        (EXAMPLE, BASE, ["rte", "rte"], "each name once"),
        ([[0.5, NAN], [0.5, 0.5]], BASE, ["a", "b"], r"the row of task a is \[0.5, nan\]"),
    ):
        with pytest.raises(InputError, match=message):
            dissociation(matrix, base, tasks=tasks)
