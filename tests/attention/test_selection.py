"""Choosing layers and heads."""

import pytest
from conftest import build_batch, build_model

import headwise as hw
from headwise.attention import select
from headwise.errors import InputError

SHAPE = (4, 3)
EVERY = (0, 1, 2)


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ("all", (0, 1, 2, 3)),
        ("first:half", (0, 1)),
        ("last:2", (2, 3)),
        (-1, (3,)),
        ([2, 0], (0, 2)),
        ((1, 1, -3), (1,)),
    ],
)
def test_layers(layers, expected):
    assert select(layers, "all", SHAPE) == dict.fromkeys(expected, EVERY)


def test_heads_layer_by_layer():
    heads = {3: "last:1", 0: [1, 0], -3: 2}
    assert select("all", heads, SHAPE) == {0: (0, 1), 1: (2,), 3: (2,)}
    assert select("last:2", heads, SHAPE) == {3: (2,)}


def test_pairs_of_layer_and_head():
    pairs = [(3, 2), (0, 1), (-1, 0)]
    for choice in (pairs, tuple(pairs), [list(pair) for pair in pairs]):
        assert select("all", choice, SHAPE) == {0: (1,), 3: (0, 2)}
    assert select([0, 1], pairs, SHAPE) == {0: (1,)}
    with pytest.raises(InputError, match=r"heads \(1,\): expected pairs of a layer and a head"):
        select("all", [(1,)], SHAPE)


RANGE = [
    ({"layers": 4}, "layer 4 is out of range: the model has layers 0 to 3"),
    ({"layers": "last:5"}, "layers 'last:5': the model has 4 layers"),
    ({"heads": {0: [5]}}, "head 5 is out of range: the model has heads 0 to 2"),
    ({"heads": {9: [0]}}, "layer 9 is out of range: the model has layers 0 to 3"),
]


@pytest.mark.parametrize(("choice", "message"), RANGE)
def test_out_of_range_says_the_range(choice, message):
    with pytest.raises(InputError) as error:
        select(**{"layers": "all", "heads": "all", **choice}, shape=SHAPE)
    assert message in str(error.value)


@pytest.mark.parametrize("value", ["some", "first:0", "last:²", True, ["1"]])
def test_other_values_say_what_was_expected(value):
    with pytest.raises(
        InputError, match="expected 'all', 'first:N', 'last:N', 'first:half', a number or a list of numbers"
    ) as error:
        select(value, "all", SHAPE)
    assert "layers" in str(error.value)


@pytest.mark.parametrize("choice", [{"layers": []}, {"heads": {0: []}}, {"layers": [0], "heads": {1: [0]}}])
def test_choosing_nothing_is_refused(choice):
    with pytest.raises(InputError):
        select(**{"layers": "all", "heads": "all", **choice}, shape=SHAPE)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"layers": 3}, "layers 0 to 2"),
        ({"what": "maps"}, "did you mean 'map'"),
    ],
)
def test_capture_refuses_a_wrong_choice_before_the_first_pass(choice, message):
    with pytest.raises(InputError, match=message), hw.capture(build_model("bert"), **choice):
        pytest.fail("the with block was entered")


def test_capture_records_what_was_chosen():
    model = build_model("bert").eval()
    with hw.capture(model, layers=[0, -1], heads={0: [3, 1], 2: "first:1"}) as record:
        model(**build_batch())
    assert record.heads == {0: (1, 3), 2: (0,)}
    assert record.maps == [(0, 1), (0, 3), (2, 0)]
