"""Examples: the rows of a table that count, as texts and labels."""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from headwise.data.readers import JsonTable, Layout, Table, choose, is_number, looks_like_names
from headwise.errors import InputError, choices, listed

logger = logging.getLogger(__name__)

Label = int | float | None
Labels = tuple[Any, ...]
"""Of examples with several labels each is a tuple."""
Spans = tuple[tuple[int, int, int], ...]

BETWEEN = "\x1f"
"""Behind each label of a list, as text; no label has this character."""
JOINT = " - "
"""Between the columns that make up one text; as the authors of AG-Pair join title and description."""
_WHOLE = re.compile(r"[+-]?\d+(\.0+)?")
MANY_CLASSES = 50
"""With more, each example may have a class of its own: then the column is no label."""
RULES = ("drop", "keep", "error")
"""What becomes of rows without a label."""


@dataclass(frozen=True)
class Split:
    """Examples of one part of a data set, such as its training part.

    Each example has one or two texts and a label: the index of a class, a number, or None where it is not known. With
    several labels it is 0 or 1 for every class, and with labels of words the class of each word between blanks.
    Spans say which characters decide the label, as (sentence, start, end).
    """

    texts: tuple[tuple[str, ...], ...]
    labels: tuple[Label, ...]
    spans: tuple[Spans, ...] | None = None
    groups: tuple[str, ...] | None = None
    """What each example belongs to, such as the claim whose candidates are ranked; a group's examples are adjacent."""
    rows: tuple[Mapping[str, Any], ...] | None = None
    """All columns of each example, as far as they were read."""

    def __post_init__(self) -> None:
        """Refuse parts of different lengths."""
        parts = {"labels": self.labels, "spans": self.spans, "groups": self.groups, "rows": self.rows}
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
        texts, labels, spans, groups, rows = (
            None if part is None else tuple(part[index] for index in kept)
            for part in (self.texts, self.labels, self.spans, self.groups, self.rows)
        )
        return Split(texts, labels, spans, groups, rows)  # type: ignore[arg-type]

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
    written: str = ""
    """How the table is written, such as "; as delimiter, UTF-8"."""
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
    extra: Sequence[str] | None = (),
    join_lists: bool = False,
    leave_out_empty: bool = False,
) -> Examples:
    """Read all examples of a table.

    Args:
        table: the rows.
        layouts: the columns that may hold texts and labels; the one that fits is used.
        unlabelled: what becomes of rows without a label.
        labelled: whether the column of the label must be there.
        broken_rows: `error`, or `drop` to leave out rows that cannot be read or lack a text.
        extra: further columns to keep, if the table has them; None for all.
        join_lists: whether a text may be a list of sentences, which are then joined.
        leave_out_empty: whether rows that lack a text are left out, whatever becomes of other broken rows.
    """
    layout = choose(layouts, table, labelled=labelled)
    known = layout.known(table)
    wanted = list(layout.text_columns)
    if labelled or layout.label in known:
        wanted.append(layout.label)
    for name in wanted:
        if name not in known:
            raise InputError(f"{table.where} has no column {name!r}, only {listed(known)}: {_fix(table, name, known)}.")
    if layout.only and layout.only[0] in known:
        wanted.append(layout.only[0])
    # The keys of a JSON file are those of its first line, and others may have more.
    if extra is None:
        extra = [name for name in known if known.count(name) == 1]
    extra = [name for name in extra if name in known or isinstance(table, JsonTable)]
    optional = [name for name in extra if name not in wanted]
    wanted = list(dict.fromkeys([*wanted, *extra]))
    examples = Examples(table.where, table.unit, known, table.written, layout.label in known)
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
        if problem and leave_out_empty and not all(label_text(row[name]).strip() for name in layout.text_columns):
            examples.empty.append(line)
            continue
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
    _warn_of_numbers(table.where, layout, examples.texts)
    if dropped:
        logger.info("%s: dropped %d rows without a label or text", table.where, dropped)
    return examples


