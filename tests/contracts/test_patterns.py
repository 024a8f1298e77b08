"""What every pattern owes its users. To register a pattern is to be tested here."""

from dataclasses import replace

import pytest
import torch

from headwise.patterns import PATTERNS, Tokens, build_pattern
from headwise.patterns.base import Knowledge

# Before anything else runs: other tests may register patterns of their own for a while.
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


def assert_same_target(found, expected):
    torch.testing.assert_close(found.rows, expected.rows)
    assert torch.equal(found.present, expected.present)


def assert_same_received(found, expected):
    torch.testing.assert_close(found.shares, expected.shares)
    assert torch.equal(found.present, expected.present)


# -- targets -----------------------------------------------------------------------------------------------------------


def test_the_fixed_patterns_are_here():
    assert {"first", "next", "prev", "delim", "period"} <= set(NAMES)


def test_shapes_and_types(pattern, tokens):
    target, received = pattern.target(tokens), pattern.received(tokens)
    assert target.rows.shape == (len(VALID), LENGTH, LENGTH)
    assert target.present.shape == received.shares.shape == (len(VALID), LENGTH)
    assert received.present.shape == (len(VALID),)
    assert target.rows.dtype == received.shares.dtype == torch.float32
    assert target.present.dtype == received.present.dtype == torch.bool


def test_there_is_a_target_unless_nothing_is_marked_or_known(pattern, tokens):
    target, received = pattern.target(tokens), pattern.received(tokens)
    assert target.present[0].any()
    assert received.present[0]
    if pattern.marks or isinstance(pattern, Knowledge):
        assert not target.present[UNKNOWN].any()
        assert not received.present[UNKNOWN]


def test_present_rows_are_distributions_over_tokens(pattern, tokens):
    target = pattern.target(tokens)
    assert (target.rows >= 0).all()
    on_tokens = (target.rows * VALID.unsqueeze(1)).sum(2)
    torch.testing.assert_close(on_tokens[target.present], torch.ones(int(target.present.sum())))


def test_absent_rows_are_zero(pattern, tokens):
    target = pattern.target(tokens)
    assert not target.rows[~target.present].any()


def test_padding_neither_has_nor_is_a_target(pattern, tokens):
    target, received = pattern.target(tokens), pattern.received(tokens)
    assert not target.present[~VALID].any()
    assert not target.rows[~VALID].any()
    assert not target.rows.transpose(1, 2)[~VALID].any()
    assert not received.shares[~VALID].any()
    assert not received.present[-1]


def test_received_shares_sum_to_one_where_they_are(pattern, tokens):
    received = pattern.received(tokens)
    assert received.present.any()
    assert (received.shares >= 0).all()
    torch.testing.assert_close(received.shares.sum(1), received.present.float())


# -- what changes nothing ----------------------------------------------------------------------------------------------

WIDER = {
    "left": torch.arange(LENGTH) + 3,
    "right": torch.arange(LENGTH),
    "inside": torch.tensor([0, 1, 3, 4, 5, 8, 9, 10]),
}


@pytest.mark.parametrize("side", WIDER)
def test_more_padding_changes_nothing(pattern, tokens, side):
    places = WIDER[side]
    wide = scattered(tokens, places, LENGTH + 3)
    target, received = pattern.target(wide), pattern.received(wide)
    expected = pattern.target(tokens)
    assert_same_target(
        replace(target, rows=target.rows[:, places][:, :, places], present=target.present[:, places]), expected
    )
    assert target.rows.sum() == pytest.approx(float(expected.rows.sum()))
    assert target.present.sum() == expected.present.sum()
    assert_same_received(replace(received, shares=received.shares[:, places]), pattern.received(tokens))
    assert received.shares.sum() == pytest.approx(float(pattern.received(tokens).shares.sum()))


def test_the_order_of_examples_does_not_matter(pattern, tokens):
    order = torch.tensor([3, 0, 5, 2, 4, 1])
    target, received = pattern.target(tokens), pattern.received(tokens)
    shuffled = chosen(tokens, order)
    assert_same_target(
        pattern.target(shuffled), replace(target, rows=target.rows[order], present=target.present[order])
    )
    expected = replace(received, shares=received.shares[order], present=received.present[order])
    assert_same_received(pattern.received(shuffled), expected)


def test_an_example_alone_is_the_same_as_in_a_batch(pattern, tokens):
    target, received = pattern.target(tokens), pattern.received(tokens)
    for example in range(len(VALID)):
        part = slice(example, example + 1)
        alone = chosen(tokens, part)
        assert_same_target(pattern.target(alone), replace(target, rows=target.rows[part], present=target.present[part]))
        expected = replace(received, shares=received.shares[part], present=received.present[part])
        assert_same_received(pattern.received(alone), expected)


def test_marks_and_knowledge_that_it_did_not_ask_for_change_nothing(pattern, tokens):
    more = replace(
        tokens,
        marks={**tokens.marks, "other": torch.rand(VALID.shape) < 0.5},
        knowledge={**tokens.knowledge, "other:map": torch.rand(len(VALID), LENGTH, LENGTH)},
    )
    assert_same_target(pattern.target(more), pattern.target(tokens))
    assert_same_received(pattern.received(more), pattern.received(tokens))


def test_the_batch_is_left_as_it_was(pattern, tokens):
    before = chosen(tokens, torch.arange(len(VALID)))  # a copy
    pattern.target(tokens)
    pattern.received(tokens)
    assert torch.equal(tokens.valid, before.valid)
    for name in ("marks", "knowledge"):
        for key, values in getattr(tokens, name).items():
            assert torch.equal(values, getattr(before, name)[key])


def test_it_is_found_by_its_name_and_equal_to_its_like(pattern):
    assert type(pattern) is PATTERNS[pattern.name]
    assert build_pattern(pattern.name) == pattern
    assert hash(build_pattern({"name": pattern.name})) == hash(pattern)
