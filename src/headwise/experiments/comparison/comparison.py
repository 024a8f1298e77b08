"""Systems compared: a table for each group and metric, with tests against the baseline, notes and a legend."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from headwise.experiments.comparison.example_tests import ExampleTest, example_tests
from headwise.experiments.comparison.gather import CompareOptions, RunTable
from headwise.experiments.comparison.grouping import (
    Group,
    balance,
    choose_baseline,
    choose_metrics,
    choose_split,
    epoch_seconds,
    group_runs,
    scores_of,
)
from headwise.experiments.comparison.verdicts import Verdict, control_columns, judge, legend_of
from headwise.experiments.record import FROZEN, MAJORITY, MEAN, SYSTEMS, StoredRun
from headwise.metrics.significance import SeedScores, SeedTest, holm, paired_by_seed, smallest_permutation_p
from headwise.text_formats import notes_html, table_html

# Stars below these p-values, as in the tables of arXiv 2204.02922.
LEVELS = ((0.01, "**"), (0.05, "*"))
# A note warns of a permutation test that cannot go below this.
TOO_FEW = 0.01
# By kind of test: its p-value among the attributes of a row, its heading, and its sentence in the legend.
TESTS = {
    "t": ("by_seed.t_test_p", "t", "two-sided paired t-test by seed"),
    "permutation": (
        *("by_seed.permutation_p", "flips"),
        "two-sided permutation test by seed, which flips the signs of the differences",
    ),
    "mcnemar": (
        *("by_example.mcnemar_p", "McNemar"),
        "exact test on the examples that exactly one of two classifiers has right; over seeds, twice the median of the "
        "seeds' p",
    ),
    "bootstrap": (
        *("by_example.bootstrap_p", "bootstrap"),
        "paired, over examples; an example that is drawn counts in all seeds alike, since they share their examples",
    ),
    "randomisation": (
        *("by_example.randomisation_p", "swaps"),
        "two-sided randomisation test, which swaps the systems on single examples or claims, each the mean over seeds",
    ),
}
# Columns of `Comparison.frame`.
SPREAD = ("deviation", "low", "high")
EFFECTS = ("smallest_p", "effect", "effect_corrected", "detectable")
PAPER = (
    "The stars of arXiv 2204.02922 stand for the same levels of a t-test; it mentions no correction, and does not say "
    "whether more than one seed lay behind them."
)


@dataclass(frozen=True)
class Times:
    """Seconds for an epoch: of each seed the mean over its epochs, of these the mean and standard deviation."""

    seconds: float
    deviation: float | None
    """None with one seed."""
    ratio: float | None
    """To the baseline; None for a baseline that took no time."""


@dataclass(frozen=True)
class Row:
    """One system by one metric."""

    system: str
    seeds: tuple[int, ...]
    scores: SeedScores
    by_seed: SeedTest | None = None
    """Against the baseline; None for the baseline itself."""
    by_example: ExampleTest | None = None
    """Against the baseline; also None where runs do not keep their answers."""
    p: Mapping[str, float] = field(init=False)
    """By kind of test, the p-value, where there is one."""
    holm: Mapping[str, float] = field(default_factory=dict)
    """By kind of test, the p-value corrected for all tests of this kind that are shown together."""
    stars: str = ""
    times: Times | None = None

    def __post_init__(self) -> None:
        """Collect the p-values."""
        values = {kind: self.get(path) for kind, (path, *_) in TESTS.items()}
        object.__setattr__(self, "p", {kind: p for kind, p in values.items() if p is not None})

    def get(self, path: str) -> Any:
        """A value by its path, such as by_seed.difference; None where the row has no such test."""
        part, _, name = path.partition(".")
        return getattr(getattr(self, part), name, None)


@dataclass(frozen=True)
class Table:
    """The systems of one group by one metric, the baseline first."""

    within: Mapping[str, str]
    """The labels that are the same for all of them."""
    metric: str
    rows: tuple[Row, ...]
    references: Mapping[str, float] = field(default_factory=dict)
    """The mean over runs of what takes no fine-tuning, such as logistic regression on frozen features."""

    @property
    def title(self) -> str:
        """The labels, for people."""
        return ", ".join(f"{name} {label}" for name, label in self.within.items())


@dataclass(frozen=True)
class Comparison:
    """Systems side by side, and whether they differ by more than chance."""

    by: tuple[str, ...]
    within: tuple[str, ...]
    baseline: str
    split: str
    stars: str
    """Which p-values the stars follow: holm or raw."""
    runs: int
    tables: tuple[Table, ...]
    """One for each group and metric."""
    notes: tuple[str, ...]
    """What readers should know about these runs."""
    legend: tuple[str, ...]
    """What the numbers mean."""
    verdicts: tuple[Verdict, ...] = ()
    """Of every guide that has a plain twin, in the order of the tables: whether it helps."""

    def verdicts_of(self, table: Table) -> dict[str, Verdict]:
        """Those of one table, by system."""
        own = (table.within, table.metric)
        return {each.system: each for each in self.verdicts if (each.within, each.metric) == own}

    def frame(self) -> pd.DataFrame:
        """A row for each system of each table, in full precision."""
        rows = []
        for table in self.tables:
            verdicts = self.verdicts_of(table)
            for row in table.rows:
                values: dict[str, Any] = {f"within.{name}": table.within[name] for name in self.within}
                values |= {"metric": table.metric, "split": self.split, "system": row.system}
                values |= {"baseline": self.baseline, "seeds": len(row.seeds)}
                values |= {name: row.get(f"scores.{name}") for name in ("mean", *SPREAD)}
                values |= {"difference": row.get("by_seed.difference")}
                values |= {f"difference_{name}": row.get(f"by_seed.{name}") for name in SPREAD}
                for kind in TESTS:
                    values |= {f"p_{kind}": row.p.get(kind), f"p_{kind}_holm": row.holm.get(kind)}
                values |= {name: row.get(f"by_seed.{name}") for name in EFFECTS}
                values |= {"examples": row.get("by_example.examples")}
                values |= {f"bootstrap_{end}": row.get(f"by_example.{end}") for end in ("low", "high")}
                values |= {"stars": row.stars, "seconds_per_epoch": row.get("times.seconds")}
                values |= {f"seconds_{name}": row.get(f"times.{name}") for name in ("deviation", "ratio")}
                verdict = verdicts.get(row.system)
                values |= {"verdict": verdict and verdict.verdict, **control_columns(verdict)}
                rows.append(values)
        return pd.DataFrame(rows, dtype=object)

    def _repr_html_(self) -> str:
        """For notebooks: scores and p-values; `frame` has more."""
        columns = ["system", "seeds", "mean", "deviation", "difference", "p_t", "p_t_holm", "stars"]
        headings = ["system", "seeds", "mean", "sd", "difference", "p (t)", "p (Holm)", ""]
        frame, parts, start = self.frame(), [], 0
        for table in self.tables:
            rows = frame[start : start + len(table.rows)][columns].to_numpy().tolist()
            start += len(table.rows)
            title = f"{table.title}: {table.metric}" if table.title else table.metric
            verdicts = [each.sentence() for each in self.verdicts_of(table).values()]
            parts.append(table_html(f"{title} on {self.split}, against {self.baseline}", headings, rows, verdicts))
        return "".join([*parts, *notes_html([*self.notes, *self.legend])])

    def as_data(self) -> dict[str, Any]:
        """Plain data, as JSON has it."""
        plain = asdict(self) | {"verdicts": [each.as_data() for each in self.verdicts]}
        data: dict[str, Any] = json.loads(json.dumps(plain))
        for table in data["tables"]:
            table["rows"] = [
                {"system": row.pop("system"), "seeds": row.pop("seeds"), **row.pop("scores"), **row}
                for row in table["rows"]
            ]
        return data


def compare(paths: Sequence[Path | str], options: CompareOptions | None = None) -> Comparison:
    """Compare systems that were trained with several seeds.

    Refuses, in one sentence, runs that differ in anything but what is compared.

    Args:
        paths: a folder of a sweep, files of single runs, or folders of single runs.
        options: what to compare, and by what; if left out, as the sweep says.

    Returns:
        The tables, with notes and a legend, and for guides verdicts: whether they help.
    """
    options = options or CompareOptions()
    grouped = group_runs([Path(path) for path in paths], options)
    baseline = choose_baseline(grouped)
    groups, left_out = balance(grouped, baseline, common_seeds=options.common_seeds)
    runs = [run for group in groups for run in group.runs]
    split = choose_split(runs, options.split)
    compared = [(group, table) for group in groups for table in _tables(group, baseline, split, options)]
    verdicts = judge(compared, grouped.table)
    tables = _corrected([table for _, table in compared], options.stars)
    notes = [
        *_notes_on_runs(grouped.table, left_out, grouped.ignored),
        *_notes_on_scores(tables, split, chosen=options.split is not None),
    ]
    return Comparison(
        by=grouped.by,
        within=grouped.within,
        baseline=baseline,
        split=split,
        stars=options.stars,
        runs=len({run.identity for run in runs}),
        tables=tuple(tables),
        notes=tuple(notes),
        legend=(*legend_of(verdicts), *_legend(tables, options.stars, baseline)),
        verdicts=verdicts,
    )


def times_of(group: Group, baseline: str) -> dict[str, Times]:
    """For every system of a group; nothing if a run of it or of the baseline has no times."""
    seconds = {system: epoch_seconds(seeds) for system, seeds in group.systems.items()}
    if seconds[baseline] is None:
        return {}
    scores = {system: SeedScores.of(each) for system, each in seconds.items() if each is not None}
    base = scores[baseline].mean
    return {
        system: Times(each.mean, each.deviation, each.mean / base if base else None) for system, each in scores.items()
    }


def _tables(group: Group, baseline: str, split: str, options: CompareOptions) -> list[Table]:
    metrics, times, tables = choose_metrics(group, split, options), times_of(group, baseline), []
    for metric in metrics:
        values = {system: scores_of(seeds, metric, split) for system, seeds in group.systems.items()}
        tests = example_tests(group, baseline, metric, split, resamples=options.resamples)
        # McNemar's test is the same for all metrics of a task: it stays with accuracy, or with the first of them.
        task = metric.rpartition("/")[0]
        alike = [name for name in metrics if name.rpartition("/")[0] == task and name != "mean"]
        accuracy = f"{task}/accuracy" if task else "accuracy"
        if metric != (accuracy if accuracy in alike else next(iter(alike), metric)):
            tests = {system: replace(test, mcnemar=None, mcnemar_p=None) for system, test in tests.items()}
        rows = tuple(
            Row(
                system=system,
                seeds=tuple(group.systems[system]),
                scores=SeedScores.of(values[system]),
                by_seed=None if system == baseline else paired_by_seed(values[baseline], values[system]),
                by_example=tests.get(system),
                times=times.get(system),
            )
            for system in sorted(group.systems, key=lambda name: name != baseline)
        )
        tables.append(Table(group.within, metric, rows, references_of(group.runs, metric, split)))
    return tables


def references_of(runs: Sequence[StoredRun], metric: str, split: str) -> dict[str, float]:
    """The mean over runs of each baseline that all of them have."""
    scores = [_baseline_scores(run, split) for run in runs]
    references = {}
    for system in (MAJORITY, MEAN, FROZEN):
        values = [each[system][metric] for each in scores if metric in each.get(system, {})]
        if values and len(values) == len(runs):
            references[SYSTEMS[system]] = sum(values) / len(values)
    return references


def _baseline_scores(run: StoredRun, split: str) -> dict[str, dict[str, float]]:
    """By system, the scores of a run's baselines under the names of its own metrics."""
    scores: dict[str, dict[str, float]] = defaultdict(dict)
    for task, each in run.baselines.items():
        for system, metrics in each["metrics"].get(split, {}).items():
            scores[system] |= {f"{task}/{name}" if run.tasks else name: value for name, value in metrics.items()}
    for values in scores.values():
        main = [values[name] for task, metric in run.tasks.items() if (name := f"{task}/{metric}") in values]
        if main and len(main) == len(run.tasks):
            values["mean"] = sum(main) / len(main)
    return scores


