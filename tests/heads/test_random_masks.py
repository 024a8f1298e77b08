"""Which heads are silenced by chance: rules that always hold, and frequencies against all masks that are allowed."""

from collections import Counter
from itertools import combinations, product
from math import comb, prod

import numpy as np
import pytest

from headwise.errors import InputError
from headwise.heads.pruning import cumulative_masks, layer_matched_masks, random_masks


def contains(larger, smaller):
    return bool((larger | ~smaller).all())


@pytest.mark.parametrize("shape", [(6, 12), (24, 16), (5, 3)])
@pytest.mark.parametrize("keep", [0, 1, 2])
@pytest.mark.parametrize("seed", [0, 7])
def test_random_masks_obey_and_nest(shape, keep, seed):
    most = shape[0] * shape[1] - max(1, keep * shape[0])
    counts = [most // 2 or 1, 1, most, most // 3 or 1]
    table = random_masks(shape, counts, 6, seed, keep_per_layer=keep)
    assert (len(table), len(table[0])) == (4, 6)
    for masks, count in zip(table, counts, strict=True):
        for mask in masks:
            assert mask.shape == shape
            assert mask.dtype == bool
            assert mask.sum() == count
            assert ((~mask).sum(1) >= keep).all()
    for repeat in zip(*table, strict=True):
        ordered = sorted(repeat, key=np.sum)
        assert all(contains(larger, smaller) for smaller, larger in zip(ordered, ordered[1:], strict=False))


def test_random_masks_nest_from_head_to_head():
    counts = list(range(1, 21))
    for repeat in zip(*random_masks((5, 6), counts, 20, 3, keep_per_layer=2), strict=True):
        assert all(contains(larger, smaller) for smaller, larger in zip(repeat, repeat[1:], strict=False))


def allowed(shape, count, keep):
    """Every mask that leaves `keep` heads in each layer, as the places of its heads."""
    places = combinations(range(shape[0] * shape[1]), count)
    return [each for each in places if max(Counter(place // shape[1] for place in each).values()) <= shape[1] - keep]


def distance(found, expected):
    """Chi-squared of counts, in standard deviations from what chance gives."""
    freedom = len(expected) - 1
    total = sum((found[each] - number) ** 2 / number for each, number in expected.items())
    return abs(total - freedom) / np.sqrt(2 * freedom)


@pytest.mark.parametrize("keep", [0, 1])
def test_random_masks_are_uniform_among_those_allowed(keep):
    repeats, counts = 3000, [3, 5]
    for masks, count in zip(random_masks((3, 3), counts, repeats, 1, keep_per_layer=keep), counts, strict=True):
        possible = allowed((3, 3), count, keep)
        found = Counter(tuple(np.flatnonzero(mask).tolist()) for mask in masks)
        assert set(found) <= set(possible)
        assert distance(found, dict.fromkeys(possible, repeats / len(possible))) < 3.5


def test_random_masks_spread_over_the_layers_as_all_allowed_masks_do():
    # Drawing head by head and skipping full layers is wrong by 9 % here.
    repeats, layers, heads, keep, count = 4000, 4, 6, 2, 14
    ways = Counter()
    for each in product(range(heads - keep + 1), repeat=layers):
        if sum(each) == count:
            ways[tuple(sorted(each))] += prod(comb(heads, lost) for lost in each)
    (masks,) = random_masks((layers, heads), [count], repeats, 2, keep_per_layer=keep)
    found = Counter(tuple(sorted(mask.sum(1).tolist())) for mask in masks)
    expected = {each: repeats * number / ways.total() for each, number in ways.items()}
    assert distance(found, expected) < 3.5


def test_chance_is_decided_by_the_seed_and_differs_between_repeats():
    first, again, other = (random_masks((6, 12), [20], 5, seed) for seed in (1, 1, 2))
    assert all((one == two).all() for one, two in zip(first[0], again[0], strict=True))
    assert all((one != two).any() for one, two in zip(first[0], other[0], strict=True))
    assert all((one != two).any() for one, two in combinations(first[0], 2))
    longer = random_masks((6, 12), [20, 30], 8, 1)
    assert all((one == two).all() for one, two in zip(first[0], longer[0], strict=False))


def test_repeats_are_independent():
    masks = np.stack(random_masks((4, 5), [8], 4000, 0)[0]).reshape(4000, 20).astype(float)
    assert np.abs(masks.mean(0) - 0.4).max() < 0.035
    follow = np.corrcoef(masks[:-1].T, masks[1:].T)[:20, 20:]
    assert np.abs(follow).max() < 0.07


@pytest.mark.parametrize("shape", [(1, 2), (3, 4), (6, 12), (24, 16), (5, 3)])
def test_layer_matched_masks_have_as_many_heads_in_each_layer(shape):
    scores = np.random.default_rng(0).random(shape)
    (like,) = cumulative_masks(scores, [max(1, shape[0] * shape[1] // 3)])
    masks = layer_matched_masks(like, 5, seed=4)
    assert all((mask.sum(1) == like.sum(1)).all() for mask in masks)
    assert all(mask.dtype == bool for mask in masks)
    assert all((one == two).all() for one, two in zip(masks, layer_matched_masks(like, 5, seed=4), strict=True))
    if like.size > 20:
        assert all((one != two).any() for one, two in combinations([*masks, *layer_matched_masks(like, 5, seed=5)], 2))


def test_layer_matched_masks_are_uniform_within_a_layer():
    like = np.array([[True, True, False, False], [False, False, False, True]])
    masks = np.stack(layer_matched_masks(like, 3000, seed=0))
    pairs = Counter(tuple(np.flatnonzero(mask[0]).tolist()) for mask in masks)
    assert len(pairs) == 6
    assert max(abs(count - 500) for count in pairs.values()) < 85
    assert np.abs(masks[:, 1].mean(0) - 0.25).max() < 0.035


@pytest.mark.parametrize("like", [np.ones((2, 3)), np.ones(3, dtype=bool)])
def test_only_masks_can_be_matched(like):
    with pytest.raises(InputError, match="the mask to match is"):
        layer_matched_masks(like, 1, seed=0)


@pytest.mark.parametrize(("repeats", "seed", "expected"), [(0, 0, "repeats of 0"), (1, -1, "seed of -1")])
def test_repeats_and_seeds_are_whole_numbers(repeats, seed, expected):
    with pytest.raises(InputError, match=expected):
        random_masks((2, 2), [1], repeats, seed)
    with pytest.raises(InputError, match=expected):
        layer_matched_masks(np.eye(2, dtype=bool), repeats, seed)
