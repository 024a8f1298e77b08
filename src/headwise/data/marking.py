"""Words that a person marks in the examples of a file: what there is to mark, and the file of marks.

The file of marks has one JSON object per line: the columns of an example and its marks, as characters. Its lines are
the first examples in the order in which they are shown, so their number says where to resume.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.data.dialects import format_of
from headwise.data.readers import FieldTable, Table, open_table
from headwise.data.text_files import check_file, gzipped, lines
from headwise.disk import save_content
from headwise.errors import InputError, listed
from headwise.limits import parse_json

MARKS, SKIPPED = "marks", "skipped"
LABEL = "label"
# Columns of texts that are known without being named.
TEXTS = (("sentence1", "sentence2"), ("text",), ("sentence",))
FORMATS = ("csv", "tsv", "jsonl", "xlsx")
LONGEST = 50_000
"""Characters of a text."""

Words = Sequence[Sequence[int]]
"""Marked words as (sentence, first word, last word)."""


# -- words -------------------------------------------------------------------------------------------------------------

_ALONE = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
"""Letters of languages that are written without spaces."""
# One sign may be inside a word (don't, and/or). Signs alone between spaces are a word, such as :), and so are emoji.
_WORD = re.compile(r"cm*|w+(?:pw+)*|[ep]*e[ep]*|(?<![wcmep])p+(?![wcep])")


def find_words(text: str) -> list[tuple[int, int]]:
    """The words of a text as characters from and to; punctuation at their ends is left out."""
    kinds = ""
    for letter in text:
        category = unicodedata.category(letter)
        if category[0] == "M" and kinds and kinds[-1] != " ":
            kinds += "m" if kinds[-1] == "c" else kinds[-1]  # an accent, or a variant of the sign before it
        elif letter.isspace():
            kinds += " "
        elif _ALONE.match(letter):
            kinds += "c"
        elif category[0] in "LMN" or letter == "_":
            kinds += "w"
        else:
            kinds += "e" if category[0] == "S" and not letter.isascii() else "p"
    return [match.span() for match in _WORD.finditer(kinds)]


# -- examples ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Columns:
    """The columns of one text or two, and of the label, if there is one."""

    texts: tuple[str, ...]
    label: str | None

    def __str__(self) -> str:
        """For people."""
        return f"text: {' and '.join(self.texts)}; label: {self.label or 'none'}"


@dataclass(frozen=True)
class MarkRow:
    """An example of the file."""

    content: Mapping[str, Any]
    """All its columns."""
    texts: tuple[str, ...]
    label: str | None


@dataclass(frozen=True)
class MarkRows:
    """The examples of a file."""

    path: Path
    columns: Columns
    rows: tuple[MarkRow, ...]
    empty: int
    """How many examples are left out because a text is empty."""


def read_rows(path: Path, text: str | None = None, pair: str | None = None, label: str | None = None) -> MarkRows:
    """Read a file whose words are to be marked; columns that are not named are guessed."""
    check_file(path)
    kind = format_of(path)
    if kind not in FORMATS:
        raise InputError(f"{path} is a {kind} file: expected {', '.join(FORMATS)}; convert it first.")
    table = open_table(path)
    columns = choose_columns(table, text, pair, label)
    rows: list[MarkRow] = []
    empty = 0
    for number, content in _objects(table):
        row = _row(content, columns, f"{path} line {number}")
        if all(each.strip() for each in row.texts):
            rows.append(row)
        else:
            empty += 1
    if not rows:
        raise InputError(f"{path} has no example with a text: write lines below the header, or name another file.")
    return MarkRows(path, columns, tuple(rows), empty)


def marks_file(path: Path) -> Path:
    """Where marks of a file are saved by default: tweets.csv.gz -> tweets.marks.jsonl."""
    plain = path.with_suffix("") if gzipped(path) else path
    return plain.with_name(f"{plain.stem}.marks.jsonl")


def choose_columns(table: Table, text: str | None, pair: str | None, label: str | None) -> Columns:
    """The columns that were named, and those with a known name in place of the others."""
    present = f"{table.where} has the columns {listed(table.first)}"
    if text is None and pair is not None:
        raise InputError(f"pair={pair} names the second text only: name the first one with text=NAME.")
    if text is not None:
        texts: tuple[str, ...] | None = (text,) if pair is None else (text, pair)
    else:
        texts = next((names for names in TEXTS if set(names) <= set(table.first)), None)
    if texts is None:
        raise InputError(f"{present}, none of which is known to be a text: name it with text=NAME.")
    for name in (*texts, *([] if label is None else [label])):
        if name not in table.first:
            raise InputError(f"{present}, and none named {name!r}: name another one.")
    if len(set(texts)) < len(texts):
        raise InputError(f"text={text} and pair={pair} are the same column: name two, or one only.")
    for name in (MARKS, SKIPPED):
        if name in table.first:
            raise InputError(f"{table.where} has a column {name!r}, where the marks would be written: rename it.")
    return Columns(texts, label or (LABEL if LABEL in table.first else None))


def _objects(table: Table) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Every line with its number and all its columns."""
    if isinstance(table, FieldTable):
        names = table.first
        yield from ((number, dict(zip(names, row, strict=True))) for number, row in table.rows(names, None, _refuse))
    else:
        yield from table.objects()


