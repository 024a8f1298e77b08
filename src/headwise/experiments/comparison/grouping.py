"""Blocks of systems of seeds: runs put where they belong, and refused if they differ in what nobody named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headwise.errors import InputError, choices
from headwise.experiments.comparison.gather import SEED, Asked, Gathered, Placed
from headwise.experiments.results import StoredRun, canonical
from headwise.experiments.sweeps.plan import WORDS

# In what runs differ, key by key: whoever compares two systems must know that nothing else was changed.


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


# Short names for systems, made of the values in which they differ.


PLAIN, WITHOUT = "plain", "without"
# Parts of a recipe that are many choices, not one.
PARTS = ("data", "training")


def groups_of(keys: Iterable[str]) -> tuple[str, ...]:
    """What keys belong to as one choice: `guides`, `model`, but `training.per_device_train_batch_size`."""
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


# What tells systems apart, and blocks: axes of a sweep, or keys of recipes.


@dataclass(frozen=True, eq=False)
class Dimension:
    """An axis, or a key of recipes, with a label for every run."""

    name: str
    keys: tuple[str, ...]
    """The keys of recipes that may differ along it."""
    order: tuple[str, ...]
    """All labels."""
    by_identity: Mapping[str, str] | None = None
    """Of a key, the label of every run; of an axis the points say it."""

    def label(self, placed: Placed) -> str:
        """The label of a run."""
        return placed.point[self.name] if self.by_identity is None else self.by_identity[placed.run.identity]


@dataclass(frozen=True, eq=False)
class Dimensions:
    """All that was chosen."""

    by: tuple[Dimension, ...]
    within: tuple[Dimension, ...]
    only: tuple[Dimension, ...]
    baseline: str | None
    """The label that was asked for, or that the sweep names."""

    def keys(self, dimensions: Sequence[Dimension]) -> tuple[str, ...]:
        """All keys along some of the dimensions."""
        return tuple(key for dimension in dimensions for key in dimension.keys)


def choose_dimensions(gathered: Gathered, asked: Asked) -> Dimensions:
    """What the user asked for, else what the sweep says, else the only thing in which the runs differ."""
    manifest = gathered.manifest
    by = asked.by or (manifest.by if manifest else ()) or _only_choice(gathered)
    within = asked.within or tuple(name for name in (manifest.within if manifest else ()) if name not in by)
    if SEED in by:
        raise InputError("--by seed: seeds are what is averaged over; name what tells the systems apart.")
    own = manifest is not None and set(by) == set(manifest.by)
    return Dimensions(
        by=tuple(_dimension(name, gathered, "--by") for name in by),
        within=tuple(_dimension(name, gathered, "--within") for name in within),
        only=tuple(_dimension(name, gathered, "--only") for name in asked.only),
        baseline=asked.baseline or (manifest.baseline if manifest and own else None),
    )


def _only_choice(gathered: Gathered) -> tuple[str, ...]:
    if gathered.manifest is not None:
        names = tuple(name for name in gathered.manifest.axes if name != SEED)
        where = f"the sweep {gathered.manifest.name} does not say what to compare, and has the axes"
    else:
        names = differing_groups(placed.run for placed in gathered.placed)
        where = "the runs differ in"
    if len(names) > 1:
        raise InputError(
            f"{where} {', '.join(names)}: say with --by what tells the systems apart, and with --within what is "
            "compared by itself."
        )
    if not names:
        raise InputError("the runs differ in nothing but their seed, so there is one system only: add runs of another.")
    return names


def _dimension(name: str, gathered: Gathered, option: str) -> Dimension:
    axes = gathered.manifest.axes if gathered.manifest else {}
    if name in axes:
        return Dimension(name, axes[name].keys, axes[name].labels)
    runs = [placed.run for placed in gathered.placed]
    if name in WORDS or all(value_of(run, name) is MISSING for run in runs):
        known = choices(name, dict.fromkeys((*axes, *differing(runs))))
        raise InputError(f"{option} {name}: there is no such axis, and no such key in the recipes; {known}.")
    labels = label_runs(name, runs)
    return Dimension(name, (name,), tuple(sorted(set(labels.values()), key=_natural)), labels)


def _natural(label: str) -> tuple[str, float, str]:
    """Numbers by their size, words by the alphabet."""
    name, _, number = label.rpartition("=")
    try:
        return name, float(number), label
    except ValueError:
        return label, 0.0, label


BASELINES = (PLAIN, WITHOUT, "baseline")

Seeds = Mapping[int, StoredRun]


@dataclass(frozen=True)
class Group:
    """Systems that are compared with each other, by label, each with its runs by seed."""

    within: Mapping[str, str]
    systems: Mapping[str, Seeds]

    @property
    def title(self) -> str:
        """For messages, with what follows."""
        return f"{', '.join(f'{name} {label}' for name, label in self.within.items())}: " if self.within else ""

    @property
    def runs(self) -> list[StoredRun]:
        """All of them."""
        return [run for seeds in self.systems.values() for run in seeds.values()]


def narrow(gathered: Gathered, only: Iterable[Dimension], asked: Asked) -> Gathered:
    """Only the runs with the labels that were asked for; of missing ones too, as far as their points tell."""
    placed, missing = list(gathered.placed), list(gathered.missing)
    for dimension in only:
        wanted = asked.only[dimension.name]
        for label in wanted:
            if label not in dimension.order:
                raise InputError(f"--only {dimension.name}={label}: {choices(label, dimension.order)}.")
        placed = [each for each in placed if dimension.label(each) in wanted]
        missing = [each for each in missing if each[1].get(dimension.name, wanted[0]) in wanted]
    return replace(gathered, placed=tuple(placed), missing=tuple(missing))


def group(gathered: Gathered, dimensions: Dimensions, asked: Asked) -> list[Group]:
    """Put the runs into blocks; refuse those that differ in anything but what is compared and named."""
    cells: dict[tuple[str, ...], dict[str, dict[int, StoredRun]]] = {}
    for each in _ordered(gathered.placed, dimensions):
        block = cells.setdefault(tuple(dimension.label(each) for dimension in dimensions.within), {})
        seeds = block.setdefault(system_of(each, dimensions), {})
        other = seeds.setdefault(each.run.seed, each.run)
        if other.identity != each.run.identity:
            raise InputError(
                f"{system_of(each, dimensions)} has several runs of seed {each.run.seed}, which differ in "
                f"{first_difference([other, each.run])}: name it in --by or --within, or keep to one with --only."
            )
    names = [dimension.name for dimension in dimensions.within]
    groups = [Group(dict(zip(names, block, strict=True)), systems) for block, systems in cells.items()]
    _check(groups, dimensions, asked)
    return groups


def system_of(placed: Placed, dimensions: Dimensions) -> str:
    """The name of the system that a run belongs to."""
    return ", ".join(dimension.label(placed) for dimension in dimensions.by)


def choose_baseline(groups: Iterable[Group], wanted: str | None, progress: str | None) -> str:
    """The system that the others are compared with: the one named, or the only one that can be meant.

    Args:
        groups: all blocks.
        wanted: a label.
        progress: how much of the sweep is still to come, for messages.
    """
    systems: dict[str, StoredRun] = {}
    for each in groups:
        systems |= {system: next(iter(seeds.values())) for system, seeds in each.systems.items() if seeds}
    if len(systems) < 2:
        way_out = progress or "add runs of another to compare it with."
        raise InputError(f"there is one system only ({', '.join(systems)}): {way_out}")
    if wanted is not None:
        if wanted not in systems:
            raise InputError(
                f"the baseline {wanted} is not among the systems that have runs: {choices(wanted, systems)}; name one "
                "by --baseline."
            )
        return wanted
    named = [system for system in systems if system in BASELINES]
    if not named:
        named = [system for system, run in systems.items() if run.recipe.get("guides") == {}]
    if len(named) != 1:
        raise InputError(f"which system are the others compared with: name one of {', '.join(systems)} by --baseline.")
    return named[0]


def ignored(groups: Iterable[Group], asked: Asked) -> list[Difference]:
    """The differences of recipes that were to be passed over, for the notes."""
    found = differing([run for each in groups for run in each.runs])
    return [difference for key, difference in found.items() if covered(key, asked.ignore)]


def _ordered(placed: Iterable[Placed], dimensions: Dimensions) -> list[Placed]:
    """By block, system and seed, so that the order of files has no say."""

    def place(each: Placed) -> tuple[int, ...]:
        chosen = (*dimensions.within, *dimensions.by)
        return (*(dimension.order.index(dimension.label(each)) for dimension in chosen), each.run.seed)

    return sorted(placed, key=place)


def _check(groups: list[Group], dimensions: Dimensions, asked: Asked) -> None:
    by, within = dimensions.keys(dimensions.by), dimensions.keys(dimensions.within)
    for each in groups:
        for system, seeds in each.systems.items():
            _refuse(first_difference(seeds.values(), asked.ignore), f"{each.title}the seeds of {system}")
        _refuse(first_difference(each.runs, (*by, *asked.ignore)), f"{each.title}the systems")
    runs = [run for each in groups for run in each.runs]
    _refuse(first_difference(runs, (*by, *within, *asked.ignore)), "the blocks")


def _refuse(difference: Difference | None, what: str) -> None:
    if difference is not None:
        raise InputError(
            f"{what} differ in {difference}: only what is compared may differ; name it in --by or --within, keep to a "
            "part with --only, or pass over it with --ignore."
        )
