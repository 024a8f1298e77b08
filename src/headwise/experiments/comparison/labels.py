"""Short names for systems, made of the values in which they differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headwise.experiments.comparison.differences import MISSING, differing, distinct, flat, value_name
from headwise.experiments.results import StoredRun, canonical

PLAIN, WITHOUT = "plain", "without"
# Parts of a recipe that are many choices, not one.
PARTS = ("data", "training")


def groups_of(keys: Iterable[str]) -> tuple[str, ...]:
    """What keys belong to as one choice: `guides`, `model`, but `training.batch`."""
    names = []
    for key in keys:
        first, _, rest = key.partition(".")
        names.append(f"{first}.{rest.partition('.')[0]}" if first in PARTS and rest else first)
    return tuple(dict.fromkeys(names))


def value_of(run: StoredRun, key: str) -> Any:
    """What a recipe has at a dotted key; MISSING if nothing."""
    value: Any = run.recipe
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return MISSING
        value = value[part]
    return value


def label_runs(key: str, runs: Iterable[StoredRun]) -> dict[str, str]:
    """By identity of the run, a name for its value of a key: as short as tells the values apart."""
    runs = list(runs)
    values = distinct(value_of(run, key) for run in runs)
    short = [_short(key, value) for value in values]
    names = {
        value_name(value): name if short.count(name) == 1 else _long(name, value, _alike(values, short, name))
        for value, name in zip(values, short, strict=True)
    }
    return {run.identity: names[value_name(value_of(run, key))] for run in runs}


def differing_groups(runs: Iterable[StoredRun]) -> tuple[str, ...]:
    """The choices in which runs differ, apart from the seed."""
    return groups_of(differing(runs))


def _short(key: str, value: Any) -> str:
    last = key.rpartition(".")[2]
    if value is MISSING or value is None:
        return WITHOUT
    if key == "guides" and isinstance(value, Mapping):
        return "+".join(value) or PLAIN
    if isinstance(value, Mapping):
        return str(value.get("name", last))
    if isinstance(value, str):
        return value.rstrip("/").rpartition("/")[2] or value
    return f"{last}={canonical(value)}"


def _alike(values: list[Any], short: list[str], name: str) -> list[Any]:
    return [value for value, other in zip(values, short, strict=True) if other == name]


def _long(name: str, value: Any, alike: list[Any]) -> str:
    """With the values below it in which it differs from those of the same short name."""
    if not isinstance(value, Mapping):
        return str(value)
    flats = [flat(each) for each in alike]
    keys = [
        key
        for key in dict.fromkeys(key for each in flats for key in each)
        if len(distinct(each.get(key, MISSING) for each in flats)) > 1
    ]
    own = flat(value)
    told = ", ".join(f"{key}={canonical(own[key])}" for key in keys if own.get(key, {}) != {})
    return f"{name} ({told})" if told else f"{name} (as it comes)"
