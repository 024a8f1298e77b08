"""Examples: the rows of a table that count, as texts and labels."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headwise.data.readers import JsonTable, Layout, Table, choose
from headwise.errors import InputError, choices, listed

logger = logging.getLogger(__name__)

Label = int | float | None
Spans = tuple[tuple[int, int, int], ...]

JOINT = " - "
"""Between the columns that make up one text; as the authors of AG-Pair join title and description."""
RULES = ("drop", "keep", "error")
"""What becomes of rows without a label."""


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
    """What each example belongs to, such as the claim whose candidates are ranked; a group's examples are adjacent."""

    def __post_init__(self) -> None:
        """Refuse parts of different lengths."""
        parts = {"labels": self.labels, "spans": self.spans, "groups": self.groups}
        for name, part in parts.items():
            if part is not None and len(part) != len(self.texts):
                raise InputError(
                    f"a split of {len(self.texts)} texts and {len(part)} {name}: expected as many of each; give every "
                    "example one."
                )

    def __len__(self) -> int:
        """How many examples there are."""
        return len(self.texts)

    def subset(self, indices: Iterable[int]) -> Split:
        """The examples at these indices, in this order."""
        kept = [int(index) for index in indices]
        texts, labels, spans, groups = (
            None if part is None else tuple(part[index] for index in kept)
            for part in (self.texts, self.labels, self.spans, self.groups)
        )
        return Split(texts, labels, spans, groups)  # type: ignore[arg-type]

    @property
    def labelled(self) -> bool:
        """Whether every example has a label."""
        return all(label is not None for label in self.labels)


@dataclass(frozen=True)
class Unlabelled:
    """Which written labels mean that there is none, besides empty ones, and what becomes of their rows."""

    values: tuple[str, ...] = ()
    rule: str = "error"


@dataclass
class Examples:
    """Texts, the labels as written (None where there is none), and the lines where they are."""

    where: str
    unit: str
    columns: tuple[str, ...] = ()
    """Of the table."""
    has_label: bool = True
    """Whether the table has the column of the label."""
    texts: list[tuple[str, ...]] = field(default_factory=list)
    labels: list[str | None] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    empty: list[int] = field(default_factory=list)
    """Lines that lack a text, and are left out."""
    broken: list[str] = field(default_factory=list)
    """What is wrong with lines that cannot be read, and are left out."""
    extra: list[dict[str, Any]] = field(default_factory=list)
    """Further columns of each example, as read; without those that the table does not have."""

    def position(self, index: int) -> str:
        """Where an example is, for messages."""
        return f"{self.where} {self.unit} {self.lines[index]}"


