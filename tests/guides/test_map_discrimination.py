"""MDG: numbers by hand, and its options one by one."""

import math

import pytest
import torch
from guides.reference import NO_INPUTS, random_maps, record_of

import headwise as hw

VALID = torch.ones(1, 2, dtype=torch.bool)
# Map 0: both queries look at key 0 alone: received (2, 0), length one (1, 0).
# Map 1: both give 3/7 to key 0 and 4/7 to key 1: received (6/7, 8/7), length one (0.6, 0.8).
# Their cosine is 0.6, so -log softmax(1, 0.6)_0 = log(1 + exp(-0.4)), and the same for map 1.
BY_HAND = torch.tensor([[[[1.0, 0.0], [1.0, 0.0]], [[3 / 7, 4 / 7], [3 / 7, 4 / 7]]]], dtype=torch.float64)


def mdg(maps, valid=VALID, *, layers=1, **options):
    return hw.MDG(**options)(record_of(maps, valid, layers=layers), NO_INPUTS).item()


def looking_at(*keys):
    """One map per key, whose queries all look at that key alone: [1,S,Q,K]."""
    size = max(keys) + 1
    return torch.stack([torch.nn.functional.one_hot(torch.full((size,), key), size).double() for key in keys])[None]


@pytest.mark.parametrize("tau", [0.5, 3])
def test_by_hand(tau):
    assert mdg(BY_HAND, tau=tau) == pytest.approx(math.log(1 + math.exp(-0.4 / tau)), rel=1e-12)


def test_a_padded_query_has_no_vote():
    padded = torch.zeros(1, 2, 3, 3, dtype=torch.float64)
    padded[:, :, :2, :2] = BY_HAND
    padded[:, 0, 2] = torch.tensor([0.0, 1.0, 0.0])
    valid = torch.tensor([[True, True, False]])
    assert mdg(padded, valid) == pytest.approx(math.log(1 + math.exp(-0.4)), rel=1e-12)


@pytest.mark.parametrize("count", [1, 7])
def test_equal_maps_give_the_log_of_their_number(count):
    valid = torch.ones(1, 5, dtype=torch.bool)
    assert mdg(random_maps(valid, 1).expand(-1, count, -1, -1), valid) == pytest.approx(math.log(count), abs=1e-12)


def test_maps_that_share_no_key_give_the_least_value():
    tau = 0.1
    valid = torch.ones(1, 4, dtype=torch.bool)
    least = math.log(1 + 3 * math.exp(-1 / tau))
    assert mdg(looking_at(0, 1, 2, 3), valid, tau=tau) == pytest.approx(least, rel=1e-12)
    assert mdg(random_maps(valid, 4), valid, tau=tau) > least


def test_contrast_within_a_layer_leaves_other_layers_alone():
    maps = looking_at(0, 0, 1, 1)  # layer 0: two equal maps; layer 1: two equal maps, unlike those of layer 0
    assert mdg(maps, layers=2, contrast="model") == pytest.approx(math.log(2 + 2 * math.exp(-1)), rel=1e-12)
    assert mdg(maps, layers=2, contrast="layer") == pytest.approx(math.log(2), rel=1e-12)
