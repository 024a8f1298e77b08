"""Which heads to silence by chance: anywhere, or as many in each layer as another mask.

A mask is a bool array [N,H]; True means that the head is silenced.

Shapes: N layers, H heads, K counts, R repeats.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import InputError
from headwise.heads.pruning import Mask, check_counts, check_whole


def random_masks(
    shape: tuple[int, int], counts: Sequence[int], repeats: int, seed: int, *, keep_per_layer: int = 0
) -> list[list[Mask]]:
    """[K][R] random masks: each uniform among all masks of its count that leave `keep_per_layer` heads per layer.

    Within a repeat the smaller masks lie within the larger, as with ranked masks; repeats are independent.

    Drawing head after head and skipping those of a full layer would not be uniform. So first the number of heads of
    each layer is drawn, p(c) = C(H,c) * ways(later layers, rest - c) / ways(this and later layers, rest), always by the
    same uniform number u: as C(H,c) is log-concave in c, a larger count then never takes fewer heads of any layer
    (Efron 1965). A random order of each layer's heads says which.

    Args:
        shape: layers and heads.
        counts: how many heads to silence, in any order: the masks come in that order.
        repeats: how many masks of each count.
        seed: the same seed gives the same masks.
        keep_per_layer: so many heads of each layer always stay.
    """
    check_counts(counts, shape, keep_per_layer)
    check_whole("repeats", repeats, 1)
    layers, heads = shape
    ways = _ways(layers, heads, heads - keep_per_layer)
    draws = [_random(seed, repeat, 0) for repeat in range(repeats)]
    chances = [random.random(layers) for random in draws]  # [R][N]
    places = [_places(random, shape) for random in draws]  # [R][N,H]
    return [
        [
            place < np.array(_per_layer(count, chance, ways, heads))[:, None]
            for chance, place in zip(chances, places, strict=True)
        ]
        for count in counts
    ]


def layer_matched_masks(like: Any, repeats: int, seed: int) -> list[Mask]:
    """[R] random masks with as many heads in each layer as `like`, so that they differ in which heads, not how deep.

    Args:
        like: [N,H] the mask to match.
        repeats: how many masks.
        seed: the same seed gives the same masks.
    """
    mask = np.asarray(like)
    if mask.dtype != np.bool_ or mask.ndim != 2:
        raise InputError(f"the mask to match is {mask.dtype} {mask.shape}: expected bool [layers,heads].")
    check_whole("repeats", repeats, 1)
    return [_places(_random(seed, repeat, 1), mask.shape) < mask.sum(1, keepdims=True) for repeat in range(repeats)]


def _random(seed: int, repeat: int, purpose: int) -> np.random.Generator:
    check_whole("seed", seed, 0)
    return np.random.default_rng([seed, repeat, purpose])


def _places(random: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """[N,H] each head's place in a random order of its layer."""
    return random.permuted(np.tile(np.arange(shape[1]), (shape[0], 1)), axis=1)


def _ways(layers: int, heads: int, most: int) -> list[list[int]]:
    """[n][r] in how many ways the last n layers can lose r heads, at most `most` each; whole numbers, so exact."""
    one = [comb(heads, lost) for lost in range(most + 1)]
    ways = [[1]]
    for _ in range(layers):
        last, longer = ways[-1], [0] * (len(ways[-1]) + most)
        for lost, first in enumerate(one):
            for rest, others in enumerate(last):
                longer[lost + rest] += first * others
        ways.append(longer)
    return ways


def _per_layer(count: int, chances: NDArray[np.float64], ways: list[list[int]], heads: int) -> list[int]:
    """[N] how many heads each layer loses: the smallest number whose cumulative probability exceeds the chance."""
    lost: list[int] = []
    for later in range(len(chances) - 1, -1, -1):
        total, below = ways[later + 1][count], 0
        fewest = max(0, count - len(ways[later]) + 1)
        for here in range(fewest, count + 1):
            below += comb(heads, here) * ways[later][count - here]
            if below / total > chances[len(lost)]:
                break
        lost.append(here)
        count -= here
    return lost
