"""`headwise data`: data sets that are made from others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

data = typer.Typer(help="Make data sets from others.", no_args_is_help=True, rich_markup_mode=None)


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
    from headwise.tasks.ag_pair import write_pairs

    answer = write_pairs(news, out, seed=seed, rounds=rounds, slot_order=slot_order, overwrite=overwrite)
    if as_json:
        typer.echo(json.dumps(answer, indent=2, ensure_ascii=False))
    else:
        _show(answer)


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
