"""Which heads are silenced: by rank, exactly and at random, where frequencies are those of all masks allowed."""

from collections import Counter
from itertools import combinations, product
from math import comb, prod

import numpy as np
import pytest

from headwise.errors import InputError
from headwise.heads.pruning import (
    exact_masks,
    head_count,
    layer_matched_masks,
    random_masks,
    ranked_heads,
    top_heads,
)


def scores_of(shape, seed=0):
    """With some ties."""
    return np.random.default_rng(seed).integers(0, 60, shape) / 7


def contains(larger, smaller):
    return bool((larger | ~smaller).all())


# -- counts ----------------------------------------------------------------------------------------------------------


def test_a_percentage_is_rounded_down_exactly():
    cases = [
        (144, 20, 28),
        (144, 30, 43),
        (384, 40, 153),
        (100, 29.0, 29),  # 100 * 0.29 = 28.999999999999996
        (1000, 32.3, 323),  # 1000 * 32.3 / 100 = 322.99999999999994
        (1000, np.float32(0.7), 7),
        (72, 1.39, 1),
        (72, 99.99, 71),
    ]
    for total, percent, expected in cases:
        assert head_count(total, percent) == expected


def test_a_percentage_of_no_head_is_refused_with_one_that_does():
    for total in (2, 12, 72, 144, 384):
        with pytest.raises(InputError, match=f"percent=0.1 of {total} heads is none: give .* or more") as refusal:
            head_count(total, 0.1)
        least = float(str(refusal.value).split("give ")[1].split(" or")[0])
        assert head_count(total, least) == 1
        with pytest.raises(InputError, match="is none"):
            head_count(total, round(least - 0.01, 2))


# -- by rank ---------------------------------------------------------------------------------------------------------


def test_ranks_as_sorting_does():
    scores = scores_of((24, 16))
    for ascending, sign in ((False, -1), (True, 1)):
        heads = sorted(np.ndindex(24, 16), key=lambda head: (sign * scores[head], head))  # noqa: B023
        assert ranked_heads(scores, ascending=ascending) == heads


def slow_mask(scores, count, ascending, keep):
    """The first `count` heads in order that are not among the last `keep` of their layer."""
    order = ranked_heads(scores, ascending=ascending)
    kept = set()
    for layer in range(len(scores)):
        kept |= set([head for head in order if head[0] == layer][len(scores[0]) - keep :])
    mask = np.zeros(scores.shape, dtype=bool)
    for head in [head for head in order if head not in kept][:count]:
        mask[head] = True
    return mask