def _fix(table: Table, name: str, known: Sequence[str]) -> str:
    """What to do about a column that is not there."""
    near = {each.casefold().strip(): each for each in known}
    close = get_close_matches(name.casefold(), near, n=1)
    hint = f"did you mean {near[close[0]]!r}? " if close else ""
    if not table.named and not looks_like_names(table.first):
        unit = table.unit
        return f"the first {unit} looks like an example: if there is no header, list all columns in order (columns)"
    return f"{hint}name the right columns with texts and label, or check format, delimiter and header"


def _warn_of_numbers(where: str, layout: Layout, texts: Sequence[tuple[str, ...]]) -> None:
    """A text of numbers alone is a sign of the wrong column."""
    for position, name in enumerate(layout.texts):
        shown = name if isinstance(name, str) else JOINT.join(name)
        if len(texts) > 1 and all(is_number(each[position]) for each in texts):
            logger.warning("%s: column %r holds numbers, and is read as text: check texts", where, shown)


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
    if isinstance(value, list):
        return "".join(f"{label_text(each)}{BETWEEN}" for each in value)
    if isinstance(value, bool):
        return str(value).lower()
    # A column of whole numbers with gaps comes as floats
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def folded_label(label: str) -> str:
    """A label without what does not set labels apart: case, repeated blanks, and the .0 of a whole number."""
    plain = " ".join(label.split()).casefold()
    return plain.partition(".")[0] if _WHOLE.fullmatch(plain) else plain


def spellings_of(labels: Iterable[str], aliases: Mapping[str, str]) -> dict[str, Counter[str]]:
    """The classes that occur, and how often each is written in which way.

    Labels that differ only by case, blanks or the .0 of a whole number are one class, by its most frequent spelling.
    """
    known = {folded_label(label): name for label, name in aliases.items()} | dict(aliases)
    spellings: dict[str, Counter[str]] = {}
    for label in labels:
        name = known.get(label, known.get(folded_label(label), label))
        spellings.setdefault(folded_label(name), Counter())[name] += 1
    return {
        folded if _WHOLE.fullmatch(folded) else min(counts, key=lambda each: (-counts[each], each)): counts
        for folded, counts in spellings.items()
    }


def odd_spellings(classes: Mapping[str, Counter[str]]) -> str:
    """In words, which labels are read as another one; empty if none is."""
    return "; ".join(
        f"{', '.join(f'{each!r} ({count})' for each, count in sorted(counts.items()))} as {name!r}"
        for name, counts in classes.items()
        if set(counts) != {name}
    )


def find_classes(labels: Iterable[str], aliases: Mapping[str, str], where: str = "") -> tuple[str, ...]:
    """The classes that occur, in order; whole numbers in the order of numbers. `where` is for the log."""
    classes = spellings_of(labels, aliases)
    if where and (odd := odd_spellings(classes)):
        logger.warning("%s: labels are read as one: %s; list labels to keep them apart", where, odd)
    numbers = all(label.removeprefix("-").isdecimal() for label in classes)
    return tuple(sorted(classes, key=int if numbers else None))


def check_classes(examples: Examples, classes: Sequence[str]) -> None:
    """Refuse classes that were found and are no classes: labels that are missing, or scores."""
    for index, label in enumerate(examples.labels):
        if label is not None and label.lower() == "nan":  # as tables and JSON write a label that is not there
            raise InputError(
                f"{examples.position(index)}: the label is NaN, expected a class; fill it in, or add {label!r} to "
                "unlabelled.values and set unlabelled.rule to drop."
            )
    scores = all(map(is_number, classes)) and {name for name in classes if not _WHOLE.fullmatch(name)}
    if scores:
        index = next(index for index, label in enumerate(examples.labels) if label in scores)
        raise InputError(
            f"{examples.position(index)}: expected a class as the label, got the number {examples.labels[index]}: for "
            "scores use a regression (kind: regression), and for classes list all of them with labels."
        )


