"""Sweep files: YAML that names a recipe, a grid of changes, seeds, sizes and layers."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError

from headwise.errors import InputError, choices
from headwise.experiments.files import plain_name, read_yaml
from headwise.experiments.recipe import Strict
from headwise.experiments.recipe_errors import sentence
from headwise.experiments.sweeps.afterwards import check_then

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
        raise InputError(f"{name}: {sentence(error, SweepFile)}") from error


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
