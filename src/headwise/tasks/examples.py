"""From the rows of a table to examples: which rows count, and their texts."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headwise.errors import InputError
from headwise.tasks.labels import Unlabelled, label_text
from headwise.tasks.layout import Layout, Table, Text, choose

logger = logging.getLogger(__name__)

JOINT = " - "
"""Between the columns that make up one text; as the authors of AG-Pair join title and description."""


@dataclass
class Examples:
    """Texts, the labels as written (None where there is none), and the lines they stand on."""

    where: str
    unit: str
    texts: list[tuple[str, ...]] = field(default_factory=list)
    labels: list[str | None] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)

    def place(self, index: int) -> str:
        """Where an example stands, for messages."""
        return f"{self.where} {self.unit} {self.lines[index]}"


@dataclass(frozen=True)
class Rules:
    """What becomes of rows without a label and of rows that cannot be used."""

    unlabelled: Unlabelled = Unlabelled()
    broken_rows: str = "error"
    labelled: bool = True
    """Whether the column of the label must be there."""


def collect(table: Table, layouts: Sequence[Layout], rules: Rules) -> Examples:
    """Read all examples of a table."""
    layout = choose(layouts, table, labelled=rules.labelled)
    wanted = _wanted(table, layout, labelled=rules.labelled)
    columns = None if table.named else layout.columns
    gathering = _Gathering(Examples(table.where, table.unit), rules, layout)
    for line, values in table.rows(wanted, columns, gathering.broken):
        gathering.add(line, dict(zip(wanted, values, strict=True)))
    return gathering.finished()


def _wanted(table: Table, layout: Layout, *, labelled: bool) -> tuple[str, ...]:
    """The columns to read, each once."""
    known = layout.known(table)
    if layout.label not in known and not labelled:
        expected = layout.text_columns
    else:
        expected = (*layout.text_columns, layout.label)
    missing = [name for name in expected if name not in known]
    if missing:
        raise InputError(
            f"{table.where} has no column {missing[0]!r}, only {', '.join(map(repr, known))}: name the right columns "
            "with texts and label, or check format and header."
        )
    choosing = (layout.only[0],) if layout.only and layout.only[0] in known else ()
    return tuple(dict.fromkeys((*expected, *choosing)))


class _Gathering:
    """Adds rows to examples, by the rules."""

    def __init__(self, examples: Examples, rules: Rules, layout: Layout) -> None:
        self._examples = examples
        self._rules = rules
        self._layout = layout
        self._dropped = 0
        self._passed_over = 0

    def broken(self, message: str) -> None:
        """Raise, or pass over the row."""
        if self._rules.broken_rows == "error":
            raise InputError(message)
        self._dropped += 1

    def add(self, line: int, row: Mapping[str, Any]) -> None:
        """Take a row in, unless it is to be dropped or is none of the task's."""
        if not self._layout.wants(row):
            self._passed_over += 1
            return
        label = label_text(row[self._layout.label]) if self._layout.label in row else None
        if label is not None and self._rules.unlabelled.covers(label):
            label = None
            if self._rules.unlabelled.drops(self._place(line)):
                self._dropped += 1
                return
        texts = tuple(_text(text, row) for text in self._layout.texts)
        if "" in texts:
            self.broken(_problem(self._place(line), self._layout.texts[texts.index("")], row))
            return
        self._examples.texts.append(texts)
        self._examples.labels.append(label)
        self._examples.lines.append(line)

    def _place(self, line: int) -> str:
        return f"{self._examples.where} {self._examples.unit} {line}"

    def finished(self) -> Examples:
        """The examples, if there are any."""
        if not self._examples.texts:
            wanted = " with {} {!r}".format(*self._layout.only) if self._layout.only and self._passed_over else ""
            dropped = f" but {self._dropped} dropped ones" if self._dropped else ""
            raise InputError(f"{self._examples.where} has no examples{wanted}{dropped}: give a file with at least one.")
        if self._dropped:
            logger.info("%s: dropped %d rows without a label or text", self._examples.where, self._dropped)
        return self._examples


def _text(text: Text, row: Mapping[str, Any]) -> str:
    """One text; empty if it cannot be used. Of several columns the empty ones are left out.

    Many questions of Yahoo, for one, have but a title.
    """
    parts = [row[text]] if isinstance(text, str) else [row[name] for name in text]
    if not all(isinstance(part, str) for part in parts):
        return ""
    return JOINT.join([part for part in parts if part.strip()])


def _problem(place: str, text: Text, row: Mapping[str, Any]) -> str:
    """Why there is no such text in a row."""
    names = (text,) if isinstance(text, str) else text
    for name in names:
        if not isinstance(row[name], str):
            return f"{place}: expected text in {name!r}, got {row[name]!r}; mend it, or drop it with broken_rows."
    return f"{place}: the text in {' and '.join(map(repr, names))} is empty; fill it in, or drop it with broken_rows."
