"""What a comparison comes to: tables of systems, each with its tests against the baseline."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from headwise.errors import InputError, choices
from headwise.experiments.comparison.example_tests import ExampleTest
from headwise.experiments.comparison.gather import SPLITS, Asked, Gathered
from headwise.experiments.comparison.grouping import Dimensions, Group, Seeds
from headwise.experiments.results import StoredRun
from headwise.metrics import SeedScores, SeedTest, holm

# Which numbers are compared: the split, the metrics, and the values of every seed.


def choose_split(runs: Iterable[StoredRun], wanted: str | None) -> str:
    """The split that was asked for, or test if all runs have scores on it, or validation."""
    runs = list(runs)
    for split in SPLITS if wanted is None else (wanted,):
        if all(run.metrics.get(split) for run in runs):
            return split
    lacking = next(run for run in runs if not run.metrics.get(wanted or SPLITS[-1]))
    has = f"it has those on {', '.join(lacking.metrics)}" if lacking.metrics else "it has none at all"
    raise InputError(
        f"{lacking.path} has no scores on {wanted or SPLITS[-1]}: {has}; choose another --split, or leave the run out."
    )


def choose_metrics(groups: Sequence[Group], split: str, asked: Asked) -> list[tuple[str, ...]]:
    """For each block the metrics to compare: the one that was asked for, its main one, or all."""
    if asked.all_metrics:
        return [_all_metrics(each, split) for each in groups]
    return [(_metric(each, split, asked.metric),) for each in groups]


def _metric(each: Group, split: str, wanted: str | None) -> str:
    """The metric that was asked for, or the main one, which all runs of a block must share."""
    primaries: dict[str, StoredRun] = {}
    for run in each.runs:
        primaries.setdefault(run.primary, run)
    if wanted is None and len(primaries) > 1:
        first, second = list(primaries.items())[:2]
        raise InputError(
            f"{each.title}the runs have different main metrics ({first[0]} in {first[1].path}, {second[0]} in "
            f"{second[1].path}): choose one with --metric, keep to a part with --only, or show them all by "
            "--all-metrics."
        )
    metric = wanted or each.runs[0].primary
    for run in each.runs:
        if metric not in run.metrics[split]:
            known = choices(metric, run.metrics[split])
            raise InputError(f"{run.path} has no {metric} on {split}; {known}.")
    return metric


def values_of(seeds: Seeds, metric: str, split: str) -> list[float]:
    """The scores of a system, seed by seed."""
    values = []
    for run in seeds.values():
        value = float(run.metrics[split][metric])
        if not math.isfinite(value):
            raise InputError(f"{run.path}: its {metric} on {split} is {value}, no number to compare; leave it out.")
        values.append(value)
    return values


def _all_metrics(each: Group, split: str) -> tuple[str, ...]:
    """Those that all runs of a block have, the main one first."""
    first = each.runs[0]
    common = [name for name in first.metrics[split] if all(name in run.metrics[split] for run in each.runs)]
    if not common:
        raise InputError(f"{each.title}the runs have no metric on {split} in common, so there is nothing to compare.")
    return tuple(sorted(common, key=lambda name: name != first.primary))


# Seeds are compared in pairs: every system of a block needs the same ones.


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


# How long an epoch takes, and how that compares with the baseline.


@dataclass(frozen=True)
class Times:
    """Seconds for an epoch: of each seed the mean over its epochs, of these the mean and standard deviation."""

    seconds: float
    deviation: float | None
    """None with one seed."""
    ratio: float | None
    """To the baseline; None for a baseline that took no time."""

    def as_data(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)


def times_of(group: Group, baseline: str) -> dict[str, Times]:
    """For every system of a block; nothing if a run of it or of the baseline has no times."""
    base = _mean(group.systems[baseline])
    if base is None:
        return {}
    found = {system: _mean(seeds) for system, seeds in group.systems.items()}
    return {
        system: Times(each.mean, each.deviation, each.mean / base.mean if base.mean else None)
        for system, each in found.items()
        if each is not None
    }


def _mean(seeds: Seeds) -> SeedScores | None:
    if not all(run.seconds for run in seeds.values()):
        return None
    return SeedScores.of([float(np.mean(run.seconds)) for run in seeds.values()])


# Stars below these p-values, as in the tables of arXiv 2204.02922.
LEVELS = ((0.01, "**"), (0.05, "*"))


@dataclass(frozen=True)
class Row:
    """One system by one metric."""

    system: str
    seeds: tuple[int, ...]
    scores: SeedScores
    by_seed: SeedTest | None = None
    """Against the baseline; None for the baseline itself."""
    by_example: ExampleTest | None = None
    """The same; None also where runs do not keep their answers."""
    times: Times | None = None
    holm: Mapping[str, float] = field(default_factory=dict)
    """By kind of test, the p-value corrected for all tests of this kind that are shown together."""
    stars: str = ""

    @property
    def p(self) -> dict[str, float]:
        """By kind of test, the p-value, where there is one."""
        found = {kind: value(self) for kind, value in KINDS.items()}
        return {kind: p for kind, p in found.items() if p is not None}

    def as_data(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {
            "system": self.system,
            "seeds": list(self.seeds),
            **self.scores.as_data(),
            "by_seed": None if self.by_seed is None else self.by_seed.as_data(),
            "by_example": None if self.by_example is None else self.by_example.as_data(),
            "p": self.p,
            "holm": dict(self.holm),
            "stars": self.stars,
            "times": None if self.times is None else self.times.as_data(),
        }


def _seed_test(name: str) -> Callable[[Row], float | None]:
    return lambda row: None if row.by_seed is None else getattr(row.by_seed, name)


def _example_test(name: str) -> Callable[[Row], float | None]:
    return lambda row: None if row.by_example is None else getattr(row.by_example, name)


KINDS: dict[str, Callable[[Row], float | None]] = {
    "t": _seed_test("t_test_p"),
    "permutation": _seed_test("permutation_p"),
    "mcnemar": _example_test("mcnemar_p"),
    "bootstrap": _example_test("bootstrap_p"),
    "randomisation": _example_test("randomisation_p"),
}


@dataclass(frozen=True)
class Table:
    """The systems of one block by one metric, the baseline first."""

    within: Mapping[str, str]
    """The labels that are the same for all of them."""
    metric: str
    rows: tuple[Row, ...]

    @property
    def title(self) -> str:
        """The block, for people."""
        return ", ".join(f"{name} {label}" for name, label in self.within.items())

    def as_data(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {"within": dict(self.within), "metric": self.metric, "rows": [row.as_data() for row in self.rows]}


def correct(tables: Sequence[Table], stars: str) -> tuple[Table, ...]:
    """With Holm's correction over all tests of one kind in all tables, and stars by the t-test."""
    corrected: dict[tuple[int, int], dict[str, float]] = {}
    for kind in KINDS:
        places = [
            (number, place)
            for number, table in enumerate(tables)
            for place, row in enumerate(table.rows)
            if kind in row.p
        ]
        values = holm([tables[number].rows[place].p[kind] for number, place in places])
        for each, value in zip(places, values, strict=True):
            corrected.setdefault(each, {})[kind] = value
    return tuple(
        replace(
            table,
            rows=tuple(
                _starred(replace(row, holm=corrected.get((number, place), {})), stars)
                for place, row in enumerate(table.rows)
            ),
        )
        for number, table in enumerate(tables)
    )


def stars_of(p: float | None) -> str:
    """One star below 0.05, two below 0.01."""
    return next((stars for level, stars in LEVELS if p is not None and p < level), "")


def _starred(row: Row, stars: str) -> Row:
    return replace(row, stars=stars_of((row.holm if stars == "holm" else row.p).get("t")))
