"""Sweep files: YAML with a recipe, a grid of changes, seeds, sizes and layers; and the runs that they describe."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError

from headwise.documents import sentence
from headwise.errors import InputError, choices
from headwise.experiments.recipe import Recipe, Strict, check_recipe
from headwise.experiments.recipe_files import opened, parse_change, plain_name, read_yaml, recipe_data, with_change
from headwise.experiments.sweeps.jobs import check_then, run_key

BASE, SCALES = "base", "scales"
SEED, SIZE, LAYER = "seed", "size", "layer"
MAX_BASES = 20
MAX_RUNS = 10_000
FORMAT = 1

Names = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
    Field(strict=False),
]


class CompareBy(Strict):
    """How the runs of a sweep are compared."""

    by: Names
    baseline: str | None = None
    within: Names = ()
    """Axes with a separate table for each point."""


class SweepFile(Strict):
    """The keys of a sweep file, at one of its scales."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    title: str = ""
    source: str = ""
    """The paper that reports what the sweep measures."""
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
    """The layers of the guides, one after the other."""
    skip: Annotated[tuple[dict[str, Any], ...], Field(strict=False)] = ()
    """Combinations of points that are left out."""
    then: Annotated[dict[str, Any], BeforeValidator(check_then)] = {}
    """What is measured on the model of each run on several tasks."""
    compare: CompareBy | None = None


@dataclass(frozen=True)
class Point:
    """A point of an axis: its label, and the changes to a recipe that it stands for."""

    label: str
    changes: Mapping[str, Any]
    """By dotted key."""
    layer: int | str | None = None
    """Of the axis of layers, the layer of all guides."""

    def apply(self, data: dict[str, Any], where: str) -> dict[str, Any]:
        """The data of a recipe with the changes; `where` is for messages."""
        for key, value in self.changes.items():
            data = with_change(data, key, value, where)
        guides = {} if self.layer is None else opened("guides", data.get("guides")) or {}
        if not guides or not isinstance(guides, dict):
            return data
        layers = [self.layer] if isinstance(self.layer, int) else self.layer
        return data | {"guides": {name: {**(options or {}), "layers": layers} for name, options in guides.items()}}


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
        """The labels of its points."""
        return tuple(point.label for point in self.points)


@dataclass(frozen=True)
class PlannedRun:
    """A combination of points and its recipe."""

    point: Mapping[str, str]
    """The label on each axis."""
    recipe: Recipe
    key: str
    """A hash of the recipe, which names the files of the run."""

    @property
    def name(self) -> str:
        """The labels, for people."""
        return ", ".join(f"{axis} {label}" for axis, label in self.point.items()) or self.recipe.name


@dataclass(frozen=True)
class SweepPlan:
    """All runs of a sweep."""

    sweep: SweepFile
    scale: str | None
    axes: tuple[Axis, ...]
    runs: tuple[PlannedRun, ...]
    """One for each combination; several may have the same key."""

    @property
    def unique(self) -> tuple[PlannedRun, ...]:
        """One for each key."""
        return tuple({planned.key: planned for planned in reversed(self.runs)}.values())[::-1]

    def manifest(self) -> dict[str, Any]:
        """Axes and points: plain data for the folder of results."""
        compare = self.sweep.compare
        return {
            "format": FORMAT,
            "name": self.sweep.name,
            "scale": self.scale,
            "title": self.sweep.title,
            "source": self.sweep.source,
            "axes": {axis.name: {"labels": list(axis.labels), "keys": list(axis.keys)} for axis in self.axes},
            "compare": None if compare is None else compare.model_dump(mode="json"),
            "runs": [{"key": planned.key, "point": dict(planned.point)} for planned in self.runs],
        }


def shipped_sweeps() -> dict[str, Path]:
    """The sweeps that come with the package, by name."""
    folder = Path(str(resources.files("headwise"))) / "sweeps"
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.yaml"))}


def scales_of(name: str) -> tuple[str, ...]:
    """The scales that a sweep has."""
    return tuple(_read(_find(name), name, ()).get(SCALES) or {})