def warn_of_rare_classes(examples: Examples, labels: Sequence[Label], names: Sequence[str]) -> None:
    """Log what makes a class hard to learn: a single example, or as many classes as examples."""
    counts = Counter(label for label in labels if isinstance(label, int))
    single = [index for index, label in enumerate(labels) if isinstance(label, int) and counts[label] == 1]
    if len(counts) > MANY_CLASSES and len(counts) > len(labels) / 2:
        logger.warning(
            "%s: %d different labels in %d examples: check that label names the right column",
            *(examples.where, len(counts), len(labels)),
        )
    elif single:
        rare = listed(names[label] for index in single if isinstance(label := labels[index], int))
        logger.warning(
            "%s %s %d: only one example of %s, so none can be held out: add examples, or join classes with label_names",
            *(examples.where, examples.unit, examples.lines[single[0]], rare),
        )


def class_indices(examples: Examples, names: Sequence[str], aliases: Mapping[str, str]) -> tuple[Label, ...]:
    """The index of each example's class; as written comes first, folded second."""
    index_of = _index_of(names, aliases)
    indices: list[Label] = []
    for number, label in enumerate(examples.labels):
        index = None if label is None else index_of(label)
        if label is not None and index is None:
            raise InputError(
                f"{examples.position(number)}: unknown label {label!r}; {choices(label, names)}; correct it, or map it "
                "with label_names or unlabelled."
            )
        indices.append(index)
    return tuple(indices)


def _index_of(names: Sequence[str], aliases: Mapping[str, str]) -> Callable[[str], int | None]:
    """A function from a label as written to the index of its class."""
    exact = {name: index for index, name in enumerate(names)}
    exact |= {written: exact[name] for written, name in aliases.items() if name in exact}
    known = {**{folded_label(written): index for written, index in reversed(exact.items())}, **exact}
    return lambda label: known.get(label, known.get(folded_label(label)))


def label_sets(examples: Examples, names: Sequence[str], aliases: Mapping[str, str], separator: str) -> Labels:
    """For each example 0 or 1 for every class; an empty cell means that none of them applies."""
    sets: list[Any] = []
    for number, label in enumerate(examples.labels):
        if label is None and not examples.has_label:
            sets.append(None)
            continue
        chosen = _indices(examples, number, separate(label or "", separator), names, aliases)
        sets.append(tuple(int(index in chosen) for index in range(len(names))))
    return tuple(sets)


def word_labels(examples: Examples, names: Sequence[str], aliases: Mapping[str, str]) -> Labels:
    """For each example the class of every word."""
    rows: list[Any] = []
    for number, label in enumerate(examples.labels):
        if label is None:
            rows.append(None)
            continue
        parts, words = words_labelled(label), examples.texts[number][0].split(" ")
        if len(parts) != len(words) or not all(words):
            raise InputError(
                f"{examples.position(number)}: {len(words)} words and {len(parts)} labels: expected one label for each "
                "word, and no word that is empty or has a blank in it; correct the line."
            )
        rows.append(tuple(_indices(examples, number, parts, names, aliases)))
    return tuple(rows)


def separate(label: str, separator: str) -> list[str]:
    """The labels in a cell, or of a list."""
    parts = label.split(BETWEEN if BETWEEN in label else separator)
    return [part.strip() for part in parts if part.strip()]


def words_labelled(label: str) -> list[str]:
    """The labels of words, which are a list, or have blanks between them."""
    return label.split(BETWEEN)[:-1] if BETWEEN in label else label.split()


def _indices(
    examples: Examples, number: int, labels: Iterable[str], names: Sequence[str], aliases: Mapping[str, str]
) -> list[int]:
    index_of = _index_of(names, aliases)
    indices = []
    for label in labels:
        index = index_of(label)
        if index is None:
            raise InputError(
                f"{examples.position(number)}: unknown label {label!r}; {choices(label, names)}; correct it, or map it "
                "with label_names."
            )
        indices.append(index)
    return indices


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
