"""The files of a data set, read to be checked: rows that training would refuse are counted instead."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from headwise.data.catalogue import GENERATED, RETRIEVAL, build_task, file_tasks, task_name
from headwise.data.examples import Examples, Label, class_indices, find_classes, label_numbers, read_examples
from headwise.data.mark_sources import EXPORTS
from headwise.data.marks import Marked, mark_examples
from headwise.data.near_duplicates import folded
from headwise.data.readers import open_table
from headwise.data.task import FileTask
from headwise.data.text_files import check_file
from headwise.errors import InputError

TRAIN, VALIDATION, TEST, OTHER = ROLES = ("train", "validation", "test", "other")
# As people write them in the names of files.
SPELLINGS = {
    TRAIN: ("train", "training"),
    VALIDATION: ("validation", "valid", "val", "dev", "development", "trial"),
    TEST: ("test", "testing"),
    OTHER: ("other",),
}
ROLE_OF = {spelling: role for role, spellings in SPELLINGS.items() for spelling in spellings}
# How tables and JSON write a label that is not there.
GAPS = ("nan", "NaN", "NAN")

Key = tuple[str, ...]


@dataclass(frozen=True)
class Position:
    """Where an example is."""

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
    examples: Examples
    labels: tuple[Label, ...]
    marked: Marked | None = None
    """Which words are marked, if the task has marks and the file has them."""

    def __len__(self) -> int:
        """How many examples it has."""
        return len(self.labels)

    @cached_property
    def keys(self) -> list[Key]:
        """The texts without case and white space; examples with the same key are the same."""
        return [tuple(map(folded, texts)) for texts in self.examples.texts]

    @cached_property
    def first_indices(self) -> dict[Key, int]:
        """Key -> the first example that has it."""
        return {key: index for index, key in reversed(list(enumerate(self.keys)))}

    def position(self, index: int) -> Position:
        """Where an example is."""
        return Position(self.name, self.examples.unit, self.examples.lines[index])


def read_files(
    files: Sequence[str | Path],
    *,
    task: str | None = None,
    texts: Sequence[str] = (),
    label: str | None = None,
    columns: Sequence[str] = (),
    written: Mapping[str, Any] | None = None,
    marks: Mapping[str, Any] | None = None,
) -> tuple[FileTask, tuple[str, ...], list[DataFile], list[str]]:
    """Read all files the same way; what is left out is guessed from the columns of the first one.

    Returns:
        The task whose columns they have, its classes (none if labels are numbers), the files, and what was guessed.
    """
    roles = file_roles([str(file) for file in files])
    for path, _, _ in roles:
        check_file(path)
    options = {"texts": list(texts), "label": label, "columns": list(columns), "marks": marks}
    options = {name: value for name, value in {**options, **(written or {})}.items() if value}

    def build(name: str) -> FileTask:
        built = None if task_name(name) in (*GENERATED, RETRIEVAL) else build_task(name, options)
        if not isinstance(built, FileTask):
            raise InputError(f"task={name} reads no files of single examples: use pairs or sentences.")
        return built

    reader = build(_guess_task(roles[0][0], texts, columns, written or {}, marks or {}) if task is None else task)
    unlabelled = replace(reader.unlabelled, values=(*reader.unlabelled.values, *GAPS), rule="keep")
    source = reader.marks
    extra, join_lists = (() if source is None else source.extra), source is not None and source.join_lists
    read, marked = [], []
    for path, _, _ in roles:
        rows = read_examples(
            *(reader.open(path), reader.layouts, unlabelled),
            labelled=False,
            broken_rows="drop",
            extra=extra,
            join_lists=join_lists,
        )
        read.append(rows)
        # Takes the stars out of the texts.
        marked.append(None if source is None else mark_examples(source, rows, None, required=False, strict=False))
    if source is not None and not any(marked):
        mark_examples(source, read[0], None)  # which says what is missing
    notes = []
    if not any(examples.has_label for examples in read):
        name, present = reader.layouts[0].label, ", ".join(map(repr, read[0].columns))
        if label is not None:
            raise InputError(f"{read[0].where} has no column {name!r}, only {present}: name it with label=NAME.")
        notes.append(
            f"no file has the column {name!r}, only {present}: name it with label=NAME to check the labels, too"
        )
    labels = [each for examples in read for each in examples.labels if each is not None]
    if task is None and _are_numbers(labels):
        notes.append(f"the labels are numbers; with task={reader.name} they are classes")
        reader = build(f"{reader.name}-regression")
    numbers = reader.kind == "regression"
    classes = () if numbers else reader.known_labels or find_classes(labels, reader.aliases)
    data_files = []
    for (path, role, name), examples, spans in zip(roles, read, marked, strict=True):
        values = label_numbers(examples) if numbers else class_indices(examples, classes, reader.aliases)
        data_files.append(DataFile(name, role, str(path), examples, values, spans))
    return reader, classes, data_files, notes


def file_roles(files: Sequence[str]) -> list[tuple[Path, str, str]]:
    """Path, role and a short unique name of each file, train first.

    The name of a file says what it is for, or `train=FILE` does. Where neither does, the first one is for training and
    the last one for testing.
    """
    if not files:
        raise InputError("no file to check: name at least one.")
    paths: list[Path] = []
    roles: list[str | None] = []
    for text in files:
        before, equals, after = text.partition("=")
        if equals and before in ROLE_OF and not Path(text).exists():
            path, role = Path(after).expanduser(), ROLE_OF[before]
        else:
            path = Path(text).expanduser()
            parts = re.split("[^a-z]+", path.name.lower())
            role = next((ROLE_OF[part] for part in parts if part in ROLE_OF and part != OTHER), "")
        if path.resolve() in [other.resolve() for other in paths]:
            raise InputError(f"{path} is given twice: name every file once.")
        paths.append(path)
        roles.append(role or None)
    unknown = [index for index, each in enumerate(roles) if each is None]
    if len(roles) > 1 and unknown and TRAIN not in roles:
        roles[unknown.pop(0)] = TRAIN
    if len(roles) > 1 and unknown and TEST not in roles:
        roles[unknown.pop()] = TEST
    named: list[tuple[Path, str, str]] = []
    pairs = zip(paths, (each or OTHER for each in roles), strict=True)
    for path, role in sorted(pairs, key=lambda pair: ROLES.index(pair[1])):
        plain = path.name.partition(".")[0] or path.name if role == OTHER else role
        numbered = (plain if number == 1 else f"{plain} {number}" for number in range(1, len(files) + 2))
        taken = [name for _, _, name in named]
        named.append((path, role, next(name for name in numbered if name not in taken)))
    return named


def _guess_task(
    path: Path, texts: Sequence[str], columns: Sequence[str], written: Mapping[str, Any], marks: Mapping[str, Any]
) -> str:
    """The generic task that the named columns, or those of the first file, look like."""
    if len(texts) > 2:
        raise InputError(f"texts={','.join(texts)}: expected one column or two, got {len(texts)}.")
    if texts or set(EXPORTS) & set(marks):
        return "pairs" if len(texts) == 2 else "sentences"
    options = build_task("sentences", {name: value for name, value in written.items() if value})
    known = tuple(columns) or open_table(path, getattr(options, "dialect", None)).first
    for name in ("pairs", "sentences"):
        if set(file_tasks()[name].layouts[0].text_columns) <= set(known):
            return name
    raise InputError(
        f"{path} has the columns {', '.join(map(repr, known))}, none of which is known to be a text: name them with "
        "texts=A,B label=C, choose a task, or name all columns of a file without a header."
    )


def _are_numbers(labels: Sequence[str]) -> bool:
    """Whether all are numbers and some are not whole: classes may be numbered, but not by halves."""
    try:
        values = [float(label) for label in set(labels)]
    except ValueError:
        return False
    return all(map(math.isfinite, values)) and not all(value.is_integer() for value in values)