def _refuse(sentence: str) -> None:
    raise InputError(sentence)


def _row(content: Mapping[str, Any], columns: Columns, where: str) -> MarkRow:
    """One line, checked."""
    texts = []
    for name in columns.texts:
        text = content.get(name)
        if not isinstance(text, str):
            got = f"got {text!r:.60}" if name in content else f"got the keys {listed(content)}"
            raise InputError(f"{where}: expected a text in {name!r}, {got}; correct the line.")
        if len(text) > LONGEST:
            raise InputError(f"{where}: a text has {len(text):,} characters, expected at most {LONGEST:,}; split it.")
        texts.append(text)
    if MARKS in content or SKIPPED in content:
        raise InputError(f"{where} has a key {MARKS!r} or {SKIPPED!r}, where the marks would be written: rename it.")
    try:
        _line(content).encode()
    except UnicodeEncodeError:
        raise InputError(f"{where} holds half of a letter (a lone surrogate): correct the line.") from None
    label = None if columns.label is None else content.get(columns.label)
    return MarkRow(content, tuple(texts), None if label in (None, "") else str(label))


def _line(content: Mapping[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False)


def show_order(count: int, seed: int | None) -> list[int]:
    """The order in which examples are shown: that of the file, or shuffled, the same on every machine."""

    def key(index: int) -> bytes:
        return hashlib.sha256(f"{seed}:{index}".encode()).digest()

    return list(range(count)) if seed is None else sorted(range(count), key=key)


# -- marks -------------------------------------------------------------------------------------------------------------


class Marking:
    """The examples that a person marks, and the file that is written after each of them."""

    def __init__(self, source: MarkRows, output: Path, *, limit: int | None = None, seed: int | None = None) -> None:
        """Resume what the output has; an output that belongs to other examples is refused."""
        self.output, self.columns = output, source.columns
        self._rows = [source.rows[index] for index in show_order(len(source.rows), seed)]
        self._saved = self._read(source.path)
        self.resumed = len(self._saved)
        self.total = max(min(len(self._rows), limit or len(self._rows)), self.resumed)
        self._lock, self._closed = threading.Lock(), False

    def _read(self, path: Path) -> list[dict[str, Any]]:
        """The saved lines, in the order of the rows."""
        if not self.output.exists():
            return []
        if self.output.samefile(path):
            raise InputError(f"output={self.output} is the file with the examples: choose another one.")
        saved: list[dict[str, Any]] = []
        for number, line in enumerate(lines(self.output, "utf-8"), 1):
            try:
                content = parse_json(line)
            except ValueError:
                content = None
            row = self._rows[number - 1] if number <= len(self._rows) else None
            if not isinstance(content, dict) or row is None or not _belongs(content, row):
                raise InputError(
                    f"{self.output} line {number} does not match the examples of {path}: expected its rows, columns "
                    "and seed as they were when the marks were saved; restore them, or choose another output=..."
                )
            saved.append(content)
        return saved

    @property
    def done(self) -> int:
        """How many examples are saved, those that were skipped included."""
        return len(self._saved)

    def example(self, number: int) -> dict[str, Any]:
        """An example for the page; the one after the last is the end."""
        with self._lock:
            return self._example(number)

    def _example(self, number: int) -> dict[str, Any]:
        if not 0 <= number <= min(self.done, self.total):
            raise InputError(f"there is no example {number} to show: load the page again.")
        shown: dict[str, Any] = {"number": number, "total": self.total, "done": self.done, "summary": self.summary()}
        if number == self.total:
            return shown
        row = self._rows[number]
        words = [find_words(text) for text in row.texts]
        saved = self._saved[number] if number < self.done else None
        return shown | {
            "label": row.label,
            "names": list(self.columns.texts),
            "texts": [_pieces(text, spans) for text, spans in zip(row.texts, words, strict=True)],
            "words": [] if saved is None else _marked_words(_spans(saved[MARKS], row), words),
            "state": "new" if saved is None else "skipped" if saved.get(SKIPPED) else "saved",
        }

    def save(self, number: int, words: Words, *, skip: bool = False) -> dict[str, Any]:
        """Write the marks of an example; returns the next one. If that fails, nothing has changed."""
        with self._lock:
            if self._closed:
                raise InputError("marking has ended: start the command again.")
            if not 0 <= number <= self.done or number >= self.total:
                raise InputError(f"there is no example {number} to save: load the page again.")
            row = self._rows[number]
            marks = [] if skip else _merge(words, row)
            line = {**row.content, MARKS: marks if len(row.texts) > 1 else [span[1:] for span in marks]}
            saved = [*self._saved[:number], line | ({SKIPPED: True} if skip else {}), *self._saved[number + 1 :]]
            save_content(self.output, "".join(f"{_line(each)}\n" for each in saved))
            self._saved = saved
            return self._example(number + 1)

    def close(self) -> dict[str, Any]:
        """Wait until what is being saved is saved, take no more, and sum up."""
        with self._lock:
            self._closed = True
            return self.summary()

    def summary(self) -> dict[str, Any]:
        """What is marked, and where."""
        skipped = sum(bool(each.get(SKIPPED)) for each in self._saved)
        marked = sum(bool(each[MARKS]) for each in self._saved)
        return {
            "output": str(self.output),
            "total": self.total,
            "saved": self.done,
            "marked": marked,
            "unmarked": self.done - marked - skipped,
            "skipped": skipped,
        }


def _belongs(content: Mapping[str, Any], row: MarkRow) -> bool:
    """Whether a saved line is that of a row, with marks inside its texts."""
    columns = {name: value for name, value in content.items() if name not in (MARKS, SKIPPED)}
    # As text, since a number that is not finite equals nothing.
    same = _line(columns) == _line(row.content)
    return same and isinstance(content.get(SKIPPED, False), bool) and _spans(content.get(MARKS), row) is not None


def _spans(marks: Any, row: MarkRow) -> list[list[int]] | None:
    """The marks of a line as (sentence, start, end); None if they are no marks of this row."""
    size = 2 if len(row.texts) == 1 else 3
    if not isinstance(marks, list):
        return None
    spans = []
    for mark in marks:
        if not isinstance(mark, list) or len(mark) != size or not all(type(number) is int for number in mark):
            return None
        sentence, start, end = [0, *mark] if size == 2 else mark
        if not (0 <= sentence < len(row.texts) and 0 <= start < end <= len(row.texts[sentence])):
            return None
        spans.append([sentence, start, end])
    return spans


def _pieces(text: str, words: Sequence[tuple[int, int]]) -> list[str]:
    """A text as what is before the first word, the word, what is before the second, ..., and what is after the last."""
    ends = [0, *(end for word in words for end in word), len(text)]
    return [text[start:end] for start, end in zip(ends, ends[1:], strict=False)]


def _marked_words(spans: list[list[int]] | None, words: Sequence[Sequence[tuple[int, int]]]) -> list[list[int]]:
    """The words that saved spans touch, as (sentence, first, last)."""
    found = []
    for sentence, start, end in spans or []:
        inside = [index for index, (first, last) in enumerate(words[sentence]) if first < end and start < last]
        if inside:
            found.append([sentence, inside[0], inside[-1]])
    return found


def _merge(words: Words, row: MarkRow) -> list[list[int]]:
    """Marked words as sorted spans of characters; words beside each other become one span."""
    chosen: set[tuple[int, int]] = set()
    places = [find_words(text) for text in row.texts]
    left = sum(map(len, places))
    for sentence, first, last in words:
        left -= last - first + 1
        if not (0 <= sentence < len(places) and 0 <= first <= last < len(places[sentence]) and left >= 0):
            raise InputError("a mark is outside the text, or twice in it: load the page again.")
        chosen.update((sentence, index) for index in range(first, last + 1))
    spans: list[list[int]] = []
    for sentence, index in sorted(chosen):
        start, end = places[sentence][index]
        if (sentence, index - 1) in chosen:
            spans[-1][2] = end
        else:
            spans.append([sentence, start, end])
    return spans