def _corrected(tables: Sequence[Table], stars: str) -> list[Table]:
    """With Holm's correction over all tests of one kind in all tables, and stars by the t-test."""
    corrected: dict[tuple[int, str], dict[str, float]] = defaultdict(dict)  # by table and system
    for kind in TESTS:
        tested = [(at, row) for at, table in enumerate(tables) for row in table.rows if kind in row.p]
        for (at, row), p in zip(tested, holm([row.p[kind] for _, row in tested]), strict=True):
            corrected[at, row.system][kind] = p

    def starred(row: Row, own: Mapping[str, float]) -> Row:
        p = (own if stars == "holm" else row.p).get("t", 1.0)
        return replace(row, holm=own, stars=next((sign for level, sign in LEVELS if p < level), ""))

    return [
        replace(table, rows=tuple(starred(row, corrected[at, row.system]) for row in table.rows))
        for at, table in enumerate(tables)
    ]


def _legend(tables: Sequence[Table], stars: str, baseline: str) -> list[str]:
    """One sentence or two for each kind of number that is shown."""
    rows = [row for table in tables for row in table.rows]
    counts = {kind: sum(kind in row.p for row in rows) for kind in TESTS}
    shown = {kind: f"{count} {'test' if count == 1 else 'tests'}" for kind, count in counts.items() if count}
    lines = [
        "Mean ± standard deviation over seeds, with the 95 % t interval of the mean.",
        f"Difference: the system minus {baseline}, seed by seed, with the 95 % t interval of its mean.",
        *(f"{heading}: {test}; {shown[kind]}." for kind, (_, heading, test) in TESTS.items() if kind in shown),
    ]
    if shown:
        lines.append("Holm: p corrected for all tests of the same kind that are shown together.")
    if any(table.references for table in tables):
        lines.append(
            "Below the systems: what takes no fine-tuning, measured before training, as a mean over runs; it is not "
            "tested."
        )
    if "t" not in shown:
        return [*lines, "No stars: they stand for a t-test by seed, and there is none."]
    how = f"corrected by Holm for {shown['t']}" if stars == "holm" else "not corrected"
    return [
        *lines,
        "d_z: mean of the differences / their standard deviation.",
        "MDE: the smallest true difference that the t-test finds in 80 % of cases, with so many seeds and this "
        "standard deviation of the differences.",
        f"Stars: * p < 0.05, ** p < 0.01 of the paired t-test by seed, {how}. They say that a system differs; the sign "
        "of the difference says which way.",
        PAPER,
    ]


