"""`headwise data`: data sets from others, and what is wrong with them; `headwise mark`: marked words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwise.cli import parameters as opt
from headwise.cli.console import show, text_table
from headwise.cli.progress_bar import ProgressBar, progress
from headwise.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from headwise.data.checks import DataReport, Lengths
    from headwise.data.leakage import Leak
    from headwise.data.simple_baselines import Baselines, Features

# Classes that a table shows; --json shows all.
MOST_CLASSES = 20

data = typer.Typer(
    help="Build data sets from others, and check data sets.", no_args_is_help=True, rich_markup_mode=None
)


@data.command("ag-pair")
def ag_pair(
    news: Annotated[Path, typer.Option(help="AG News: .csv, .tsv or .jsonl of class, title, description.")],
    out: Annotated[Path, typer.Option(help="File to write: .tsv.")],
    seed: Annotated[int, typer.Option(min=0, help="Seed of the pairs and their order.")] = 0,
    rounds: Annotated[int, typer.Option(min=1, help="Number of pairs that each news item occurs in.")] = 2,
    slot_order: Annotated[
        str, typer.Option(help="random, or reference: the authors' order, which gives the label away.")
    ] = "random",
    overwrite: opt.Overwrite = False,
    as_json: opt.AsJson = False,
) -> None:
    """Pair news: do the two have the same topic?

    Half of the pairs do. Every news item occurs once in every round, and no pair occurs twice. Read by the task
    ag-pair.
    """
    from headwise.data.ag_pair import write_pairs

    summary = write_pairs(news, out, seed=seed, rounds=rounds, slot_order=slot_order, overwrite=overwrite)
    columns = ["topic", "news", *(f"{label}, slot {slot}" for label in summary["slots"] for slot in (1, 2))]
    rows = [
        [topic, str(count), *(str(slot[topic]) for label in summary["slots"].values() for slot in label)]
        for topic, count in summary["topics"].items()
    ]
    show(
        as_json,
        summary,
        text_table(columns, rows),
        f"{summary['rows']} pairs: {summary['same']} same, {summary['different']} different",
        f"every news occurs {'once' if rounds == 1 else f'{rounds} times'}",
        f"the topic of one slot alone gives {summary['shortcut']:.1%} of the labels, chance {summary['chance']:.1%}",
        f"saved in {summary['output']}",
    )


@data.command("check")
def check(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="TSV, CSV, JSONL, Parquet or Excel files; or train=FILE.")
    ],
    task: Annotated[str | None, typer.Option(help="Task whose columns they have, see `headwise list tasks`.")] = None,
    texts: Annotated[str | None, typer.Option(metavar="A,B", help="Columns of one text or two.")] = None,
    label: Annotated[str | None, typer.Option(metavar="C", help="Column of the label.")] = None,
    columns: Annotated[
        str | None, typer.Option(metavar="A,B,C", help="All columns, for files without a header.")
    ] = None,
    delimiter: Annotated[str | None, typer.Option(help="Sign between fields, or tab; detected if left out.")] = None,
    encoding: Annotated[str | None, typer.Option(help="Such as latin-1; detected if left out.")] = None,
    sheet: Annotated[str | None, typer.Option(help="Sheet of an Excel file that has several.")] = None,
    marks: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE=VALUE",
            help="Where marked words come from, as in a recipe: column=selected_text, or spans=COLUMN,text=COLUMN.",
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Encoder whose tokens are counted as well.")] = None,
    encoder: Annotated[
        str | None,
        typer.Option(help="Encoder for one more baseline: logistic regression on its features, without fine-tuning."),
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(min=1, help="Tokens beyond which the model would cut; default 128.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the baselines.")] = 0,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with code 1 if there is any finding.")] = False,
    as_json: opt.AsJson = False,
) -> None:
    """Say what is wrong with the files of a data set before anything is trained on it.

    Label balance, duplicates, leaks between the files, lengths, and what baselines reach that see next to nothing; with
    --marks how much is marked.
    """
    from headwise.cli.main import as_options
    from headwise.data.checks import check_files

    stage, counted = "", model or (None if marks is None else encoder)
    with progress() as bar:

        def advance(what: str, done: int, total: int) -> None:
            nonlocal stage
            bar.advance(done) if what == stage else bar.start(what, total, done)
            stage = what

        report = check_files(
            files,
            task=task,
            texts=opt.names(texts),
            label=label,
            columns=opt.names(columns),
            written={"delimiter": delimiter, "encoding": encoding, "sheet": sheet},
            marks=None if marks is None else _mark_options(marks),
            seed=seed,
            progress=advance,
            encoder=None if encoder is None else _frozen_features(encoder, max_length, bar),
            # Marks are also put on the tokens of the encoder of the baseline.
            **_token_counting(counted, None if counted is None and encoder is not None else max_length),
        )
    notes = [as_options(note) for note in report.notes]
    count = f"{len(report.findings) or 'no'} finding{'' if len(report.findings) == 1 else 's'}"
    lines = ["", *(f"note: {note}" for note in notes), count, *(f"- {each.message}" for each in report.findings)]
    show(as_json, {**report.as_data(), "notes": notes}, *_report_tables(report), *lines)
    if strict and report.findings:
        raise typer.Exit(1)


def _mark_options(text: str) -> dict[str, Any]:
    """SOURCE=VALUE,OPTION=VALUE as the mapping that a recipe has; a name twice makes a list, without a value true."""
    options: dict[str, Any] = {}
    for part in opt.names(text):
        name, equals, written = part.partition("=")
        value = {"true": True, "false": False}.get(written, written) if equals else True
        options[name] = value if name not in options else [*_as_list(options[name]), value]
    return options


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _token_counting(model: str | None, max_length: int | None) -> dict[str, Any]:
    """The tokenizer of a model and how many tokens it takes; a limit that it cannot take is refused."""
    if model is None:
        if max_length is not None:
            raise InputError(f"max_length={max_length} counts tokens of a model: name one, or leave it out.")
        return {}
    from headwise.data.checks import USUAL_LENGTH
    from headwise.training.encoders import check_length, find_encoder

    encoder = find_encoder(model)
    if max_length is not None:
        check_length(encoder, max_length)
    limit = max_length or min(USUAL_LENGTH, encoder.longest or USUAL_LENGTH)
    return {"tokenizer": encoder.tokenizer, "max_length": limit}


def _frozen_features(name: str, max_length: int | None, bar: ProgressBar) -> Features:
    """A function from texts to features of an encoder, whose weights are loaded when it is called first."""
    from headwise.data.checks import USUAL_LENGTH
    from headwise.training.encoders import check_length, find_encoder
    from headwise.training.frozen_probe import text_features

    encoder = find_encoder(name)
    if max_length is not None:
        check_length(encoder, max_length)
    limit = max_length or min(USUAL_LENGTH, encoder.longest or USUAL_LENGTH)
    return text_features(encoder, limit, bar)


def _report_tables(report: DataReport) -> Iterator[Table]:
    from headwise.data.checks import PERCENTS, Balance, Numbers

    counts = ["rows", "no label", "no text", "broken", "repeated", "contradicting"]
    if len(report.texts) == 2:
        counts += ["same text twice", "swapped"]
    rows = []
    for file in report.files:
        twice = file.duplicates
        repeats = [each for each in (twice.repeated, twice.contradicting, twice.identical, twice.swapped) if each]
        cells = [file.rows, "all" if file.labels is None else file.labels.missing, len(file.empty), len(file.broken)]
        rows.append([file.name, *map(str, cells), *(str(each.count) for each in repeats), file.path])
    title = f"read as {report.task}: {' and '.join(report.texts)}"
    yield text_table(["file"], rows, numbers=counts, last="path", title=title)
    balances = {file.name: file.labels for file in report.files if isinstance(file.labels, Balance)}
    if report.classes and balances:
        rows = [
            [name, *(f"{each.counts[name]} ({each.shares[name]:.1%})" for each in balances.values())]
            for name in report.classes[:MOST_CLASSES]
        ]
        if len(report.classes) > MOST_CLASSES:
            rows.append([f"... {len(report.classes) - MOST_CLASSES} more"])
        yield text_table(["label"], rows, numbers=balances, title="labels")
    numbers = {file.name: file.labels for file in report.files if isinstance(file.labels, Numbers)}
    if numbers:
        values = {name: (each.low, each.high, each.mean, each.deviation) for name, each in numbers.items()}
        rows = [[name, *(f"{value:.4g}" for value in each)] for name, each in values.items()]
        columns = ["from", "to", "mean", "standard deviation"]
        yield text_table(["file"], rows, numbers=columns, title="labels")
    percents = [*(f"{percent} %" for percent in PERCENTS), "longest"]
    rows = [[file.name, text, *_length_cells(each)] for file in report.files for text, each in file.words.items()]
    yield text_table(["file", "text"], rows, numbers=percents, title="words")
    tokens = {file.name: file.tokens for file in report.files if file.tokens is not None}
    if tokens:
        cuts = {name: f"{each.cut} ({each.share:.1%}) at {each.limit}" for name, each in tokens.items()}
        rows = [[name, *_length_cells(each.lengths), cuts[name]] for name, each in tokens.items()]
        yield text_table(["file"], rows, numbers=[*percents, "cut"], title="tokens")
    if any(file.marks for file in report.files):
        yield _marks_table(report)
    if report.leaks:
        rows = [row for leak in report.leaks for row in _leak_rows(leak)]
        columns = ["examples", "share", "same label"]
        yield text_table(["of", "in", "what"], rows, numbers=columns, last="such as", title="leaks")
    if report.baselines is not None:
        yield _baselines_table(report.baselines, report.texts)


def _marks_table(report: DataReport) -> Table:
    """How much is marked; with a tokenizer how marks lie on tokens, and how many examples lose theirs."""
    columns = ["marked", "words (median)", "every word", "marks", "cut a word", "not found", "outside", "broken"]
    counted = any(file.marks and file.marks.tokens for file in report.files)
    rows = []
    for file in report.files:
        each = file.marks
        if each is None:
            continue
        words = "-" if each.words is None else f"{each.words:.1%}"
        problems = map(len, (each.not_found, each.outside, each.broken))
        cells = [f"{each.examples} ({each.share:.1%})", words, each.every_word, each.marks, each.cut, *problems]
        if counted and each.tokens is None:
            cells += ["-"] * 4
        elif each.tokens is not None:
            tokens = each.tokens
            cells += [f"{tokens.share:.1%}", tokens.split, f"{tokens.lost} at {tokens.limit}", tokens.shortened]
        rows.append([file.name, *map(str, cells)])
    if counted:
        columns += ["tokens (median)", "cut a token", "all lost", "some lost"]
    return text_table(["file"], rows, numbers=columns, title="marks")


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
    from headwise.data.simple_baselines import BAG, FIRST, FOLDS, FROZEN, LENGTH, MAJORITY, MEAN, SECOND

    titles = {
        MAJORITY: "most frequent class",
        MEAN: "mean",
        BAG: "bag of words",
        FIRST: f"{texts[0]} alone",
        SECOND: f"{texts[-1]} alone",
        LENGTH: "number of words",
        FROZEN: "logistic regression on frozen features",
    }
    source = f"from {baselines.learned_from} to {baselines.scored_on}"
    if baselines.cross_validated:
        source = f"{FOLDS} folds of {baselines.scored_on}"
    rows = []
    for baseline in baselines.results:
        scores = (f"{each.value:.3f} ({each.low:.3f} to {each.high:.3f})" for each in baseline.scores.values())
        rows.append([titles[baseline.name], *scores])
    return text_table(["baseline"], rows, numbers=baselines.results[0].scores, title=f"baselines: {source}")


def mark(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="CSV, TSV or JSONL file of examples.")],
    text: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of the text; default sentence1 and sentence2, text, or sentence."),
    ] = None,
    pair: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of the second text of pairs.")] = None,
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of the label; default label.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="JSONL file of marks; default FILE's name with .marks.jsonl.")
    ] = None,
    port: opt.Port = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="Show N examples only; default all.")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Shuffle the examples with this seed; default the order of FILE.")
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open the page in the browser.")] = False,
    as_json: opt.AsJson = False,
) -> None:
    """Mark the words that decide the label, on a page on this machine.

    Every example is saved as soon as it is done; the same command resumes. Ctrl-C ends it.
    """
    from headwise.cli.mark_server import serve_until_interrupt
    from headwise.data.marking import Marking, marks_file, read_rows
    from headwise.disk import new_file

    rows = read_rows(file, text, pair, label)
    target = marks_file(file) if output is None else output
    if target.suffix.lower() != ".jsonl":
        raise InputError(f"--output {target}: expected a name that ends in .jsonl.")
    with new_file(target, "--output", replace=True, example="marks.jsonl"):
        marking = Marking(rows, target, limit=limit, seed=seed)
        lines = [f"{rows.path}: {rows.columns}"]
        if rows.empty:
            lines.append(f"{rows.empty} examples without a text are left out")
        if marking.resumed:
            lines.append(f"{marking.resumed} of {marking.total} examples are saved in {target}; the page resumes there")
        # On stderr with --json, whose result is the summary at the end.
        serve_until_interrupt(marking, file.name, port, lines, browser=not no_browser, to_stderr=as_json)
        summary = marking.close()
    kept = (
        "{saved} of {total} examples are saved in {output}: {marked} with marks, {unmarked} without, {skipped} skipped"
    )
    typer.echo(f"headwise: stopped; {kept.format(**summary) if summary['saved'] else 'nothing was written'}", err=True)
    if as_json:
        show(True, summary)
