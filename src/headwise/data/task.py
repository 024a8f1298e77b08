"""What a task owes: where its examples come from, what they mean, and how they are scored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from headwise.data.examples import (
    Examples,
    Label,
    Rules,
    Split,
    Unlabelled,
    check_classes,
    class_indices,
    collect,
    discovered,
    numbers,
)
from headwise.data.hub import Hub
from headwise.data.layouts import Dialect, Layout, Places, Table, Text
from headwise.data.readers import open_table
from headwise.errors import InputError, choices

CLASSIFICATION_METRICS = ("accuracy", "macro_precision", "macro_recall", "macro_f1", "f1", "matthews")
REGRESSION_METRICS = ("pearson", "spearman")


def described(task: Task) -> dict[str, Any]:
    """What all tasks tell about themselves, as plain data."""
    return {
        "name": task.name,
        "description": task.description,
        "source": task.source,
        "kind": task.kind,
        "labels": list(task.labels),
        "sentences": task.sentences,
        "metrics": list(task.metrics),
        "primary": task.primary,
        "splits": list(task.splits),
    }


class Task(Protocol):
    """A task, be its examples read or made."""

    @property
    def name(self) -> str:
        """Its key in the table."""

    @property
    def description(self) -> str:
        """The question it asks, in a sentence."""

    @property
    def source(self) -> str:
        """Where its examples come from."""

    @property
    def kind(self) -> str:
        """classification, regression or ranking."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes in order; none for regression and ranking."""

    @property
    def sentences(self) -> int:
        """How many texts an example has: 1 or 2."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """How it is scored."""

    @property
    def primary(self) -> str:
        """The metric that counts most."""

    @property
    def splits(self) -> tuple[str, ...]:
        """What `read` knows."""

    def available(self, root: Path | None) -> tuple[str, ...]:
        """The splits that can be read below a data root right now."""

    def read(self, split: str, root: Path | None, *, network: bool = False) -> Split:
        """The examples of a split below a data root."""

    def read_file(self, path: Path, *, labelled: bool) -> Split:
        """The examples of any file with the task's columns."""

    def describe(self) -> dict[str, Any]:
        """All there is to know, as plain data."""


# Tasks whose examples lie in files or on the Hub: one class, many rows of a table.


