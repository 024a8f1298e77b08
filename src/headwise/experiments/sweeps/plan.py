"""From a sweep file to the runs that it asks for, all checked before any is started."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

from headwise.errors import InputError
from headwise.experiments.recipe import Recipe, check_recipe
from headwise.experiments.recipe_files import parse_change, recipe_data
from headwise.experiments.sweeps.sweep_file import SEED, Axis, Point, SweepFile, axes_of, chosen, read_sweep

# What names a run and decides nothing.
WORDS = ("name", "description")
FORMAT = 1
MAX_RUNS = 10_000


@dataclass(frozen=True)
class Planned:
    """A point of the grid and its recipe."""

    point: Mapping[str, str]
    """The label on each axis."""
    recipe: Recipe
    key: str
    """A hash of the resolved recipe, by which the result is found."""

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
    runs: tuple[Planned, ...]
    """One for each combination; several may have the same key."""

    @property
    def unique(self) -> tuple[Planned, ...]:
        """One for each key."""
        return tuple({planned.key: planned for planned in reversed(self.runs)}.values())[::-1]

    def manifest(self) -> dict[str, Any]:
        """Which run stands where: plain data for the folder of the results."""
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
        name: the file, or a name of `headwise list sweeps`.
        scale: one of its scales.
        changes: `KEY=VALUE`, made to every run after all else.
        only: `AXIS=LABEL`, or several labels with commas: the other points are left out.
        seeds: in place of those of the file.
    """
    sweep, folder = read_sweep(name, scale)
    if seeds is not None:
        sweep = sweep.model_copy(update={"seeds": tuple(seeds)})
    axes = axes_of(sweep, name)
    _check_compare(sweep, axes, name)
    skipped = [chosen(axes, each, f"{name}: skip") for each in sweep.skip]
    kept = _narrowed(axes, only)
    total = prod(len(axis.points) for axis in kept)
    if total > MAX_RUNS:
        raise InputError(
            f"{name}: its axes have {total:,} combinations: expected at most {MAX_RUNS:,}; vary less, or choose some "
            "of the points with --only."
        )
    base = recipe_data(sweep.recipe, folder) if isinstance(sweep.recipe, str) else dict(sweep.recipe)
    base.setdefault("name", sweep.name)
    base = Point("", sweep.set).apply(base, f"{name}: set")
    changed = [parse_change(change) for change in changes]
    runs = [
        _planned(combination, base, dict(changed), axes=kept, sweep=sweep, place=name)
        for combination in product(*(axis.points for axis in kept))
        if not any(_matches(skip, kept, combination) for skip in skipped)
    ]
    if not runs:
        raise InputError(f"{name}: skip and --only leave no run: leave one of them out.")
    if sweep.layers is not None and not any(_guided(planned.recipe) for planned in runs):
        raise InputError(f"{name}: layers is for guides, and no run has any: add guides, or leave layers out.")
    return SweepPlan(sweep, scale, kept, tuple(runs))


def run_key(recipe: Recipe, then: Mapping[str, Any] | None = None) -> str:
    """A hash of all that decides a run; its name and description do not."""
    content: dict[str, Any] = {name: value for name, value in recipe.as_data().items() if name not in WORDS}
    if then:
        content |= {"then": dict(then)}
    text = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _planned(
    combination: tuple[Point, ...],
    base: dict[str, Any],
    changes: Mapping[str, Any],
    *,
    axes: Sequence[Axis],
    sweep: SweepFile,
    place: str,
) -> Planned:
    point = {axis.name: each.label for axis, each in zip(axes, combination, strict=True)}
    where = f"{place}{''.join(f', {axis} {label}' for axis, label in point.items() if axis != SEED)}"
    data = base
    # Layers last: they are an option of whatever guides the other points have chosen.
    for each in sorted(combination, key=lambda one: one.layer is not None):
        data = each.apply(data, where)
    data = Point("", changes).apply(data, "--set")
    recipe = check_recipe(data, where)
    if sweep.then and not recipe.several:
        raise InputError(f"{where}: then is for recipes with several tasks, and this one has one: leave then out.")
    return Planned(point, recipe, run_key(recipe, sweep.then))


def _narrowed(axes: tuple[Axis, ...], only: Sequence[str]) -> tuple[Axis, ...]:
    wanted: dict[str, list[str]] = {}
    for each in only:
        name, equals, labels = each.partition("=")
        if not equals:
            raise InputError(f"--only {each!r}: expected AXIS=LABEL, such as system=plain.")
        wanted.setdefault(name.strip(), []).extend(label.strip() for label in labels.split(","))
    kept = chosen(axes, wanted, "--only")
    return tuple(
        replace(axis, points=tuple(point for point in axis.points if point.label in kept.get(axis.name, axis.labels)))
        for axis in axes
    )


def _matches(skip: Mapping[str, tuple[str, ...]], axes: Sequence[Axis], combination: tuple[Point, ...]) -> bool:
    labels = {axis.name: point.label for axis, point in zip(axes, combination, strict=True)}
    return all(labels[name] in wanted for name, wanted in skip.items())


def _guided(recipe: Recipe) -> bool:
    return bool(recipe.guides)


def _check_compare(sweep: SweepFile, axes: Sequence[Axis], place: str) -> None:
    """What is compared must be there."""
    compare = sweep.compare
    if compare is None:
        return
    chosen(axes, {name: [] for name in (*compare.by, *compare.within)}, f"{place}: compare")
    if compare.baseline is not None and len(compare.by) == 1:
        chosen(axes, {compare.by[0]: compare.baseline}, f"{place}: compare.baseline")
    if SEED in (*compare.by, *compare.within):
        raise InputError(f"{place}: compare names {SEED!r}: seeds are what is averaged over; name another axis.")
