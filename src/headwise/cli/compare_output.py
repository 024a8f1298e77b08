"""`headwise compare`: systems side by side, with tests, as a table or a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table as RichTable

from headwise.cli.console import WIDTH
from headwise.disk import new_file, save_content
from headwise.errors import InputError, choices
from headwise.experiments.comparison import Asked, Comparison, compare
from headwise.reports.comparison_text import (
    Style,
    TextTable,
    columns_of,
    comparison_csv,
    comparison_latex,
    comparison_markdown,
    detail,
    overviews,
    words_of,
)

ENDINGS = {".txt": "table", ".md": "markdown", ".csv": "csv", ".tex": "latex", ".json": "json"}


@dataclass(frozen=True)
class Output:
    """In which form the comparison is told, and where."""

    form: str | None
    file: Path | None
    overwrite: bool
    as_json: bool
    style: Style

    @contextmanager
    def opened(self) -> Iterator[str]:
        """The form to write; refuses, before any work, what cannot be written, and locks the file for the block."""
        if self.form is not None and self.form not in ENDINGS.values():
            raise InputError(f"--format {self.form}: {choices(self.form, ENDINGS.values())}.")
        if self.as_json and self.file is None and self.form not in (None, "json"):
            raise InputError(f"--json and --format {self.form}: leave one of them out, or write a file by --output.")
        if self.file is None:
            yield "json" if self.as_json else self.form or "table"
            return
        if self.form is None and self.file.suffix not in ENDINGS and not self.file.is_dir():
            raise InputError(f"--output {self.file}: expected a name that ends in {', '.join(ENDINGS)}, or --format.")
        with new_file(self.file, "--output", replace=self.overwrite, example="comparison.md"):
            yield self.form or ENDINGS[self.file.suffix]


def run_compare(paths: Sequence[Path], asked: Asked, output: Output) -> None:
    """Compare runs, and print or write what came out."""
    with output.opened() as form:
        comparison = compare(paths, asked)
        if output.file is not None:
            save_content(output.file, as_text(comparison, form, output.style))
    if output.as_json:
        typer.echo(as_text(comparison, "json", output.style), nl=False)
    elif output.file is not None:
        typer.echo(f"saved in {output.file}")
    else:
        typer.echo(as_text(comparison, form, output.style), nl=False)


def as_text(comparison: Comparison, form: str, style: Style) -> str:
    """A comparison in one of the forms."""
    if form == "json":
        return json.dumps(comparison.as_data(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    if form == "csv":
        return comparison_csv(comparison)
    if form == "markdown":
        return comparison_markdown(comparison, style)
    return comparison_latex(comparison, style) if form == "latex" else _terminal(comparison, style)


def _terminal(comparison: Comparison, style: Style) -> str:
    """Tables as wide as the terminal, then notes and legend."""
    width = Console().width if sys.stdout.isatty() else WIDTH
    console = Console(file=StringIO(), width=width, highlight=False, color_system=None)
    above = overviews(comparison, style)
    for place, table in enumerate(comparison.tables):
        found = [above[place]] if place in above else []
        tests = [column.test for column in columns_of(table, style)]
        for each in [*found, *_fitting(detail(comparison, table, style), tests, console)]:
            console.print(_rich(each))
            console.print()
    for line in words_of(comparison, style):
        console.print(escape(line), soft_wrap=not sys.stdout.isatty())
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def _fitting(table: TextTable, tests: Sequence[bool], console: Console) -> list[TextTable]:
    """The table, or two of them, scores and tests, where it is too wide."""
    if Measurement.get(console, console.options.update(max_width=10_000), _rich(table)).maximum <= console.width:
        return [table]
    scores = [place for place, test in enumerate(tests) if not test]
    rest = [place for place, test in enumerate(tests) if test]
    return [table.columns(scores), *([table.columns([0, *rest])] if rest else [])]


def _rich(table: TextTable) -> RichTable:
    shown = RichTable(title=escape(table.title), title_justify="left", box=None)
    for place, heading in enumerate(table.headings):
        shown.add_column(heading, justify="right" if place else "left", no_wrap=place > 0)
    for row in table.rows:
        shown.add_row(*(escape(str(cell)) for cell in row))
    return shown
