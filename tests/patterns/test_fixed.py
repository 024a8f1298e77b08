"""Fixed patterns: against plain loops over tokens, wherever the padding is."""

import itertools

import pytest
import torch

from headwise.errors import InputError
from headwise.patterns import Delim, First, Next, Period, Prev, Tokens, build_pattern

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


@pytest.mark.parametrize("name", NAMES)
def test_positions_equal_slow_loops_on_every_mask(name):
    masks = list(itertools.product([False, True], repeat=6))  # also one token, and none
    found = target(name, masks)
    assert (found.rows.dtype, found.present.dtype) == (torch.float32, torch.bool)
    expected = torch.tensor([slow_rows(name, mask) for mask in masks])
    assert torch.equal(found.rows, expected)
    assert torch.equal(found.present, expected.any(2))
    with pytest.raises(InputError, match=f"pattern {name} has no option 'step'"):
        build_pattern({"name": name, "step": 2})


def test_received_shares_by_hand():
    tokens = Tokens(torch.tensor([[1, 1, 1, 0]]).bool())
    assert First().received(tokens).shares.tolist() == [[1, 0, 0, 0]]
    assert Next().received(tokens).shares.tolist() == [[0, 0.5, 0.5, 0]]
    assert Prev().received(tokens).shares.tolist() == [[0.5, 0.5, 0, 0]]
    # The meta device refuses .item() and Python loops over values, which a GPU would pay for by waiting.
    found = Next().target(Tokens(torch.ones(2, 5, dtype=torch.bool, device="meta")))
    assert (found.rows.shape, found.rows.device.type) == ((2, 5, 5), "meta")


@pytest.mark.parametrize(
    ("pattern", "kind"), [(Delim(), "separator"), (Period(), "full-stop")], ids=["delim", "period"]
)
def test_marks_equal_slow_loops(pattern, kind):
    valid, marked = torch.rand(20, 9) < 0.7, torch.rand(20, 9) < 0.4
    found = pattern.target(Tokens(valid, {kind: marked}))
    some = (valid & marked).any(1)
    assert 0 < some.sum()
    for example in some.nonzero().flatten():
        keys = [key for key in range(9) if valid[example, key] and marked[example, key]]
        rows = [[1 / len(keys) if query and key in keys else 0.0 for key in range(9)] for query in valid[example]]
        torch.testing.assert_close(found.rows[example], torch.tensor(rows))
    assert torch.equal(found.present, valid & some.unsqueeze(1))
    assert pattern.marks == (kind,)
    with pytest.raises(InputError, match=f"pattern {pattern.name} does not know which tokens are a {kind}"):
        pattern.target(Tokens(valid, {"other": marked}))