def read_examples(
    table: Table,
    layouts: Sequence[Layout],
    unlabelled: Unlabelled,
    *,
    labelled: bool = True,
    broken_rows: str = "error",
    extra: Sequence[str] = (),
    join_lists: bool = False,
) -> Examples:
    """Read all examples of a table.

    Args:
        table: the rows.
        layouts: the columns that may hold texts and labels; the one that fits is used.
        unlabelled: what becomes of rows without a label.
        labelled: whether the column of the label must be there.
        broken_rows: `error`, or `drop` to leave out rows that cannot be read or lack a text.
        extra: further columns to keep, if the table has them.
        join_lists: whether a text may be a list of sentences, which are then joined.
    """
    layout = choose(layouts, table, labelled=labelled)
    known = layout.known(table)
    wanted = list(layout.text_columns)
    if labelled or layout.label in known:
        wanted.append(layout.label)
    for name in wanted:
        if name not in known:
            raise InputError(
                f"{table.where} has no column {name!r}, only {listed(known)}: name the right columns "
                "with texts and label, or check format and header."
            )
    if layout.only and layout.only[0] in known:
        wanted.append(layout.only[0])
    # The keys of a JSON file are those of its first line, and others may have more.
    extra = [name for name in extra if name in known or isinstance(table, JsonTable)]
    optional = [name for name in extra if name not in wanted]
    wanted = list(dict.fromkeys([*wanted, *extra]))
    examples = Examples(table.where, table.unit, known, layout.label in known)
    skipped = dropped = 0

    def broken(message: str) -> None:
        if broken_rows == "error":
            raise InputError(message)
        examples.broken.append(message)

    for line, values in table.rows(wanted, None if table.named else layout.columns, broken, optional):
        row = dict(zip(wanted, values, strict=True))
        if layout.only and row.get(layout.only[0], layout.only[1]) != layout.only[1]:
            skipped += 1
            continue
        position = f"{table.where} {table.unit} {line}"
        label = label_text(row[layout.label]) if layout.label in row else None
        if label is not None and (not label or label in unlabelled.values):
            if unlabelled.rule == "error":
                raise InputError(
                    f"{position}: expected a label, got none; fill it in, or set unlabelled.rule to drop or keep."
                )
            if unlabelled.rule == "drop":
                dropped += 1
                continue
            label = None
        texts, problem = _texts(layout, row, join_lists)
        if problem and broken_rows == "error":
            raise InputError(f"{position}: {problem}, or drop it with broken_rows.")
        if problem:
            examples.empty.append(line)
            continue
        examples.texts.append(texts)
        examples.labels.append(label)
        examples.lines.append(line)
        examples.extra.append({name: row[name] for name in extra})
    dropped += len(examples.empty) + len(examples.broken)
    if not examples.texts:
        only = " with {} {!r}".format(*layout.only) if layout.only and skipped else ""
        but = f" but {dropped} dropped ones" if dropped else ""
        raise InputError(f"{table.where} has no examples{only}{but}: give a file with at least one.")
    if dropped:
        logger.info("%s: dropped %d rows without a label or text", table.where, dropped)
    return examples


def _texts(layout: Layout, row: Mapping[str, Any], join_lists: bool) -> tuple[tuple[str, ...], str]:
    """The texts of a row, and what is wrong with them, if anything is.

    Of a text that several columns make up, the empty ones are left out: many questions of Yahoo have but a title.
    """
    texts = []
    for text in layout.texts:
        names = (text,) if isinstance(text, str) else text
        parts = []
        for name in names:
            value = row[name]
            if join_lists and isinstance(value, list) and all(isinstance(each, str) for each in value):
                value = " ".join(value)
            if not isinstance(value, str):
                return (), f"expected text in {name!r}, got {value!r:.200}; correct it"
            parts.append(value)
        texts.append(JOINT.join(part for part in parts if part.strip()))
        if not texts[-1]:
            return (), f"the text in {' and '.join(map(repr, names))} is empty; fill it in"
    return tuple(texts), ""


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


def find_classes(labels: Iterable[str], aliases: Mapping[str, str]) -> tuple[str, ...]:
    """The classes that occur, in order; whole numbers in the order of numbers."""
    classes = {aliases.get(label, label) for label in labels}
    numbers = all(label.removeprefix("-").isdecimal() for label in classes)
    return tuple(sorted(classes, key=int if numbers else None))


def class_indices(examples: Examples, names: Sequence[str], aliases: Mapping[str, str]) -> tuple[Label, ...]:
    """The index of each example's class; as written comes first, in any case of letters second."""
    exact = {name: index for index, name in enumerate(names)}
    exact |= {written: exact[name] for written, name in aliases.items() if name in exact}
    known = {**{written.casefold(): index for written, index in reversed(exact.items())}, **exact}
    indices: list[Label] = []
    for number, label in enumerate(examples.labels):
        index = None if label is None else known.get(label, known.get(label.casefold()))
        if label is not None and index is None:
            raise InputError(
                f"{examples.position(number)}: unknown label {label!r}; {choices(label, names)}; correct it, or map it "
                "with label_names or unlabelled."
            )
        indices.append(index)
    return tuple(indices)


def label_numbers(examples: Examples) -> tuple[Label, ...]:
    """The number of each example."""
    numbers: list[Label] = []
    for index, label in enumerate(examples.labels):
        try:
            number = None if label is None else float(label)
        except ValueError:
            number = math.nan
        if number is not None and not math.isfinite(number):
            raise InputError(
                f"{examples.position(index)}: expected a finite number as the label, got {label!r}; correct it."
            )
        numbers.append(number)
    return tuple(numbers)
