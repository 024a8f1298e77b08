"""Printing results on standard output: JSON, and tables that are broken only to fit a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, TextIO

import typer
from rich.console import Console
from rich.table import Table

# Columns of a file or a pipe, which need not be broken as those of a terminal.
WIDTH = 160


def print_json(content: Mapping[str, Any]) -> None:
    """Print one JSON object."""
    typer.echo(json.dumps(content, indent=2, ensure_ascii=False))


def print_tables(*tables: Table, stream: TextIO | None = None) -> None:
    """Print tables, on standard output by default, with an empty line between them."""
    stream = sys.stdout if stream is None else stream
    console = Console(file=stream, width=None if stream.isatty() else WIDTH)
    for number, table in enumerate(tables):
        if number:
            console.print()
        console.print(table)
