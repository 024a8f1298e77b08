"""Recipes on disk: YAML in, with `a.b=c` on top; those that come with the package are found by name."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from headwise.errors import InputError, choices
from headwise.experiments.recipe import OLD_TRAINING_KEYS, Recipe, check_recipe, new_training_names

# YAML from users is read with limits, so that a small text never becomes a large value.
MAX_CHARACTERS = 1_000_000
"""Of a text, and of all its values with aliases written out."""
MAX_VALUES = 20_000
"""Keys, values, lists and mappings, with aliases written out."""
MAX_DEPTH = 50
MAX_DIGITS = 1000
WRITTEN_OUT = " (an alias, *name, counts as all that it repeats)"


class NotYamlError(InputError):
    """A text that is not YAML."""


class _Refused(yaml.MarkedYAMLError):
    """Valid YAML that breaks a limit."""


class Loader(yaml.SafeLoader):
    """YAML that reads 1e-5 as a number, `on` as a word, refuses a key that stands twice, and keeps the limits."""

    # YAML 1.1 takes on, off, yes and no for true and false; only these two are meant by those who write them today.
    yaml_implicit_resolvers = {
        first: [rule for rule in rules if rule[0] != "tag:yaml.org,2002:bool"]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    # No key of ours takes a Python set, bytes or pairs, and JSON could not hold them.
    yaml_constructors = {
        tag: construct
        for tag, construct in yaml.SafeLoader.yaml_constructors.items()
        if tag not in [f"tag:yaml.org,2002:{name}" for name in ("set", "binary", "omap", "pairs")]
    }

    def __init__(self, text: str) -> None:
        """Read `text`."""
        super().__init__(text)
        self._sizes: dict[str, tuple[int, int, int]] = {}  # values, characters, depth by anchor
        self._values = self._characters = 0  # so far, aliases written out
        self._depth = self._deepest = 0  # of the node that is being read, and of all that is in it so far

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """As usual, while everything is counted."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if self.check_event(yaml.AliasEvent):
            size = self._sizes.get(event.anchor)
            if size is None and event.anchor in self.anchors:
                problem = "a part of it contains itself (a YAML anchor that is cyclic): write it out instead"
                raise _Refused(problem=problem, problem_mark=event.start_mark)
            if size is not None:
                self._count(*size, event)
            return super().compose_node(parent, index)  # refuses an anchor that is not defined
        values, characters, deepest = self._values, self._characters, self._deepest
        self._count(1, len(event.value) if isinstance(event, yaml.ScalarEvent) else 0, 1, event)
        self._depth += 1
        self._deepest = self._depth
        node = super().compose_node(parent, index)
        self._depth -= 1
        if event.anchor is not None:
            depth = self._deepest - self._depth
            self._sizes[event.anchor] = (self._values - values, self._characters - characters, depth)
        self._deepest = max(self._deepest, deepest)
        return node

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

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        """As usual, but thousands of digits are no number: Python takes too long over them, or refuses."""
        if len(node.value) > MAX_DIGITS:
            problem = f"a number has {len(node.value)} digits: expected at most {MAX_DIGITS}"
            raise _Refused(problem=problem, problem_mark=node.start_mark)
        if node.tag.endswith(":int"):
            return super().construct_yaml_int(node)
        return super().construct_yaml_float(node)

    def _count(self, values: int, characters: int, depth: int, event: Any) -> None:
        self._values += values
        self._characters += characters
        self._deepest = max(self._deepest, self._depth + depth)
        problem = None
        if self._depth + depth > MAX_DEPTH:
            problem = f"it is nested deeper than {MAX_DEPTH} levels: write it with fewer"
        elif self._values > MAX_VALUES:
            problem = f"it has more than {MAX_VALUES:,} values{WRITTEN_OUT}: write fewer"
        elif self._characters > MAX_CHARACTERS:
            problem = f"its values have more than {MAX_CHARACTERS:,} characters{WRITTEN_OUT}: write fewer"
        if problem is not None:
            raise _Refused(problem=problem, problem_mark=event.start_mark)


class Dumper(yaml.SafeDumper):
    """YAML that our Loader reads as what it was: the text '1e5' in quotes."""


Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
for _kind in (Loader, Dumper):
    _kind.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
    )
for _number in ("int", "float"):
    Loader.add_constructor(f"tag:yaml.org,2002:{_number}", Loader.construct_number)


