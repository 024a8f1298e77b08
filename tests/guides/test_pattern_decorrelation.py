"""PDG: numbers by hand, and its options one by one."""

import pytest
import torch
from guides.reference import NO_INPUTS, random_maps, record_of

import headwise as hw

VALID = torch.ones(1, 2, dtype=torch.bool)
# Received (2, 0) and (6/7, 8/7), length one (1, 0) and (0.6, 0.8), see test_map_discrimination.py. With U of these rows
#
#     U^T U - I = | 1 + 0.36   0.48 | - I = | 0.36   0.48 |     squares: 0.1296 + 0.2304 + 0.2304 + 0.1296 = 0.72
#                 | 0.48       0.64 |       | 0.48  -0.36 |
BY_HAND = torch.tensor([[[[1.0, 0.0], [1.0, 0.0]], [[3 / 7, 4 / 7], [3 / 7, 4 / 7]]]], dtype=torch.float64)


def pdg(maps, valid=VALID, **options):
    return hw.PDG(**options)(record_of(maps, valid), NO_INPUTS).item()


def test_by_hand():
    assert pdg(BY_HAND, reduction="sum") == pytest.approx(0.72, rel=1e-12)
    assert pdg(BY_HAND) == pytest.approx(0.36, rel=1e-12)  # two positions


def test_by_hand_without_normalising():
    # M^T M - I = | 4 + 36/49 - 1   48/49      |   with 36/49 + 3 = 183/49, 64/49 - 1 = 15/49
    #             | 48/49           64/49 - 1  |
    squares = (183**2 + 2 * 48**2 + 15**2) / 49**2
    assert pdg(BY_HAND, normalise=False, reduction="sum") == pytest.approx(squares, rel=1e-12)
    assert pdg(BY_HAND, normalise=False) == pytest.approx(squares / 2, rel=1e-12)


def test_by_hand_padding_neither_votes_nor_counts():
    padded = torch.zeros(1, 2, 3, 3, dtype=torch.float64)
    padded[:, :, :2, :2] = BY_HAND
    padded[:, 0, 2] = torch.tensor([0.0, 1.0, 0.0])
    assert pdg(padded, torch.tensor([[True, True, False]])) == pytest.approx(0.36, rel=1e-12)


@pytest.mark.parametrize("count", [1, 7])
def test_equal_maps(count):
    # U^T U = count * u u^T with |u| = 1: count^2 - 2 count + K
    valid = torch.ones(1, 5, dtype=torch.bool)
    maps = random_maps(valid, 1).expand(-1, count, -1, -1)
    assert pdg(maps, valid, reduction="sum") == pytest.approx(count**2 - 2 * count + 5, rel=1e-12)


@pytest.mark.parametrize(("maps", "expected"), [(3, 0.0), (2, 1.0), (1, 2.0)])
def test_maps_that_share_no_key_leave_the_keys_without_attention(maps, expected):
    valid = torch.ones(1, 3, dtype=torch.bool)
    at_one_key = torch.eye(3, dtype=torch.float64)[:maps, None].expand(maps, 3, 3)[None]
    assert pdg(at_one_key, valid, reduction="sum") == pytest.approx(expected, abs=1e-12)


def test_the_released_mean_over_keys_does_not_depend_on_padding():
    valid = torch.tensor([[True, True, True, False, False]])
    maps = random_maps(valid)
    guide = hw.PDG(preset="released", normalise=False)
    wide = guide(record_of(maps, valid, what="map"), NO_INPUTS)
    narrow = guide(record_of(maps[:, :, :3, :3], valid[:, :3], what="map"), NO_INPUTS)
    torch.testing.assert_close(wide, narrow, rtol=1e-12, atol=0)
