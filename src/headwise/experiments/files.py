"""Recipes on disk: YAML in, with `a.b=c` on top; those that come with the package are found by name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from headwise.errors import InputError, choices
from headwise.experiments.joint_recipe import JointRecipe, check_any_recipe, only_single
from headwise.experiments.recipe import Recipe
from headwise.experiments.yaml_text import MAX_CHARACTERS, dump_yaml, parse_yaml

# Parts of a dotted key, such as the two of training.epochs.
MAX_PARTS = 50
# Characters of a change in a message.
SHOWN = 200


def read_recipe(name: str, changes: Sequence[str] = ()) -> Recipe:
    """A recipe for one task; see `read_any_recipe`."""
    return only_single(read_any_recipe(name, changes), name)


def read_any_recipe(name: str, changes: Sequence[str] = ()) -> Recipe | JointRecipe:
    """A recipe from a file, or one of the package by its name, with changes such as `training.epochs=1`."""
    data = recipe_data(name)
    for change in changes:
        data = with_change(data, *parse_change(change), f"--set {_short(change)}")
    return check_any_recipe(data, name)


def recipe_data(name: str, beside: Path | None = None) -> dict[str, Any]:
    """The keys and values of a recipe, not yet checked; `beside` is a folder to look in first."""
    path = _find(name, beside)
    data = read_yaml(path, name)
    if not isinstance(data, dict):
        raise InputError(f"{name}: a recipe is a list of keys and values, such as `task: sick`; got {data!r:.60}.")
    data.setdefault("name", plain_name(path.stem))
    return data


def read_yaml(path: Path, name: str) -> Any:
    """What a file of ours says; `name` is what the user called it."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_CHARACTERS + 1)  # one more than is allowed
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: not UTF-8 text (byte {error.start}): save the file as UTF-8.") from error
    return parse_yaml(text, name)


def plain_name(text: str) -> str:
    """A name for a run or a sweep, made of any text."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).lstrip("._-") or "run"


def bundled() -> dict[str, Path]:
    """The recipes that come with the package, by name; those of a family by folder/name, such as table2/first."""
    folder = Path(str(resources.files("headwise"))) / "recipes"
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.yaml"))}


def recipe_text(recipe: Recipe | JointRecipe) -> str:
    """The recipe as YAML."""
    return dump_yaml(recipe.as_data())


def _find(name: str, beside: Path | None = None) -> Path:
    path = Path(name).expanduser()
    if beside is not None and (beside / path).is_file():
        return beside / path
    if path.is_file():
        return path
    known = bundled()
    if name in known:
        return known[name]
    if path.is_dir():
        raise InputError(f"recipe {name!r} is a folder: name a YAML file in it.")
    raise InputError(f"recipe {name!r}: there is no such file, and no recipe of the package: {choices(name, known)}.")


def parse_change(change: str) -> tuple[str, Any]:
    """The key and the value of `KEY=VALUE`, which is YAML."""
    name, equals, text = change.partition("=")
    if not equals or not name.strip():
        raise InputError(f"--set {_short(change)}: expected KEY=VALUE, such as training.epochs=1.")
    return name.strip(), parse_yaml(text, f"--set {_short(change)}")


def _short(change: str) -> str:
    return repr(change) if len(change) <= SHOWN else f"{change[:SHOWN]!r}..."


def with_change(data: dict[str, Any], key: str, value: Any, place: str) -> dict[str, Any]:
    """The data with one value changed, at a dotted key; what was given stays as it is.

    Args:
        data: a recipe's keys and values, not yet checked.
        key: such as training.epochs.
        value: what is there from now on.
        place: where the change was written, for messages.
    """
    parts = key.split(".")
    if len(parts) > MAX_PARTS:
        raise InputError(
            f"{place}: the key {key[:40]!r}... has {len(parts)} parts: expected at most {MAX_PARTS}, such as the two "
            "of training.epochs."
        )
    return _with(data, parts, value, place)


def _with(data: Any, keys: list[str], value: Any, place: str) -> dict[str, Any]:
    first, *rest = keys
    if data is not None and not isinstance(data, dict):
        raise InputError(f"{place}: {first!r} cannot be set inside {data!r}.")
    inside = dict(data or {})
    inside[first] = _with(opened(first, inside.get(first)), rest, value, place) if rest else value
    return inside


def opened(key: str, value: Any) -> Any:
    """`task: sick`, `tasks: [sst2, rte]` and `guides: [mdg]` open up when one of their options is set."""
    if key == "task" and isinstance(value, str):
        return {"name": value}
    if key == "tasks" and isinstance(value, list):
        return {str(name): None for name in value}
    if key == "guides" and isinstance(value, str | list):
        return {str(name): None for name in ([value] if isinstance(value, str) else value)}
    return value
