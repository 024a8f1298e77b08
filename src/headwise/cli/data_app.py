"""`headwise data`: data sets that are made from others, and what is wrong with those that are there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

data = typer.Typer(help="Make data sets from others, and check data sets.", no_args_is_help=True, rich_markup_mode=None)


@data.command("ag-pair")
def ag_pair(
    news: Annotated[
        Path,
        typer.Option(help="AG News: .csv, .tsv or .jsonl of class, title, description.", show_default=False),
    ],
    out: Annotated[Path, typer.Option(help="File to write, which ends in .tsv.", show_default=False)],
    seed: Annotated[int, typer.Option(min=0, help="Decides who meets whom, and in which order.")] = 0,
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
    else:
        _show(answer)


@data.command("check")
def check(
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
    seed: Annotated[int, typer.Option(min=0, help="Decides what the baselines learn from.")] = 0,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if anything is found.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Tell what is wrong with the files of a data set before anything is trained on it.

    Label balance, duplicates, leaks between the files, lengths, and what baselines reach that see next to nothing.
    """
    from headwise.cli.data_check_output import show_check
    from headwise.experiments.data_check import CheckSettings, Choice

    show_check(
        files,
        Choice(task, _listed(texts), label, _listed(columns)),
        CheckSettings(seed=seed, model=model, max_length=max_length),
        strict=strict,
        as_json=as_json,
    )


def _listed(text: str | None) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(name.strip() for name in text.split(",") if name.strip()) if text else ()


def _show(answer: Mapping[str, Any]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("topic", "news", *(f"{label}, slot {slot}" for label in answer["slots"] for slot in (1, 2)), box=None)
    for topic, count in answer["topics"].items():
        slots = (str(slot[topic]) for label in answer["slots"].values() for slot in label)
        table.add_row(escape(topic), str(count), *slots)
    Console().print(table)
    typer.echo(f"{answer['rows']} pairs: {answer['same']} same, {answer['different']} different")
    typer.echo(f"every news occurs {'once' if answer['rounds'] == 1 else str(answer['rounds']) + ' times'}")
    typer.echo(
        f"the topic of one slot alone gives {answer['shortcut']:.1%} of the labels, chance {answer['chance']:.1%}"
    )
    typer.echo(f"saved in {answer['output']}")
