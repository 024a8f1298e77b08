"""Blocks of systems of seeds: runs put where they belong, and refused if they differ in what nobody named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from headwise.errors import InputError, choices
from headwise.experiments.comparison.asked import Asked
from headwise.experiments.comparison.differences import Difference, covered, differing, first_difference
from headwise.experiments.comparison.dimensions import Dimension, Dimensions
from headwise.experiments.comparison.gather import Gathered, Placed
from headwise.experiments.comparison.labels import PLAIN, WITHOUT
from headwise.experiments.results import StoredRun

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
