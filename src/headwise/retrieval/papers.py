"""Papers of people's own files, without claims: a table with columns of any name, or a folder of text files.

A table is a CSV, TSV, JSON Lines, Parquet or Excel file with a column of texts and, perhaps, of titles and ids.
Delimiter and encoding are detected. Columns that are not named are found by their usual names (USUAL, in this order, in
upper or lower case). Without a column of ids the id of a paper is its line number in the file (its row number in a
Parquet file).

In a folder of text files, each file is a paper. Its id is the name of the file without .txt, with _ for white space.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from headwise.data.dialects import SUFFIXES, suffix_of
from headwise.data.readers import Table, open_table
from headwise.data.text_files import whole_text
from headwise.errors import InputError, choices
from headwise.retrieval.collections import (
    Collection,
    Document,
    Files,
    Record,
    on_disk,
    report_empty,
    unique_documents,
)

USUAL = {
    "id": ("id", "_id", "doc_id", "docid", "docno", "paper_id", "pmid"),
    "title": ("title",),
    "text": ("text", "abstract", "body", "content", "contents"),
}
ENDINGS = tuple(suffix for suffix in SUFFIXES if suffix != ".txt")
# Files beside the papers that are none.
ABOUT = ("readme", "license", "licence", "source", ".")


@dataclass(frozen=True)
class Columns:
    """The names of the columns of a table of papers; None is decided by their usual names."""

    id: str | None = None
    title: str | None = None
    text: str | None = None

    def found(self, table: Table) -> Columns:
        """The columns that this table has; only the text must be there."""
        first = {name.strip().lower(): name for name in reversed(table.first)}
        names: dict[str, str | None] = {}
        for what, name in asdict(self).items():
            if name is not None and name not in table.first:
                raise InputError(
                    f"{table.where} has no column {name!r}, which {what}={name} names: {choices(name, table.first)}."
                )
            names[what] = name or next((first[usual] for usual in USUAL[what] if usual in first), None)
        if names["text"] is None:
            raise InputError(
                f"{table.where} has no column named {' or '.join(USUAL['text'])}, but "
                f"{', '.join(map(repr, table.first))}: name the column of the texts as text=COLUMN."
            )
        return Columns(**names)


def is_table(path: Path) -> bool:
    """Whether this is a file whose name says that it is a table."""
    return suffix_of(path) in ENDINGS and path.is_file()


def find_table(files: Files) -> Path | None:
    """The only file of a folder, if it is a table."""
    papers = _papers(files)
    return next(iter(papers.values())) if len(papers) == 1 and {*papers}.pop().lower().endswith(ENDINGS) else None


def find_texts(files: Files) -> list[Path]:
    """The files of a folder, if all of them are text files."""
    papers = _papers(files)
    return list(papers.values()) if all(name.lower().endswith(".txt") for name in papers) else []


def _papers(files: Files) -> Files:
    return {name: path for name, path in files.items() if not name.lower().startswith(ABOUT)}


def read_table(path: Path, columns: Columns) -> Collection:
    """The papers of a table."""
    table = open_table(path)
    found = columns.found(table)
    names = tuple(name or "" for name in asdict(found).values())
    stem = path.name.removesuffix(".gz").rpartition(".")[0]
    return Collection(stem, "table", on_disk(path), partial(_table_documents, path, table, found), names=names)


def read_texts(paths: list[Path], name: str) -> Collection:
    """The papers of a folder of text files."""
    names = tuple(path.name for path in paths)
    return Collection(name, "text", on_disk(*paths), partial(_text_documents, paths), names=names)


def _table_documents(path: Path, table: Table, columns: Columns) -> Iterator[Document]:
    wanted = list(dict.fromkeys(name for name in asdict(columns).values() if name))

    def refuse(sentence: str) -> None:
        raise InputError(sentence)

    def records(path: Path) -> Iterator[Record]:
        for line, fields in table.rows(wanted, None, refuse, optional=wanted):
            yield Record(path, line, dict(zip(wanted, fields, strict=True)))

    def document(row: Record) -> Document:
        id = str(row.line) if columns.id is None else row.id(columns.id, number=True)
        text = row.text(row.values[columns.text or ""] or "", repr(columns.text))
        return row.document(id, text, columns.title or "")

    return unique_documents(records, path, document)


def _text_documents(paths: list[Path]) -> Iterator[Document]:
    known: dict[str, Path] = {}
    empty: list[str] = []
    for path in paths:
        id = "_".join(path.name.removesuffix(".gz")[: -len(".txt")].split())
        if id in known:
            raise InputError(f"{known[id]} and {path} are both papers with the id {id!r}: rename one of them.")
        known[id] = path
        text = whole_text(path, "utf-8").strip()
        if text:
            yield Document(id, "", text)
        else:
            empty.append(id)
    report_empty(empty, len(paths), str(paths[0].parent))