def read_sweep(name: str, scale: str | None = None) -> tuple[SweepFile, Path]:
    """A sweep from a file, or one of the package by its name; and the folder of the file.

    Args:
        name: the file, or the name of a sweep of the package.
        scale: one of the `scales` of the file, whose keys replace those above.
    """
    path = _find(name)
    data = _read(path, name, ())
    scales = data.pop(SCALES, None) or {}
    if not isinstance(scales, dict) or not all(isinstance(each, dict) for each in scales.values()):
        raise InputError(f"{name}: scales is {scales!r:.60}: expected names with keys of a sweep below them.")
    if scale is not None:
        if scale not in scales:
            known = choices(scale, scales) if scales else "it has none"
            raise InputError(f"{name}: scale={scale}: {known}; leave it out for the sweep as it is.")
        data |= scales[scale]
    data.setdefault("name", plain_name(path.stem))
    if "recipe" not in data:
        raise InputError(f"{name}: key 'recipe' is missing: name a recipe of the package or a file.")
    try:
        return SweepFile.model_validate(data), path.parent
    except ValidationError as error:
        raise InputError(f"{name}: {sentence(error, SweepFile, needs='add it')}") from error


def _find(name: str, beside: Path | None = None) -> Path:
    path = Path(name).expanduser()
    for candidate in ([] if beside is None else [beside / path]) + [path]:
        if candidate.is_file():
            return candidate
    known, short = shipped_sweeps(), name.removeprefix("sweeps/").removesuffix(".yaml")
    if short not in known:
        known_names = choices(short, known)
        raise InputError(f"sweep {name!r}: there is no such file, and no sweep of the package: {known_names}.")
    return known[short]


def _read(path: Path, name: str, above: tuple[Path, ...]) -> dict[str, Any]:
    """The keys of a file over those of the file that it builds on."""
    if path.resolve() in above:
        chain = " -> ".join(each.name for each in (*above, path))
        raise InputError(f"{name}: its base is cyclic ({chain}): write one of these files without a base.")
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
    below = _read(_find(base, path.parent), base, (*above, path.resolve()))
    scales = {**(below.get(SCALES) or {}), **(data.get(SCALES) or {})}
    return below | data | ({SCALES: scales} if scales else {})


# -- axes --------------------------------------------------------------------------------------------------------------


