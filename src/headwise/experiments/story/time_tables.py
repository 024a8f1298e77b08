"""How long an epoch takes: a table for each sweep (Table 4 of arXiv 2204.02922)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from headwise.experiments.comparison.asked import Asked
from headwise.experiments.comparison.grouping import BASELINES, Group, Seeds
from headwise.experiments.comparison.manifest import SEED
from headwise.experiments.comparison.times import times_of
from headwise.experiments.story.found_sweeps import FoundSweep, found_sweeps
from headwise.experiments.story.points import grouped, missing_notes
from headwise.metrics import SeedScores

NOTHING = "\N{EN DASH}"
ABOUT = "Seconds of an epoch: mean over epochs and seeds, with the 95 % t interval over seeds."
CAVEAT = "Times depend on the machine and on what else ran there."


def time_tables(folder: Path, sweep: str | None = None) -> list[dict[str, Any]]:
    """Seconds of an epoch for every system, and how much longer it takes than the baseline.

    Args:
        folder: of `headwise sweep`.
        sweep: one sweep of it; all if left out.

    Returns:
        A table for each sweep whose runs have times.
    """
    tables = [_table(each) for each in found_sweeps(folder, sweep)]
    return [table for table in tables if table["rows"]]


def epoch_seconds(seeds: Seeds) -> list[float] | None:
    """The mean over the epochs of every seed; None if one has no times."""
    if not all(run.seconds for run in seeds.values()):
        return None
    return [float(np.mean(run.seconds)) for run in seeds.values()]


def _table(sweep: FoundSweep) -> dict[str, Any]:
    manifest = sweep.manifest
    axes = [name for name in manifest.axes if name != SEED]
    by = [name for name in axes if not manifest.by or name in manifest.by]
    within = [name for name in axes if name not in by]
    if not by:
        return {"rows": []}
    gathered, groups = grouped(sweep, Asked(sweep=manifest.name, by=tuple(by), within=tuple(within)))
    return {
        "title": f"{sweep.title}: seconds of an epoch",
        "columns": [*within, ", ".join(by), "seeds", "seconds", "95 % interval", "× baseline"],
        "rows": [
            [*(each.within[name] for name in within), *row] for each in groups for row in _rows(each, manifest.baseline)
        ],
        "notes": [ABOUT, CAVEAT, *missing_notes(gathered)],
    }


def _rows(group: Group, baseline: str | None) -> list[list[str]]:
    """The baseline first, as in all tables."""
    named = next((name for name in (baseline, *BASELINES) if name in group.systems), None)
    ratios = {} if named is None else times_of(group, named)
    rows = []
    for system in sorted(group.systems, key=lambda name: name != named):
        seconds = epoch_seconds(group.systems[system])
        if seconds is None:
            continue
        scores = SeedScores.of(seconds)
        ratio = ratios[system].ratio if system in ratios else None
        rows.append(
            [
                system,
                str(len(seconds)),
                f"{scores.mean:.2f}",
                NOTHING if scores.low is None or scores.high is None else f"{scores.low:.2f} to {scores.high:.2f}",
                NOTHING if ratio is None else f"{ratio:.2f}",
            ]
        )
    return rows
