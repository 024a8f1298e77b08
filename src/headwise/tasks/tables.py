"""Opening a file as a table, by its format."""

from __future__ import annotations

from pathlib import Path

from headwise.errors import InputError
from headwise.tasks.delimited import DELIMITERS, QUOTING, DelimitedTable
from headwise.tasks.json_lines import JsonTable
from headwise.tasks.layout import Dialect, Table
from headwise.tasks.parquet import ParquetTable
from headwise.tasks.text_file import gzipped, lines

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
