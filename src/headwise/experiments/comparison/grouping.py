"""Systems side by side: runs by system and seed, refused if they differ in anything but what is compared."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from headwise.errors import InputError, choices
from headwise.experiments.comparison.differences import (
    MISSING,
    PARTS,
    WITHOUT,
    covered,
    differing,
    distinct,
    first_difference,
    flat,
    label_runs,
    two_values,
    value_of,
)
from headwise.experiments.comparison.gather import KEY, RUN, SEED, SPLITS, CompareOptions, RunTable, gather
from headwise.experiments.record import StoredRun
from headwise.experiments.sweeps.control_arms import ARM, PLAIN, ArmRun, system_names
from headwise.experiments.sweeps.result_folder import NAMES_ONLY

BASELINES = (PLAIN, WITHOUT, "baseline")
EXAMPLES = "examples"
# The column with the label of a run's system.
SYSTEM = "system of the comparison"
# Runs that differ in one of these have other token ids as well.
CHANGES_EXAMPLES = ("task", "tasks", "data", "model")
# Parts of the environment that change results; of the packages, two.
ENVIRONMENT = ("headwise", "torch", "transformers", "accelerator", "threads", "processes", "precision")

Seeds = Mapping[int, StoredRun]


@dataclass(frozen=True)
class Group:
    """Systems that are compared with each other, by label, each with its runs by seed."""

    within: Mapping[str, str]
    """The labels that they have in common."""
    systems: Mapping[str, Seeds]

    @property
    def title(self) -> str:
        """For messages, with what follows."""
        return f"{', '.join(f'{name} {label}' for name, label in self.within.items())}: " if self.within else ""

    @property
    def runs(self) -> list[StoredRun]:
        """The runs of all systems."""
        return [run for seeds in self.systems.values() for run in seeds.values()]


@dataclass(frozen=True, eq=False)
class Grouped:
    """The runs of a comparison in groups."""

    table: RunTable
    by: tuple[str, ...]
    within: tuple[str, ...]
    baseline: str | None
    """The label that the options or the sweep name."""
    groups: list[Group]
    ignored: list[str]
    """Differences that the options allow."""


def group_runs(paths: Sequence[Path], options: CompareOptions) -> Grouped:
    """Read runs and group them; refuses runs that differ in anything but what is compared."""
    table = gather(paths, options.sweep)
    manifest = table.manifest
    by = options.by or (manifest.by if manifest else ()) or _only_choice(table)
    within = options.within or tuple(name for name in (manifest.within if manifest else ()) if name not in by)
    if SEED in by:
        raise InputError("by=seed: seeds are averaged over; name what separates the systems.")
    names = [*((name, "by") for name in by), *((name, "within") for name in within)]
    names += [(name, "only") for name in options.only]
    keys, columns = {}, {}
    for name, option in names:
        keys[name], columns[name] = _labels(table, name, option)
    table = _narrowed(replace(table, runs=table.runs.assign(**columns)), options.only)
    table = _with_systems(table, by, within)
    groups = _groups(table.runs, by, within)
    by_keys, within_keys = ([key for name in part for key in keys[name]] for part in (by, within))
    _check_recipes(groups, by_keys, within_keys, options.ignore)
    own_baseline = manifest.baseline if manifest is not None and set(by) == set(manifest.by) else None
    return Grouped(
        table=table,
        by=tuple(by),
        within=tuple(within),
        baseline=options.baseline or own_baseline,
        groups=groups,
        ignored=_check_environment(groups, by_keys, options.ignore),
    )


def _only_choice(table: RunTable) -> tuple[str, ...]:
    """The one thing in which the runs differ."""
    if table.manifest is not None:
        names = tuple(name for name in table.manifest.axes if name != SEED)
        where = f"the sweep {table.manifest.name} does not say what to compare, and has the axes"
    else:
        where, chosen = "the runs differ in", []
        for key in differing(table.runs[RUN]):  # each as one choice: guides, model, but training.learning_rate
            first, _, rest = key.partition(".")
            chosen.append(f"{first}.{rest.partition('.')[0]}" if first in PARTS and rest else first)
        names = tuple(dict.fromkeys(chosen))
    if len(names) > 1:
        raise InputError(
            f"{where} {', '.join(names)}: give by=... for what separates the systems, and within=... for what gets a "
            "table for each value."
        )
    if not names:
        raise InputError("the runs differ in nothing but their seed, so there is one system only: add runs of another.")
    return names


def _labels(table: RunTable, name: str, option: str) -> tuple[Sequence[str], pd.Categorical]:
    """The keys of recipes that an axis or key may change, and the label of every run in the order of the labels."""
    axes = table.manifest.axes if table.manifest else {}
    if name in axes:
        return axes[name]["keys"], pd.Categorical(table.runs[name], categories=axes[name]["labels"], ordered=True)
    runs = list(table.runs[RUN])
    if name in NAMES_ONLY or all(value_of(run, name) is MISSING for run in runs):
        known = choices(name, dict.fromkeys((*axes, *differing(runs))))
        raise InputError(f"{option}={name}: there is no such axis, and no such key in the recipes; {known}.")
    labels = label_runs(name, runs)

    def natural(label: str) -> tuple[str, float, str]:
        """Numbers by their size, words by the alphabet."""
        words, _, number = label.rpartition("=")
        try:
            return words, float(number), label
        except ValueError:
            return label, 0.0, label

    return (name,), pd.Categorical(labels, categories=sorted(set(labels), key=natural), ordered=True)


def _narrowed(table: RunTable, only: Mapping[str, Sequence[str]]) -> RunTable:
    """The runs with the labels to keep; of the missing ones as far as their points say."""
    runs, missing = table.runs, table.missing
    for name, labels in only.items():
        known = list(runs[name].cat.categories)
        if unknown := [label for label in labels if label not in known]:
            raise InputError(f"only={name}={unknown[0]}: {choices(unknown[0], known)}.")
        runs = runs[runs[name].isin(labels)]
        missing = missing[missing[name].isin(labels)] if name in missing else missing
    return replace(table, runs=runs, missing=missing)


def _with_systems(table: RunTable, by: Sequence[str], within: Sequence[str]) -> RunTable:
    """With the label of the system of every run; of missing runs, if their points say it."""
    parts = [table.runs, *([table.missing] if {*by, *within} <= set(table.missing.columns) else [])]
    rows = [row for part in parts for row in part.to_dict("records")]
    if table.manifest is not None and ARM in table.manifest.axes and ARM in by:
        others = [name for name in by if name != ARM]
        names = system_names(
            [
                ArmRun(
                    key=row[KEY],
                    cell=tuple(row[name] for name in within),
                    system=", ".join(row[name] for name in others),
                    arm=row[ARM],
                    seed=row.get(SEED, ""),
                    guides=tuple(row[RUN].recipe.get("guides") or ()) if RUN in row else (),
                )
                for row in rows
            ]
        )
    else:
        names = [", ".join(row[name] for name in by) for row in rows]
    named = table.runs.assign(**{SYSTEM: names[: len(table.runs)]})
    missing = table.missing.assign(**{SYSTEM: names[len(table.runs) :]}) if len(parts) > 1 else table.missing
    return replace(table, runs=named, missing=missing)


def _groups(runs: pd.DataFrame, by: Sequence[str], within: Sequence[str]) -> list[Group]:
    """By group, system and seed, so that the order of the files does not matter."""
    order = runs.assign(**{SEED: [run.seed for run in runs[RUN]]}).sort_values([*within, *by, SEED], kind="stable")
    groups: dict[tuple[str, ...], dict[str, dict[int, StoredRun]]] = {}
    for *labels, system, run in order[[*within, SYSTEM, RUN]].to_numpy():
        systems = groups.setdefault(tuple(labels), {})
        other = systems.setdefault(system, {}).setdefault(run.seed, run)
        if other.identity != run.identity:
            raise InputError(
                f"{system} has several runs of seed {run.seed}, which differ in {first_difference([other, run])}: name "
                "it in by=... or within=..., or keep one value with only=KEY=VALUE."
            )
    return [Group(dict(zip(within, labels, strict=True)), systems) for labels, systems in groups.items()]


def _check_recipes(groups: Sequence[Group], by: Sequence[str], within: Sequence[str], ignore: Sequence[str]) -> None:
    """Refuse recipes that differ in a key that nobody named."""
    parts: list[tuple[str, Iterable[StoredRun], Sequence[str]]] = []
    for group in groups:
        parts += [(f"{group.title}the seeds of {name}", seeds.values(), ()) for name, seeds in group.systems.items()]
        parts.append((f"{group.title}the systems", group.runs, by))
    parts.append(("the blocks", [run for group in groups for run in group.runs], [*by, *within]))
    for what, runs, allowed in parts:
        difference = first_difference(runs, (*allowed, *ignore))
        if difference is not None:
            raise InputError(
                f"{what} differ in {difference}: only what is compared may differ; name it in by=... or within=..., "
                "keep one value with only=KEY=VALUE, or allow it with ignore=KEY."
            )


def _check_environment(groups: Sequence[Group], by: Sequence[str], ignore: Sequence[str]) -> list[str]:
    """Refuse runs of different environments, or on other examples; return all differences that are allowed."""
    runs = [run for group in groups for run in group.runs]
    keys = dict.fromkeys(key for run in runs for key in flat(run.recipe))
    for name in ignore:
        if name not in ENVIRONMENT and name != EXAMPLES and not any(covered(key, [name]) for key in keys):
            known = choices(name, dict.fromkeys((*ENVIRONMENT, EXAMPLES, *keys)))
            raise InputError(f"ignore={name}: there is no such key; {known}.")
    allowed = [difference for key, difference in differing(runs).items() if covered(key, ignore)]
    # One process if it is not said; a step takes a batch of each.
    environments = [{"processes": 1, **run.environment, **(run.environment.get("packages") or {})} for run in runs]
    for name in ENVIRONMENT:
        values = distinct(environment.get(name) for environment in environments)
        if len(values) < 2:
            continue
        allowed.append(two_values(name, values))
        if name not in ignore:
            raise InputError(
                f"the runs differ in {allowed[-1]}, which changes results: run them again in one environment, or allow "
                f"it with ignore={name}."
            )
    if any(covered(key, CHANGES_EXAMPLES) for key in by):
        return allowed
    for group in groups:
        for seed in dict.fromkeys(run.seed for run in group.runs):
            values = distinct(run.examples for run in group.runs if run.seed == seed)
            if len(values) < 2:
                continue
            if EXAMPLES in ignore:
                return [*allowed, two_values(EXAMPLES, values)]
            raise InputError(
                f"{group.title}the runs of seed {seed} had different examples (hash {values[0]} and {values[1]}), as "
                f"after a change of files: run them again on the same, or allow it with ignore={EXAMPLES}."
            )
    return allowed


def choose_baseline(grouped: Grouped) -> str:
    """The system that the others are compared with: the one named, or the only one that can be meant."""
    systems: dict[str, StoredRun] = {}
    for group in grouped.groups:
        systems |= {system: next(iter(seeds.values())) for system, seeds in group.systems.items() if seeds}
    if len(systems) < 2:
        fix = grouped.table.progress or "add runs of another to compare it with"
        raise InputError(f"there is one system only ({', '.join(systems)}): {fix}.")
    baseline = grouped.baseline
    if baseline is not None:
        if baseline not in systems:
            raise InputError(
                f"the baseline {baseline} is not among the systems that have runs: {choices(baseline, systems)}; "
                "choose one with baseline=SYSTEM."
            )
        return baseline
    named = [system for system in systems if system in BASELINES]
    named = named or [system for system, run in systems.items() if run.recipe.get("guides") == {}]
    if len(named) != 1:
        raise InputError(
            f"which system are the others compared with: name one of {', '.join(systems)} with baseline=SYSTEM."
        )
    return named[0]


def balance(grouped: Grouped, baseline: str, *, common_seeds: bool) -> tuple[list[Group], list[str]]:
    """Groups in which all systems have the same seeds, and notes about what was left out.

    Systems that lack seeds are refused, unless the seeds that all have are to be used; systems without any run are
    then left out.
    """
    still = None if grouped.table.progress is None else f"{grouped.table.progress};"
    kept, notes = [], []
    for group in grouped.groups:
        systems = dict(group.systems)
        for name in _without_runs(group, grouped):
            systems.setdefault(name, {})
        everyone = sorted({seed for seeds in systems.values() for seed in seeds})
        lacks = {name: [seed for seed in everyone if seed not in seeds] for name, seeds in systems.items()}
        if not common_seeds:
            if any(lacks.values()):
                listed = "; ".join(f"{name} lacks {_numbers(seeds)}" for name, seeds in lacks.items() if seeds)
                raise InputError(
                    f"{group.title}the systems do not have the same seeds: {listed} of {_numbers(everyone)} "
                    f"({still or 'add their runs,'} or use the seeds that all have with common_seeds=True)."
                )
            kept.append(group)
            continue
        present = {name: seeds for name, seeds in systems.items() if seeds}
        common = [seed for seed in everyone if all(seed in seeds for seeds in present.values())]
        if baseline not in present or len(present) < 2 or not common:
            enough = baseline in present and len(present) > 1
            reason = "no seed is common to all systems" if enough else "not enough of it is there"
            notes.append(f"{group.title}left out, since {reason}.")
            continue
        absent = ", ".join(name for name in systems if name not in present)
        dropped = _numbers([seed for seed in everyone if seed not in common])
        parts = [f"{absent} left out, without any run"] if absent else []
        parts += [f"seeds {dropped} left out, which not all systems have"] if dropped else []
        notes += [f"{group.title}{'; '.join(parts)}."] if parts else []
        shared = {name: {seed: seeds[seed] for seed in common} for name, seeds in present.items()}
        kept.append(replace(group, systems=shared))
    if not kept:
        raise InputError(f"no seed is there for {baseline} and another system: {still or 'add runs.'}")
    for group in kept:
        if baseline not in group.systems:
            raise InputError(
                f"{group.title}there is no {baseline} to compare with: add its runs, or choose another with "
                "baseline=SYSTEM."
            )
    return kept, notes


def _without_runs(group: Group, grouped: Grouped) -> list[str]:
    """The systems that the sweep has in this group and none of whose runs is finished."""
    missing = grouped.table.missing
    if missing.empty or SYSTEM not in missing.columns:
        return []  # of a run that is not there, only its labels on the axes are known
    for name, label in group.within.items():
        missing = missing[missing[name] == label]
    return list(missing[SYSTEM])


def _numbers(seeds: Sequence[int]) -> str:
    return ", ".join(str(seed) for seed in seeds)


def choose_split(runs: Sequence[StoredRun], wanted: str | None = None) -> str:
    """The split of the options; else test if all runs have scores on it, or validation."""
    for split in SPLITS if wanted is None else (wanted,):
        if all(run.metrics.get(split) for run in runs):
            return split
    split = wanted or SPLITS[-1]
    lacking = next(run for run in runs if not run.metrics.get(split))
    has = f"it has those on {', '.join(lacking.metrics)}" if lacking.metrics else "it has none at all"
    raise InputError(
        f"{lacking.path} has no scores on {split}: {has}; choose another split=NAME, or leave the run out."
    )


def choose_metrics(group: Group, split: str, options: CompareOptions) -> tuple[str, ...]:
    """The metrics to compare: the one of the options, the main one of the runs, or all."""
    first = group.runs[0]
    if options.all_metrics:
        common = [name for name in first.metrics[split] if all(name in run.metrics[split] for run in group.runs)]
        if not common:
            raise InputError(
                f"{group.title}the runs have no metric on {split} in common, so there is nothing to compare."
            )
        return tuple(sorted(common, key=lambda name: name != first.primary))
    other = next((run for run in group.runs if run.primary != first.primary), None)
    if options.metric is None and other is not None:
        raise InputError(
            f"{group.title}the runs have different main metrics ({first.primary} in {first.path}, {other.primary} in "
            f"{other.path}): choose one with metric=NAME, keep a part with only=KEY=VALUE, or show all with "
            "all_metrics=True."
        )
    metric = options.metric or first.primary
    for run in group.runs:
        if metric not in run.metrics[split]:
            raise InputError(f"{run.path} has no {metric} on {split}; {choices(metric, run.metrics[split])}.")
    return (metric,)


def scores_of(seeds: Seeds, metric: str, split: str) -> list[float]:
    """The scores of a system, seed by seed."""
    for run in seeds.values():
        if not math.isfinite(value := float(run.metrics[split][metric])):
            raise InputError(f"{run.path}: its {metric} on {split} is {value}, no number to compare; leave it out.")
    return [float(run.metrics[split][metric]) for run in seeds.values()]


def epoch_seconds(seeds: Seeds) -> list[float] | None:
    """For each seed the mean seconds of its epochs; None if a run has no times."""
    if not all(run.seconds for run in seeds.values()):
        return None
    return [float(np.mean(run.seconds)) for run in seeds.values()]
