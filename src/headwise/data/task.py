"""Tasks: where examples come from, what they mean, and how they are scored."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from headwise.data.annotation_exports import open_export
from headwise.data.conll import open_conll
from headwise.data.dialects import Dialect, sibling
from headwise.data.examples import (
    Examples,
    Labels,
    Spans,
    Split,
    Unlabelled,
    check_classes,
    class_indices,
    find_classes,
    label_numbers,
    label_sets,
    read_examples,
    separate,
    warn_of_rare_classes,
    word_labels,
    words_labelled,
)
from headwise.data.mark_sources import Marks
from headwise.data.marks import mark_examples
from headwise.data.readers import Hub, Layout, Table, choose, open_table
from headwise.errors import InputError, choices, listed

logger = logging.getLogger(__name__)

CLASSIFICATION_METRICS = ("accuracy", "macro_precision", "macro_recall", "macro_f1", "f1", "matthews")
REGRESSION_METRICS = ("pearson", "spearman")
MULTI_LABEL_METRICS = ("micro_f1", "macro_f1", "exact_match")
WORD_METRICS = ("entity_f1", "entity_precision", "entity_recall", "word_accuracy")
KINDS = ("classification", "regression", "multi_label", "token_labels")
"""One class, a number, any number of classes, or a class for each word."""
PAPER_METRICS = ("accuracy", "macro_precision", "macro_recall", "macro_f1")
"""As the papers on natural language inference report them."""


class Task(Protocol):
    """A task, whether its examples are read or generated."""

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
        """One of KINDS, or ranking."""

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
        """The names that `read` takes."""

    def available(self, root: Path | None) -> tuple[str, ...]:
        """The splits that can be read below a data root right now."""

    def read(self, split: str, root: Path | None, *, network: bool = False) -> Split:
        """The examples of a split below a data root."""

    def read_file(self, path: Path, *, labelled: bool, columns: Sequence[str] = ()) -> Split:
        """The examples of any file with the task's columns; `columns` names those of a file without a header."""

    def describe(self) -> dict[str, Any]:
        """All there is to know, as plain data."""


def described(task: Task) -> dict[str, Any]:
    """What all tasks have in their description, as plain data."""
    names = ("name", "description", "source", "kind", "labels", "sentences", "metrics", "primary", "splits")
    values = {name: getattr(task, name) for name in names}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


