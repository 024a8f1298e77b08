"""Seeds are compared in pairs: every system of a block needs the same ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from headwise.errors import InputError
from headwise.experiments.comparison.asked import Asked
from headwise.experiments.comparison.dimensions import Dimensions
from headwise.experiments.comparison.gather import Gathered
from headwise.experiments.comparison.grouping import Group, Seeds


def balance(
    groups: Sequence[Group], baseline: str, gathered: Gathered, dimensions: Dimensions, asked: Asked
) -> tuple[list[Group], list[str]]:
    """Blocks in which all systems have the same seeds, and what must be told about it.

    Refuses systems that lack seeds, unless those that all have are to be taken; then systems without any are left out.
    """
    whole = [_with_absent(each, gathered, dimensions) for each in groups]
    if not asked.common_seeds:
        for each in whole:
            _check(each, gathered)
        kept, notes = list(groups), []
    else:
        pairs = [_common(each, baseline) for each in whole]
        kept = [each for each, _ in pairs if each is not None]
        notes = [note for _, note in pairs if note]
    if not kept:
        raise InputError(f"no seed is there for {baseline} and another system: {_still(gathered) or 'add runs.'}")
    for each in kept:
        if baseline not in each.systems:
            raise InputError(
                f"{each.title}there is no {baseline} to compare with: add its runs, or choose another --baseline."
            )
    return kept, notes


def progress_note(gathered: Gathered) -> str | None:
    """How much of a sweep is still to come."""
    if not gathered.missing or gathered.manifest is None:
        return None
    missing = len({key for key, _ in gathered.missing})
    total = missing + len({placed.run.identity for placed in gathered.placed})
    return (
        f"{missing} of {total} runs of the sweep {gathered.manifest.name} are not there yet; `headwise sweep` goes on "
        "with them."
    )


def _with_absent(each: Group, gathered: Gathered, dimensions: Dimensions) -> Group:
    """With the systems that the sweep has in this block and none of whose runs is there yet."""
    chosen = (*dimensions.by, *dimensions.within)
    if any(dimension.by_identity is not None for dimension in chosen):
        return each  # of a run that is not there, only its point is known
    here = [point for _, point in gathered.missing if all(point[name] == label for name, label in each.within.items())]
    absent = dict.fromkeys(", ".join(point[dimension.name] for dimension in dimensions.by) for point in here)
    return replace(each, systems={**each.systems, **{name: {} for name in absent if name not in each.systems}})


def _check(each: Group, gathered: Gathered) -> None:
    seeds = {system: set(runs) for system, runs in each.systems.items()}
    everyone = set().union(*seeds.values())
    lacking = {system: sorted(everyone - own) for system, own in seeds.items() if everyone - own}
    if lacking:
        told = "; ".join(f"{system} lacks {_numbers(missing)}" for system, missing in lacking.items())
        raise InputError(
            f"{each.title}the systems do not have the same seeds: {told} of {_numbers(sorted(everyone))} "
            f"({_still(gathered) or 'add their runs,'} or take the seeds that all have by --common-seeds)."
        )


def _common(each: Group, baseline: str) -> tuple[Group | None, str | None]:
    """The seeds that all systems have which have any; None if there is nothing left to compare."""
    present = {system: runs for system, runs in each.systems.items() if runs}
    absent = [system for system in each.systems if system not in present]
    if baseline in absent or len(present) < 2:
        return None, f"{each.title}left out, since not enough of it is there."
    common = sorted(set.intersection(*(set(runs) for runs in present.values())))
    dropped = sorted(set().union(*present.values()) - set(common))
    if not common:
        return None, f"{each.title}left out, since no seed is common to all systems."
    told = [f"{', '.join(absent)} left out, without any run"] if absent else []
    told += [f"seeds {_numbers(dropped)} left out, which not all systems have"] if dropped else []
    note = f"{each.title}{'; '.join(told)}." if told else None
    return replace(each, systems=_only(present, common)), note


def _only(systems: Mapping[str, Seeds], seeds: Sequence[int]) -> dict[str, Seeds]:
    return {system: {seed: runs[seed] for seed in seeds} for system, runs in systems.items()}


def _still(gathered: Gathered) -> str | None:
    note = progress_note(gathered)
    return None if note is None else note.rstrip(".") + ";"


def _numbers(seeds: Sequence[int]) -> str:
    return ", ".join(str(seed) for seed in seeds)