@pytest.mark.parametrize(("shape", "ascending", "keep"), [((24, 16), False, 0), ((5, 3), True, 1)])
def test_masks_are_the_first_heads_that_may_go(shape, ascending, keep):
    most = shape[0] * shape[1] - max(1, keep * shape[0])
    counts = sorted({1, most // 3, most // 2, most}, reverse=True)
    scores = scores_of(shape)
    masks = exact_masks(lambda mask: scores, counts, ascending=ascending, keep_per_layer=keep)
    for mask, count in zip(masks, counts, strict=True):
        assert mask.dtype == bool
        assert mask.sum() == count
        assert (mask == slow_mask(scores, count, ascending, keep)).all()
        assert ((~mask).sum(1) >= keep).all()
    assert all(contains(larger, smaller) for larger, smaller in zip(masks, masks[1:], strict=False))


@pytest.mark.parametrize(("shape", "ascending", "keep"), [((6, 12), False, 2), ((7, 3), True, 1)])
def test_exact_pruning_holds_the_protection_and_nests(shape, ascending, keep):
    most = shape[0] * shape[1] - max(1, keep * shape[0])
    counts = [most, 1, most // 2, max(2, most // 4)]
    seen = []

    def rescore(mask):
        seen.append(mask)
        scores = np.random.default_rng(len(seen)).random(shape)
        if mask is not None:
            scores[mask] = 0  # as head_importance does: the least important, and first in ascending order
        return scores

    masks = exact_masks(rescore, counts, ascending=ascending, keep_per_layer=keep)
    assert [mask.sum() for mask in masks] == counts
    assert all(((~mask).sum(1) >= keep).all() for mask in masks)
    ordered = sorted(masks, key=np.sum)
    assert all(contains(larger, smaller) for smaller, larger in zip(ordered, ordered[1:], strict=False))
    assert seen[0] is None
    assert [mask.tolist() for mask in seen[1:]] == [mask.tolist() for mask in ordered[:-1]]


def test_exact_pruning_chooses_by_the_new_scores():
    scores = {0: [[9, 1, 2], [3, 4, 5]], 1: [[0, 1, 2], [8, 7, 6]]}

    def rescore(mask):
        count = 0 if mask is None else int(mask.sum())
        if mask is not None:
            mask[:] = True  # must not reach the masks
        return scores[count]

    masks = exact_masks(rescore, [1, 3])
    assert np.argwhere(masks[0]).tolist() == [[0, 0]]
    assert np.argwhere(masks[1]).tolist() == [[0, 0], [1, 0], [1, 1]]


# -- chosen heads ----------------------------------------------------------------------------------------------------


def test_top_heads_are_the_first_of_the_ranking():
    for shape, expected in (((12, 12), 43), ((24, 16), 115)):
        scores = scores_of(shape)
        assert (top_heads(scores, 0.3) == slow_mask(scores, expected, False, 0)).all()
        assert (top_heads(scores, 0.3, ascending=True, keep_per_layer=2) == slow_mask(scores, expected, True, 2)).all()
    assert top_heads(scores_of((12, 12)), 0.007).sum() == 1
    with pytest.raises(InputError, match=r"a share of 0.001 of 144 heads is none: give 0.007 or more"):
        top_heads(scores_of((12, 12)), 0.001)
    with pytest.raises(InputError, match="keeping 2 in each layer leaves 6 of 12 to choose from"):
        top_heads(scores_of((3, 4)), 0.75, keep_per_layer=2)


# -- at random ---------------------------------------------------------------------------------------------------------


def test_random_masks_nest_from_head_to_head():
    for shape, keep in (((5, 6), 2), ((5, 3), 0)):
        counts = list(range(1, shape[0] * (shape[1] - keep)))
        for repeat in zip(*random_masks(shape, counts, 20, 3, keep_per_layer=keep), strict=True):
            assert [int(mask.sum()) for mask in repeat] == counts
            assert all(((~mask).sum(1) >= keep).all() for mask in repeat)
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


def test_layer_matched_masks_are_uniform_within_a_layer():
    like = np.array([[True, True, False, False], [False, False, False, True]])
    masks = np.stack(layer_matched_masks(like, 3000, seed=0))
    assert masks.dtype == bool
    assert (masks.sum(2) == like.sum(1)).all()
    assert (masks[:5] == layer_matched_masks(like, 5, seed=0)).all()
    assert (masks[:50] != layer_matched_masks(like, 50, seed=1)).any()
    pairs = Counter(tuple(np.flatnonzero(mask[0]).tolist()) for mask in masks)
    assert len(pairs) == 6
    assert max(abs(count - 500) for count in pairs.values()) < 85
    assert np.abs(masks[:, 1].mean(0) - 0.25).max() < 0.035


# -- refused ---------------------------------------------------------------------------------------------------------


def test_wrong_values_are_refused():
    for call, message in (
        (lambda: random_masks((2, 2), [1], 1, -1), "seed=-1: expected a whole number of 0 or more"),
        (lambda: head_count(72, 100), "percent=100: expected a number above 0 and below 100"),
        (lambda: top_heads(scores_of((3, 4)), 1.01), "a share of heads of 1.01: expected a number above 0, at most 1"),
        (lambda: ranked_heads([[1.0, float("nan")]]), "the score of layer 0, head 1 is nan"),
        (lambda: layer_matched_masks(np.ones((2, 3)), 1, seed=0), "the mask to match is float64"),
        (lambda: random_masks((2, 2), [1], 0, 0), "repeats=0: expected a whole number of 1 or more"),
        (lambda: exact_masks(lambda mask: scores_of((3, 4) if mask is None else (4, 3)), [1, 2]), "one model only"),
    ):
        with pytest.raises(InputError, match=message):
            call()


def test_impossible_counts_are_refused():
    for shape, counts, keep, expected in (
        ((24, 16), [10, 361], 1, "361 of 384 .*: keeping 1 in each layer leaves 360, so give 360 heads"),
        ((6, 12), [72], 0, r"72 of 72 .*: keeping one in all leaves 71, so give 71 heads \(98.62 percent\) or fewer"),
        ((6, 12), [0], 0, "count=0: expected a whole number of 1 or more"),
        ((6, 12), [True], 0, "count=True"),
        ((6, 12), [1], 12, "keep_per_layer=12: a layer has only 12 heads"),
    ):
        scores = scores_of(shape)
        with pytest.raises(InputError, match=expected):
            exact_masks(lambda mask, scores=scores: scores, counts, keep_per_layer=keep)
        with pytest.raises(InputError, match=expected):
            random_masks(shape, counts, 2, 0, keep_per_layer=keep)


def test_the_largest_percentage_that_is_named_can_be_had():
    for shape, keep in [((6, 12), 1), ((24, 16), 3), ((5, 3), 1), ((6, 12), 0)]:
        total = shape[0] * shape[1]
        with pytest.raises(InputError, match="cannot be pruned") as refusal:
            random_masks(shape, [total], 1, 0, keep_per_layer=keep)
        percent = float(str(refusal.value).split(" heads (")[1].split(" percent")[0])
        assert head_count(total, percent) == total - max(1, keep * shape[0])
