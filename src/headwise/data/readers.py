"""Files as tables of rows, with exact line numbers: TSV, CSV, JSON Lines and Parquet.

The csv module reads delimited files rather than pandas: pandas reports no line of a row that is too short, and fills
it up instead.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from headwise.data.layouts import Broken, Row, Table
from headwise.data.text_files import MAX_LINE, check_file, gzipped, lines
from headwise.errors import InputError, listed
from headwise.limits import parse_json

DELIMITERS = {"tsv": "\t", "csv": ","}
QUOTING = {"tsv": "none", "csv": "minimal"}
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


@dataclass(frozen=True)
class Dialect:
    """How a file is written; None means as its name suggests."""

    format: str | None = None
    quoting: str | None = None
    encoding: str = "utf-8"


def open_table(path: Path, dialect: Dialect) -> Table:
    """The table in a file."""
    kind = dialect.format or format_of(path, dialect.encoding)
    if kind == "jsonl":
        return JsonTable(path, dialect.encoding)
    if kind == "parquet":
        return ParquetTable(path)
    return DelimitedTable(path, DELIMITERS[kind], dialect.quoting or QUOTING[kind], dialect.encoding)


def suffix_of(path: Path) -> str:
    """The ending of a file's name in lower case, without that of the compression."""
    return (path.with_suffix("") if gzipped(path) else path).suffix.lower()


def format_of(path: Path, encoding: str = "utf-8") -> str:
    """The format that a file's name suggests."""
    suffix = suffix_of(path)
    if suffix not in SUFFIXES:
        raise InputError(
            f"{path}: the format of a file that ends in {suffix!r} is not known; set format to {', '.join(FORMATS)}."
        )
    # SciTail and others ship JSON lines under .txt
    if suffix == ".txt" and next(lines(path, encoding), "").startswith("{"):
        return "jsonl"
    return SUFFIXES[suffix]


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
        """The wanted columns of every line; blank lines are skipped."""
        names = self.first if columns is None else tuple(columns)
        for name in wanted:
            if names.count(name) > 1:
                raise InputError(f"{self.path} has {names.count(name)} columns named {name!r}: rename all but one.")
        positions = [names.index(name) for name in wanted]
        rows = self._fields()
        if columns is None:
            next(rows, None)
        for line, fields in rows:
            if len(fields) == len(names):
                yield line, [fields[position] for position in positions]
            elif fields not in ([""], []):
                broken(
                    f"{self.path} line {line}: expected {len(names)} fields, got {len(fields)}; "
                    "correct the line, or check format and quoting."
                )

    def _fields(self) -> Iterator[tuple[int, list[str]]]:
        """The fields of every row, with the line on which it begins."""
        if self.quoting == "none":
            for number, line in enumerate(lines(self.path, self.encoding), 1):
                yield number, line.removesuffix("\n").removesuffix("\r").split(self.delimiter)
            return
        characters = 0  # of the lines of one row, which together may not be longer than one line may be

        def counted() -> Iterator[str]:
            nonlocal characters
            for line in lines(self.path, self.encoding):
                characters += len(line)
                if characters > MAX_LINE:
                    raise InputError(
                        f"{self.path} has a row of more than {MAX_LINE:,} characters: close its quotation marks, split "
                        "the row, or set quoting: none."
                    )
                yield line

        # Strict, because otherwise a quotation mark that is never closed swallows the rest of the file unnoticed.
        reader = csv.reader(counted(), delimiter=self.delimiter, strict=True)
        while True:
            characters, start = 0, reader.line_num + 1
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise InputError(
                    f"{self.path} line {start}: {error}; close or double the quotation mark, or set quoting: none."
                ) from None
            yield start, fields


@dataclass(frozen=True)
class JsonTable:
    """A file of one JSON object per line."""

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
        """The wanted keys of every object; blank lines are skipped."""
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
        """Every object with its line, whatever keys it has; blank lines are skipped."""
        for number, line in enumerate(lines(self.path, self.encoding), 1):
            if not line.strip():
                continue
            try:
                record = parse_json(line)
            except ValueError as error:
                raise InputError(
                    f"{self.path} line {number}: expected a JSON object, got invalid JSON ({error}); correct the line."
                ) from None
            if not isinstance(record, dict):
                raise InputError(
                    f"{self.path} line {number}: expected a JSON object, got a {type(record).__name__}; "
                    "write one object per line."
                )
            yield number, record


@dataclass(frozen=True)
class ParquetTable:
    """A Parquet file, read through pyarrow if it is installed."""

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
        except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
            raise InputError(
                f"{self.path} is not a Parquet file ({error}): fetch it again, or set its format."
            ) from None
