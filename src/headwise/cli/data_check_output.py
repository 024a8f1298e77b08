"""`headwise data check`: what a check of files found, as tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import typer
from rich.markup import escape
from rich.table import Table

from headwise.cli.console import print_tables
from headwise.cli.progress_bar import progress
from headwise.experiments.data_check import CheckSettings, Choice, DataReport, check_files
from headwise.experiments.data_check.balance import PERCENTS, Balance, Lengths, Numbers
from headwise.experiments.data_check.leakage import Found, Leak, Shared
from headwise.experiments.data_check.simple_baselines import (
    BAG,
    FIRST,
    FOLDS,
    LENGTH,
    MAJORITY,
    MEAN,
    SECOND,
    Baselines,
)
from headwise.metrics.resampling import Estimate
from headwise.training.encoders import quiet_libraries

# Classes that a table shows; --json shows all.
MOST_CLASSES = 20


def show_check(files: Sequence[str], choice: Choice, settings: CheckSettings, *, strict: bool, as_json: bool) -> None:
    """Check files and print what was found; if strict, any finding ends in exit code 1."""
    quiet_libraries()
    with progress() as shown:
        report = check_files(files, choice, settings, shown)
    if as_json:
        typer.echo(json.dumps(report.as_data(), indent=2, ensure_ascii=False))
    else:
        _show(report)
    if strict and report.findings:
        raise typer.Exit(1)


def _show(report: DataReport) -> None:
    print_tables(*_tables(report))
    typer.echo()
    for note in report.notes:
        typer.echo(f"note: {note}")
    typer.echo(f"{len(report.findings) or 'no'} finding{'' if len(report.findings) == 1 else 's'}")
    for finding in report.findings:
        typer.echo(f"- {finding.message}")


def _tables(report: DataReport) -> Iterator[Table]:
    yield _files(report)
    spreads = {file.name: file.labels for file in report.files}
    if balances := {name: each for name, each in spreads.items() if isinstance(each, Balance)}:
        yield _classes(balances)
    if numbers := {name: each for name, each in spreads.items() if isinstance(each, Numbers)}:
        yield _numbers(numbers)
    yield _words(report)
    if report.files[0].tokens is not None:
        yield _tokens(report)
    if report.leaks:
        yield _leaks(report.leaks)
    if report.baselines is not None:
        yield _baselines(report.baselines, report.texts)


def _table(title: str, names: Sequence[str], numbers: Sequence[str]) -> Table:
    """Names to the left, numbers to the right."""
    table = Table(title=title, title_justify="left", box=None)
    for name in names:
        table.add_column(name)
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def _files(report: DataReport) -> Table:
    """Pairs have two more columns."""
    pairs = len(report.texts) == 2
    title = f"read as {report.task}: {escape(' and '.join(report.texts))}"
    counts = ["rows", "no label", "no text", "broken", "repeated", "contradicting"]
    table = _table(title, ["file"], [*counts, *(["same text twice", "swapped"] if pairs else [])])
    table.add_column("path", overflow="fold")
    for file in report.files:
        missing = "all" if file.labels is None else str(file.labels.missing)
        found = [file.duplicates.repeated, file.duplicates.contradicting]
        more = [file.duplicates.identical, file.duplicates.swapped] if pairs else []
        numbers = [str(file.rows), missing, str(len(file.empty)), str(len(file.broken)), *map(_count, [*found, *more])]
        table.add_row(escape(file.name), *numbers, escape(file.path))
    return table


def _count(found: Found | None) -> str:
    return "-" if found is None else str(found.count)


def _classes(balances: dict[str, Balance]) -> Table:
    table = _table("labels", ["label"], [escape(name) for name in balances])
    names = list(next(iter(balances.values())).counts)
    for name in names[:MOST_CLASSES]:
        cells = (f"{each.counts[name]} ({each.shares[name]:.1%})" for each in balances.values())
        table.add_row(escape(name), *cells)
    if len(names) > MOST_CLASSES:
        table.add_row(f"... {len(names) - MOST_CLASSES} more")
    return table


def _numbers(numbers: dict[str, Numbers]) -> Table:
    table = _table("labels", ["file"], ["from", "to", "mean", "standard deviation"])
    for name, each in numbers.items():
        table.add_row(escape(name), *(f"{value:.4g}" for value in (each.low, each.high, each.mean, each.deviation)))
    return table


def _words(report: DataReport) -> Table:
    table = _table("words", ["file", "text"], [*(f"{percent} %" for percent in PERCENTS), "longest"])
    for file in report.files:
        for text, lengths in file.words.items():
            table.add_row(escape(file.name), escape(text), *_lengths(lengths))
    return table


def _tokens(report: DataReport) -> Table:
    table = _table("tokens", ["file"], [*(f"{percent} %" for percent in PERCENTS), "longest", "cut"])
    for file in report.files:
        if file.tokens is not None:
            cut = f"{file.tokens.cut} ({file.tokens.share:.1%}) at {file.tokens.limit}"
            table.add_row(escape(file.name), *_lengths(file.tokens.lengths), cut)
    return table


def _lengths(lengths: Lengths) -> list[str]:
    return [*(str(lengths.percentiles[percent]) for percent in PERCENTS), str(lengths.longest)]


def _leaks(leaks: Sequence[Leak]) -> Table:
    """Nothing shared is one row."""
    table = _table("leaks", ["of", "in", "what"], ["examples", "share", "same label"])
    table.add_column("such as")
    for leak in leaks:
        kinds = {"exact": leak.exact, "swapped": leak.swapped, "near": leak.near}
        kinds |= {f"same {name}": shared for name, shared in (leak.texts or {}).items()}
        found = {what: shared for what, shared in kinds.items() if shared is not None and shared.count}
        for what, shared in found.items():
            table.add_row(escape(leak.second), escape(leak.first), escape(what), *_shared(shared))
        if not found:
            table.add_row(escape(leak.second), escape(leak.first), "nothing", "0", "0.0%", "-", "")
    return table


def _shared(shared: Shared) -> list[str]:
    same, first = "-" if shared.same_label is None else f"{shared.same_label:.1%}", shared.examples[0]
    where = f"{first.second.unit} {first.second.number} and {first.first.number}"
    alike = "" if first.similarity == 1 else f" ({first.similarity:.2f})"
    count = f"{'' if shared.complete else '≥ '}{shared.count}"
    return [count, f"{shared.share:.1%}", same, where + alike]


def _baselines(baselines: Baselines, texts: Sequence[str]) -> Table:
    """Scores with their intervals."""
    measures = list(baselines.results[0].scores)
    table = _table(f"baselines: {_origin(baselines)}", ["baseline"], measures)
    called = {
        MAJORITY: "most frequent class",
        MEAN: "mean",
        BAG: "bag of words",
        FIRST: f"{texts[0]} alone",
        SECOND: f"{texts[-1]} alone",
        LENGTH: "number of words",
    }
    for each in baselines.results:
        table.add_row(escape(called[each.name]), *(_estimate(each.scores[name]) for name in measures))
    return table


def _origin(baselines: Baselines) -> str:
    """Short, since a title is broken to the width of its table."""
    if baselines.cross_validated:
        return f"{FOLDS} folds of {escape(baselines.scored_on)}"
    return f"from {escape(baselines.learned_from)} to {escape(baselines.scored_on)}"


def _estimate(estimate: Estimate) -> str:
    return f"{estimate.value:.3f} ({estimate.low:.3f} to {estimate.high:.3f})"
