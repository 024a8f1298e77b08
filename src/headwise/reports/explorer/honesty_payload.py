"""What a reader must know before believing the rest of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headwise.experiments.comparison import Comparison, Row
from headwise.reports.explorer.runs import ReportRun

CAVEAT = (
    "Attention is not by itself an explanation: where a head looks does not prove why the model decides, and heads "
    "that look different may do the same."
)
LEVEL = 0.05
BY_SEED = ("t", "permutation")


def honesty_payload(
    runs: Sequence[ReportRun], comparisons: Sequence[Comparison], refusal: str | None, sweeps: Mapping[str, str]
) -> dict[str, Any]:
    """The caveat, how far seeds and tests go, and what did not work."""
    return {
        "caveat": CAVEAT,
        "items": [
            ["Seeds", _seeds(runs, comparisons)],
            ["Tests", _tests(comparisons, refusal)],
            [
                "Statistics of heads",
                "Standard errors are over examples. They say nothing about another seed, where heads may trade places.",
            ],
            *([f"Sweep {name}", told] for name, told in sweeps.items()),
        ],
        "negative": [sentence for each in comparisons for sentence in negative_results(each)],
    }


def _seeds(runs: Sequence[ReportRun], comparisons: Sequence[Comparison]) -> str:
    seeds = sorted({int(run.record["asked"]["seed"]) for run in runs})
    shown = f"The heads shown are those of one training each (seed {', '.join(map(str, seeds))})."
    most = max((len(row.seeds) for each in comparisons for table in each.tables for row in table.rows), default=1)
    if most > 1:
        return f"{shown} Scores with intervals are over up to {most} seeds."
    return f"{shown} With one seed a difference of a point or two may be chance: train several, see `headwise sweep`."


def _tests(comparisons: Sequence[Comparison], refusal: str | None) -> str:
    told = [] if refusal is None else [f"The two runs were not tested: {refusal}"]
    count = sum(len(row.p) for each in comparisons for table in each.tables for row in table.rows)
    if count:
        told.append(f"{count} tests, shown with all their p-values; stars, if any, follow Holm's correction.")
    elif comparisons:
        told.append("No test was possible: there is one seed, and nothing is kept of single examples.")
    return " ".join(told) or "Nothing was compared, so nothing was tested."


def negative_results(comparison: Comparison) -> list[str]:
    """One sentence for every system that is not shown to be better than the baseline."""
    return [
        sentence
        for table in comparison.tables
        for row in table.rows
        if (sentence := _negative(comparison, table.title, table.metric, row))
    ]


def _negative(comparison: Comparison, title: str, metric: str, row: Row) -> str | None:
    if row.by_seed is None:
        return None
    where = f"{title}: " if title else ""
    difference = row.by_seed.difference
    told = f"{where}{row.system} minus {comparison.baseline}, {metric}: {difference:+.4f}"
    values = row.holm or row.p
    # By seeds, where there are several: that a difference holds on these examples says nothing of another training.
    values = {kind: p for kind, p in values.items() if kind in BY_SEED} or values
    if difference <= 0:
        return f"{told}, not better."
    if not values:
        return f"{told}, with one seed and no test: nothing is shown."
    kind, p = min(values.items(), key=lambda item: item[1])
    if p > LEVEL:
        return f"{told}, and the smallest of its p-values is {p:.3f} ({kind}): no difference is shown."
    return None
