"""Sweep files: YAML with a recipe, a grid of changes, seeds, sizes and layers; and the runs that they describe."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
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
from headwise.experiments.sweeps.control_arms import ARM, ARMS, RECIPE, SHUFFLED, check_arms, guides_of_arm
from headwise.experiments.sweeps.jobs import check_then, run_key

BASE, SCALES = "base", "scales"
SEED, SIZE, LAYER = "seed", "size", "layer"
# The key of a change to the layers of all guides that a recipe has.
GUIDE_LAYERS = "guides.*.layers"
MAX_BASES = 20
MAX_RUNS = 10_000
FORMAT = 1

# Of a point on an axis, the changes to a recipe that it stands for, by dotted key.
Changes = Mapping[str, Any]

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
    controls: bool = False
    """Whether every recipe with guides is also trained without them, and with shuffled targets."""


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
    axes: Mapping[str, Mapping[str, Changes]]
    """By axis, the points by label."""
    runs: tuple[PlannedRun, ...]
    """One for each combination; several may have the same key."""
    notes: tuple[str, ...] = ()
    """What readers of the log should know about its controls."""

    @property
    def unique(self) -> tuple[PlannedRun, ...]:
        """One for each key."""
        return tuple({planned.key: planned for planned in reversed(self.runs)}.values())[::-1]

    @cached_property
    def names(self) -> dict[str, str]:
        """By key, the labels of a run for people."""
        return {planned.key: planned.name for planned in self.unique}

    def manifest(self) -> dict[str, Any]:
        """Axes and points: plain data for the folder of results."""
        axes = {}
        for name, points in self.axes.items():
            keys = dict.fromkeys(key for changes in points.values() for key in changes)
            axes[name] = {"labels": list(points), "keys": ["guides" if key == GUIDE_LAYERS else key for key in keys]}
        compare = self._controlled() if self.sweep.controls else self.sweep.compare
        return {
            "format": FORMAT,
            "name": self.sweep.name,
            "scale": self.scale,
            "title": self.sweep.title,
            "source": self.sweep.source,
            "axes": axes,
            "compare": None if compare is None else compare.model_dump(mode="json"),
            "runs": [{"key": planned.key, "point": dict(planned.point)} for planned in self.runs],
        }

    def _controlled(self) -> CompareBy:
        """The comparison of a sweep with controls: by its axes of guides and by arm, with a table for all the rest."""
        chosen = self.sweep.compare or CompareBy(by=tuple(filter(self._only_guides, self.axes)))
        by = (*(name for name in chosen.by if name != ARM), ARM)
        rest = [name for name in self.axes if name not in (*by, SEED)]
        return CompareBy(by=by, baseline=chosen.baseline, within=tuple(dict.fromkeys((*chosen.within, *rest))))

    def _only_guides(self, axis: str) -> bool:
        keys = [key for changes in self.axes[axis].values() for key in changes]
        return bool(keys) and all(key.split(".")[0] == "guides" for key in keys)


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


def _axes(sweep: SweepFile, where: str) -> dict[str, dict[str, Changes]]:
    """All axes: those of the grid, then sizes, layers and seeds."""
    if sweep.grid is not None and not sweep.grid:
        raise InputError(f"{where}: the grid is empty: give it an axis with points, or leave grid out.")
    axes = [(str(name), _grid_points(name, points, where)) for name, points in (sweep.grid or {}).items()]
    if sweep.sizes is not None:
        sizes: list[tuple[str, Changes]] = []
        for size in sweep.sizes:
            if isinstance(size, int) and not isinstance(size, bool) and size >= 2:
                sizes.append((str(size), {"data.limit.train": size}))
            elif 0 < size <= 1:
                sizes.append((f"{float(size):g}", {"data.fraction": float(size)}))
            else:
                expected = "expected a part of the training set up to 1, or a number from 2"
                raise InputError(f"{where}: sizes has {size!r}: {expected}.")
        axes.append((SIZE, sizes))
    if sweep.controls:
        axes.append((ARM, list(ARMS.items())))
    # After the grid: layers are an option of the guides that its points choose.
    for name, key, values in ((LAYER, GUIDE_LAYERS, sweep.layers), (SEED, "seed", sweep.seeds)):
        if values is not None:
            axes.append((name, [(str(value), {key: value}) for value in values]))
    found: dict[str, dict[str, Changes]] = {}
    for name, points in axes:
        if name in found:
            raise InputError(f"{where}: there are two axes {name!r}: name it in the grid or beside it, not in both.")
        if not points:
            raise InputError(f"{where}: the axis {name!r} is empty, so there is nothing to run: give it a point.")
        found[name] = {}
        for label, changes in points:
            if label in found[name]:
                raise InputError(f"{where}: the axis {name!r} has the point {label!r} twice: leave one out.")
            found[name][label] = changes
    return found


def _grid_points(name: str, points: Any, where: str) -> list[tuple[str, Changes]]:
    if isinstance(points, list):
        return [(label_of(value), {name: value}) for value in points]
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
    return [
        (label_of(label), {str(key): value for key, value in (changes or {}).items()})
        for label, changes in points.items()
    ]


def _known_labels(
    axes: Mapping[str, Mapping[str, Changes]], labels: Mapping[str, Any], where: str
) -> dict[str, list[str]]:
    """One label or several by axis, as text; unknown ones are refused."""
    texts = {}
    for name, values in labels.items():
        if name not in axes:
            raise InputError(f"{where}: unknown axis {name!r}: {choices(str(name), axes)}.")
        texts[name] = [label_of(value) for value in (values if isinstance(values, list | tuple) else [values])]
        for text in texts[name]:
            if text not in axes[name]:
                raise InputError(f"{where}: axis {name!r} has no point {text!r}: {choices(text, axes[name])}.")
    return texts


def _changed(data: dict[str, Any], changes: Changes, where: str) -> dict[str, Any]:
    """The data of a recipe with changes; `where` is for messages."""
    for key, value in changes.items():
        if key != GUIDE_LAYERS:
            data = with_change(data, key, value, where)
            continue
        guides = opened("guides", data.get("guides")) or {}
        if isinstance(guides, dict):
            layers = {"layers": [value] if isinstance(value, int) else value}
            guided = {name: {**(options or {}), **layers} for name, options in guides.items()}
            data = data | ({"guides": guided} if guided else {})
    return data


# -- the plan ----------------------------------------------------------------------------------------------------------


def plan_sweep(
    name: str,
    *,
    scale: str | None = None,
    changes: Sequence[str] = (),
    only: Sequence[str] = (),
    seeds: Sequence[int] | None = None,
    controls: bool | None = None,
) -> SweepPlan:
    """Read a sweep file and check every run of it.

    Args:
        name: the file, or the name of a sweep of the package.
        scale: one of its scales.
        changes: `KEY=VALUE`, made to every run after all else.
        only: `AXIS=LABEL`, or several labels with commas: the other points are left out.
        seeds: instead of those of the file.
        controls: whether to add plain and shuffled arms to runs with guides; default what the file says.
    """
    sweep, folder = read_sweep(name, scale)
    own = {"seeds": None if seeds is None else tuple(seeds), "controls": controls}
    sweep = sweep.model_copy(update={key: value for key, value in own.items() if value is not None})
    axes = _axes(sweep, name)
    if compare := sweep.compare:
        named = (*compare.by, *compare.within)
        _known_labels(axes, {axis: [] for axis in named}, f"{name}: compare")
        if compare.baseline is not None and len(compare.by) == 1:
            _known_labels(axes, {compare.by[0]: compare.baseline}, f"{name}: compare.baseline")
        if SEED in named:
            raise InputError(f"{name}: compare names {SEED!r}: seeds are averaged over; name another axis.")
    skipped = [_known_labels(axes, each, f"{name}: skip") for each in sweep.skip]
    axes = _narrowed(axes, only)
    total = prod(len(points) for points in axes.values())
    if total > MAX_RUNS:
        raise InputError(
            f"{name}: its axes have {total:,} combinations: expected at most {MAX_RUNS:,}; vary less, or choose some "
            "of the points with only=AXIS=LABEL."
        )
    base = recipe_data(sweep.recipe, folder) if isinstance(sweep.recipe, str) else dict(sweep.recipe)
    base = _changed({"name": sweep.name, **base}, sweep.set, f"{name}: set")
    last = dict(parse_change(change) for change in changes)
    runs, guides = [], []
    for labels in product(*axes.values()):
        point = dict(zip(axes, labels, strict=True))
        if any(all(point[axis] in some for axis, some in skip.items()) for skip in skipped):
            continue
        where = f"{name}{''.join(f', {axis} {label}' for axis, label in point.items() if axis != SEED)}"
        data = base
        for axis, label in point.items():
            if not (sweep.controls and axis == ARM):
                data = _changed(data, axes[axis][label], where)
        data = _changed(data, last, "changes")
        recipe = check_recipe(data, where)
        guides.append(recipe.guides)
        arm = guides_of_arm(recipe.guides, point[ARM] if sweep.controls else RECIPE)
        if arm is None:
            continue
        recipe = recipe if arm == recipe.guides else check_recipe(data | {"guides": arm}, where)
        if sweep.then and not recipe.several:
            raise InputError(f"{where}: then is for recipes with several tasks, and this one has one: leave then out.")
        runs.append(PlannedRun(point, recipe, run_key(recipe, sweep.then)))
    notes = check_arms(guides, shuffled=SHUFFLED in axes[ARM], where=name) if sweep.controls else ()
    if not runs:
        raise InputError(f"{name}: skip and only=... leave no run: leave one of them out.")
    if sweep.layers is not None and not any(planned.recipe.guides for planned in runs):
        raise InputError(f"{name}: layers is for guides, and no run has any: add guides, or leave layers out.")
    return SweepPlan(sweep, scale, axes, tuple(runs), notes)


def _narrowed(axes: dict[str, dict[str, Changes]], only: Sequence[str]) -> dict[str, dict[str, Changes]]:
    """The axes with the points of `only`."""
    labels: dict[str, list[str]] = {}
    for each in only:
        name, equals, values = each.partition("=")
        if not equals:
            raise InputError(f"only={each}: expected AXIS=LABEL, such as system=plain.")
        labels.setdefault(name.strip(), []).extend(label.strip() for label in values.split(","))
    kept = _known_labels(axes, labels, "only=...")
    return {
        name: {label: changes for label, changes in points.items() if label in kept.get(name, points)}
        for name, points in axes.items()
    }
