"""How recipes differ, key by key, and short names for runs from the values in which they differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headwise.experiments.record import StoredRun, canonical
from headwise.experiments.sweeps.control_arms import PLAIN, SHUFFLE, SHUFFLED
from headwise.experiments.sweeps.result_folder import NAMES_ONLY

# Keys in which any two runs of a comparison may differ.
ALWAYS = ("seed", *NAMES_ONLY)
WITHOUT = "without"
# Parts of a recipe that are many choices, not one.
PARTS = ("data", "training")
# The value of a key that a recipe does not have.
MISSING: Any = object()


def flat(value: Any, key: str = "") -> dict[str, Any]:
    """Nested data by dotted keys; an empty part counts as a value."""
    if not isinstance(value, Mapping) or not value:
        return {key: value}
    return {
        name: each
        for inner, part in value.items()
        for name, each in flat(part, f"{key}.{inner}" if key else str(inner)).items()
    }


def covered(key: str, prefixes: Iterable[str]) -> bool:
    """Whether a key is one of the prefixes, or lies below one."""
    return any(key == prefix or key.startswith(f"{prefix}.") for prefix in prefixes)


def value_name(value: Any) -> str:
    """The same text for values that mean the same: 1 and 1.0 do, 1 and True do not."""
    if value is MISSING:
        return "missing"
    return canonical(int(value) if isinstance(value, float) and value.is_integer() else value)


def shown(value: Any) -> str:
    """A value for messages, not too long."""
    text = "not set" if value is MISSING else canonical(value)
    return text if len(text) <= 50 else f"{text[:47]}..."


def distinct(values: Iterable[Any]) -> list[Any]:
    """Each value once, in order."""
    unique: dict[str, Any] = {}
    for value in values:
        unique.setdefault(value_name(value), value)
    return list(unique.values())


def differing(runs: Iterable[StoredRun], but: Sequence[str] = ()) -> dict[str, str]:
    """The keys in which the recipes differ, in their order, with two values; keys covered by `but` are left out."""
    recipes = [flat(run.recipe) for run in {run.identity: run for run in runs}.values()]
    differences = {}
    for key in dict.fromkeys(key for recipe in recipes for key in recipe):
        values = distinct(recipe.get(key, MISSING) for recipe in recipes)
        if len(values) > 1 and not covered(key, (*ALWAYS, *but)):
            differences[key] = two_values(key, values)
    return differences


def two_values(key: str, values: Sequence[Any]) -> str:
    """A key and the first two values that runs have for it, for messages."""
    return f"{key} ({shown(values[0])} and {shown(values[1])})"


def first_difference(runs: Iterable[StoredRun], but: Sequence[str] = ()) -> str | None:
    """The first key in which the recipes differ, and how many more there are, for messages."""
    first, *others = differing(runs, but).values() or [None]
    return f"{first} and in {len(others)} other {'key' if len(others) == 1 else 'keys'}" if others else first


def value_of(run: StoredRun, key: str) -> Any:
    """The value of a recipe at a dotted key; MISSING without one."""
    value: Any = run.recipe
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return MISSING
        value = value[part]
    return value


def label_runs(key: str, runs: Sequence[StoredRun]) -> list[str]:
    """For each run a name for its value of a key: as short as separates the values."""
    values = distinct(value_of(run, key) for run in runs)
    short = [_short_name(key, value) for value in values]
    names = {}
    for value, name in zip(values, short, strict=True):
        alike = [other for other, another in zip(values, short, strict=True) if another == name]
        if len(alike) > 1 and not isinstance(value, Mapping):
            name = str(value)
        elif len(alike) > 1:  # with the values below it in which they differ
            parts, own = [flat(each) for each in alike], flat(value)
            keys = dict.fromkeys(part for each in parts for part in each)
            differ = [part for part in keys if len(distinct(each.get(part, MISSING) for each in parts)) > 1]
            text = ", ".join(f"{part}={canonical(own[part])}" for part in differ if own.get(part, {}) != {})
            name = f"{name} ({text or 'default'})"
        names[value_name(value)] = name
    return [names[value_name(value_of(run, key))] for run in runs]


def _short_name(key: str, value: Any) -> str:
    last = key.rpartition(".")[2]
    if value is MISSING or value is None:
        return WITHOUT
    if key == "guides" and isinstance(value, Mapping):
        shuffled = any(isinstance(each, Mapping) and each.get(SHUFFLE) is True for each in value.values())
        return ("+".join(value) or PLAIN) + (f" ({SHUFFLED})" if shuffled else "")
    if isinstance(value, Mapping):
        return str(value.get("name", last))
    if isinstance(value, str):
        return value.rstrip("/").rpartition("/")[2] or value
    return f"{last}={canonical(value)}"
