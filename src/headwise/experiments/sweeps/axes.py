"""The axes of a sweep: what is changed, and into what."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwise.errors import InputError, choices
from headwise.experiments.files import opened, with_change
from headwise.experiments.sweeps.sweep_file import SweepFile

SEED, SIZE, LAYER = "seed", "size", "layer"


@dataclass(frozen=True)
class Point:
    """One place on an axis: its name, and the changes to a recipe that it stands for."""

    label: str
    changes: Mapping[str, Any]
    """By dotted key."""
    layer: int | str | None = None
    """What the guides look at, if the axis is that of layers."""

    def apply(self, data: dict[str, Any], place: str) -> dict[str, Any]:
        """A recipe's data with the changes; `place` is for messages."""
        for key, value in self.changes.items():
            data = with_change(data, key, value, place)
        return data if self.layer is None else _on_layer(data, self.layer)


@dataclass(frozen=True)
class Axis:
    """A name, and the points on it."""

    name: str
    points: tuple[Point, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of recipes that the axis changes."""
        changed = dict.fromkeys(key for point in self.points for key in point.changes)
        return tuple(changed) or (("guides",) if self.name == LAYER else ())

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of its points."""
        return tuple(point.label for point in self.points)


def axes_of(sweep: SweepFile, place: str) -> tuple[Axis, ...]:
    """All axes: those of the grid, then sizes, layers and seeds."""
    axes = [_grid_axis(name, points, place) for name, points in (sweep.grid or {}).items()]
    if sweep.grid is not None and not axes:
        raise InputError(f"{place}: the grid is empty: give it an axis with points, or leave grid out.")
    if sweep.sizes is not None:
        axes.append(_axis(SIZE, [_size(size, place) for size in sweep.sizes], place))
    if sweep.layers is not None:
        axes.append(_axis(LAYER, [Point(str(layer), {}, layer) for layer in sweep.layers], place))
    if sweep.seeds is not None:
        axes.append(_axis(SEED, [Point(str(seed), {"seed": seed}) for seed in sweep.seeds], place))
    names = [axis.name for axis in axes]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{place}: there are two axes {twice!r}: name it in the grid or beside it, not in both.")
    return tuple(axes)


def chosen(axes: Sequence[Axis], wanted: Mapping[str, Any], place: str) -> dict[str, tuple[str, ...]]:
    """Labels by axis, each known; of an axis one label or several may be wanted."""
    known = {axis.name: axis.labels for axis in axes}
    found = {}
    for name, labels in wanted.items():
        if name not in known:
            raise InputError(f"{place}: unknown axis {name!r}: {choices(str(name), known)}.")
        texts = tuple(label_of(label) for label in (labels if isinstance(labels, list | tuple) else [labels]))
        for text in texts:
            if text not in known[name]:
                raise InputError(f"{place}: axis {name!r} has no point {text!r}: {choices(text, known[name])}.")
        found[name] = texts
    return found


def label_of(value: Any) -> str:
    """A value as people write it."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)  # a date is text


def _grid_axis(name: str, points: Any, place: str) -> Axis:
    where = f"{place}: grid.{name}"
    if isinstance(points, dict):
        return _axis(name, [_named(label, changes, where) for label, changes in points.items()], place)
    if isinstance(points, list):
        return _axis(name, [Point(label_of(value), {name: value}) for value in points], place)
    raise InputError(
        f"{where} is {points!r:.60}: expected a list of values for this key, or named points with their changes."
    )


def _axis(name: str, points: list[Point], place: str) -> Axis:
    labels = [point.label for point in points]
    if not points:
        raise InputError(f"{place}: the axis {name!r} is empty, so there is nothing to run: give it a point.")
    twice = next((label for label, count in Counter(labels).items() if count > 1), None)
    if twice is not None:
        raise InputError(f"{place}: the axis {name!r} has the point {twice!r} twice: leave one out.")
    return Axis(str(name), tuple(points))


def _named(label: Any, changes: Any, where: str) -> Point:
    if changes is not None and not isinstance(changes, dict):
        raise InputError(
            f"{where}.{label} is {changes!r:.60}: expected changes by key, such as {{guides: {{}}}}, or nothing."
        )
    return Point(label_of(label), {str(key): value for key, value in (changes or {}).items()})


def _size(size: float, place: str) -> Point:
    if isinstance(size, int) and not isinstance(size, bool) and size >= 2:
        return Point(str(size), {"data.limit.train": size})
    if 0 < size <= 1:
        return Point(f"{float(size):g}", {"data.fraction": float(size)})
    raise InputError(f"{place}: sizes has {size!r}: expected a part of the training set up to 1, or a number from 2.")


def _on_layer(data: dict[str, Any], layer: int | str) -> dict[str, Any]:
    """All guides on one layer; a recipe without guides stays as it is."""
    guides = opened("guides", data.get("guides")) or {}
    if not guides or not isinstance(guides, dict):
        return data
    layers = [layer] if isinstance(layer, int) else layer
    return data | {"guides": {name: {**(options or {}), "layers": layers} for name, options in guides.items()}}
