"""Tables of rows, and which of their columns hold the texts and the label of a task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

Row = tuple[int, list[Any]]
"""A line number and the values of the requested columns."""
Broken = Callable[[str], None]
"""Called with one sentence about a row that cannot be used; raises, or returns to skip the row."""
Text = str | tuple[str, ...]
"""The column of a text, or the columns that make it up."""


class Table(Protocol):
    """Rows of a file or of the Hub."""

    @property
    def where(self) -> str:
        """The file, for messages."""

    @property
    def unit(self) -> str:
        """What its rows are counted in, for messages: line or row."""

    @property
    def named(self) -> bool:
        """Whether the rows carry the names of their columns, so that no header is needed."""

    @property
    def first(self) -> tuple[str, ...]:
        """The fields of the first line, or the names of the columns."""

    def rows(self, wanted: Sequence[str], columns: Sequence[str] | None, broken: Broken) -> Iterator[Row]:
        """The wanted columns of every row; `columns` names all of them where there is no header."""


@dataclass(frozen=True)
class Layout:
    """Names of the columns that hold the texts and the label; without a header, of all columns in order."""

    texts: tuple[Text, ...]
    label: str
    columns: tuple[str, ...] | None = None
    only: tuple[str, str] | None = None
    """A column and the value that a row must have there to count, in files that have this column."""

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The columns of all texts, one after the other."""
        return tuple(name for text in self.texts for name in ((text,) if isinstance(text, str) else text))

    def fits(self, table: Table) -> bool:
        """Whether the first line of the table looks like this layout."""
        if self.columns is None or table.named:
            return set(self.text_columns) <= set(table.first)
        return len(self.columns) == len(table.first)

    def known(self, table: Table) -> tuple[str, ...]:
        """The columns that the table has in this layout."""
        return table.first if self.columns is None or table.named else self.columns

    def wants(self, row: Mapping[str, Any]) -> bool:
        """Whether a row counts; in files without the column of `only`, all do."""
        return self.only is None or row.get(self.only[0], self.only[1]) == self.only[1]


def choose(layouts: Sequence[Layout], table: Table, *, labelled: bool) -> Layout:
    """The layout that fits the table, or the first one, whose misfit is then the thing to report.

    A header that names the texts is proof, the more so if it names the label; a mere count of fields is not. Unless
    `labelled`, a file without a header may lack the column of the label.
    """
    candidates = list(layouts)
    if not labelled:
        for layout in layouts:
            bare = layout.columns and tuple(name for name in layout.columns if name != layout.label)
            candidates.append(replace(layout, columns=bare))
    candidates.sort(key=lambda layout: (layout.columns is not None, layout.label not in layout.known(table)))
    return next((layout for layout in candidates if layout.fits(table)), layouts[0])
