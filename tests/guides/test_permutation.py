"""The permutation behind the controls of guides with targets."""

import torch

import headwise as hw
from headwise.attention import Inputs
from headwise.guides.base import token_permutation

GUIDE = hw.MDG()


def permuted(ids, valid, eligible):
    return token_permutation(GUIDE, Inputs(ids, valid.long(), None), valid, eligible)


def batch(count=200, length=12):
    torch.manual_seed(0)
    ids = torch.randint(5, 100, (count, length))
    eligible = torch.rand(count, length) < 0.6
    return ids, torch.ones_like(eligible), eligible


def test_only_eligible_positions_change_places():
    ids, valid, eligible = batch()
    permutation = permuted(ids, valid, eligible)
    assert torch.equal(permutation.sort(1).values, torch.arange(ids.shape[1]).expand_as(ids))
    assert torch.equal(eligible.gather(1, permutation), eligible)
    assert torch.equal(permutation[~eligible], torch.arange(ids.shape[1]).expand_as(ids)[~eligible])


def test_every_eligible_position_is_as_likely_as_any_other():
    ids, valid, _ = batch(20000, 6)
    eligible = valid.clone()
    eligible[:, 2] = False
    counts = torch.zeros(6, 6)
    permutation = permuted(ids, valid, eligible)
    for place in range(6):
        counts[place] = torch.bincount(permutation[:, place], minlength=6) / 20000
    expected = torch.full((6, 6), 1 / 5)
    expected[2], expected[:, 2] = 0, 0
    expected[2, 2] = 1
    assert (counts - expected).abs().max() < 0.02  # five standard deviations are 0.014


def test_it_does_not_depend_on_padding_order_or_batch():
    ids, valid, eligible = batch(8)
    permutation = permuted(ids, valid, eligible)
    nothing = torch.zeros(8, 3, dtype=torch.long)
    for pad in (lambda x: torch.cat([x, nothing.to(x.dtype)], 1), lambda x: torch.cat([nothing.to(x.dtype), x], 1)):
        longer = permuted(pad(ids), pad(valid), pad(eligible))
        shift = 0 if pad(valid)[0, 0] else 3
        assert torch.equal(longer[:, shift : shift + 12] - shift, permutation)
    assert torch.equal(permuted(ids.flip(0), valid, eligible.flip(0)).flip(0), permutation)
    assert torch.equal(permuted(ids[3:4], valid[:1], eligible[3:4]), permutation[3:4])
