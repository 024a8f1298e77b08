"""A file that was read: its examples, and where each of them stands."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from headwise.data import FileTask, build_task
from headwise.data.catalogue import GENERATED, RETRIEVAL, task_name
from headwise.data.examples import Examples, Label, Rules, class_indices, collect, discovered, numbers
from headwise.data.inference import GENERIC
from headwise.data.layouts import Broken, Layout, Row, Table, choose
from headwise.data.readers import open_table
from headwise.data.text_files import check_file
from headwise.errors import InputError
from headwise.retrieval.bm25 import plain_words

# When two texts count as the same, and what their words are.


# Kana and Han, which are written without blanks: every sign counts as a word.
SIGNS = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")


def folded(text: str) -> str:
    """The text without what hardly anybody means: case, and how much white space there is."""
    return " ".join(text.casefold().split())


def words(text: str) -> list[str]:
    """Stretches of letters and digits in lower case."""
    return plain_words(text if text.isascii() else SIGNS.sub(r" \g<0> ", text))


Key = tuple[str, ...]
# How many examples of a problem are shown.
SHOWN = 3


@dataclass(frozen=True)
class Place:
    """Where an example stands."""

    file: str
    unit: str
    """line or row."""
    number: int

    def __str__(self) -> str:
        """For people."""
        return f"{self.file} {self.unit} {self.number}"


@dataclass(frozen=True, eq=False)
class DataFile:
    """The examples of one file. Labels are classes by number, or numbers; None where there is none."""

    name: str
    role: str
    path: str
    unit: str
    lines: tuple[int, ...]
    texts: tuple[tuple[str, ...], ...]
    labels: tuple[Label, ...]
    empty: tuple[int, ...]
    """Lines that lack a text, and are left out."""
    broken: tuple[str, ...]
    """What is wrong with lines that cannot be read, and are left out."""

    def __len__(self) -> int:
        """How many examples it has."""
        return len(self.texts)

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        """The texts without case and white space; examples with the same key are the same."""
        return tuple(tuple(map(folded, texts)) for texts in self.texts)

    @cached_property
    def first_places(self) -> dict[Key, int]:
        """Key -> the first example that has it."""
        places: dict[Key, int] = {}
        for index, key in enumerate(self.keys):
            places.setdefault(key, index)
        return places

    @property
    def labelled(self) -> bool:
        """Whether any example has a label."""
        return any(label is not None for label in self.labels)

    def place(self, index: int) -> Place:
        """Where an example stands."""
        return Place(self.name, self.unit, self.lines[index])


def swapped(key: Key) -> Key:
    """The same pair the other way round."""
    return key[::-1]


def agree(first: Label, second: Label, tolerance: float) -> bool | None:
    """Whether two labels say the same; None if one of them is not there."""
    if first is None or second is None:
        return None
    return abs(first - second) <= tolerance


# Which task reads the files, and by which columns.


@dataclass(frozen=True)
class Choice:
    """How the files are to be read; what is left out is guessed from their columns."""

    task: str | None = None
    texts: tuple[str, ...] = ()
    label: str | None = None
    columns: tuple[str, ...] = ()
    """Of files without a header, the names of all columns."""

    def options(self) -> dict[str, Any]:
        """As options of a task."""
        given = {"texts": list(self.texts), "label": self.label, "columns": list(self.columns)}
        return {name: value for name, value in given.items() if value}


def built_task(name: str, choice: Choice) -> FileTask:
    """The task of this name with the columns that were chosen."""
    task = None if task_name(name) in (GENERATED, RETRIEVAL) else build_task(name, choice.options())
    if not isinstance(task, FileTask):
        raise InputError(f"--task {name} reads no files of single examples: use pairs or sentences.")
    return task


def chosen_task(path: Path, choice: Choice) -> FileTask:
    """The task that reads the files: the one that was named, or the generic one that the first file looks like."""
    if choice.task is not None:
        return built_task(choice.task, choice)
    if len(choice.texts) > 2:
        raise InputError(f"--texts {','.join(choice.texts)}: expected one column or two, got {len(choice.texts)}.")
    if choice.texts:
        return built_task("pairs" if len(choice.texts) == 2 else "sentences", choice)
    columns = choice.columns or open_table(path, GENERIC[0].dialect).first
    for task in GENERIC[:2]:
        if set(task.layouts[0].text_columns) <= set(columns):
            return built_task(task.name, choice)
    raise InputError(
        f"{path} has the columns {', '.join(map(repr, columns))}, none of which is known to be a text: name them with "
        "--texts A,B --label C, choose a --task, or name all --columns of a file without a header."
    )


# What each file is for: its name says so, or its place among the others.


TRAIN, VALIDATION, TEST, OTHER = ROLES = ("train", "validation", "test", "other")
# As people write them in the names of files.
SPELLINGS = {
    TRAIN: ("train", "training"),
    VALIDATION: ("validation", "valid", "val", "dev", "development", "trial"),
    TEST: ("test", "testing"),
    OTHER: ("other",),
}
ROLE_OF = {spelling: role for role, spellings in SPELLINGS.items() for spelling in spellings}


@dataclass(frozen=True)
class GivenFile:
    """A file, what it is for, and a short name that no other has."""

    path: Path
    role: str
    name: str


def given_files(given: Sequence[str]) -> list[GivenFile]:
    """The files that were named, train first; `train=FILE` says outright what a file is for."""
    if not given:
        raise InputError("no file to check: name at least one.")
    parsed = [_parsed(text) for text in given]
    paths = [path for path, _ in parsed]
    _check_different(paths)
    roles = _filled([role for _, role in parsed])
    ordered = sorted(zip(paths, roles, strict=True), key=lambda each: ROLES.index(each[1]))
    return [GivenFile(*each, name) for each, name in zip(ordered, _names(ordered), strict=True)]


def _parsed(text: str) -> tuple[Path, str | None]:
    role, equals, rest = text.partition("=")
    if equals and role in ROLE_OF and not Path(text).exists():
        return Path(rest).expanduser(), ROLE_OF[role]
    path = Path(text).expanduser()
    parts = re.split("[^a-z]+", path.name.lower())
    return path, next((ROLE_OF[part] for part in parts if part in ROLE_OF and part != OTHER), None)


def _check_different(paths: Sequence[Path]) -> None:
    whole = [path.resolve() for path in paths]
    for number, path in enumerate(whole):
        if path in whole[:number]:
            raise InputError(f"{paths[number]} is given twice: name every file once.")


def _filled(roles: Sequence[str | None]) -> list[str]:
    """Where no name tells, the first is for training and the last for testing."""
    filled, unknown = list(roles), [place for place, role in enumerate(roles) if role is None]
    if len(roles) > 1 and unknown and TRAIN not in roles:
        filled[unknown.pop(0)] = TRAIN
    if len(roles) > 1 and unknown and TEST not in roles:
        filled[unknown.pop()] = TEST
    return [role or OTHER for role in filled]


def _names(files: Sequence[tuple[Path, str]]) -> list[str]:
    """The role, or what the file is called; a second one gets a number."""
    names: list[str] = []
    for path, role in files:
        plain = path.name.partition(".")[0] or path.name if role == OTHER else role
        numbered = (plain if number == 1 else f"{plain} {number}" for number in range(1, len(files) + 2))
        names.append(next(name for name in numbered if name not in names))
    return names


# Reading files to check them: rows that training would refuse are counted rather than refused.


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
