"""Sweep files: YAML that names a recipe, a grid of changes, seeds, sizes and layers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError

from headwise.documents import sentence
from headwise.errors import InputError, choices
from headwise.experiments.recipe import Strict
from headwise.experiments.recipe_files import opened, plain_name, read_yaml, with_change
from headwise.experiments.sweeps.perform import check_then

BASE, SCALES = "base", "scales"
MAX_BASES = 20


def _names(value: Any) -> Any:
    """One name, or a list of them."""
    return (value,) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_names), Field(strict=False)]
Mappings = Annotated[tuple[dict[str, Any], ...], Field(strict=False)]


class CompareBy(Strict):
    """How the runs of a sweep are compared."""

    by: Names
    baseline: str | None = None
    within: Names = ()
    """Axes whose points are compared by themselves, one table each."""


class SweepFile(Strict):
    """What a sweep file says, one scale of it."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    title: str = ""
    source: str = ""
    """Where a paper reports what the sweep measures."""
    recipe: str | dict[str, Any]
    """A recipe by name or file, or the recipe itself."""
    set: dict[str, Any] = {}
    """Changes to every run, by dotted key."""
    grid: dict[str, Any] | None = None
    """Axes by name: named points with their changes, or a key of recipes with its values."""
    seeds: Annotated[tuple[int, ...], Field(strict=False)] | None = None
    sizes: Annotated[tuple[int | float, ...], Field(strict=False)] | None = None
    """Parts of the training set up to 1, or numbers of examples from 2."""
    layers: Annotated[tuple[int | str, ...], Field(strict=False)] | None = None
    """What the guides look at, one after the other."""
    skip: Mappings = ()
    """Combinations of points that are left out."""
    then: Annotated[dict[str, Any], BeforeValidator(check_then)] = {}
    """What is measured on the model of each run on several tasks."""
    compare: CompareBy | None = None


def read_sweep(name: str, scale: str | None = None) -> tuple[SweepFile, Path]:
    """A sweep from a file, or one of the package by its name; and the folder that its recipe may lie in.

    Args:
        name: the file, or a name of `headwise list sweeps`.
        scale: one of the `scales` of the file, whose keys replace those above.
    """
    path = _find(name)
    data = _data(path, name, ())
    scales = data.pop(SCALES, None) or {}
    if not isinstance(scales, dict) or not all(isinstance(each, dict) for each in scales.values()):
        raise InputError(f"{name}: scales is {scales!r:.60}: expected names with keys of a sweep below them.")
    if scale is not None:
        if scale not in scales:
            known = f" {choices(scale, scales)}" if scales else " it has none"
            raise InputError(f"{name}: --scale {scale}:{known}; leave --scale out for the sweep as it is.")
        data |= scales[scale]
    data.setdefault("name", plain_name(path.stem))
    if "recipe" not in data:
        raise InputError(f"{name}: key 'recipe' is missing: name a recipe of `headwise list recipes` or a file.")
    try:
        return SweepFile.model_validate(data), path.parent
    except ValidationError as error:
        raise InputError(f"{name}: {sentence(error, SweepFile, needs='add it')}") from error


def shipped_sweeps() -> dict[str, Path]:
    """The sweeps that come with the package, by name."""
    folder = Path(str(resources.files("headwise"))) / "sweeps"
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.yaml"))}


def scales_of(name: str) -> tuple[str, ...]:
    """The scales that a sweep has."""
    return tuple(_data(_find(name), name, ()).get(SCALES) or {})


def _data(path: Path, name: str, above: tuple[Path, ...]) -> dict[str, Any]:
    """The keys of a file over those of the file that it builds on."""
    if path.resolve() in above:
        chain = " -> ".join(each.name for each in (*above, path))
        raise InputError(f"{name}: its base is cyclic ({chain}): let one of these files stand by itself.")
    if len(above) >= MAX_BASES:
        raise InputError(f"{name}: more than {MAX_BASES} files build on each other (base): write it with fewer.")
    data = read_yaml(path, name)
    if not isinstance(data, dict):
        raise InputError(f"{name}: a sweep is a list of keys and values, such as `recipe: sick`; got {data!r:.60}.")
    base = data.pop(BASE, None)
    if base is None:
        return data
    if not isinstance(base, str):
        raise InputError(f"{name}: base is {base!r:.60}: expected the name of a sweep or of a file.")
    below = _data(_find(base, path.parent), base, (*above, path.resolve()))
    own_scales = {SCALES: {**(below.get(SCALES) or {}), **(data.get(SCALES) or {})}}
    return below | data | (own_scales if own_scales[SCALES] else {})


def _find(name: str, beside: Path | None = None) -> Path:
    path = Path(name).expanduser()
    for place in ([] if beside is None else [beside / path]) + [path]:
        if place.is_file():
            return place
    known: Mapping[str, Path] = shipped_sweeps()
    short = name.removeprefix("sweeps/").removesuffix(".yaml")
    if short in known:
        return known[short]
    raise InputError(f"sweep {name!r}: there is no such file, and no sweep of the package: {choices(short, known)}.")


# The axes of a sweep: what is changed, and into what.


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
