"""Label rules: the truth table of accepting a probe, row by row."""

import math

import numpy
import pytest

from headwise.errors import InputError
from headwise.ssa.config import LABEL_RULES
from headwise.ssa.rules import Judge, build_rule

NAN = float("nan")
CLASSES = Judge("classification")
NUMBERS = Judge("regression", 0.3, 5.0)

A, B, C = [2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 2.0]
# (answer before, answer after, label): what each rule accepts, and the label of hidden tokens. The label is class 0.
TABLE = {
    "right, same": ((A, A), {"reference": (True, 0.0), "probe": (True, 0.0)}),
    "right, other": ((A, B), {"reference": (False, NAN), "probe": (True, 1.0)}),
    "wrong, same": ((B, B), {"reference": (False, NAN), "probe": (False, NAN)}),
    "wrong, then right": ((B, A), {"reference": (False, NAN), "probe": (False, NAN)}),
    "wrong, other wrong": ((B, C), {"reference": (False, NAN), "probe": (False, NAN)}),
}


@pytest.mark.parametrize("row", TABLE)
@pytest.mark.parametrize("name", ["reference", "probe"])
def test_the_truth_table_of_a_classification(name, row):
    (before, after), expected = TABLE[row]
    accepted, values = build_rule(name).judge_probes(
        CLASSES, numpy.array([before]), numpy.array([after]), numpy.array([0.0])
    )
    assert values.dtype == numpy.float32
    numpy.testing.assert_equal((accepted.item(), values.item()), expected[name])


# The label is 3.0, the tolerance 0.3; the edges themselves are accepted.
NUMBER_TABLE = [
    ((3.3, 3.6), {"reference": (True, 0.0), "probe": (True, 0.0)}),
    ((2.7, 2.4), {"reference": (True, 0.0), "probe": (True, 0.0)}),
    ((3.3, 3.60001), {"reference": (False, NAN), "probe": (True, 1.0)}),
    ((2.7, 2.39999), {"reference": (False, NAN), "probe": (True, 1.0)}),
    ((3.30001, 3.0), {"reference": (False, NAN), "probe": (False, NAN)}),
    ((2.69999, 3.0), {"reference": (False, NAN), "probe": (False, NAN)}),
    ((0.0, 0.0), {"reference": (False, NAN), "probe": (False, NAN)}),
]


@pytest.mark.parametrize(("answers", "expected"), NUMBER_TABLE)
@pytest.mark.parametrize("name", ["reference", "probe"])
def test_the_truth_table_of_a_regression(name, answers, expected):
    before, after = (numpy.array([[each]], numpy.float32) for each in answers)
    accepted, values = build_rule(name).judge_probes(NUMBERS, before, after, numpy.array([3.0]))
    numpy.testing.assert_equal((accepted.item(), values.item()), expected[name])


def test_the_soft_rule_accepts_all_and_gives_the_lost_probability():
    before = numpy.log([[3.0, 1.0], [1.0, 3.0], [1.0, 3.0]])
    after = numpy.log([[1.0, 1.0], [1.0, 7.0], [3.0, 1.0]])
    accepted, values = build_rule("soft").judge_probes(CLASSES, before, after, numpy.zeros(3))
    assert accepted.all()
    # From 3/4 to 1/2; from 1/4 to 1/8; and a rise is no drop.
    numpy.testing.assert_allclose(values, [0.25, 0.125, 0.0], atol=1e-7)
    assert values.dtype == numpy.float32


def test_right_examples_are_worth_a_probe_and_for_the_soft_rule_all():
    original, gold = numpy.array([A, B]), numpy.zeros(2)
    worth = {name: build_rule(name).worth(CLASSES, original, gold).tolist() for name in LABEL_RULES}
    assert worth == {"probe": [True, False], "reference": [True, False], "soft": [True, True]}


def test_only_the_reference_rule_speaks_of_tokens_that_were_not_hidden():
    reference = build_rule("reference")
    assert (reference.rest, reference.unprobed) == (1.0, 1.0)
    for name in ("probe", "soft"):
        assert math.isnan(build_rule(name).rest)
        assert math.isnan(build_rule(name).unprobed)


def test_an_unknown_rule_is_refused():
    with pytest.raises(InputError, match="unknown label_rule 'prob': did you mean 'probe'"):
        build_rule("prob")
