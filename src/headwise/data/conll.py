"""CoNLL files: a word per line with its label in the last column, and a blank line behind each sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.data.dialects import Dialect, suffix_of
from headwise.data.readers import Table
from headwise.data.text_files import encoding_of, lines
from headwise.errors import InputError

SUFFIXES = (".conll", ".conll2003", ".bio", ".iob", ".iob2", ".txt", ".tsv")
WORDS, LABELS = "tokens", "labels"


@dataclass(frozen=True)
class ConllTable(Table):
    """Sentences as rows with two columns, each a list."""

    path: Path
    encoding: str

    @property
    def first(self) -> tuple[str, ...]:
        """The names of the columns; a file of words alone has no labels."""
        for _, line in self._lines():
            if line.strip():
                return (WORDS, LABELS) if len(_fields(line)) > 1 else (WORDS,)
        raise InputError(f"{self.path} is empty: expected a word and its label on each line; fetch or write it again.")

    def objects(self, wanted: Sequence[str] = ()) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Every sentence with the line on which it begins."""
        words: list[str] = []
        labels: list[str] = []
        start, labelled = 1, len(self.first) > 1
        for number, line in self._lines():
            fields = _fields(line)
            if not fields:
                if words:
                    yield start, _row(words, labels, labelled)
                words, labels = [], []
                continue
            if labelled and len(fields) < 2:
                raise InputError(
                    f"{self.path} line {number}: expected a word and its label with a blank or tab between them, got "
                    f"{line.strip()!r:.80}; correct the line."
                )
            start = start if words else number
            words.append(fields[0])
            labels.append(fields[-1])
        if words:
            yield start, _row(words, labels, labelled)

    def _lines(self) -> Iterator[tuple[int, str]]:
        """The lines, without comments and the marks between documents."""
        for number, line in enumerate(lines(self.path, self.encoding), 1):
            if line.startswith("-DOCSTART-") or (line.startswith("# ") and " = " in line):  # as CoNLL-U has comments
                continue
            yield number, line


def _fields(line: str) -> list[str]:
    parts = line.split("\t") if "\t" in line else line.split()
    return [part.strip() for part in parts if part.strip()]


def _row(words: list[str], labels: list[str], labelled: bool) -> dict[str, list[str]]:
    return {WORDS: words, LABELS: labels} if labelled else {WORDS: words}


def open_conll(path: Path, dialect: Dialect) -> ConllTable | None:
    """The sentences of a CoNLL file; None if its name says that it is another one, such as JSON Lines."""
    if dialect.format is not None or suffix_of(path) not in SUFFIXES:
        return None
    encoding = dialect.encoding or encoding_of(path)
    return None if next(lines(path, encoding), "").startswith("{") else ConllTable(path, encoding)
