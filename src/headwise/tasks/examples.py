"""From the rows of a table to examples: which rows count, and their texts."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headwise.errors import InputError
from headwise.tasks.labels import Unlabelled, label_text
from headwise.tasks.layout import Layout, Table, choose

logger = logging.getLogger(__name__)


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
    wanted, has_label = _wanted(table, layout, labelled=rules.labelled)
    columns = None if table.named else layout.columns
    gathering = _Gathering(Examples(table.where, table.unit), rules, wanted)
    for line, values in table.rows(wanted, columns, gathering.broken):
        gathering.add(line, values, has_label=has_label)
    return gathering.finished()


def _wanted(table: Table, layout: Layout, *, labelled: bool) -> tuple[tuple[str, ...], bool]:
    known = layout.known(table)
    has_label = layout.label in known
    expected = (*layout.texts, layout.label) if labelled or has_label else layout.texts
    missing = [name for name in expected if name not in known]
    if missing:
        raise InputError(
            f"{table.where} has no column {missing[0]!r}, only {', '.join(map(repr, known))}: name the right columns "
            "with texts and label, or check format and header."
        )
    return expected, has_label


class _Gathering:
    """Adds rows to examples, by the rules."""

    def __init__(self, examples: Examples, rules: Rules, wanted: Sequence[str]) -> None:
        self._examples = examples
        self._rules = rules
        self._wanted = wanted
        self._dropped = 0

    def broken(self, message: str) -> None:
        """Raise, or pass over the row."""
        if self._rules.broken_rows == "error":
            raise InputError(message)
        self._dropped += 1

    def add(self, line: int, values: list[Any], *, has_label: bool) -> None:
        """Take a row in, unless it is to be dropped."""
        label, texts = (label_text(values[-1]), values[:-1]) if has_label else (None, values)
        place = f"{self._examples.where} {self._examples.unit} {line}"
        if label is not None and self._rules.unlabelled.covers(label):
            label = None
            if self._rules.unlabelled.drops(place):
                self._dropped += 1
                return
        if problem := self._problem(place, texts):
            self.broken(problem)
            return
        self._examples.texts.append(tuple(texts))
        self._examples.labels.append(label)
        self._examples.lines.append(line)

    def _problem(self, place: str, texts: list[Any]) -> str | None:
        for name, text in zip(self._wanted, texts, strict=False):
            if not isinstance(text, str):
                return f"{place}: expected text in {name!r}, got {text!r}; mend it, or drop it with broken_rows."
            if not text.strip():
                return f"{place}: the text in {name!r} is empty; fill it in, or drop it with broken_rows."
        return None

    def finished(self) -> Examples:
        """The examples, if there are any."""
        dropped = f" but {self._dropped} dropped ones" if self._dropped else ""
        if not self._examples.texts:
            raise InputError(f"{self._examples.where} has no examples{dropped}: give a file with at least one.")
        if self._dropped:
            logger.info("%s: dropped %d rows without a label or text", self._examples.where, self._dropped)
        return self._examples
