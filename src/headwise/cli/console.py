"""Printing results on standard output: as JSON, or as tables and lines, which are broken only to fit a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

# Columns of a file or a pipe, which need not be broken as those of a terminal.
WIDTH = 160


def show(as_json: bool, content: Mapping[str, Any], *parts: Table | str) -> None:
    """Print a result: one JSON object, or tables and lines."""
    if as_json:
        typer.echo(json.dumps(content, indent=2, ensure_ascii=False))
    else:
        print_parts(*parts)


def print_parts(*parts: Table | str, stream: TextIO | None = None) -> None:
    """Print tables and lines, on standard output by default, with an empty line between two tables."""
    stream = stream or sys.stdout
    console = Console(file=stream, width=None if stream.isatty() else WIDTH)
    for number, part in enumerate(parts):
        if isinstance(part, str):
            typer.echo(part, file=stream)
            continue
        if number and isinstance(parts[number - 1], Table):
            console.print()
        console.print(part)


def text_table(
    headings: Iterable[str],
    rows: Iterable[Iterable[str | Text]],
    *,
    numbers: Iterable[str] = (),
    last: str = "",
    title: str = "",
    caption: str = "",
    whole: bool = False,
) -> Table:
    """A table without lines.

    Args:
        headings: columns of text.
        rows: the cells of all columns.
        numbers: further columns, aligned right.
        last: perhaps one more column, of long texts.
        title: above it.
        caption: below it.
        whole: whether a number is never broken into two lines.
    """
    table = Table(
        title=escape(title) or None,
        title_justify="left",
        caption=escape(caption) or None,
        caption_justify="left",
        box=None,
    )
    for name in headings:
        table.add_column(escape(name))
    for name in numbers:
        table.add_column(escape(name), justify="right", no_wrap=whole)
    if last:
        table.add_column(last, overflow="fold")
    for row in rows:
        table.add_row(*(escape(cell) if isinstance(cell, str) else cell for cell in row))
    return table
