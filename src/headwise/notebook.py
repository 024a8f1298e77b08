"""Small tables of HTML for notebooks; every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any


def table_html(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], notes: Iterable[str] = (), most: int = 100
) -> str:
    """A table with a caption; numbers are shown with four digits, and only the first rows if there are many."""
    listed = [list(row) for row in rows]
    body = "".join(f"<tr>{''.join(f'<td>{_cell(cell)}</td>' for cell in row)}</tr>" for row in listed[:most])
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    left_out = [f"{len(listed) - most} more rows"] if len(listed) > most else []
    below = "".join(notes_html([*left_out, *notes]))
    return (
        f"<table><caption>{escape(title)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"
    )


def notes_html(notes: Iterable[str]) -> list[str]:
    """Sentences below a table."""
    return [f"<p><small>{escape(note)}</small></p>" for note in notes]


def grid_html(title: str, grid: Sequence[Sequence[float | None]], notes: Iterable[str] = ()) -> str:
    """Layers in rows, heads in columns."""
    columns = ["layer", *(f"head {head}" for head in range(max(map(len, grid), default=0)))]
    return table_html(title, columns, ([layer, *row] for layer, row in enumerate(grid)), notes)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return escape(f"{value:.4g}" if isinstance(value, float) else str(value))
