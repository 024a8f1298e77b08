"""Reading files to check them: rows that training would refuse are counted rather than refused."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from headwise.errors import InputError
from headwise.experiments.data_check.choice import Choice, built_task, chosen_task
from headwise.experiments.data_check.data_file import DataFile
from headwise.experiments.data_check.roles import GivenFile
from headwise.tasks import FileTask
from headwise.tasks.examples import Examples, Rules, collect
from headwise.tasks.labels import class_indices, discovered, numbers
from headwise.tasks.layout import Broken, Layout, Row, Table, choose
from headwise.tasks.split import Label
from headwise.tasks.tables import open_table
from headwise.tasks.text_file import check_file

# How tables and JSON write a label that is not there.
GAPS = ("nan", "NaN", "NAN")


@dataclass(frozen=True)
class Reading:
    """Files that were read, and what their labels are."""

    task: str
    texts: tuple[str, ...]
    """What the texts are called."""
    classes: tuple[str, ...]
    """In order; none if labels are numbers."""
    numbers: bool
    files: tuple[DataFile, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Read:
    """One file before its labels are understood."""

    given: GivenFile
    examples: Examples
    empty: tuple[int, ...]
    broken: tuple[str, ...]
    columns: tuple[str, ...]
    has_label: bool


def read_files(given: Sequence[GivenFile], choice: Choice) -> Reading:
    """Read all files the same way."""
    for file in given:
        check_file(file.path)
    task = chosen_task(given[0].path, choice)
    read = [_read(file, task) for file in given]
    notes = _label_notes(read, task, choice)
    labels = [label for each in read for label in each.examples.labels if label is not None]
    if choice.task is None and _are_numbers(labels):
        notes.append(f"the labels are numbers; with --task {task.name} they are classes")
        task = built_task(f"{task.name}-regression", choice)
    classes = () if task.kind == "regression" else task.known_labels or _found(labels, task)
    return Reading(
        task=task.name,
        texts=tuple(text if isinstance(text, str) else " - ".join(text) for text in task.layouts[0].texts),
        classes=classes,
        numbers=task.kind == "regression",
        files=tuple(_understood(each, task, classes) for each in read),
        notes=tuple(notes),
    )


def _read(given: GivenFile, task: FileTask) -> _Read:
    table = open_table(given.path, task.dialect)
    layout = choose(task.layouts, table, labelled=False)
    watched = _Watched(table, layout)
    unlabelled = replace(task.unlabelled, values=(*task.unlabelled.values, *GAPS), rule="keep")
    examples = collect(watched, (layout,), Rules(unlabelled, broken_rows="drop", labelled=False))
    kept = set(examples.lines)
    empty = tuple(line for line in watched.wanted if line not in kept)
    known = layout.known(table)
    return _Read(given, examples, empty, tuple(watched.broken), known, layout.label in known)


class _Watched:
    """A table that remembers which of its rows counted, and which could not be read."""

    def __init__(self, table: Table, layout: Layout) -> None:
        self.where, self.unit, self.named, self.first = table.where, table.unit, table.named, table.first
        self.wanted: list[int] = []
        self.broken: list[str] = []
        self._table = table
        self._layout = layout

    def rows(self, wanted: Sequence[str], columns: Sequence[str] | None, broken: Broken) -> Iterator[Row]:
        """As the table gives them."""

        def remember(message: str) -> None:
            self.broken.append(message)
            broken(message)

        for line, values in self._table.rows(wanted, columns, remember):
            if self._layout.wants(dict(zip(wanted, values, strict=True))):
                self.wanted.append(line)
            yield line, values


def _label_notes(read: Sequence[_Read], task: FileTask, choice: Choice) -> list[str]:
    """Refuse a label column that was named and is nowhere; tell if one that was guessed is."""
    if any(each.has_label for each in read):
        return []
    label, columns = task.layouts[0].label, ", ".join(map(repr, read[0].columns))
    if choice.label is not None:
        raise InputError(f"{read[0].given.path} has no column {label!r}, only {columns}: name it with --label.")
    return [f"no file has the column {label!r}, only {columns}: name it with --label to check the labels, too"]


def _are_numbers(labels: Sequence[str]) -> bool:
    """Whether all are numbers and some are not whole: classes may be numbered, but not by halves."""
    try:
        values = [float(label) for label in set(labels)]
    except ValueError:
        return False
    return all(map(math.isfinite, values)) and not all(value.is_integer() for value in values)


def _found(labels: Sequence[str], task: FileTask) -> tuple[str, ...]:
    return discovered(Examples("", "", labels=list(labels)), task.aliases)


def _understood(read: _Read, task: FileTask, classes: tuple[str, ...]) -> DataFile:
    examples = read.examples
    return DataFile(
        name=read.given.name,
        role=read.given.role,
        path=str(read.given.path),
        unit=examples.unit,
        lines=tuple(examples.lines),
        texts=tuple(examples.texts),
        labels=_labels(examples, task, classes),
        empty=read.empty,
        broken=read.broken,
    )


def _labels(examples: Examples, task: FileTask, classes: tuple[str, ...]) -> tuple[Label, ...]:
    if task.kind == "regression":
        return numbers(examples)
    return class_indices(
        examples, classes, {written: name for written, name in task.aliases.items() if name in classes}
    )
