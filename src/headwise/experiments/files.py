"""Recipes on disk: YAML in, with `a.b=c` on top; those that come with the package are found by name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from headwise.errors import InputError, choices
from headwise.experiments.joint_recipe import JointRecipe, check_any_recipe, only_single
from headwise.experiments.recipe import Recipe


class Loader(yaml.SafeLoader):
    """YAML that reads 1e-5 as a number, `on` as a word, and refuses a key that stands twice."""

    # YAML 1.1 takes on, off, yes and no for true and false; only these two are meant by those who write them today.
    yaml_implicit_resolvers = {
        first: [rule for rule in rules if rule[0] != "tag:yaml.org,2002:bool"]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """As usual, but a second value for a key is a mistake, not an update."""
        seen = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == "tag:yaml.org,2002:merge":
                continue  # not for us: the one is refused below, the other brings keys that may be changed
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} stands twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


class Dumper(yaml.SafeDumper):
    """YAML that our Loader reads as what it was: the text '1e5' in quotes."""


Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
for _kind in (Loader, Dumper):
    _kind.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
    )


def read_recipe(name: str, changes: Sequence[str] = ()) -> Recipe:
    """A recipe for one task; see `read_any_recipe`."""
    return only_single(read_any_recipe(name, changes), name)


def read_any_recipe(name: str, changes: Sequence[str] = ()) -> Recipe | JointRecipe:
    """A recipe from a file, or one of the package by its name, with changes such as `training.epochs=1`."""
    data = recipe_data(name)
    for change in changes:
        data = with_change(data, *parse_change(change), f"--set {change!r}")
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
        data = yaml.load(path.read_text(encoding="utf-8"), Loader)  # a SafeLoader
    except yaml.YAMLError as error:
        raise InputError(f"{name}: not valid YAML: {_first_line(error)}.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: not UTF-8 text (byte {error.start}): save the file as UTF-8.") from error
    if _holds_itself(data):
        raise InputError(f"{name}: a part of it contains itself (a YAML anchor that is cyclic): write it out instead.")
    return data


def _holds_itself(data: Any, above: tuple[int, ...] = ()) -> bool:
    if not isinstance(data, dict | list):
        return False
    inside = data.values() if isinstance(data, dict) else data
    return id(data) in above or any(_holds_itself(each, (*above, id(data))) for each in inside)


def plain_name(text: str) -> str:
    """A name for a run or a sweep, made of any text."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).lstrip("._-") or "run"


def bundled() -> dict[str, Path]:
    """The recipes that come with the package, by name; those of a family by folder/name, such as table2/first."""
    folder = Path(str(resources.files("headwise"))) / "recipes"
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.yaml"))}


def recipe_text(recipe: Recipe | JointRecipe) -> str:
    """The recipe as YAML."""
    text: str = yaml.dump(recipe.as_data(), Dumper=Dumper, sort_keys=False, allow_unicode=True)
    return text


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
        raise InputError(f"--set {change!r}: expected KEY=VALUE, such as training.epochs=1.")
    try:
        value = yaml.load(text, Loader)  # a SafeLoader
    except yaml.YAMLError as error:
        raise InputError(f"--set {change!r}: the value is not valid YAML: {_first_line(error)}.") from error
    return name.strip(), value


def with_change(data: dict[str, Any], key: str, value: Any, place: str) -> dict[str, Any]:
    """The data with one value changed, at a dotted key; what was given stays as it is.

    Args:
        data: a recipe's keys and values, not yet checked.
        key: such as training.epochs.
        value: what is there from now on.
        place: where the change was written, for messages.
    """
    return _with(data, key.split("."), value, place)


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


def _first_line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"{problem} (line {mark.line + 1})" if mark is not None else str(problem)
