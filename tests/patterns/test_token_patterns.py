"""delim and period: by hand, against plain loops, and with examples that have no such token."""

import pytest
import torch

from headwise.errors import InputError
from headwise.patterns import Delim, Period, Tokens

CASES = [pytest.param(Delim(), "separator", id="delim"), pytest.param(Period(), "full-stop", id="period")]


def tokens_of(kind, valid, marked):
    return Tokens(torch.tensor(valid).bool(), {kind: torch.tensor(marked).bool()})


def slow_rows(valid, marked):
    """[Q][K] of one example."""
    keys = [key for key in range(len(valid)) if valid[key] and marked[key]]
    return [[1 / len(keys) if query and key in keys else 0.0 for key in range(len(valid))] for query in valid]


@pytest.mark.parametrize(("pattern", "kind"), CASES)
def test_three_tokens_by_hand(pattern, kind):
    found = pattern.target(tokens_of(kind, [[1, 1, 1]], [[0, 1, 1]]))
    assert found.rows.tolist() == [[[0, 0.5, 0.5]] * 3]
    assert found.present.tolist() == [[True] * 3]
    assert found.rows.dtype == torch.float32


@pytest.mark.parametrize(("pattern", "kind"), CASES)
def test_equals_the_slow_loops(pattern, kind):
    valid, marked = torch.rand(20, 9) < 0.7, torch.rand(20, 9) < 0.4
    found = pattern.target(Tokens(valid, {kind: marked}))
    some = (valid & marked).any(1)
    assert 0 < some.sum()
    for example in some.nonzero().flatten():
        expected = torch.tensor(slow_rows(valid[example].tolist(), marked[example].tolist()))
        torch.testing.assert_close(found.rows[example], expected)
    assert torch.equal(found.present, valid & some.unsqueeze(1))


@pytest.mark.parametrize(("pattern", "kind"), CASES)
def test_a_batch_that_does_not_know_the_kind_is_refused(pattern, kind):
    other = {"separator": "full-stop", "full-stop": "separator"}[kind]
    tokens = Tokens(torch.ones(1, 2).bool(), {other: torch.ones(1, 2).bool()})
    with pytest.raises(InputError, match=f"pattern {pattern.name} cannot tell which tokens are a {kind}"):
        pattern.target(tokens)
    assert pattern.marks == (kind,)
