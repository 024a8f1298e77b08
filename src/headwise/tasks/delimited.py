"""Tables of tab- or comma-separated fields, with exact line numbers."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from headwise.errors import InputError
from headwise.tasks.layout import Broken, Row
from headwise.tasks.text_file import MAX_LINE, lines

DELIMITERS = {"tsv": "\t", "csv": ","}
QUOTING = {"tsv": "none", "csv": "minimal"}


@dataclass(frozen=True)
class DelimitedTable:
    """A TSV or CSV file."""

    path: Path
    delimiter: str
    quoting: str
    encoding: str

    unit = "line"
    named = False

    @property
    def where(self) -> str:
        """The path."""
        return str(self.path)

    @cached_property
    def first(self) -> tuple[str, ...]:
        """The fields of the first line."""
        for _, fields in self._fields():
            return tuple(fields)
        raise InputError(f"{self.path} is empty: expected lines of fields; fetch or write it again.")

    def rows(self, wanted: Sequence[str], columns: Sequence[str] | None, broken: Broken) -> Iterator[Row]:
        """The wanted columns of every line; blank lines are passed over."""
        names = self.first if columns is None else tuple(columns)
        places = [self._place(name, names) for name in wanted]
        for line, fields in self._fields(skip_header=columns is None):
            if len(fields) == len(names):
                yield line, [fields[place] for place in places]
            elif fields not in ([""], []):
                broken(
                    f"{self.path} line {line}: expected {len(names)} fields, got {len(fields)}; "
                    "mend the line, or check format and quoting."
                )

    def _place(self, name: str, names: tuple[str, ...]) -> int:
        if names.count(name) > 1:
            raise InputError(f"{self.path} has {names.count(name)} columns named {name!r}: rename all but one.")
        return names.index(name)

    def _fields(self, *, skip_header: bool = False) -> Iterator[tuple[int, list[str]]]:
        fields = self._split() if self.quoting == "none" else self._unquoted()
        if skip_header:
            next(fields, None)
        return fields

    def _split(self) -> Iterator[tuple[int, list[str]]]:
        for number, line in enumerate(lines(self.path, self.encoding), 1):
            yield number, line.removesuffix("\n").removesuffix("\r").split(self.delimiter)

    def _unquoted(self) -> Iterator[tuple[int, list[str]]]:
        # Strict, because otherwise a quotation mark that is never closed swallows the rest of the file unnoticed.
        counted = _Counted(lines(self.path, self.encoding), self.path)
        reader = csv.reader(counted, delimiter=self.delimiter, strict=True)
        while True:
            line = reader.line_num + 1  # where the row begins; quoted fields may go on over several lines
            counted.characters = 0
            try:
                yield line, next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise InputError(
                    f"{self.path} line {line}: {error}; close or double the quotation mark, or set quoting: none."
                ) from None


class _Counted:
    """Lines, of which those of one row together may not be longer than one line may be."""

    def __init__(self, source: Iterator[str], path: Path) -> None:
        self._source, self._path = source, path
        self.characters = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._source)
        self.characters += len(line)
        if self.characters > MAX_LINE:
            raise InputError(
                f"{self._path} has a row of more than {MAX_LINE:,} characters: close its quotation marks, split the "
                "row, or set quoting: none."
            )
        return line