@dataclass(frozen=True, kw_only=True)
class FileTask:
    """A task described by data: where its files lie, which columns count, what the labels mean."""

    name: str
    description: str
    source: str
    places: Places
    layouts: tuple[Layout, ...]
    kind: str = "classification"
    known_labels: tuple[str, ...] = ()
    """Empty for regression, and for tasks that find their classes in train."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Label as written -> class."""
    unlabelled: Unlabelled = Unlabelled()
    broken_rows: str = "error"
    dialect: Dialect = Dialect()
    hub: Hub | None = None
    metrics: tuple[str, ...]
    primary: str
    _found: dict[str, tuple[str, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes in order; of a task that finds them in train, only once train was read."""
        return self.known_labels or self._found.get("labels", ())

    @property
    def sentences(self) -> int:
        """How many texts an example has."""
        return len(self.layouts[0].texts)

    @property
    def splits(self) -> tuple[str, ...]:
        """What can be asked of `read`, as far as the files are there."""
        return tuple(self.hub.splits) if self.hub else self.places.splits

    def available(self, root: Path | None) -> tuple[str, ...]:
        """The splits whose file is there; of a data set on the Hub, all."""
        return self.splits if self.hub else self.places.available(None if root is None else Path(root))

    def read(self, split: str, root: Path | None, *, network: bool = False) -> Split:
        """The examples of a split; only those of test splits may lack labels."""
        self._check_split(split)
        examples = self._examples(self._table(split, root, network=network), labelled=not split.startswith("test"))
        if split == "train":
            self._discover(examples)
        elif self.kind == "classification" and not self.labels and any(examples.labels):
            self._discover(self._examples(self._table("train", root, network=network), labelled=True))
        labels = self._parsed(examples)
        if split == "train" and self.kind == "classification":
            check_classes(labels, self.labels, examples.where)
        return Split(tuple(examples.texts), labels)

    def read_file(self, path: Path, *, labelled: bool) -> Split:
        """The examples of any file with the task's columns; unless labelled, labels are not read and all rows kept."""
        examples = self._examples(open_table(Path(path), self.dialect), labelled=labelled, every_row=not labelled)
        if not labelled:
            return Split(tuple(examples.texts), (None,) * len(examples.texts))
        return Split(tuple(examples.texts), self._parsed(examples))

    def describe(self) -> dict[str, Any]:
        """All there is to know, as plain data."""
        return described(self)

    def _check_split(self, split: str) -> None:
        if split in self.splits:
            return
        way_out = "give files.validation or set data.validation_fraction; " if split == "validation" else ""
        raise InputError(f"task {self.name!r} has no {split} split: {way_out}{choices(split, self.splits)}.")

    def _table(self, split: str, root: Path | None, *, network: bool) -> Table:
        if self.hub:
            return self.hub.table(split, network=network)
        return open_table(self.places.find(split, None if root is None else Path(root), self.name), self.dialect)

    def _examples(self, table: Table, *, labelled: bool, every_row: bool = False) -> Examples:
        rules, layouts = Rules(self.unlabelled, self.broken_rows, labelled), self.layouts
        if every_row:
            rules = replace(rules, unlabelled=replace(self.unlabelled, rule="keep"), broken_rows="error")
            layouts = tuple(replace(layout, only=None) for layout in layouts)
        return collect(table, layouts, rules)

    def _discover(self, examples: Examples) -> None:
        if self.kind == "classification" and not self.known_labels:
            found = discovered(examples, self.aliases)
            if "f1" in self.metrics and len(found) > 2:
                raise InputError(
                    f"metrics: f1 is for two classes, but {examples.where} has {len(found)} ({', '.join(found)}): use "
                    "macro_f1."
                )
            self._found["labels"] = found

    def _parsed(self, examples: Examples) -> tuple[Label, ...]:
        if self.kind == "regression":
            return numbers(examples)
        if not self.labels and any(label is not None for label in examples.labels):
            raise InputError(
                f"{examples.where} has labels, but the classes of task {self.name!r} are not known yet: "
                "read train first, or give labels."
            )
        aliases = {written: name for written, name in self.aliases.items() if name in self.labels}
        return class_indices(examples, self.labels, aliases)


# Short hands for the rows of the tables.


NLI_LABELS = ("entailment", "neutral", "contradiction")
# As the papers on natural language inference report them
PAPER_METRICS = ("accuracy", "macro_precision", "macro_recall", "macro_f1")


def row(name: str, description: str, source: str, **parts: Any) -> FileTask:
    """A task of the table; by default it is scored as its kind suggests, by the first of its metrics."""
    regression = parts.get("kind") == "regression"
    metrics = parts.setdefault("metrics", REGRESSION_METRICS if regression else PAPER_METRICS)
    return FileTask(name=name, description=description, source=source, **{"primary": metrics[0], **parts})


def named(*texts: Text, label: str) -> Layout:
    """A layout with a header."""
    return Layout(texts, label)


def places(folders: tuple[str, ...], names: Mapping[str, str], *, guessed: bool = False) -> Places:
    """Folders below the root, and for each split its file names, separated by blanks."""
    return Places({split: tuple(text.split()) for split, text in names.items()}, folders, guessed=guessed)


def numbered(*labels: str, start: int = 0) -> dict[str, Any]:
    """Classes that the files write as 0, 1 and so on, or from another start."""
    return {"known_labels": labels, "aliases": {str(place): label for place, label in enumerate(labels, start)}}


# Pairs on which the annotators did not agree have no label.
DISAGREED = Unlabelled(("-",), "drop")
