"""Which heads to silence: by importance, measured once or again before each step, or at random.

A mask is a bool array [N,H]; True means that the head is silenced. Nothing here runs a model.

All masks obey the same protection: of every layer at least `keep_per_layer` heads stay. (The authors' random masks
always kept one head of a layer, their ranked ones none.)

Shapes: N layers, H heads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil, comb, isfinite
from numbers import Integral, Real
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from headwise.errors import InputError

Mask = NDArray[np.bool_]
Scores = NDArray[np.float64]
Head = tuple[int, int]

# -- by importance ---------------------------------------------------------------------------------------------------


def head_count(total: int, percent: float) -> int:
    """How many heads a percentage means: floor(total * percent / 100), computed exactly.

        head_count(144, 30)  # 43

    The percentage is taken as a decimal fraction: in floating point 100 * 0.29 is a little less than 29.

    Args:
        total: heads of the model.
        percent: above 0 and below 100.
    """
    check_percent(percent)
    count = int(total * Fraction(str(percent)) / 100)
    if count == 0:
        raise InputError(f"percent={percent} of {total} heads is none: give {_percent(1, total)} or more.")
    return count


def ranked_heads(scores: Any, *, ascending: bool = False) -> list[Head]:
    """All heads of all layers together, (layer, head), the most important first; equals by layer, then head.

    Args:
        scores: [N,H] importance.
        ascending: the least important first.
    """
    values = _checked_scores(scores)
    order = np.argsort((values if ascending else -values).ravel(), kind="stable")
    layers, heads = np.divmod(order, values.shape[1])
    return list(zip(layers.tolist(), heads.tolist(), strict=True))


def exact_masks(
    rescore: Callable[[Mask | None], Any], counts: Sequence[int], *, ascending: bool = False, keep_per_layer: int = 0
) -> list[Mask]:
    """The first heads of the ranking silenced, once for each count; larger masks contain the smaller ones.

        exact_masks(lambda mask: hw.head_importance(model, data, mask=mask).scores, [14, 21, 28])

    Importance is measured again before each step, with the heads so far silenced; `lambda mask: scores` ranks once.

    The heads that a layer keeps are taken from those that are not silenced yet, so a layer never falls below
    `keep_per_layer`. (The authors' code counted silenced heads, whose importance is 0, as kept.)

    Args:
        rescore: gives scores [N,H] under a mask; the first time the mask is None.
        counts: how many heads to silence, in any order: the masks come in that order.
        ascending: the least important heads first.
        keep_per_layer: so many heads of each layer are never silenced.
    """
    masks: dict[int, Mask] = {}
    silenced: Mask | None = None
    for count in sorted(set(counts)):
        values = _checked_scores(rescore(None if silenced is None else silenced.copy()))
        if silenced is None:
            check_counts(counts, values.shape, keep_per_layer)
            silenced = np.zeros(values.shape, dtype=bool)
        elif values.shape != silenced.shape:
            raise InputError(
                f"scores of shape {values.shape} came after scores of shape {silenced.shape}: one model only."
            )
        silenced = silenced.copy()
        for head in _candidates(values, silenced, ascending, keep_per_layer)[: count - int(silenced.sum())]:
            silenced[head] = True
        masks[count] = silenced
    return [masks[count].copy() for count in counts]


def top_heads(scores: Any, share: float, *, ascending: bool = False, keep_per_layer: int = 0) -> Mask:
    """[N,H] True for the first floor(share * N * H) heads of the ranking; computed exactly, as in `head_count`.

    Args:
        scores: [N,H] importance.
        share: above 0, at most 1.
        ascending: the least important heads first.
        keep_per_layer: of each layer so many heads, those that come last in the ranking, are left out.
    """
    values = _checked_scores(scores)
    if not _is_number(share) or not 0 < share <= 1:
        raise InputError(f"a share of heads of {share}: expected a number above 0, at most 1.")
    count = int(values.size * Fraction(str(share)))
    if count == 0:
        least = ceil(Fraction(10_000, values.size)) / 10_000
        raise InputError(f"a share of {share} of {values.size} heads is none: give {least:g} or more.")
    _check_keep(values.shape, keep_per_layer)
    mask = np.zeros(values.shape, dtype=bool)
    order = _candidates(values, mask, ascending, keep_per_layer)
    if count > len(order):
        raise InputError(
            f"a share of {share} is {count} heads, but keeping {keep_per_layer} in each layer leaves {len(order)} of "
            f"{values.size} to choose from: lower the share or keep fewer."
        )
    for head in order[:count]:
        mask[head] = True
    return mask


def _candidates(values: Scores, silenced: Mask, ascending: bool, keep_per_layer: int) -> list[Head]:
    """The ranking of the heads that are not silenced, without the last `keep_per_layer` of each layer."""
    left = values.shape[1] - silenced.sum(1)  # [N]
    order = []
    for layer, head in ranked_heads(values, ascending=ascending):
        if not silenced[layer, head] and left[layer] > keep_per_layer:
            order.append((layer, head))
            left[layer] -= 1
    return order


# -- at random -------------------------------------------------------------------------------------------------------


def random_masks(
    shape: tuple[int, int], counts: Sequence[int], repeats: int, seed: int, *, keep_per_layer: int = 0
) -> list[list[Mask]]:
    """[K][R] random masks: each uniform among all masks of its count that leave `keep_per_layer` heads per layer.

    Within a repeat larger masks contain the smaller ones, as with ranked masks; repeats are independent.

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
    layers, heads = shape
    # [n][r] in how many ways the last n layers can lose r heads; whole numbers of any size, so exact.
    one_layer = np.array([comb(heads, lost) for lost in range(heads - keep_per_layer + 1)], dtype=object)
    ways: list[list[int]] = [[1]]
    for _ in range(layers):
        ways.append(np.convolve(np.array(ways[-1], dtype=object), one_layer).tolist())
    draws = []
    for random in _generators(seed, repeats, 0):
        draws.append((random.random(layers), _random_ranks(random, shape)))  # [N], [N,H]
    return [
        [ranks < np.array(_per_layer(count, chances, ways, heads))[:, None] for chances, ranks in draws]
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
    counts = mask.sum(1, keepdims=True)
    return [_random_ranks(random, mask.shape) < counts for random in _generators(seed, repeats, 1)]


def _generators(seed: int, repeats: int, purpose: int) -> list[np.random.Generator]:
    check_whole("repeats", repeats, 1)
    check_whole("seed", seed, 0)
    return [np.random.default_rng([seed, repeat, purpose]) for repeat in range(repeats)]


def _random_ranks(random: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """[N,H] each head's rank in a random order of its layer."""
    return random.permuted(np.tile(np.arange(shape[1]), (shape[0], 1)), axis=1)


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


# -- checks ----------------------------------------------------------------------------------------------------------


def _checked_scores(scores: Any) -> Scores:
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 2 or 0 in values.shape:
        raise InputError(f"scores of shape {values.shape}: expected [layers,heads].")
    if not np.isfinite(values).all():
        layer, head = np.argwhere(~np.isfinite(values))[0].tolist()
        raise InputError(f"the score of layer {layer}, head {head} is {values[layer, head]}: expected finite numbers.")
    return values


def check_counts(counts: Sequence[int], shape: tuple[int, ...], keep_per_layer: int) -> None:
    """Refuse counts that leave no head, or too few in a layer."""
    _check_keep(shape, keep_per_layer)
    total = shape[0] * shape[1]
    most = total - max(1, keep_per_layer * shape[0])
    for count in counts:
        check_whole("count", count, 1)
        if count > most:
            kept = f"keeping {keep_per_layer} in each layer" if keep_per_layer else "keeping one in all"
            raise InputError(
                f"{count} of {total} heads cannot be pruned: {kept} leaves {most}, so give {most} heads "
                f"({_percent(most, total)} percent) or fewer."
            )


def _check_keep(shape: tuple[int, ...], keep_per_layer: int) -> None:
    check_whole("keep_per_layer", keep_per_layer, 0)
    if keep_per_layer >= shape[1]:
        raise InputError(
            f"keep_per_layer={keep_per_layer}: a layer has only {shape[1]} heads, so nothing could be pruned; "
            f"keep {shape[1] - 1} or fewer."
        )


def check_percent(percent: object) -> None:
    """Refuse everything but a number above 0 and below 100."""
    if not _is_number(percent) or not 0 < percent < 100:
        raise InputError(f"percent={percent}: expected a number above 0 and below 100.")


def check_whole(name: str, value: object, least: int) -> None:
    """Refuse everything but a whole number of `least` or more."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral) or value < least:
        raise InputError(f"{name}={value!r}: expected a whole number of {least} or more.")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_) and isfinite(value)


def _percent(count: int, total: int) -> str:
    """The smallest percentage, of two decimals, that means so many heads."""
    return f"{ceil(10_000 * Fraction(count, total)) / 100:g}"
