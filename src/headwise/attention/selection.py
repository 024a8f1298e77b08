"""Which layers and which heads: one parser, one answer. Layers and heads count from 0."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headwise.errors import InputError

Layers = str | int | Iterable[int]
Heads = str | int | Iterable[int] | Mapping[int, Iterable[int]]
Selection = dict[int, tuple[int, ...]]


def select(layers: Layers, heads: Heads, shape: tuple[int, int]) -> Selection:
    """Resolve a choice of layers and heads.

    Args:
        layers: "all", "first:4", "last:4", "first:half", "last:half", a number, or numbers; negative ones count from
            the end.
        heads: the same for the heads of every chosen layer, or a mapping from layer to heads.
        shape: how many layers and heads there are.

    Returns:
        The chosen heads of each chosen layer, both in ascending order.
    """
    layer_count, head_count = shape
    if isinstance(heads, Mapping):
        chosen = {_number(layer, "layer", layer_count): part for layer, part in heads.items()}
        wanted = _numbers(layers, "layer", layer_count)
        selection = {layer: _numbers(chosen[layer], "head", head_count) for layer in wanted if layer in chosen}
        if not selection:
            raise InputError(
                f"no heads chosen: {dict(heads)!r} must name at least one of the chosen layers {list(wanted)}."
            )
        return selection
    each = _numbers(heads, "head", head_count)
    return {layer: each for layer in _numbers(layers, "layer", layer_count)}


def _numbers(choice: Layers, kind: str, count: int) -> tuple[int, ...]:
    if isinstance(choice, str):
        return _named(choice, kind, count)
    if isinstance(choice, int):
        choice = [choice]
    try:
        numbers = sorted({_number(number, kind, count) for number in choice})
    except TypeError:
        raise InputError(_expected(choice, kind)) from None
    if not numbers:
        raise InputError(f"no {kind}s chosen: give at least one, or 'all'.")
    return tuple(numbers)


def _named(choice: str, kind: str, count: int) -> tuple[int, ...]:
    if choice == "all":
        return tuple(range(count))
    name, _, size = choice.partition(":")
    if size == "half":
        size = str(max(1, count // 2))
    if name not in ("first", "last") or not size.isdecimal() or int(size) == 0:
        raise InputError(_expected(choice, kind))
    if int(size) > count:
        raise InputError(f"{kind}s {choice!r}: the model has {count} {kind}s; choose at most that many.")
    return tuple(range(int(size))) if name == "first" else tuple(range(count - int(size), count))


def _number(number: object, kind: str, count: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int):
        raise InputError(_expected(number, kind))
    if not -count <= number < count:
        raise InputError(f"{kind} {number} is out of range: the model has {kind}s 0 to {count - 1}.")
    return number % count


def _expected(choice: object, kind: str) -> str:
    return f"{kind}s {choice!r}: expected 'all', 'first:N', 'last:N', 'first:half', a number or a list of numbers."


def without(numbers: Sequence[int], count: int) -> list[int]:
    """The numbers below `count` that are not among these."""
    return [number for number in range(count) if number not in set(numbers)]
