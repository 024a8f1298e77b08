"""News with a topic each, from the files of AG News."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from headwise.errors import InputError
from headwise.tasks.labels import label_text
from headwise.tasks.layout import Dialect, Layout, Table, choose
from headwise.tasks.rows import named
from headwise.tasks.tables import SUFFIXES, open_table
from headwise.tasks.text_file import check_file, gzipped

# As published, as others pass it on, and with title and description already in one text.
LAYOUTS = (
    Layout(("title", "description"), "class", columns=("class", "title", "description")),
    named("title", "description", label="class"),
    named("title", "description", label="label"),
    named("Title", "Description", label="Class Index"),
    Layout(("text",), "label", columns=("text", "label")),
    named("text", label="label"),
)
_BREAKS = re.compile(r"[\t\r\n]+")


@dataclass(frozen=True)
class News:
    """One piece of news."""

    topic: str
    """As the file writes it."""
    title: str
    description: str = ""
    """Empty where the file has title and description in one text."""


def read_news(path: Path) -> tuple[News, ...]:
    """The news of a .csv, .tsv, .jsonl or .parquet file, in its order.

    Tabs and line ends within texts become blanks, as the pairs are written to a TSV; all else, AG's backslashes
    included, stays as it is.
    """
    _check_name(path)
    table = open_table(path, Dialect())
    layout = choose(LAYOUTS, table, labelled=True)
    names = (layout.label, *layout.text_columns)
    if not layout.fits(table) or not set(names) <= set(layout.known(table)):
        raise InputError(_no_news(table))
    columns = None if table.named else layout.columns
    return tuple(
        _news(table, line, dict(zip(names, row, strict=True))) for line, row in table.rows(names, columns, _refuse)
    )


def _check_name(path: Path) -> None:
    check_file(path)
    if (path.with_suffix("") if gzipped(path) else path).suffix.lower() not in SUFFIXES:
        raise InputError(f"{path}: news are read from .csv, .tsv, .jsonl and .parquet files; name or save it as one.")


def _news(table: Table, line: int, row: dict[str, Any]) -> News:
    topic, *texts = row.items()
    for name, value in texts:
        if not isinstance(value, str) or not value.strip():
            raise InputError(
                f"{table.where} {table.unit} {line}: expected text in {name!r}, got {value!r}; fill it in, or take the "
                "news out."
            )
    if not label_text(topic[1]):
        raise InputError(
            f"{table.where} {table.unit} {line}: expected a topic in {topic[0]!r}, got none; fill it in, or take the "
            "news out."
        )
    return News(label_text(topic[1]), *(_BREAKS.sub(" ", text) for _, text in texts))


def _no_news(table: Table) -> str:
    got = f"{len(table.first)} columns that begin {', '.join(repr(name[:20]) for name in table.first[:4])}"
    return (
        f"{table.where}: expected news as class, title and description (or text and label), with or without a header "
        f"of these names, got {got}; name or order the columns so."
    )


def _refuse(sentence: str) -> NoReturn:
    raise InputError(sentence)


def topics_of(news: Sequence[News]) -> tuple[str, ...]:
    """The topics in order; whole numbers in the order of numbers."""
    found = {each.topic for each in news}
    return tuple(sorted(found, key=lambda topic: (int(topic) if topic.isdecimal() else 0, topic)))
