"""Runs in, comparison out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headwise.errors import InputError, choices
from headwise.experiments.comparison.comparison_tables import (
    KINDS,
    Row,
    Table,
    balance,
    choose_metrics,
    choose_split,
    correct,
    progress_note,
    times_of,
    values_of,
)
from headwise.experiments.comparison.example_tests import ExampleTest, by_example
from headwise.experiments.comparison.gather import Asked, Gathered, gather
from headwise.experiments.comparison.grouping import (
    Difference,
    Dimensions,
    Group,
    choose_baseline,
    choose_dimensions,
    covered,
    distinct,
    flat,
    group,
    ignored,
    narrow,
)
from headwise.experiments.results import StoredRun
from headwise.metrics import SeedScores, paired_by_seed
from headwise.metrics.significance import smallest_permutation_p
from headwise.notebook import notes_html, table_html

# What runs have in common beside their recipes: versions, hardware, examples.


EXAMPLES = "examples"
# Whoever compares these compares other token ids as well.
CHANGES_EXAMPLES = ("task", "tasks", "data", "model")


def _package(name: str) -> Callable[[StoredRun], Any]:
    return lambda run: (run.environment.get("packages") or {}).get(name)


WORLD: dict[str, Callable[[StoredRun], Any]] = {
    "headwise": lambda run: run.environment.get("headwise"),
    "torch": _package("torch"),
    "transformers": _package("transformers"),
    "accelerator": lambda run: run.environment.get("accelerator"),
    "threads": lambda run: run.environment.get("threads"),
    "processes": lambda run: run.environment.get("processes", 1),  # a batch of each makes one step
    "precision": lambda run: run.environment.get("precision"),
}


def check_worlds(groups: Sequence[Group], dimensions: Dimensions, ignore: Sequence[str]) -> list[Difference]:
    """Refuse runs of different worlds, or on other examples; return the differences that were passed over."""
    runs = [run for each in groups for run in each.runs]
    _check_names(runs, ignore)
    passed = []
    for name, value in WORLD.items():
        difference = _difference(name, value, runs)
        if difference is not None and name not in ignore:
            raise InputError(
                f"the runs differ in {difference}, which changes results by itself: run them again in one world, or "
                f"pass over it by --ignore {name}."
            )
        passed += [] if difference is None else [difference]
    return passed + _check_examples(groups, dimensions, ignore)


def _check_examples(groups: Sequence[Group], dimensions: Dimensions, ignore: Sequence[str]) -> list[Difference]:
    """The same seed must have had the same examples, unless they are what is compared."""
    if any(covered(key, CHANGES_EXAMPLES) for key in dimensions.keys(dimensions.by)):
        return []
    for each in groups:
        for seed in dict.fromkeys(run.seed for run in each.runs):
            runs = [run for run in each.runs if run.seed == seed]
            difference = _difference(EXAMPLES, lambda run: run.examples, runs)
            if difference is None:
                continue
            if EXAMPLES in ignore:
                return [difference]
            raise InputError(
                f"{each.title}the runs of seed {seed} had different examples (hash {difference.first} and "
                f"{difference.second}), as after a change of files: run them again on the same, or pass over it by "
                f"--ignore {EXAMPLES}."
            )
    return []


def _difference(name: str, value: Callable[[StoredRun], Any], runs: Iterable[StoredRun]) -> Difference | None:
    values = distinct(value(run) for run in runs)
    return Difference(name, *values[:2]) if len(values) > 1 else None


def _check_names(runs: Iterable[StoredRun], ignore: Sequence[str]) -> None:
    keys = dict.fromkeys(key for run in runs for key in flat(run.recipe))
    for name in ignore:
        if name not in WORLD and name != EXAMPLES and not any(covered(key, [name]) for key in keys):
            known = dict.fromkeys((*WORLD, EXAMPLES, *keys))
            raise InputError(f"--ignore {name}: there is no such key; {choices(name, known)}.")


# What the numbers of a comparison mean, in plain words.


PAPER = (
    "The stars of arXiv 2204.02922 stand for the same levels of a t-test; it mentions no correction, and does not say "
    "whether more than one seed lay behind them."
)


def legend(tables: Sequence[Table], stars: str, baseline: str) -> tuple[str, ...]:
    """One sentence or two for each kind of number that is shown."""
    rows = [row for table in tables for row in table.rows]
    shown = [kind for kind in KINDS if any(kind in row.p for row in rows)]
    count = {kind: sum(kind in row.p for row in rows) for kind in shown}
    lines = [
        "Mean ± standard deviation over seeds, with the 95 % t interval of the mean.",
        f"Difference: the system minus {baseline}, seed by seed, with the 95 % t interval of its mean.",
    ]
    lines += [_words(kind, count[kind]) for kind in shown]
    if shown:
        lines.append("Holm: p corrected for all tests of the same kind that are shown together.")
    if "t" in shown:
        lines += [
            "d_z: mean of the differences / their standard deviation.",
            "MDE: the smallest true difference that the t-test finds in 80 % of cases, with so many seeds and this "
            "standard deviation of the differences.",
            _stars(stars, count["t"]),
            PAPER,
        ]
    else:
        lines.append("No stars: they stand for a t-test by seed, and there is none.")
    return tuple(lines)


def _words(kind: str, count: int) -> str:
    tests = f"{count} {'test' if count == 1 else 'tests'}"
    return {
        "t": f"t: two-sided paired t-test by seed; {tests}.",
        "permutation": f"flips: two-sided permutation test by seed, which flips the signs of the differences; {tests}.",
        "mcnemar": "McNemar: exact test on the examples that exactly one of two classifiers has right; over seeds, "
        f"twice the median of the seeds' p; {tests}.",
        "bootstrap": "bootstrap: paired, over examples; an example that is drawn counts in all seeds alike, since they "
        f"share their examples; {tests}.",
        "randomisation": "swaps: two-sided randomisation test, which swaps the systems on single examples or claims, "
        f"each the mean over seeds; {tests}.",
    }[kind]


def _stars(stars: str, count: int) -> str:
    how = f"corrected by Holm for {count} {'test' if count == 1 else 'tests'}" if stars == "holm" else "not corrected"
    return (
        f"Stars: * p < 0.05, ** p < 0.01 of the paired t-test by seed, {how}. They say that a system differs; the sign "
        "of the difference says which way."
    )


# What must be known about the runs of a comparison, in sentences.


# A permutation test that cannot go below this is told of.
TOO_FEW = 0.01


def notes_on_files(gathered: Gathered, passed: Sequence[Difference], left_out: Sequence[str]) -> list[str]:
    """Runs that are not there, failed or stand there twice, and differences that were passed over."""
    notes = []
    if (progress := progress_note(gathered)) is not None:
        notes.append(progress)
    if gathered.failed:
        count, first = len(gathered.failed), gathered.failed[0]
        names = ", ".join(str(each.path) for each in gathered.failed)
        reason = " ".join(first.reason.split())[:200]
        notes.append(f"{count} failed {'run is' if count == 1 else 'runs are'} left out: {names} ({reason}).")
    if gathered.repeated:
        what = "file repeats" if gathered.repeated == 1 else "files repeat"
        notes.append(f"{gathered.repeated} {what} the results of another run: counted once.")
    notes += left_out
    notes += [f"The runs differ in {each}; passed over, as asked." for each in passed]
    return notes


def notes_on_tables(tables: Sequence[Table], split: str, asked: Asked) -> list[str]:
    """What the numbers can and cannot show."""
    rows = [row for table in tables for row in table.rows]
    tested = [row for row in rows if row.by_seed is not None]
    return [
        *_on_split(split, asked),
        *_on_seeds({len(row.seeds) for row in rows}),
        *_on_spread(tested),
        *_on_answers(tables),
    ]


def _on_split(split: str, asked: Asked) -> list[str]:
    if split != "validation":
        return [f"Scores on {split}."]
    why = "" if asked.split else "Not all runs have scores on test, so "
    return [
        f"{why}{'scores' if why else 'Scores'} on validation, which also chose the best model of each run: they "
        "flatter all systems."
    ]


def _on_seeds(counts: Iterable[int]) -> list[str]:
    notes = []
    for count in sorted(counts):
        smallest = smallest_permutation_p(count)
        if count == 1:
            notes.append(
                "One seed: no test by seed is possible, and nothing is known about other seeds; only tests by example "
                "are made."
            )
        elif smallest > TOO_FEW:
            notes.append(f"Permutation test: with {count} seeds this test cannot go below p = {smallest:.2g}.")
    return notes


def _on_spread(rows: Iterable[Row]) -> list[str]:
    same = [row.system for row in rows if row.by_seed is not None and row.by_seed.seeds > 1 and row.by_seed.low is None]
    if not same:
        return []
    return [f"{', '.join(dict.fromkeys(same))}: the difference is the same for every seed, so there is no t-test."]


def _on_answers(tables: Sequence[Table]) -> list[str]:
    notes = []
    silent = [table for table in tables if len(table.rows) > 1 and table.rows[1].by_example is None]
    if silent:
        what = ", ".join(dict.fromkeys(table.metric for table in silent))
        notes.append(f"No tests by example for {what}: not all runs keep the answers that they need.")
    own = [row for table in tables for row in table.rows if row.by_example is not None and row.by_example.low is None]
    if own:
        notes.append(
            "The seeds were scored on examples of their own: tests by example are made for each, and twice the median "
            "of their p-values is shown."
        )
    return notes


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
