"""Entropy: a loop over tokens and keys, cases by hand, and what moves where."""

import math

import pytest
import torch
from conftest import build_batch, build_model
from guides.reference import NO_INPUTS, assert_same_gradients, random_maps, record_of

import headwise as hw
from headwise.errors import InputError

VALID = torch.arange(7) < torch.tensor([[7], [4], [2], [1]])
SPECIAL = VALID & (torch.arange(7) == 0)


def slow_entropy(maps, on, direction, special_tokens):
    """A mean over examples of a mean over heads (and tokens) of normalised entropies; one token has none."""
    examples = []
    for example, tokens, special in zip(maps, VALID.tolist(), SPECIAL.tolist(), strict=True):
        real = [place for place, is_token in enumerate(tokens) if is_token]
        counted = [place for place in real if special_tokens or not special[place]]
        values = []
        for head in example:
            if on == "map":
                rows, size = [[head[query, key] for key in real] for query in counted], len(real)
            else:
                received = [sum(head[query, key] for query in real) for key in counted]
                rows, size = [[each / sum(received) for each in received]], len(counted)
            values += [-sum(p * torch.log(p) for p in row) / math.log(size) for row in rows if size > 1]
        if values:
            mean = torch.stack(values).mean()
            examples.append(1 - mean if direction == "raise" else mean)
    return torch.stack(examples).mean()


@pytest.mark.parametrize("on", ["map", "received"])
@pytest.mark.parametrize("direction", ["raise", "lower"])
@pytest.mark.parametrize("special_tokens", [True, False])
def test_equals_the_slow_reference(on, direction, special_tokens):
    torch.manual_seed(0)
    maps = random_maps(VALID)
    guide = hw.Entropy(on=on, direction=direction, special_tokens=special_tokens)
    value = guide(record_of(maps, VALID, layers=2, what=on, special=SPECIAL), NO_INPUTS)
    expected = slow_entropy(maps, on, direction, special_tokens)
    torch.testing.assert_close(value, expected, rtol=1e-6, atol=0)
    found, wanted = (torch.autograd.grad(each, maps)[0] for each in (value, expected))
    assert_same_gradients({"maps": found}, {"maps": wanted}, 1e-6)


def test_by_hand():
    valid = torch.ones(1, 4).bool()
    rows = torch.tensor([[1 / 4] * 4, [1 / 2, 1 / 2, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]])
    record = record_of(rows[None, None], valid, what="map")
    # log 4, log 2, 0 and 0, of log 4 each: 1, 1/2, 0 and 0.
    assert float(hw.Entropy(direction="lower")(record, NO_INPUTS)) == pytest.approx(1.5 / 4)
    assert float(hw.Entropy()(record, NO_INPUTS)) == pytest.approx(2.5 / 4)
    # Even shares of what is received, although each row looks at one token.
    record = record_of(torch.eye(4)[None, None], valid)
    assert float(hw.Entropy(on="received")(record, NO_INPUTS)) == pytest.approx(0, abs=1e-6)


def test_length_makes_no_difference():
    for size in (2, 5, 40):
        maps = torch.full((1, 1, size, size), 1 / size)
        record = record_of(maps, torch.ones(1, size).bool(), what="map")
        assert float(hw.Entropy(direction="lower")(record, NO_INPUTS)) == pytest.approx(1)


@pytest.mark.parametrize("direction", ["raise", "lower"])
def test_training_moves_entropy_that_way(direction):
    batch, model = build_batch(), build_model("bert").train()

    def entropy():
        with torch.no_grad(), hw.capture(model.eval(), what="map") as record:
            model(**batch)
        model.train()
        return float(hw.Entropy(direction="lower")(record, NO_INPUTS))

    before = entropy()
    hw.guide(model, hw.Entropy(direction=direction, weight=10.0))
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(10):
        optimiser.zero_grad()
        model(**batch).loss.backward()
        optimiser.step()
    hw.unguide(model)
    change = entropy() - before
    assert change > 0 if direction == "raise" else change < -0.05


def test_it_has_no_shuffled_twin():
    with pytest.raises(InputError, match="entropy has no option 'shuffle'.*direction"):
        hw.Entropy(shuffle=True)
    with pytest.raises(InputError, match="expected one of 'raise', 'lower'"):
        hw.Entropy(direction="up")
