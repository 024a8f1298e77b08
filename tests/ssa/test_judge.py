"""What answers mean, for the three kinds of task."""

import math

import numpy
import pytest

from headwise.errors import InputError
from headwise.ssa.rules import Judge

CLASSES = Judge("classification")
RANKS = Judge("ranking")


def column(*numbers):
    return numpy.array(numbers, numpy.float32)[:, None]


def probability(row, gold):
    return math.exp(row[gold]) / sum(math.exp(each) for each in row)


def test_the_largest_logit_is_the_answer_of_a_classification():
    before = numpy.array([[2.0, 1.0, 0.0], [0.0, 1.0, 3.0], [0.0, 1.0, 0.5]], numpy.float32)
    after = numpy.array([[9.0, 1.0, 8.0], [0.0, 3.1, 3.0], [0.6, 0.5, 0.4]], numpy.float32)
    assert CLASSES.right(before, numpy.array([0.0, 1.0, 1.0])).tolist() == [True, False, True]
    assert CLASSES.same(before, after).tolist() == [True, False, False]


def test_a_logit_above_zero_is_label_1_of_a_ranking():
    gold = numpy.array([1.0, 1.0, 0.0, 0.0, 0.0])
    assert RANKS.right(column(0.1, -0.1, -0.1, 0.1, 0.0), gold).tolist() == [True, False, True, False, True]
    assert RANKS.same(column(3.0, 3.0, -1.0), column(0.1, -0.1, -9.0)).tolist() == [True, False, True]


# STS-B: labels from 0 to 5, the authors' tolerance of 0.3. Every pair below is 0.3 apart as people write numbers, and
# one float32 step or more on either side of it as computers do.
EDGE = [(0.3, 0.0), (2.7, 3.0), (3.3, 3.0), (4.1, 3.8), (4.7, 5.0), (-0.3, 0.0)]


@pytest.mark.parametrize(("one", "other"), EDGE)
def test_numbers_that_are_the_tolerance_apart_are_the_same(one, other):
    judge = Judge.of("regression", numpy.array([0.0, 3.0, 5.0]), 0.06)
    gold = numpy.array([other])
    assert judge.right(column(one), gold).all()
    assert judge.same(column(one), column(other)).all()
    further = one + math.copysign(1e-5, one - other)
    assert not judge.right(column(further), gold).any()
    assert not judge.same(column(other), column(further)).any()


def test_the_tolerance_is_a_part_of_the_range_of_the_labels():
    judge = Judge.of("regression", numpy.array([1.0, -1.0, 3.0]), 0.25)
    assert (judge.tolerance, judge.span) == (1.0, 4.0)


def test_labels_that_are_all_alike_do_not_break_a_regression():
    judge = Judge.of("regression", numpy.array([2.0, 2.0]), 0.1)
    assert judge.right(column(2.1, 2.2), numpy.array([2.0, 2.0])).tolist() == [True, False]


def test_the_drop_of_a_classification_is_the_probability_that_the_label_lost():
    random = numpy.random.default_rng(1)
    before, after = random.normal(0, 3, (2, 50, 4))
    gold = random.integers(0, 4, 50)
    slow = [max(0, probability(old, y) - probability(new, y)) for old, new, y in zip(before, after, gold, strict=True)]
    assert 0 in slow
    numpy.testing.assert_allclose(CLASSES.drop(before, after, gold.astype(float)), slow, atol=1e-12)


def test_a_drop_worked_by_hand():
    # p = (3/4, 1/4) before and (1/4, 3/4) after: class 0 loses one half, class 1 nothing.
    before, after = numpy.log([[3.0, 1.0], [3.0, 1.0]]), numpy.log([[1.0, 3.0], [1.0, 3.0]])
    numpy.testing.assert_allclose(CLASSES.drop(before, after, numpy.array([0, 1])), [0.5, 0.0], atol=1e-12)
    ranked = RANKS.drop(column(math.log(3), math.log(3)), column(-math.log(3), -math.log(3)), numpy.array([1, 0]))
    numpy.testing.assert_allclose(ranked, [0.5, 0.0], atol=1e-7)
    judge = Judge("regression", 0.3, 5.0)
    numpy.testing.assert_allclose(
        judge.drop(column(1.0, 4.0, 0.0), column(2.0, 3.0, 9.0), numpy.ones(3)), [0.2, 0.2, 1]
    )


def test_huge_logits_have_a_drop_too():
    assert CLASSES.drop(numpy.array([[1e4, 0.0]]), numpy.array([[0.0, 1e4]]), numpy.array([0])).tolist() == [1.0]
    assert RANKS.drop(column(1e4, -1e4), column(-1e4, 1e4), numpy.array([1, 0])).tolist() == [1.0, 1.0]


def test_bad_input_is_refused_with_a_sentence():
    with pytest.raises(InputError, match="unknown kind of task 'regresion': did you mean 'regression'"):
        Judge("regresion")
    with pytest.raises(InputError, match=r"tolerance -1, span 1.0: expected a tolerance of 0 or more"):
        Judge("regression", -1)
    with pytest.raises(InputError, match=r"logits of shape \[2, 1\] for a classification.*two or more"):
        CLASSES.right(column(1, 2), numpy.zeros(2))
    with pytest.raises(InputError, match=r"logits of shape \[1, 2\] for a ranking.*one"):
        RANKS.right(numpy.zeros((1, 2)), numpy.zeros(1))
    with pytest.raises(InputError, match="label 2 for a model of 2 classes: expected 0 to 1; set num_labels"):
        CLASSES.right(numpy.zeros((2, 2)), numpy.array([1.0, 2.0]))
    with pytest.raises(InputError, match="label -100 for a model"):
        CLASSES.drop(numpy.zeros((1, 2)), numpy.zeros((1, 2)), numpy.array([-100]))
