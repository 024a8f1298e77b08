"""`headwise data`: data sets that are made from others, and what is wrong with those that are there."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from headwise.cli.progress_bar import Bar, Lines
    from headwise.data.checks import DataReport, Lengths
    from headwise.data.leakage import Leak, Progress
    from headwise.data.simple_baselines import Baselines

# Classes that a table shows; --json shows all.
MOST_CLASSES = 20
# Columns of a file or a pipe, which need not be broken as those of a terminal.
WIDTH = 160

data = typer.Typer(help="Make data sets from others, and check data sets.", no_args_is_help=True, rich_markup_mode=None)


@data.command("ag-pair")
def ag_pair(
    news: Annotated[
        Path,
        typer.Option(help="AG News: .csv, .tsv or .jsonl of class, title, description.", show_default=False),
    ],
    out: Annotated[Path, typer.Option(help="File to write, which ends in .tsv.", show_default=False)],
    seed: Annotated[int, typer.Option(min=0, help="Decides which news are paired, and in which order.")] = 0,
    rounds: Annotated[int, typer.Option(min=1, help="How often every news occurs.")] = 2,
    slot_order: Annotated[
        str, typer.Option(help="random, or reference: the authors' order, which gives the label away.")
    ] = "random",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Pair news: have the two the same topic?

    Half of the pairs have. Every news occurs once in every round, and no pair occurs twice. Read by the task ag-pair.
    """
    from headwise.data.ag_pair import write_pairs

    answer = write_pairs(news, out, seed=seed, rounds=rounds, slot_order=slot_order, overwrite=overwrite)
    if as_json:
        typer.echo(json.dumps(answer, indent=2, ensure_ascii=False))
        return
    columns = ["topic", "news", *(f"{label}, slot {slot}" for label in answer["slots"] for slot in (1, 2))]
    rows = [
        [topic, str(count), *(str(slot[topic]) for label in answer["slots"].values() for slot in label)]
        for topic, count in answer["topics"].items()
    ]
    _print_tables(_table("", columns, (), rows))
    typer.echo(f"{answer['rows']} pairs: {answer['same']} same, {answer['different']} different")
    typer.echo(f"every news occurs {'once' if rounds == 1 else f'{rounds} times'}")
    typer.echo(
        f"the topic of one slot alone gives {answer['shortcut']:.1%} of the labels, chance {answer['chance']:.1%}"
    )
    typer.echo(f"saved in {answer['output']}")


