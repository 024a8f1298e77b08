"""How files are written, and where in them a task finds its texts and its label."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from headwise.errors import InputError

Row = tuple[int, list[Any]]
"""A line number and the values of the columns asked for."""
Broken = Callable[[str], None]
"""Hears of a row that cannot be used, in one sentence; raises, or lets it pass."""
Text = str | tuple[str, ...]
"""The column of a text, or the columns that make it up."""


@dataclass(frozen=True)
class Dialect:
    """How a file is written; None means as its name suggests."""

    format: str | None = None
    quoting: str | None = None
    encoding: str = "utf-8"


class Table(Protocol):
    """Rows of a file or of the Hub."""

    @property
    def where(self) -> str:
        """The file, for messages."""

    @property
    def unit(self) -> str:
        """What its rows are counted in, for messages: line or row."""

    @property
    def named(self) -> bool:
        """Whether the rows carry the names of their columns, so that no header is needed."""

    @property
    def first(self) -> tuple[str, ...]:
        """The fields of the first line, or the names of the columns."""

    def rows(self, wanted: Sequence[str], columns: Sequence[str] | None, broken: Broken) -> Iterator[Row]:
        """The wanted columns of every row; `columns` names all of them where there is no header."""


@dataclass(frozen=True)
class Layout:
    """Names of the columns that hold the texts and the label; without a header, of all columns in order."""

    texts: tuple[Text, ...]
    label: str
    columns: tuple[str, ...] | None = None
    only: tuple[str, str] | None = None
    """A column and the value that a row must have there to count, in files that have this column."""

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The columns of all texts, one after the other."""
        return tuple(name for text in self.texts for name in ((text,) if isinstance(text, str) else text))

    def fits(self, table: Table) -> bool:
        """Whether the first line of the table looks like this layout."""
        if self.columns is None or table.named:
            return set(self.text_columns) <= set(table.first)
        return len(self.columns) == len(table.first)

    def doubts(self, table: Table) -> tuple[bool, bool]:
        """How little it would prove that the table fits: no header, and no column of the label."""
        return self.columns is not None, self.label not in self.known(table)

    def wants(self, row: Mapping[str, Any]) -> bool:
        """Whether a row counts; in files without the column of `only`, all do."""
        return self.only is None or row.get(self.only[0], self.only[1]) == self.only[1]

    def without_label(self) -> Layout:
        """The same for a file that lacks the column of the label."""
        if self.columns is None:
            return self
        return replace(self, columns=tuple(name for name in self.columns if name != self.label))

    def known(self, table: Table) -> tuple[str, ...]:
        """The columns that the table has in this layout."""
        return table.first if self.columns is None or table.named else self.columns


def choose(layouts: Sequence[Layout], table: Table, *, labelled: bool) -> Layout:
    """The layout that fits the table, or the first one, whose misfit is then the thing to report."""
    bare = [] if labelled else [layout.without_label() for layout in layouts]
    # A header that names the texts is proof, the more so if it names the label; a mere count of fields is not.
    for layout in sorted([*layouts, *bare], key=lambda layout: layout.doubts(table)):
        if layout.fits(table):
            return layout
    return layouts[0]


# Finding the file of a split below a data root.


@dataclass(frozen=True)
class Places:
    """Where a task's files lie: folders below the root, names in them by split, and the user's own files."""

    names: Mapping[str, tuple[str, ...]]
    folders: tuple[str, ...] = ("",)
    own: Mapping[str, str] = field(default_factory=dict)
    guessed: bool = False
    """Whether the names are but a guess, to be forgotten as soon as the user names a file."""

    def naming(self, own: Mapping[str, str]) -> Places:
        """The same with the user's own files."""
        return replace(self, own=own, names={} if self.guessed else self.names)

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that have a file, by the table or by the user."""
        return tuple(dict.fromkeys([*self.names, *self.own]))

    def find(self, split: str, root: Path | None, task: str) -> Path:
        """The file of a split."""
        if split in self.own:
            return self._own(split, root, task)
        if root is None:
            raise InputError(
                f"task {task!r}: the {split} split is looked for below a data root, and none was given; "
                f"give one, or an absolute path in files.{split}."
            )
        names = self.names[split]
        homes = [root / folder for folder in self.folders]
        found = _first(self._home(homes), names)
        if found is None:
            raise InputError(_missing(split, task, names, homes))
        return found

    def available(self, root: Path | None) -> tuple[str, ...]:
        """The splits whose file is there."""
        return tuple(split for split in self.splits if self._present(split, root))

    def _present(self, split: str, root: Path | None) -> bool:
        try:
            return self.find(split, root, "").is_file()
        except InputError:
            return False

    def _own(self, split: str, root: Path | None, task: str) -> Path:
        path = Path(self.own[split]).expanduser()
        if root is None and not path.is_absolute():
            raise InputError(
                f"task {task!r}: files.{split} {str(path)!r} is relative to a data root, and none was given; "
                "give one, or an absolute path."
            )
        # An absolute path joined to a root stays as it is.
        tried = list(dict.fromkeys((root or Path()) / folder / path for folder in ("", *self.folders)))
        for place in tried:
            if place.exists():
                return place
        raise InputError(
            f"task {task!r}: files.{split} does not exist as {' or '.join(map(str, tried))} (data root: {root}); "
            "correct the path or the root."
        )

    def _home(self, homes: Sequence[Path]) -> Path:
        """The first folder with a file of any split, so that one split never comes from a neighbour's folder."""
        names = [name for names in self.names.values() for name in names]
        return next((home for home in homes if _first(home, names)), homes[0])


def _first(home: Path, names: Sequence[str]) -> Path | None:
    candidates = (home / f"{name}{ending}" for name in names for ending in ("", ".gz"))
    return next((path for path in candidates if path.exists()), None)


def _missing(split: str, task: str, names: Sequence[str], homes: Sequence[Path]) -> str:
    way_out = f"give files.{split}"
    if split == "validation":
        way_out += ", or set data.validation_fraction to take it from train"
    tried = f"{' or '.join(names)} in {' or '.join(map(str, homes))}"
    return f"task {task!r}: no {split} split was found; expected {tried}; {way_out}."
