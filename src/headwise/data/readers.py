"""Opening a file as a table, by its format."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from headwise.data.layouts import Broken, Dialect, Row, Table
from headwise.data.text_files import MAX_LINE, check_file, gzipped, lines
from headwise.errors import InputError, listed
from headwise.limits import parse_json

# Tables of tab- or comma-separated fields, with exact line numbers.


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


# Files of one JSON object per line.


@dataclass(frozen=True)
class JsonTable:
    """A JSON Lines file."""

    path: Path
    encoding: str

    unit = "line"
    named = True

    @property
    def where(self) -> str:
        """The path."""
        return str(self.path)

    @cached_property
    def first(self) -> tuple[str, ...]:
        """The keys of the first object."""
        for _, record in self.objects():
            return tuple(record)
        raise InputError(f"{self.path} is empty: expected one JSON object per line; fetch or write it again.")

    def rows(self, wanted: Sequence[str], columns: Sequence[str] | None, broken: Broken) -> Iterator[Row]:
        """The wanted keys of every object; blank lines are passed over."""
        for line, record in self.objects():
            missing = [name for name in wanted if name not in record]
            if missing:
                broken(
                    f"{self.path} line {line}: expected the key {missing[0]!r}, got {listed(record)}; "
                    "add it, or name the right one."
                )
            else:
                yield line, [record[name] for name in wanted]

    def objects(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Every object with its line, whatever keys it has; blank lines are passed over."""
        for number, line in enumerate(lines(self.path, self.encoding), 1):
            if line.strip():
                yield number, self._parsed(line, number)

    def _parsed(self, line: str, number: int) -> dict[str, Any]:
        try:
            record = parse_json(line)
        except ValueError as error:
            raise InputError(
                f"{self.path} line {number}: expected a JSON object, got invalid JSON ({error}); mend the line."
            ) from None
        if not isinstance(record, dict):
            raise InputError(
                f"{self.path} line {number}: expected a JSON object, got a {type(record).__name__}; "
                "write one object per line."
            )
        return record


# Parquet files, read through pyarrow when it is there.


@dataclass(frozen=True)
class ParquetTable:
    """A Parquet file."""

    path: Path

    unit = "row"
    named = True

    @property
    def where(self) -> str:
        """The path."""
        return str(self.path)

    @cached_property
    def first(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self._file.schema_arrow.names)

    def rows(self, wanted: Sequence[str], columns: Sequence[str] | None, broken: Broken) -> Iterator[Row]:
        """The wanted columns of every row, counted from 1."""
        number = 0
        for batch in self._file.iter_batches(columns=list(wanted)):
            values = batch.to_pydict()
            for row in zip(*(values[name] for name in wanted), strict=True):
                number += 1
                yield number, list(row)

    @cached_property
    def _file(self) -> Any:
        check_file(self.path)
        try:
            module = import_module("pyarrow.parquet")
        except ImportError:
            raise InputError(
                f"{self.path} is a Parquet file, which needs pyarrow: install headwise[parquet], or use another format."
            ) from None
        try:
            return module.ParquetFile(self.path)
        except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
            raise InputError(
                f"{self.path} is not a Parquet file ({error}): fetch it again, or set its format."
            ) from None


FORMATS = ("tsv", "csv", "jsonl", "parquet")
SUFFIXES = {
    ".tsv": "tsv",
    ".txt": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",  # as CLUE names its files of JSON lines
    ".parquet": "parquet",
    ".pq": "parquet",
}


def open_table(path: Path, dialect: Dialect) -> Table:
    """The table in a file."""
    kind = dialect.format or format_of(path, dialect.encoding)
    if kind == "jsonl":
        return JsonTable(path, dialect.encoding)
    if kind == "parquet":
        return ParquetTable(path)
    return DelimitedTable(path, DELIMITERS[kind], dialect.quoting or QUOTING[kind], dialect.encoding)


def format_of(path: Path, encoding: str = "utf-8") -> str:
    """The format that a file's name suggests."""
    suffix = (path.with_suffix("") if gzipped(path) else path).suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(
            f"{path}: the format of a file that ends in {suffix!r} is not known; set format to {', '.join(FORMATS)}."
        )
    # SciTail and others ship JSON lines under .txt
    if suffix == ".txt" and next(lines(path, encoding), "").startswith("{"):
        return "jsonl"
    return SUFFIXES[suffix]