@dataclass(frozen=True)
class SplitFiles:
    """Where a task's files lie: folders below the data root, names in them by split, and files that the user names."""

    names: Mapping[str, tuple[str, ...]]
    folders: tuple[str, ...] = ("",)
    own: Mapping[str, str] = field(default_factory=dict)
    """Files of the user by split."""
    guessed: bool = False
    """Whether `names` are but a guess, to be forgotten as soon as the user names a file."""

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that have a file, by the table or by the user."""
        return tuple(dict.fromkeys([*self.names, *self.own]))

    def find(self, split: str, root: Path | None, task: str) -> Path:
        """The file of a split."""
        if split in self.own:
            own = Path(self.own[split]).expanduser()
            if root is None and not own.is_absolute():
                raise InputError(
                    f"task {task!r}: files.{split} {str(own)!r} is relative to a data root, and none was given; "
                    "give one, or an absolute path."
                )
            # An absolute path joined to a root stays as it is.
            tried = list(dict.fromkeys((root or Path()) / folder / own for folder in ("", *self.folders)))
            for candidate in tried:
                if candidate.exists():
                    return candidate
            for candidate in tried:
                if (other := sibling(candidate)) is not None:
                    return other
            raise InputError(
                f"task {task!r}: files.{split} does not exist as {' or '.join(map(str, tried))} (data root: {root}); "
                "correct the path or the root."
            )
        if root is None:
            raise InputError(
                f"task {task!r}: the {split} split is looked for below a data root, and none was given; "
                f"give one, or an absolute path in files.{split}."
            )
        folders = [root / folder for folder in self.folders]
        every_name = [name for names in self.names.values() for name in names]
        # One folder for all splits, so that one of them never comes from a neighbour's folder.
        folder = next((folder for folder in folders if _first_file(folder, every_name)), folders[0])
        path = _first_file(folder, self.names[split])
        if path is None:
            names = f"{' or '.join(self.names[split])} in {' or '.join(map(str, folders))}"
            fraction = ", or set data.validation_fraction to take it from train" if split == "validation" else ""
            raise InputError(
                f"task {task!r}: no {split} split was found; expected {names}; give files.{split}{fraction}."
            )
        return path

    def available(self, root: Path | None) -> tuple[str, ...]:
        """The splits whose file exists."""
        present = []
        for split in self.splits:
            with suppress(InputError):
                present += [split] if self.find(split, root, "").is_file() else []
        return tuple(present)


def _first_file(folder: Path, names: list[str] | tuple[str, ...]) -> Path | None:
    candidates = (folder / f"{name}{ending}" for name in names for ending in ("", ".gz"))
    return next((path for path in candidates if path.exists()), None)


@dataclass(frozen=True, kw_only=True)
class FileTask:
    """A task described by data: where its files lie, which columns count, what the labels mean. See tasks.yaml."""

    name: str
    description: str
    source: str
    files: SplitFiles
    layouts: tuple[Layout, ...]
    kind: str = "classification"
    known_labels: tuple[str, ...] = ()
    """Empty for regression, and for tasks that find their classes in train."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Label as written -> class."""
    unlabelled: Unlabelled = Unlabelled()
    label_separator: str = ";"
    """Between several labels in one cell."""
    broken_rows: str = "error"
    dialect: Dialect = Dialect()
    hub: Hub | None = None
    marks: Marks | None = None
    """Where the words come from that decide the label, if that is known."""
    metrics: tuple[str, ...]
    primary: str
    _discovered: list[str] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes in order; of a task that finds them in train, only once train was read."""
        return self.known_labels or tuple(self._discovered)

    @property
    def sentences(self) -> int:
        """How many texts an example has."""
        return len(self.layouts[0].texts)

    @property
    def splits(self) -> tuple[str, ...]:
        """The names that `read` takes, as far as the files are there."""
        return tuple(self.hub.splits) if self.hub else self.files.splits

    def available(self, root: Path | None) -> tuple[str, ...]:
        """The splits whose file exists; of a data set on the Hub, all."""
        return self.splits if self.hub else self.files.available(None if root is None else Path(root))

    def read(self, split: str, root: Path | None, *, network: bool = False) -> Split:
        """The examples of a split; only those of test splits may lack labels."""
        if split not in self.splits:
            fix = "give files.validation or set data.validation_fraction; " if split == "validation" else ""
            raise InputError(f"task {self.name!r} has no {split} split: {fix}{choices(split, self.splits)}.")

        def table(split: str) -> Table:
            if self.hub:
                return self.hub.table(split, network=network)
            return self.open(self.files.find(split, None if root is None else Path(root), self.name))

        examples = self._examples(table(split), labelled=not split.startswith("test"))
        if self.kind != "regression" and not self.known_labels:
            if split == "train":
                self._discover(examples)
            elif not self.labels and any(examples.labels):
                self._discover(self._examples(table("train"), labelled=True))
        labels = self._parse_labels(examples)
        # Takes the stars out of the texts, so that it comes before they are used.
        spans = self._spans(examples, root, required=split == "train")
        if split == "train" and self.kind == "classification":
            present = {label for label in labels if isinstance(label, int)}
            if len(present) < 2:
                only = f"only the class {self.labels[min(present)]!r}" if present else "no labels"
                raise InputError(
                    f"{examples.where} has {only}: training needs at least two classes; add examples, or check the "
                    "label column."
                )
            warn_of_rare_classes(examples, labels, self.labels)
        return Split(tuple(examples.texts), labels, spans)

    def open(self, path: Path) -> Table:
        """The table in a file, with a column of marks if it is the export of an annotation tool."""
        if self.kind == "token_labels" and (sentences := open_conll(path, self.dialect)) is not None:
            return sentences
        table = open_table(path, self.dialect)
        return table if self.marks is None else open_export(table, self.marks, self.layouts[0].label)

    def read_file(self, path: Path, *, labelled: bool, columns: Sequence[str] = ()) -> Split:
        """The examples of any file with the task's columns, without marks.

        Unless `labelled`, labels are not read, all rows are kept, and so are their columns (`Split.rows`).

        Args:
            path: the file.
            labelled: whether it has labels.
            columns: names of all columns in order, of a file without a header.
        """
        table = self.open(Path(path))
        rows = None
        if labelled:
            examples = self._examples(table, labelled=True)
            labels = self._parse_labels(examples)
        else:
            keep = replace(self.unlabelled, rule="keep")
            layouts = self._unlabelled_layouts(table, tuple(columns))
            examples = read_examples(
                table,
                layouts,
                keep,
                labelled=False,
                extra=None,
                join_lists=self._join_lists,
                leave_out_empty=True,
            )
            if examples.empty:
                logger.warning("%s: rows without a text, which are left out: %d", table.where, len(examples.empty))
            labels, rows = (None,) * len(examples.texts), tuple(examples.extra)
        texts = examples.texts if self.marks is None else map(self.marks.plain, examples.texts)
        if self.kind == "token_labels":
            texts = [tuple(" ".join(re.split("[ \t\r\n]+", each.strip())) for each in every) for every in texts]
        return Split(tuple(texts), labels, rows=rows)

    def _unlabelled_layouts(self, table: Table, columns: tuple[str, ...]) -> list[Layout]:
        """The columns that may hold the texts of a file to predict."""
        layouts = [replace(layout, only=None) for layout in self.layouts]
        first = layouts[0]
        if columns:
            if len(columns) != len(table.first) or not set(first.text_columns) <= set(columns):
                raise InputError(
                    f"{table.where} has {len(table.first)} columns, and columns names {listed(columns)}: expected a "
                    f"name for each, and {listed(first.text_columns)} among them; name them in order."
                )
            return [replace(first, columns=columns)]
        if choose(layouts, table, labelled=False).fits(table) or len(table.first) != len(first.text_columns):
            return layouts
        if table.named or all(re.fullmatch(r"[^\W\d]\w{0,29}", name) for name in table.first):
            # One text, whatever it is called; or texts that had no names in training, in their order.
            if len(first.text_columns) == 1 or (first.columns is not None and len(first.texts) == len(table.first)):
                names, read = (", ".join(map(repr, each)) for each in (first.text_columns, table.first))
                logger.warning("%s has no column %s: %s is read instead", table.where, names, read)
                return [replace(first, texts=table.first, columns=None)]
            return layouts
        logger.warning("%s has no header: its columns are read as %s", table.where, ", ".join(first.text_columns))
        return [replace(first, columns=first.text_columns)]

    def describe(self) -> dict[str, Any]:
        """All there is to know, as plain data."""
        return described(self)

    def _examples(self, table: Table, *, labelled: bool) -> Examples:
        # An example to which no class applies is one.
        unlabelled = Unlabelled((), "keep") if self.kind == "multi_label" else self.unlabelled
        return read_examples(
            table,
            self.layouts,
            unlabelled,
            labelled=labelled,
            broken_rows=self.broken_rows,
            extra=() if self.marks is None else self.marks.extra,
            join_lists=self._join_lists,
        )

    @property
    def _join_lists(self) -> bool:
        return self.kind == "token_labels" or (self.marks is not None and self.marks.join_lists)

    def _spans(self, examples: Examples, root: Path | None, *, required: bool) -> tuple[Spans, ...] | None:
        """The marks of all examples; only training needs them."""
        if self.marks is None:
            return None
        strict = required and self.broken_rows == "error"
        marked = mark_examples(
            self.marks, examples, None if root is None else Path(root), required=required, strict=strict
        )
        return None if marked is None or not any(marked.spans) else tuple(marked.spans)

    def _discover(self, examples: Examples) -> None:
        """Take the classes that occur in train, and remember them."""
        classes = find_classes(self._written(examples), self.aliases, examples.where)
        if self.kind == "classification":
            check_classes(examples, classes)
        if "f1" in self.metrics and len(classes) > 2:
            raise InputError(
                f"metrics: f1 is for two classes, but {examples.where} has {len(classes)} ({', '.join(classes)}): use "
                "macro_f1."
            )
        self._discovered[:] = classes

    def _written(self, examples: Examples) -> Iterator[str]:
        """Every label of the examples."""
        for label in examples.labels:
            if self.kind == "multi_label":
                yield from separate(label or "", self.label_separator)
            elif self.kind == "token_labels":
                yield from words_labelled(label or "")
            elif label is not None:
                yield label

    def _parse_labels(self, examples: Examples) -> Labels:
        if self.kind == "regression":
            return label_numbers(examples)
        if not self.labels and any(label is not None for label in examples.labels):
            raise InputError(
                f"{examples.where} has labels, but the classes of task {self.name!r} are not known yet: "
                "read train first, or give labels."
            )
        if self.kind == "multi_label":
            return label_sets(examples, self.labels, self.aliases, self.label_separator)
        if self.kind == "token_labels":
            return word_labels(examples, self.labels, self.aliases)
        return class_indices(examples, self.labels, self.aliases)