def label_of(value: Any) -> str:
    """A value as people write it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)  # a date is text


def _axes(sweep: SweepFile, where: str) -> tuple[Axis, ...]:
    """All axes: those of the grid, then sizes, layers and seeds."""
    if sweep.grid is not None and not sweep.grid:
        raise InputError(f"{where}: the grid is empty: give it an axis with points, or leave grid out.")
    axes = [Axis(str(name), _grid_points(name, points, where)) for name, points in (sweep.grid or {}).items()]
    if sweep.sizes is not None:
        axes.append(Axis(SIZE, tuple(_size(size, where) for size in sweep.sizes)))
    if sweep.layers is not None:
        axes.append(Axis(LAYER, tuple(Point(str(layer), {}, layer) for layer in sweep.layers)))
    if sweep.seeds is not None:
        axes.append(Axis(SEED, tuple(Point(str(seed), {"seed": seed}) for seed in sweep.seeds)))
    names = [axis.name for axis in axes]
    for axis in axes:
        if names.count(axis.name) > 1:
            raise InputError(
                f"{where}: there are two axes {axis.name!r}: name it in the grid or beside it, not in both."
            )
        if not axis.points:
            raise InputError(f"{where}: the axis {axis.name!r} is empty, so there is nothing to run: give it a point.")
        label, count = Counter(axis.labels).most_common(1)[0]
        if count > 1:
            raise InputError(f"{where}: the axis {axis.name!r} has the point {label!r} twice: leave one out.")
    return tuple(axes)


def _grid_points(name: str, points: Any, where: str) -> tuple[Point, ...]:
    if isinstance(points, list):
        return tuple(Point(label_of(value), {name: value}) for value in points)
    if not isinstance(points, dict):
        raise InputError(
            f"{where}: grid.{name} is {points!r:.60}: expected a list of values for this key, or named points with "
            "their changes."
        )
    for label, changes in points.items():
        if changes is not None and not isinstance(changes, dict):
            raise InputError(
                f"{where}: grid.{name}.{label} is {changes!r:.60}: expected changes by key, such as {{guides: {{}}}}, "
                "or nothing."
            )
    return tuple(
        Point(label_of(label), {str(key): value for key, value in (changes or {}).items()})
        for label, changes in points.items()
    )


def _size(size: float, where: str) -> Point:
    if isinstance(size, int) and not isinstance(size, bool) and size >= 2:
        return Point(str(size), {"data.limit.train": size})
    if 0 < size <= 1:
        return Point(f"{float(size):g}", {"data.fraction": float(size)})
    raise InputError(f"{where}: sizes has {size!r}: expected a part of the training set up to 1, or a number from 2.")


def _known_labels(axes: Sequence[Axis], labels: Mapping[str, Any], where: str) -> dict[str, list[str]]:
    """One label or several by axis, as text; unknown ones are refused."""
    known, texts = {axis.name: axis.labels for axis in axes}, {}
    for name, values in labels.items():
        if name not in known:
            raise InputError(f"{where}: unknown axis {name!r}: {choices(str(name), known)}.")
        texts[name] = [label_of(value) for value in (values if isinstance(values, list | tuple) else [values])]
        for text in texts[name]:
            if text not in known[name]:
                raise InputError(f"{where}: axis {name!r} has no point {text!r}: {choices(text, known[name])}.")
    return texts


# -- the plan ----------------------------------------------------------------------------------------------------------


def plan_sweep(
    name: str,
    *,
    scale: str | None = None,
    changes: Sequence[str] = (),
    only: Sequence[str] = (),
    seeds: Sequence[int] | None = None,
) -> SweepPlan:
    """Read a sweep file and check every run of it.

    Args:
        name: the file, or the name of a sweep of the package.
        scale: one of its scales.
        changes: `KEY=VALUE`, made to every run after all else.
        only: `AXIS=LABEL`, or several labels with commas: the other points are left out.
        seeds: instead of those of the file.
    """
    sweep, folder = read_sweep(name, scale)
    if seeds is not None:
        sweep = sweep.model_copy(update={"seeds": tuple(seeds)})
    axes = _axes(sweep, name)
    _check_compare(sweep.compare, axes, name)
    skipped = [_known_labels(axes, each, f"{name}: skip") for each in sweep.skip]
    axes = _narrowed(axes, only)
    total = prod(len(axis.points) for axis in axes)
    if total > MAX_RUNS:
        raise InputError(
            f"{name}: its axes have {total:,} combinations: expected at most {MAX_RUNS:,}; vary less, or choose some "
            "of the points with only=AXIS=LABEL."
        )
    base = recipe_data(sweep.recipe, folder) if isinstance(sweep.recipe, str) else dict(sweep.recipe)
    base.setdefault("name", sweep.name)
    base = Point("", sweep.set).apply(base, f"{name}: set")
    last = Point("", dict(parse_change(change) for change in changes))
    runs = []
    for combination in product(*(axis.points for axis in axes)):
        point = {axis.name: each.label for axis, each in zip(axes, combination, strict=True)}
        if any(all(point[axis] in labels for axis, labels in skip.items()) for skip in skipped):
            continue
        where = f"{name}{''.join(f', {axis} {label}' for axis, label in point.items() if axis != SEED)}"
        data = base
        # Layers last: they are an option of the guides that the other points choose.
        for each in sorted(combination, key=lambda one: one.layer is not None):
            data = each.apply(data, where)
        recipe = check_recipe(last.apply(data, "changes"), where)
        if sweep.then and not recipe.several:
            raise InputError(f"{where}: then is for recipes with several tasks, and this one has one: leave then out.")
        runs.append(PlannedRun(point, recipe, run_key(recipe, sweep.then)))
    if not runs:
        raise InputError(f"{name}: skip and only=... leave no run: leave one of them out.")
    if sweep.layers is not None and not any(getattr(planned.recipe, "guides", None) for planned in runs):
        raise InputError(f"{name}: layers is for guides, and no run has any: add guides, or leave layers out.")
    return SweepPlan(sweep, scale, axes, tuple(runs))


def _narrowed(axes: tuple[Axis, ...], only: Sequence[str]) -> tuple[Axis, ...]:
    labels: dict[str, list[str]] = {}
    for each in only:
        name, equals, values = each.partition("=")
        if not equals:
            raise InputError(f"only={each}: expected AXIS=LABEL, such as system=plain.")
        labels.setdefault(name.strip(), []).extend(label.strip() for label in values.split(","))
    kept = _known_labels(axes, labels, "only=...")
    return tuple(
        replace(axis, points=tuple(point for point in axis.points if point.label in kept.get(axis.name, axis.labels)))
        for axis in axes
    )


def _check_compare(compare: CompareBy | None, axes: Sequence[Axis], where: str) -> None:
    if compare is None:
        return
    _known_labels(axes, {name: [] for name in (*compare.by, *compare.within)}, f"{where}: compare")
    if compare.baseline is not None and len(compare.by) == 1:
        _known_labels(axes, {compare.by[0]: compare.baseline}, f"{where}: compare.baseline")
    if SEED in (*compare.by, *compare.within):
        raise InputError(f"{where}: compare names {SEED!r}: seeds are averaged over; name another axis.")
