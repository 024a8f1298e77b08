"""In what runs differ, key by key: whoever compares two systems must know that nothing else was changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwise.experiments.results import StoredRun, canonical
from headwise.experiments.sweeps.plan import WORDS

# What may differ between any two runs that are compared.
ALWAYS = ("seed", *WORDS)


class _Missing:
    """The value of a key that a recipe does not have."""

    def __repr__(self) -> str:
        return "not set"


MISSING = _Missing()


@dataclass(frozen=True)
class Difference:
    """A key, and two of the values that runs have for it."""

    key: str
    first: Any
    second: Any
    others: int = 0
    """How many keys more differ."""

    def __str__(self) -> str:
        """For messages."""
        more = f" and in {self.others} other {'key' if self.others == 1 else 'keys'}" if self.others else ""
        return f"{self.key} ({shown(self.first)} and {shown(self.second)}){more}"


def flat(value: Any, key: str = "") -> dict[str, Any]:
    """Plain data by dotted keys; an empty part is a value of its own."""
    if not isinstance(value, Mapping) or not value:
        return {key: value}
    return {
        name: each
        for inner, part in value.items()
        for name, each in flat(part, f"{key}.{inner}" if key else str(inner)).items()
    }


def covered(key: str, prefixes: Iterable[str]) -> bool:
    """Whether a key is one of those named, or lies below one."""
    return any(key == prefix or key.startswith(f"{prefix}.") for prefix in prefixes)


def differing(runs: Iterable[StoredRun], but: Sequence[str] = ()) -> dict[str, Difference]:
    """The keys in which recipes are not all alike, but for those covered; in the order of the recipes."""
    recipes = [flat(run.recipe) for run in {run.identity: run for run in runs}.values()]
    keys = dict.fromkeys(key for recipe in recipes for key in recipe)
    found = {}
    for key in keys:
        if covered(key, (*ALWAYS, *but)):
            continue
        values = distinct(recipe.get(key, MISSING) for recipe in recipes)
        if len(values) > 1:
            found[key] = Difference(key, *values[:2])
    return found


def distinct(values: Iterable[Any]) -> list[Any]:
    """Each value once, in order; 1 and 1.0 are the same, 1 and True are not."""
    found: dict[str, Any] = {}
    for value in values:
        found.setdefault(value_name(value), value)
    return list(found.values())


def first_difference(runs: Iterable[StoredRun], but: Sequence[str] = ()) -> Difference | None:
    """The first key in which recipes are not alike, and how many more there are."""
    found = list(differing(runs, but).values())
    return Difference(found[0].key, found[0].first, found[0].second, len(found) - 1) if found else None


def shown(value: Any) -> str:
    """A value for messages, not too long."""
    text = repr(value) if value is MISSING else canonical(value)
    return text if len(text) <= 50 else f"{text[:47]}..."


def value_name(value: Any) -> str:
    """The same text for values that mean the same."""
    if value is MISSING:
        return "missing"
    whole = isinstance(value, float) and value.is_integer()
    return canonical(int(value) if whole else value)
