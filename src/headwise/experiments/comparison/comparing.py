"""Runs in, comparison out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headwise.experiments.comparison.asked import Asked
from headwise.experiments.comparison.dimensions import choose_dimensions
from headwise.experiments.comparison.examples import ExampleTest, by_example
from headwise.experiments.comparison.gather import gather
from headwise.experiments.comparison.grouping import Group, choose_baseline, group, ignored, narrow
from headwise.experiments.comparison.legend import legend
from headwise.experiments.comparison.notes import notes_on_files, notes_on_tables
from headwise.experiments.comparison.scores import choose_metrics, choose_split, values_of
from headwise.experiments.comparison.seeds import balance, progress_note
from headwise.experiments.comparison.tables import Row, Table, correct
from headwise.experiments.comparison.times import times_of
from headwise.experiments.comparison.worlds import check_worlds
from headwise.metrics import SeedScores, paired_by_seed
from headwise.notebook import notes_html, table_html


@dataclass(frozen=True)
class Comparison:
    """Systems side by side, and whether they differ by more than chance."""

    by: tuple[str, ...]
    within: tuple[str, ...]
    baseline: str
    split: str
    stars: str
    """Which p-values the stars go by: holm or raw."""
    runs: int
    tables: tuple[Table, ...]
    """One for each block and metric."""
    notes: tuple[str, ...]
    """What is to be known about these runs."""
    legend: tuple[str, ...]
    """What the numbers mean."""

    def _repr_html_(self) -> str:
        """For notebooks: scores and p-values; `headwise compare` shows more."""
        columns = ["system", "seeds", "mean", "sd", "difference", "p (t)", "p (Holm)", ""]
        parts = []
        for table in self.tables:
            rows = [
                [
                    row.system,
                    len(row.seeds),
                    row.scores.mean,
                    row.scores.deviation,
                    None if row.by_seed is None else row.by_seed.difference,
                    row.p.get("t"),
                    row.holm.get("t"),
                    row.stars,
                ]
                for row in table.rows
            ]
            title = f"{table.title}: {table.metric}" if table.title else table.metric
            parts.append(table_html(f"{title} on {self.split}, against {self.baseline}", columns, rows))
        return "".join([*parts, *notes_html([*self.notes, *self.legend])])

    def as_data(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {
            "by": list(self.by),
            "within": list(self.within),
            "baseline": self.baseline,
            "split": self.split,
            "stars": self.stars,
            "runs": self.runs,
            "tables": [table.as_data() for table in self.tables],
            "notes": list(self.notes),
            "legend": list(self.legend),
        }


def compare(paths: Sequence[Path | str], asked: Asked | None = None) -> Comparison:
    """Compare systems that were trained with several seeds.

    Refuses, in one sentence, runs that differ in anything but what is compared.

    Args:
        paths: a folder of `headwise sweep`, files of single runs, or folders of `headwise train`.
        asked: what to compare, and by what; if left out, as the sweep says.

    Returns:
        The tables, with notes and a legend.
    """
    asked = asked or Asked()
    asked.check()
    gathered = gather([Path(path) for path in paths], asked.sweep)
    dimensions = choose_dimensions(gathered, asked)
    gathered = narrow(gathered, dimensions.only, asked)
    groups = group(gathered, dimensions, asked)
    passed = check_worlds(groups, dimensions, asked.ignore)
    baseline = choose_baseline(groups, dimensions.baseline, progress_note(gathered))
    groups, left_out = balance(groups, baseline, gathered, dimensions, asked)
    split = choose_split([run for each in groups for run in each.runs], asked.split)
    metrics = choose_metrics(groups, split, asked)
    tables = correct(
        [
            table
            for each, names in zip(groups, metrics, strict=True)
            for table in _tables(each, baseline, names, split, asked.resamples)
        ],
        asked.stars,
    )
    notes = [
        *notes_on_files(gathered, [*ignored(groups, asked), *passed], left_out),
        *notes_on_tables(tables, split, asked),
    ]
    return Comparison(
        by=tuple(dimension.name for dimension in dimensions.by),
        within=tuple(dimension.name for dimension in dimensions.within),
        baseline=baseline,
        split=split,
        stars=asked.stars,
        runs=len({run.identity for each in groups for run in each.runs}),
        tables=tables,
        notes=tuple(notes),
        legend=legend(tables, asked.stars, baseline),
    )


def _tables(group: Group, baseline: str, metrics: Sequence[str], split: str, resamples: int) -> list[Table]:
    times = times_of(group, baseline)
    order = sorted(group.systems, key=lambda system: system != baseline)
    tables = []
    for metric in metrics:
        values = {system: values_of(seeds, metric, split) for system, seeds in group.systems.items()}
        tests = by_example(group, baseline, metric, split, resamples=resamples)
        rows = tuple(
            Row(
                system=system,
                seeds=tuple(group.systems[system]),
                scores=SeedScores.of(values[system]),
                by_seed=None if system == baseline else paired_by_seed(values[baseline], values[system]),
                by_example=_once(tests.get(system), metric, metrics),
                times=times.get(system),
            )
            for system in order
        )
        tables.append(Table(group.within, metric, rows))
    return tables


def _once(test: ExampleTest | None, metric: str, metrics: Sequence[str]) -> ExampleTest | None:
    """McNemar's test is the same for all metrics of a task: it stays with accuracy, or with the first of them."""
    if test is None or test.mcnemar is None:
        return test
    task = metric.rpartition("/")[0]
    alike = [name for name in metrics if name.rpartition("/")[0] == task and name != "mean"]
    place = f"{task}/accuracy" if task else "accuracy"
    return test if metric == (place if place in alike else alike[0]) else replace(test, mcnemar=None, mcnemar_p=None)
