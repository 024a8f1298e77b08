"""What every pattern owes its users. To register a pattern is to be tested here."""

from dataclasses import replace

import pytest
import torch

from headwise.patterns import PATTERNS, Tokens, build_pattern
from headwise.patterns.base import Knowledge

# Before anything else runs: other tests may register more patterns for a while.
NAMES = list(PATTERNS)
LENGTH = 8
# The last example has no token at all, and of one nothing is marked or known; the rest is up to chance.
UNKNOWN = 1
VALID = torch.tensor(
    [
        [1, 1, 1, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 1, 0, 0, 0],
        [0, 0, 0, 1, 1, 1, 1, 1],
        [0, 1, 1, 0, 0, 1, 1, 0],
        [0, 0, 1, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 0],
    ]
).bool()


def tokens_for(pattern):
    """All that a pattern may ask for, on padding too, where it must not be looked at."""
    size, keys = VALID.shape
    something = torch.ones(size).index_fill(0, torch.tensor(UNKNOWN), 0)
    marks = {kind: torch.rand(size, keys) < 0.4 * something[:, None] for kind in pattern.marks}
    if not isinstance(pattern, Knowledge):
        return Tokens(VALID, marks)
    matrix = torch.rand(size, keys, keys) * (torch.rand(size, keys, keys) < 0.3)
    matrix = (matrix + matrix.transpose(1, 2)) * something[:, None, None]
    knowledge = {pattern.entry("map"): matrix, pattern.entry("received"): matrix.mean(1)}
    return Tokens(VALID, marks, knowledge)


def chosen(tokens, examples):
    return Tokens(
        tokens.valid[examples],
        {kind: mark[examples] for kind, mark in tokens.marks.items()},
        {entry: values[examples] for entry, values in tokens.knowledge.items()},
    )


def scattered(tokens, places, length):
    """The same batch with its positions at `places` of a longer one; padding in between is full of everything."""
    return Tokens(
        tokens.valid.new_zeros(len(tokens.valid), length).index_copy(1, places, tokens.valid),
        {kind: _spread(mark, places, length) for kind, mark in tokens.marks.items()},
        {entry: _spread(values, places, length) for entry, values in tokens.knowledge.items()},
    )


def _spread(values, places, length):
    for axis in range(1, values.dim()):
        shape = (*values.shape[:axis], length, *values.shape[axis + 1 :])
        values = values.new_ones(shape).index_copy(axis, places, values)
    return values


@pytest.fixture(params=NAMES)
def pattern(request):
    return build_pattern(request.param)


@pytest.fixture
def tokens(pattern):
    return tokens_for(pattern)


def assert_same(pattern, tokens, target, received):
    found, shares = pattern.target(tokens), pattern.received(tokens)
    torch.testing.assert_close(found.rows, target.rows)
    torch.testing.assert_close(shares.shares, received.shares)
    assert torch.equal(found.present, target.present)
    assert torch.equal(shares.present, received.present)


def part_of(target, received, examples):
    return (
        replace(target, rows=target.rows[examples], present=target.present[examples]),
        replace(received, shares=received.shares[examples], present=received.present[examples]),
    )


def test_the_fixed_patterns_are_here():
    assert {"first", "next", "prev", "delim", "period"} <= set(NAMES)


def test_targets_are_distributions_over_tokens(pattern, tokens):
    target, received = pattern.target(tokens), pattern.received(tokens)
    assert target.rows.shape == (len(VALID), LENGTH, LENGTH)
    assert target.present.shape == received.shares.shape == (len(VALID), LENGTH)
    assert received.present.shape == (len(VALID),)
    assert target.rows.dtype == received.shares.dtype == torch.float32
    assert target.present.dtype == received.present.dtype == torch.bool
    # There is a target unless nothing is marked or known.
    assert target.present[0].any()
    assert received.present[0]
    if pattern.marks or isinstance(pattern, Knowledge):
        assert not target.present[UNKNOWN].any()
        assert not received.present[UNKNOWN]
    # Rows that are present sum to one over tokens, and absent ones are zero.
    assert (target.rows >= 0).all()
    on_tokens = (target.rows * VALID.unsqueeze(1)).sum(2)
    torch.testing.assert_close(on_tokens[target.present], torch.ones(int(target.present.sum())))
    assert not target.rows[~target.present].any()
    assert (received.shares >= 0).all()
    torch.testing.assert_close(received.shares.sum(1), received.present.float())
    # Padding neither has nor is a target.
    assert not target.present[~VALID].any()
    assert not target.rows.transpose(1, 2)[~VALID].any()
    assert not received.shares[~VALID].any()
    assert not received.present[-1]
    assert type(pattern) is PATTERNS[pattern.name]
    assert build_pattern(pattern.name) == pattern
    assert hash(build_pattern({"name": pattern.name})) == hash(pattern)


# -- what changes nothing ----------------------------------------------------------------------------------------------

WIDER = {
    "left": torch.arange(LENGTH) + 3,
    "right": torch.arange(LENGTH),
    "inside": torch.tensor([0, 1, 3, 4, 5, 8, 9, 10]),
}


def test_more_padding_changes_nothing(pattern, tokens):
    target, received = pattern.target(tokens), pattern.received(tokens)
    for places in WIDER.values():
        wide = scattered(tokens, places, LENGTH + 3)
        found, shares = pattern.target(wide), pattern.received(wide)
        torch.testing.assert_close(found.rows[:, places][:, :, places], target.rows)
        assert torch.equal(found.present[:, places], target.present)
        assert found.rows.sum() == pytest.approx(float(target.rows.sum()))
        assert found.present.sum() == target.present.sum()
        torch.testing.assert_close(shares.shares[:, places], received.shares)
        assert torch.equal(shares.present, received.present)
        assert shares.shares.sum() == pytest.approx(float(received.shares.sum()))


def test_an_example_does_not_depend_on_others_nor_on_what_is_not_needed(pattern, tokens):
    before = chosen(tokens, torch.arange(len(VALID)))  # a copy
    target, received = pattern.target(tokens), pattern.received(tokens)
    assert torch.equal(tokens.valid, before.valid)  # the batch is left as it was
    for name in ("marks", "knowledge"):
        for key, values in getattr(tokens, name).items():
            assert torch.equal(values, getattr(before, name)[key])
    for examples in (torch.tensor([3, 0, 5, 2, 4, 1]), *(slice(number, number + 1) for number in range(len(VALID)))):
        assert_same(pattern, chosen(tokens, examples), *part_of(target, received, examples))
    more = replace(
        tokens,
        marks={**tokens.marks, "other": torch.rand(VALID.shape) < 0.5},
        knowledge={**tokens.knowledge, "other:map": torch.rand(len(VALID), LENGTH, LENGTH)},
    )
    assert_same(pattern, more, target, received)
