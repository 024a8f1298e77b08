"""Text from users in Markdown, CSV files and tables of HTML: shown as it was written, and nothing else."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

# What begins something in Markdown or HTML; & only where it would begin an entity, such as &lt;.
_SIGNS = re.compile(r"([\\`*_|<>\[\]#~]|&(?=#?\w+;))")


def escape_markdown(text: str) -> str:
    """Text on one line that Markdown shows as it is, also in a table."""
    return _SIGNS.sub(r"\\\1", " ".join(text.split()))


def paragraph(text: str) -> str:
    """Text that begins a line: it starts no list, heading, rule or front matter either."""
    escaped = re.sub(r"^([-+=])", r"\\\1", escape_markdown(text))
    return re.sub(r"^(\d+)([.)])", r"\1\\\2", escaped)


def code(text: str) -> str:
    """Text in a code span, whatever backticks it holds."""
    line = " ".join(text.split())
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    space = " " if line.startswith("`") or line.endswith("`") or not line else ""
    return f"{fence}{space}{line}{space}{fence}"


def render_markdown(template: str, **values: Any) -> str:
    """A Jinja template of Markdown. Every value is escaped unless the template says `safe`, `paragraph` or `code`."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        finalize=lambda value: value if isinstance(value, Markup) else escape_markdown(str(value)),
    )
    environment.filters |= {
        "paragraph": lambda text: Markup(paragraph(str(text))),
        "code": lambda text: Markup(code(str(text))),
    }
    return environment.from_string(template).render(**values)


# -- CSV and TSV files for people, who open them in a spreadsheet program ----------------------------------------------

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
    lines = []
    for row in rows:
        # With both signs as the end of a line, a cell that holds one of them is quoted: else a carriage return in a
        # cell would begin a row. The end itself is a line feed.
        line = io.StringIO(newline="")
        csv.writer(line, delimiter=delimiter, lineterminator="\r\n").writerow([escape_cell(cell) for cell in row])
        lines.append(f"{line.getvalue()[:-2]}\n")
    return "".join(lines)


# -- small tables of HTML for notebooks --------------------------------------------------------------------------------


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
