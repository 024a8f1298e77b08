"""From the rows of a table to examples: which rows count, and their texts."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwise.data.layouts import Layout, Table, Text, choose
from headwise.errors import InputError, choices, listed

if TYPE_CHECKING:
    pass


# What a task hands over: texts and labels, side by side.


Label = int | float | None
Spans = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Split:
    """Examples of one part of a data set, such as its training part.

    Each example has one or two texts and a label: the index of a class, a number, or None where it is not known.
    Spans say which characters decide the label, as (sentence, start, end).
    """

    texts: tuple[tuple[str, ...], ...]
    labels: tuple[Label, ...]
    spans: tuple[Spans, ...] | None = None
    groups: tuple[str, ...] | None = None
    """Of each example what it belongs to, such as the claim whose candidates are ranked; one's stand together."""

    def __post_init__(self) -> None:
        """Refuse parts of different lengths."""
        spans = len(self.texts) if self.spans is None else len(self.spans)
        if not len(self.texts) == len(self.labels) == spans:
            raise InputError(
                f"a split of {len(self.texts)} texts, {len(self.labels)} labels and {spans} spans: "
                "expected as many of each; give every example one."
            )
        if self.groups is not None and len(self.groups) != len(self.texts):
            raise InputError(
                f"a split of {len(self.texts)} texts and {len(self.groups)} groups: expected as many of each; give "
                "every example one."
            )

    def __len__(self) -> int:
        """How many examples there are."""
        return len(self.texts)

    def subset(self, indices: Iterable[int]) -> Split:
        """The examples at these places, in this order."""
        places = [int(index) for index in indices]
        spans = None if self.spans is None else tuple(self.spans[place] for place in places)
        groups = None if self.groups is None else tuple(self.groups[place] for place in places)
        texts = tuple(self.texts[place] for place in places)
        return Split(texts, tuple(self.labels[place] for place in places), spans, groups)

    @property
    def labelled(self) -> bool:
        """Whether every example has a label."""
        return all(label is not None for label in self.labels)


# From labels as they are written to classes and numbers.


RULES = ("drop", "keep", "error")


@dataclass(frozen=True)
class Unlabelled:
    """Which written labels mean that there is none, and what becomes of their rows."""

    values: tuple[str, ...] = ()
    rule: str = "error"

    def covers(self, label: str) -> bool:
        """Whether a written label means that there is none; an empty one always does."""
        return not label or label in self.values

    def drops(self, place: str) -> bool:
        """Whether such a row is dropped rather than kept; raises when there should be none."""
        if self.rule == "error":
            raise InputError(
                f"{place}: expected a label, got none; fill it in, or set unlabelled.rule to drop or keep."
            )
        return self.rule == "drop"


def label_text(value: Any) -> str:
    """A label as text, whatever type the file gave it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    # A column of whole numbers with gaps comes as floats
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def discovered(examples: Examples, aliases: Mapping[str, str]) -> tuple[str, ...]:
    """The classes that occur, in order; whole numbers in the order of numbers."""
    _check_no_gap(examples)
    found = {aliases.get(label, label) for label in examples.labels if label is not None}
    if all(label.removeprefix("-").isdecimal() for label in found):
        return tuple(sorted(found, key=int))
    return tuple(sorted(found))


def _check_no_gap(examples: Examples) -> None:
    """Refuse a class named NaN: that is how tables and JSON write a label that is not there."""
    for index, label in enumerate(examples.labels):
        if label is not None and label.lower() == "nan":
            raise InputError(
                f"{examples.place(index)}: the label is NaN, expected a class; fill it in, or add {label!r} to "
                "unlabelled.values."
            )


def class_indices(examples: Examples, names: Sequence[str], aliases: Mapping[str, str]) -> tuple[Label, ...]:
    """The index of each example's class."""
    index = _index(names, aliases)
    return tuple(
        None if label is None else _looked_up(label, index, names, place=(examples, number))
        for number, label in enumerate(examples.labels)
    )


def _index(names: Sequence[str], aliases: Mapping[str, str]) -> dict[str, int]:
    """Written label -> class; as written comes first, in any case of letters second."""
    exact = {name: place for place, name in enumerate(names)}
    exact |= {written: exact[name] for written, name in aliases.items()}
    folded = {written.casefold(): place for written, place in reversed(exact.items())}
    return {**folded, **exact}


def _looked_up(label: str, index: Mapping[str, int], names: Sequence[str], place: tuple[Examples, int]) -> int:
    found = index.get(label, index.get(label.casefold()))
    if found is None:
        examples, number = place
        raise InputError(
            f"{examples.place(number)}: unknown label {label!r}; {choices(label, names)}; correct it, or map it with "
            "label_names or unlabelled."
        )
    return found


def numbers(examples: Examples) -> tuple[Label, ...]:
    """The number of each example."""
    return tuple(
        None if label is None else _number(label, place=(examples, number))
        for number, label in enumerate(examples.labels)
    )


def _number(label: str, place: tuple[Examples, int]) -> float:
    try:
        value = float(label)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        examples, number = place
        raise InputError(f"{examples.place(number)}: expected a finite number as the label, got {label!r}; correct it.")
    return value


def check_classes(labels: Iterable[Label], names: Sequence[str], where: str) -> None:
    """Refuse to train a classifier on fewer than two classes."""
    present = {label for label in labels if isinstance(label, int)}
    if len(present) < 2:
        only = f"only the class {names[min(present)]!r}" if present else "no labels"
        raise InputError(
            f"{where} has {only}: training needs at least two classes; add examples, or check the label column."
        )


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
            f"{table.where} has no column {missing[0]!r}, only {listed(known)}: name the right columns "
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
