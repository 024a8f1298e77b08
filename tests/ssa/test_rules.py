"""Predictions of the three kinds of task, and the truth table of label rules, row by row."""

import math

import numpy
import pytest

from headwise.errors import InputError
from headwise.ssa.rules import Scorer, score_labels

CLASSES, RANKS, NUMBERS = Scorer("classification"), Scorer("ranking"), Scorer("regression", 0.3, 5.0)
NAN = float("nan")


def column(*numbers):
    return numpy.array(numbers, numpy.float32)[:, None]


def test_a_logit_above_zero_is_label_1_of_a_ranking():
    gold = numpy.array([1.0, 1.0, 0.0, 0.0, 0.0])
    assert RANKS.right(column(0.1, -0.1, -0.1, 0.1, 0.0), gold).tolist() == [True, False, True, False, True]
    assert RANKS.same(column(3.0, 3.0, -1.0), column(0.1, -0.1, -9.0)).tolist() == [True, False, True]


def test_numbers_that_are_the_tolerance_apart_are_the_same():
    """STS-B: labels from 0 to 5, the authors' tolerance of 0.3.

    Every pair is 0.3 apart in decimal, and one float32 step or more on either side of it in binary.
    """
    scorer = Scorer.of("regression", numpy.array([0.0, 3.0, 5.0]), 0.06)
    one, other = numpy.array([(0.3, 0.0), (2.7, 3.0), (3.3, 3.0), (4.1, 3.8), (4.7, 5.0), (-0.3, 0.0)]).T
    further = one + numpy.copysign(1e-5, one - other)
    assert scorer.right(column(*one), other).all()
    assert scorer.same(column(*one), column(*other)).all()
    assert not scorer.right(column(*further), other).any()
    assert not scorer.same(column(*other), column(*further)).any()


def test_a_drop_by_hand():
    # p = (3/4, 1/4) before and (1/4, 3/4) after: class 0 loses one half, class 1 nothing.
    before, after = numpy.log([[3.0, 1.0], [3.0, 1.0]]), numpy.log([[1.0, 3.0], [1.0, 3.0]])
    numpy.testing.assert_allclose(CLASSES.drop(before, after, numpy.array([0, 1])), [0.5, 0.0], atol=1e-12)
    ranked = RANKS.drop(column(math.log(3), math.log(3)), column(-math.log(3), -math.log(3)), numpy.array([1, 0]))
    numpy.testing.assert_allclose(ranked, [0.5, 0.0], atol=1e-7)
    numbers = NUMBERS.drop(column(1.0, 4.0, 0.0), column(2.0, 3.0, 9.0), numpy.ones(3))
    numpy.testing.assert_allclose(numbers, [0.2, 0.2, 1])
    # and of huge logits
    assert CLASSES.drop(numpy.array([[1e4, 0.0]]), numpy.array([[0.0, 1e4]]), numpy.array([0])).tolist() == [1.0]
    assert RANKS.drop(column(1e4, -1e4), column(-1e4, 1e4), numpy.array([1, 0])).tolist() == [1.0, 1.0]


def test_bad_input_is_refused_with_a_sentence():
    with pytest.raises(InputError, match="unknown kind of task 'regresion': did you mean 'regression'"):
        Scorer("regresion")
    with pytest.raises(InputError, match=r"logits of shape \[2, 1\] for a classification.*two or more"):
        CLASSES.right(column(1, 2), numpy.zeros(2))
    with pytest.raises(InputError, match=r"logits of shape \[1, 2\] for a ranking.*one"):
        RANKS.right(numpy.zeros((1, 2)), numpy.zeros(1))
    with pytest.raises(InputError, match="label 2 for a model of 2 classes: expected 0 to 1; set num_labels"):
        CLASSES.right(numpy.zeros((2, 2)), numpy.array([1.0, 2.0]))
    with pytest.raises(InputError, match="label -100 for a model"):
        CLASSES.drop(numpy.zeros((1, 2)), numpy.zeros((1, 2)), numpy.array([-100]))


A, B, C = [2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 2.0]
# Predictions before and after, then for `reference` and `probe`: is it accepted, and the label of hidden tokens.
# The gold label is class 0.
CLASS_TABLE = [
    ((A, A), (True, 0.0), (True, 0.0)),  # right, same
    ((A, B), (False, NAN), (True, 1.0)),  # right, other
    ((B, B), (False, NAN), (False, NAN)),  # wrong, same
    ((B, A), (False, NAN), (False, NAN)),  # wrong, then right
    ((B, C), (False, NAN), (False, NAN)),  # wrong, other wrong
]
# The gold label is 3.0, the tolerance 0.3; the edges themselves are accepted.
NUMBER_TABLE = [
    (([3.3], [3.6]), (True, 0.0), (True, 0.0)),
    (([2.7], [2.4]), (True, 0.0), (True, 0.0)),
    (([3.3], [3.60001]), (False, NAN), (True, 1.0)),
    (([2.7], [2.39999]), (False, NAN), (True, 1.0)),
    (([3.30001], [3.0]), (False, NAN), (False, NAN)),
    (([2.69999], [3.0]), (False, NAN), (False, NAN)),
    (([0.0], [0.0]), (False, NAN), (False, NAN)),
]


@pytest.mark.parametrize("rule", ["reference", "probe"])
@pytest.mark.parametrize(("scorer", "gold", "table"), [(CLASSES, 0.0, CLASS_TABLE), (NUMBERS, 3.0, NUMBER_TABLE)])
def test_the_truth_table(rule, scorer, gold, table):
    before, after = (numpy.array([row[0][side] for row in table], numpy.float32) for side in (0, 1))
    accepted, values = score_labels(rule, scorer, before, after, numpy.full(len(table), gold))
    assert values.dtype == numpy.float32
    expected = [row[1] if rule == "reference" else row[2] for row in table]
    numpy.testing.assert_equal(list(zip(accepted.tolist(), values.tolist(), strict=True)), expected)


def test_the_soft_rule_accepts_all_and_gives_the_lost_probability():
    before = numpy.log([[3.0, 1.0], [1.0, 3.0], [1.0, 3.0]])
    after = numpy.log([[1.0, 1.0], [1.0, 7.0], [3.0, 1.0]])
    accepted, values = score_labels("soft", CLASSES, before, after, numpy.zeros(3))
    assert accepted.all()
    # From 3/4 to 1/2; from 1/4 to 1/8; and a rise is no drop.
    numpy.testing.assert_allclose(values, [0.25, 0.125, 0.0], atol=1e-7)
    assert values.dtype == numpy.float32
