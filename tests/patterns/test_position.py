"""first, next and prev: by hand, against plain loops over tokens, and wherever the padding stands."""

import itertools

import pytest
import torch

from headwise.errors import InputError
from headwise.patterns import First, Next, Prev, Tokens, build_pattern

NAMES = ["first", "next", "prev"]


def target(name, valid):
    return build_pattern(name).target(Tokens(torch.tensor(valid, dtype=torch.bool)))


def slow_rows(name, valid):
    """[Q][K] of one example: walk over its tokens, and forget the padding."""
    places = [place for place, token in enumerate(valid) if token]
    rows = [[0.0] * len(valid) for _ in valid]
    for number, query in enumerate(places):
        wanted = {"first": 0, "next": number + 1, "prev": number - 1}[name]
        if 0 <= wanted < len(places):
            rows[query][places[wanted]] = 1.0
    return rows


# -- by hand -----------------------------------------------------------------------------------------------------------

BY_HAND = {
    "first": [[1, 0, 0], [1, 0, 0], [1, 0, 0]],
    "next": [[0, 1, 0], [0, 0, 1], [0, 0, 0]],
    "prev": [[0, 0, 0], [1, 0, 0], [0, 1, 0]],
}
PRESENT = {"first": [True, True, True], "next": [True, True, False], "prev": [False, True, True]}


@pytest.mark.parametrize("name", NAMES)
def test_three_tokens_by_hand(name):
    found = target(name, [[1, 1, 1]])
    assert found.rows.tolist() == [BY_HAND[name]]
    assert found.present.tolist() == [PRESENT[name]]
    assert (found.rows.dtype, found.present.dtype) == (torch.float32, torch.bool)


# -- the slow way ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_equals_the_slow_loops_on_every_mask_of_six_positions(name):
    masks = list(itertools.product([False, True], repeat=6))  # also one token, and none
    found = target(name, masks)
    expected = torch.tensor([slow_rows(name, mask) for mask in masks])
    assert torch.equal(found.rows, expected)
    assert torch.equal(found.present, expected.any(2))


def test_received_shares_by_hand():
    tokens = Tokens(torch.tensor([[1, 1, 1, 0]]).bool())
    assert First().received(tokens).shares.tolist() == [[1, 0, 0, 0]]
    assert Next().received(tokens).shares.tolist() == [[0, 0.5, 0.5, 0]]
    assert Prev().received(tokens).shares.tolist() == [[0.5, 0.5, 0, 0]]


def test_they_work_where_no_number_can_be_read():
    # The meta device refuses .item() and Python loops over values, which a GPU would pay for by waiting.
    found = Next().target(Tokens(torch.ones(2, 5, dtype=torch.bool, device="meta")))
    assert (found.rows.shape, found.rows.device.type) == ((2, 5, 5), "meta")


@pytest.mark.parametrize("name", NAMES)
def test_they_have_no_options(name):
    with pytest.raises(InputError, match=f"pattern {name} has no option 'step'"):
        build_pattern({"name": name, "step": 2})
