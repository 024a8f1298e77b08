"""Printing results on standard output: JSON, and tables that are broken only to fit a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

# Columns of a file or a pipe, which need not be broken as those of a terminal.
WIDTH = 160


def print_json(content: Mapping[str, Any]) -> None:
    """Print one JSON object."""
    typer.echo(json.dumps(content, indent=2, ensure_ascii=False))


def text_table(
    headings: Iterable[str],
    rows: Iterable[Iterable[str]],
    *,
    numbers: Iterable[str] = (),
    last: str = "",
    title: str = "",
) -> Table:
    """A table without lines: columns of text, then of `numbers`, aligned right, then perhaps one of long texts."""
    table = Table(title=escape(title) or None, title_justify="left", box=None)
    for name in headings:
        table.add_column(escape(name))
    for name in numbers:
        table.add_column(escape(name), justify="right")
    if last:
        table.add_column(last, overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def print_tables(*tables: Table, stream: TextIO | None = None) -> None:
    """Print tables, on standard output by default, with an empty line between them."""
    stream = sys.stdout if stream is None else stream
    console = Console(file=stream, width=None if stream.isatty() else WIDTH)
    for number, table in enumerate(tables):
        if number:
            console.print()
        console.print(table)
