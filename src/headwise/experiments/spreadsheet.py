"""CSV and TSV files for people, who open them in a spreadsheet program.

Such a program runs a cell that begins with =, +, - or @ as a formula, and a label or a name can come from anybody. A
text cell that begins so gets a single quotation mark in front, as OWASP recommends. Numbers stay as they are, and so do
labels that are numbers, such as -1, which no program takes for a formula.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Quotation marks in front count as well, so that whoever takes one away gets back what there was. The last four are the
# wide forms of the first four, which spreadsheet programs in East Asian languages take for the same.
_FORMULA = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")


def escape_cell(cell: Any) -> Any:
    """The cell as a spreadsheet program may have it: text that begins like a formula gets a ' in front."""
    if isinstance(cell, str) and _FORMULA.match(cell) and not _NUMBER.fullmatch(cell):
        return f"'{cell}"
    return cell


def csv_text(rows: Sequence[Mapping[str, Any]], *, delimiter: str = ",") -> str:
    """Rows with the same keys under their names, numbers in full precision; what is None is empty."""
    names = list(rows[0]) if rows else []
    return table_text([names, *([row[name] for name in names] for row in rows)], delimiter=delimiter)


def table_text(rows: Iterable[Iterable[Any]], *, delimiter: str = ",") -> str:
    """Rows of cells, the names of the columns first."""
    lines: list[str] = []
    # With both signs as the end of a line, a cell that holds one of them is quoted: else a carriage return in a cell
    # would begin a row. The end itself is a line feed.
    writer = csv.writer(_Lines(lines), delimiter=delimiter, lineterminator="\r\n")
    writer.writerows([escape_cell(cell) for cell in row] for row in rows)
    return "".join(f"{line[:-2]}\n" for line in lines)


@dataclass(frozen=True)
class _Lines:
    """A file for the writer, which writes a row at a time."""

    rows: list[str]

    def write(self, text: str) -> None:
        self.rows.append(text)
