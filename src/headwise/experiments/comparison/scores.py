"""Which numbers are compared: the split, the metrics, and the values of every seed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from headwise.errors import InputError, choices
from headwise.experiments.comparison.asked import SPLITS, Asked
from headwise.experiments.comparison.grouping import Group, Seeds
from headwise.experiments.results import StoredRun


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
