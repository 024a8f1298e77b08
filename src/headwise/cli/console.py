"""Printing results on standard output: as JSON, or as tables and lines, which are broken only to fit a terminal.

On standard error, a terminal shows what is being loaded while nothing else is there to see.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from typing import Any, TextIO

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

# Columns of a file or a pipe, which need not be broken as those of a terminal.
WIDTH = 160
# Libraries that take long to import, and what a terminal shows then. Of the light ones at most the first is shown.
HEAVY = {"ray": "Ray", "spacy": "spaCy", "torch": "torch and transformers"}
LIGHT = {"matplotlib": "matplotlib", "pandas": "pandas", "scipy": "scipy"}
_LOG = logging.getLogger("headwise")


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


# -- what is being loaded ----------------------------------------------------------------------------------------------


class _HeavyImports(MetaPathFinder):
    """Shows the name of a heavy library before it is imported; finds no module."""

    def __init__(self) -> None:
        self._left = HEAVY | LIGHT

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if text := self._left.pop(fullname, None):
            self._left = {name: each for name, each in self._left.items() if name not in LIGHT}
            _LOG.info("loading %s", text)


class _Stderr(logging.Handler):
    """Writes to standard error as it is at that time."""

    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(f"{record.getMessage()}\n")
        sys.stderr.flush()


@contextmanager
def loading_shown() -> Iterator[None]:
    """Within the block, a terminal shows which libraries and models are being loaded.

    A file or a pipe gets no such lines: there an error is one line.
    """
    if not sys.stderr.isatty():
        yield
        return
    finder, handler, level = _HeavyImports(), _Stderr(), _LOG.level
    sys.meta_path.insert(0, finder)
    _LOG.addHandler(handler)
    _LOG.setLevel(logging.INFO)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        _LOG.removeHandler(handler)
        _LOG.setLevel(level)