def parse_yaml(text: str, where: str) -> Any:
    """The value of a text from a user; whatever is wrong with it is one sentence.

    Args:
        text: YAML.
        where: where it was written, for messages.
    """
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"{where}: it has more than {MAX_CHARACTERS:,} characters: make it shorter.")
    try:
        return yaml.load(text, Loader)  # a SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        line = "" if mark is None else f" (line {mark.line + 1})"
        if isinstance(error, _Refused):
            raise InputError(f"{where}: {problem}{line}.") from error
        raise NotYamlError(f"{where}: not valid YAML: {problem}{line}.") from error
    except (ValueError, LookupError, AttributeError, TypeError) as error:  # a date in month 13, `!!bool 3`
        raise NotYamlError(f"{where}: not valid YAML: {' '.join(str(error).split())[:200]}.") from error


# Parts of a dotted key, such as the two of training.num_train_epochs.
MAX_PARTS = 50
# Characters of a change in a message.
SHOWN = 200


def read_recipe(name: str, changes: Sequence[str] = (), *, several: bool | None = None) -> Recipe:
    """A recipe from a file, or one of the package by its name, with changes such as `training.num_train_epochs=1`.

    Args:
        name: a YAML file, or a name of the package's recipes.
        changes: `KEY=VALUE`, the value in YAML.
        several: whether it must have `tasks` (True) or `task` (False); None: either.
    """
    data = recipe_data(name)
    for change in changes:
        data = with_change(data, *parse_change(change), f"changes={_short(change)}")
    return check_recipe(data, name, several=several)


def recipe_data(name: str, beside: Path | None = None) -> dict[str, Any]:
    """The keys and values of a recipe, not yet checked; `beside` is a folder to look in first."""
    path = Path(name).expanduser()
    if beside is not None and (beside / path).is_file():
        path = beside / path
    elif not path.is_file():
        known = bundled()
        if name not in known and path.is_dir():
            raise InputError(f"recipe {name!r} is a folder: name a YAML file in it.")
        if name not in known:
            raise InputError(
                f"recipe {name!r}: there is no such file, and no recipe of the package: {choices(name, known)}."
            )
        path = known[name]
    data = read_yaml(path, name)
    if not isinstance(data, dict):
        raise InputError(f"{name}: a recipe is a list of keys and values, such as `task: sick`; got {data!r:.60}.")
    data.setdefault("name", plain_name(path.stem))
    if isinstance(data.get("training"), dict):
        try:
            data["training"] = new_training_names(data["training"], warn=True)
        except ValueError as error:
            raise InputError(f"{name}: {error}.") from error
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


def recipe_text(recipe: Recipe) -> str:
    """The recipe as YAML."""
    text: str = yaml.dump(recipe.as_data(), Dumper=Dumper, sort_keys=False, allow_unicode=True)
    return text


def parse_change(
    change: str, argument: str = "changes", form: str = "KEY=VALUE, such as training.num_train_epochs=1"
) -> tuple[str, Any]:
    """The key and the value of `KEY=VALUE`, which is YAML; argument and form are for messages."""
    name, equals, text = change.partition("=")
    if not equals or not name.strip():
        raise InputError(f"{argument}={_short(change)}: expected {form}.")
    return name.strip(), parse_yaml(text, f"{argument}={_short(change)}")


def _short(change: str) -> str:
    return repr(change) if len(change) <= SHOWN else f"{change[:SHOWN]!r}..."


def with_change(data: dict[str, Any], key: str, value: Any, where: str) -> dict[str, Any]:
    """The data with one value changed, at a dotted key; what was given stays as it is.

    Args:
        data: a recipe's keys and values, not yet checked.
        key: such as training.num_train_epochs.
        value: what is there from now on.
        where: where the change was written, for messages.
    """
    parts = key.split(".")
    if len(parts) == 2 and parts[0] == "training" and parts[1] in OLD_TRAINING_KEYS:
        ((parts[1], value),) = new_training_names({parts[1]: value}, warn=True).items()
    if len(parts) > MAX_PARTS:
        raise InputError(
            f"{where}: the key {key[:40]!r}... has {len(parts)} parts: expected at most {MAX_PARTS}, such as the two "
            "of training.num_train_epochs."
        )
    changed = inside = dict(data)
    for part, below in itertools.pairwise(parts):
        outer = opened(part, inside.get(part))
        if outer is not None and not isinstance(outer, dict):
            raise InputError(f"{where}: {below!r} cannot be set inside {outer!r}.")
        inside[part] = dict(outer or {})
        inside = inside[part]
    inside[parts[-1]] = value
    return changed


def opened(key: str, value: Any) -> Any:
    """`task: sick`, `tasks: [sst2, rte]` and `guides: [mdg]` open up when one of their options is set."""
    if key == "task" and isinstance(value, str):
        return {"name": value}
    if key == "tasks" and isinstance(value, list):
        return {str(name): None for name in value}
    if key == "guides" and isinstance(value, str | list):
        return {str(name): None for name in ([value] if isinstance(value, str) else value)}
    return value