@data.command("check")
def check(
    context: typer.Context,
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE...", help="TSV, CSV, JSONL, Parquet; or train=FILE.", show_default=False),
    ],
    task: Annotated[
        str | None, typer.Option(help="Task whose columns they have, see `headwise list tasks`.", show_default=False)
    ] = None,
    texts: Annotated[str | None, typer.Option(metavar="A,B", help="Columns of one text or two.")] = None,
    label: Annotated[str | None, typer.Option(metavar="C", help="Column of the label.")] = None,
    columns: Annotated[
        str | None, typer.Option(metavar="A,B,C", help="All columns, of files without a header.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Encoder, to count its tokens as well.", show_default=False)] = None,
    max_length: Annotated[
        int | None, typer.Option(min=1, help="Tokens beyond which it would cut; default 128.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Decides what the baselines learn from.")] = 0,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if anything is found.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Say what is wrong with the files of a data set before anything is trained on it.

    Label balance, duplicates, leaks between the files, lengths, and what baselines reach that see next to nothing.
    """
    from headwise.cli.main import as_options
    from headwise.cli.progress_bar import progress
    from headwise.data.checks import check_files

    with progress() as bar:
        report = check_files(
            files,
            task=task,
            texts=_listed(texts),
            label=label,
            columns=_listed(columns),
            seed=seed,
            progress=_shown_on(bar),
            **_token_counting(model, max_length),
        )
    notes = [as_options(note) for note in report.notes]
    if as_json:
        typer.echo(json.dumps({**report.as_data(), "notes": notes}, indent=2, ensure_ascii=False))
    else:
        _print_tables(*_report_tables(report))
        typer.echo()
        for note in notes:
            typer.echo(f"note: {note}")
        typer.echo(f"{len(report.findings) or 'no'} finding{'' if len(report.findings) == 1 else 's'}")
        for finding in report.findings:
            typer.echo(f"- {finding.message}")
    if strict and report.findings:
        raise typer.Exit(1)


def _listed(text: str | None) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(name.strip() for name in text.split(",") if name.strip()) if text else ()


def _token_counting(model: str | None, max_length: int | None) -> dict[str, Any]:
    """The tokenizer of a model and how many tokens it takes; a limit that it cannot take is refused."""
    from headwise.errors import InputError

    if model is None:
        if max_length is not None:
            raise InputError(f"max_length={max_length} counts tokens of a model: name one, or leave it out.")
        return {}
    from headwise.data.checks import USUAL_LENGTH
    from headwise.training.encoders import check_length, find_encoder, quiet_libraries

    quiet_libraries()
    encoder = find_encoder(model)
    if max_length is not None:
        check_length(encoder, max_length)
    limit = max_length or min(USUAL_LENGTH, encoder.longest or USUAL_LENGTH)
    return {"tokenizer": encoder.tokenizer, "max_length": limit}


def _shown_on(bar: Bar | Lines) -> Progress:
    started = ""

    def show(what: str, done: int, total: int) -> None:
        nonlocal started
        if what == started:
            bar.advance(done)
        else:
            bar.start(what, total, done)
            started = what

    return show


def _print_tables(*tables: Table) -> None:
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    for number, table in enumerate(tables):
        if number:
            console.print()
        console.print(table)


def _table(
    title: str, names: Sequence[str], numbers: Sequence[str], rows: Sequence[Sequence[str]], last: str = ""
) -> Table:
    """A table with names to the left and numbers to the right, and perhaps a last column of text."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title) or None, title_justify="left", box=None)
    for name in names:
        table.add_column(escape(name))
    for name in numbers:
        table.add_column(escape(name), justify="right")
    if last:
        table.add_column(last, overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def _report_tables(report: DataReport) -> Iterator[Table]:
    from headwise.data.checks import PERCENTS, Numbers

    counts = ["rows", "no label", "no text", "broken", "repeated", "contradicting"]
    if len(report.texts) == 2:
        counts += ["same text twice", "swapped"]
    rows = []
    for file in report.files:
        twice = file.duplicates
        repeats = [each for each in (twice.repeated, twice.contradicting, twice.identical, twice.swapped) if each]
        cells = [file.rows, "all" if file.labels is None else file.labels.missing, len(file.empty), len(file.broken)]
        rows.append([file.name, *map(str, cells), *(str(each.count) for each in repeats), file.path])
    yield _table(f"read as {report.task}: {' and '.join(report.texts)}", ["file"], counts, rows, last="path")
    if report.classes:
        yield from _class_table(report)
    numbers = {file.name: file.labels for file in report.files if isinstance(file.labels, Numbers)}
    if numbers:
        values = {name: (each.low, each.high, each.mean, each.deviation) for name, each in numbers.items()}
        rows = [[name, *(f"{value:.4g}" for value in each)] for name, each in values.items()]
        yield _table("labels", ["file"], ["from", "to", "mean", "standard deviation"], rows)
    percents = [*(f"{percent} %" for percent in PERCENTS), "longest"]
    rows = [[file.name, text, *_length_cells(each)] for file in report.files for text, each in file.words.items()]
    yield _table("words", ["file", "text"], percents, rows)
    tokens = {file.name: file.tokens for file in report.files if file.tokens is not None}
    if tokens:
        cuts = {name: f"{each.cut} ({each.share:.1%}) at {each.limit}" for name, each in tokens.items()}
        rows = [[name, *_length_cells(each.lengths), cuts[name]] for name, each in tokens.items()]
        yield _table("tokens", ["file"], [*percents, "cut"], rows)
    if report.leaks:
        rows = [row for leak in report.leaks for row in _leak_rows(leak)]
        yield _table("leaks", ["of", "in", "what"], ["examples", "share", "same label"], rows, last="such as")
    if report.baselines is not None:
        yield _baselines_table(report.baselines, report.texts)


def _class_table(report: DataReport) -> Iterator[Table]:
    """How often each class occurs; no table if no file has labels."""
    from headwise.data.checks import Balance

    balances = {file.name: file.labels for file in report.files if isinstance(file.labels, Balance)}
    rows = [
        [name, *(f"{each.counts[name]} ({each.shares[name]:.1%})" for each in balances.values())]
        for name in report.classes[:MOST_CLASSES]
    ]
    if len(report.classes) > MOST_CLASSES:
        rows.append([f"... {len(report.classes) - MOST_CLASSES} more"])
    if balances:
        yield _table("labels", ["label"], list(balances), rows)


def _length_cells(lengths: Lengths) -> list[str]:
    return [*map(str, lengths.percentiles.values()), str(lengths.longest)]


def _leak_rows(leak: Leak) -> Iterator[list[str]]:
    """Nothing shared is one row."""
    kinds = {"exact": leak.exact, "swapped": leak.swapped, "near": leak.near}
    kinds |= {f"same {name}": shared for name, shared in (leak.texts or {}).items()}
    present = {what: shared for what, shared in kinds.items() if shared is not None and shared.count}
    for what, shared in present.items():
        same = "-" if shared.same_label is None else f"{shared.same_label:.1%}"
        first = shared.examples[0]
        where = f"{first.second.unit} {first.second.number} and {first.first.number}"
        alike = "" if first.similarity == 1 else f" ({first.similarity:.2f})"
        count = f"{'' if shared.complete else '≥ '}{shared.count}"
        yield [leak.second, leak.first, what, count, f"{shared.share:.1%}", same, where + alike]
    if not present:
        yield [leak.second, leak.first, "nothing", "0", "0.0%", "-", ""]


def _baselines_table(baselines: Baselines, texts: Sequence[str]) -> Table:
    """Scores with their intervals; the title is short, since it is broken to the width of its table."""
    from headwise.data.simple_baselines import BAG, FIRST, FOLDS, LENGTH, MAJORITY, MEAN, SECOND

    titles = {
        MAJORITY: "most frequent class",
        MEAN: "mean",
        BAG: "bag of words",
        FIRST: f"{texts[0]} alone",
        SECOND: f"{texts[-1]} alone",
        LENGTH: "number of words",
    }
    source = f"from {baselines.learned_from} to {baselines.scored_on}"
    if baselines.cross_validated:
        source = f"{FOLDS} folds of {baselines.scored_on}"
    rows = []
    for baseline in baselines.results:
        scores = (f"{each.value:.3f} ({each.low:.3f} to {each.high:.3f})" for each in baseline.scores.values())
        rows.append([titles[baseline.name], *scores])
    return _table(f"baselines: {source}", ["baseline"], list(baselines.results[0].scores), rows)