def _notes_on_runs(table: RunTable, left_out: Sequence[str], ignored: Sequence[str]) -> list[str]:
    """Runs that are missing, failed or repeated, and differences that are allowed."""
    notes = [] if table.progress is None else [f"{table.progress} to finish them."]
    if table.failed:
        count = len(table.failed)
        names = ", ".join(str(each.path) for each in table.failed)
        reason = " ".join(table.failed[0].reason.split())[:200]
        notes.append(f"{count} failed {'run is' if count == 1 else 'runs are'} left out: {names} ({reason}).")
    if table.repeated:
        files = "file repeats" if table.repeated == 1 else "files repeat"
        notes.append(f"{table.repeated} {files} the results of another run: counted once.")
    return [*notes, *left_out, *(f"The runs differ in {each}; passed over, as requested." for each in ignored)]


def _notes_on_scores(tables: Sequence[Table], split: str, *, chosen: bool) -> list[str]:
    """What the numbers can and cannot show."""
    rows = [row for table in tables for row in table.rows]
    notes = [f"Scores on {split}."]
    if split == "validation":
        why = "Scores" if chosen else "Not all runs have scores on test, so scores"
        notes = [f"{why} on validation, which also chose the best model of each run: they flatter all systems."]
    for table in tables:
        frozen = table.references.get(SYSTEMS[FROZEN])
        if frozen is not None and (below := [row.system for row in table.rows if row.scores.mean < frozen]):
            where = f"{table.title}: " if table.title else ""
            notes.append(
                f"{where}below {SYSTEMS[FROZEN]} in {table.metric}: {', '.join(below)}; tune learning rate, epochs "
                "and head before you compare with such a system."
            )
    for count in sorted({len(row.seeds) for row in rows}):
        if count == 1:
            notes.append(
                "One seed: no test by seed is possible, and nothing is known about other seeds; there are "
                "tests by example only."
            )
        elif (smallest := smallest_permutation_p(count)) > TOO_FEW:
            notes.append(f"Permutation test: with {count} seeds this test cannot go below p = {smallest:.2g}.")
    same = [row.system for row in rows if row.by_seed is not None and row.by_seed.seeds > 1 and row.by_seed.low is None]
    if same:
        names = ", ".join(dict.fromkeys(same))
        notes.append(f"{names}: the difference is the same for every seed, so there is no t-test.")
    silent = dict.fromkeys(table.metric for table in tables if len(table.rows) > 1 and table.rows[1].by_example is None)
    if silent:
        notes.append(f"No tests by example for {', '.join(silent)}: not all runs keep the answers that they need.")
    if any(row.by_example is not None and row.by_example.low is None for row in rows):
        notes.append(
            "The seeds were scored on different examples: each has its tests by example, and twice the median of their "
            "p-values is shown."
        )
    return notes
