"""What every layout reads: objects and rows with their lines, ids, texts, and documents that are checked on the way."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from headwise.errors import InputError
from headwise.tasks.delimited import DELIMITERS, QUOTING, DelimitedTable
from headwise.tasks.json_lines import JsonTable
from headwise.tasks.layout import Row
from headwise.tasks.retrieval.collection import Document
from headwise.tasks.tables import format_of

# Makes the documents of a file anew, each with its line.
Numbered = Callable[[], Iterator[tuple[int, Document]]]
_WHOLE_FLOAT = re.compile(r"(\d+)\.0+")


def objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSON Lines file, each with its line."""
    return JsonTable(path, "utf-8").objects()


def open_delimited(path: Path) -> DelimitedTable:
    """A CSV or TSV file as its name says."""
    kind = format_of(path)
    return DelimitedTable(path, DELIMITERS[kind], QUOTING[kind], "utf-8")


def rows(path: Path, wanted: Sequence[str]) -> Iterator[Row]:
    """The wanted columns of a CSV or TSV file with a header."""
    table = open_delimited(path)
    missing = [name for name in wanted if name not in table.first]
    if missing:
        raise InputError(
            f"{path} has no column {missing[0]!r}: expected {', '.join(map(repr, wanted))}, got "
            f"{', '.join(map(repr, table.first))}; add it to the first line."
        )
    return table.rows(wanted, None, _refuse)


def _refuse(sentence: str) -> NoReturn:
    raise InputError(sentence)


def value_of(record: dict[str, Any], key: str, path: Path, line: int) -> Any:
    """The value of a key that must be there."""
    if key not in record:
        raise InputError(
            f"{path} line {line}: expected the key {key!r}, got {', '.join(map(repr, record)) or 'none'}; add it."
        )
    return record[key]


def id_of(value: Any, path: Path, line: int | None) -> str:
    """An id as text; whole numbers count."""
    text = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not text or mended(text) != text:
        where = path if line is None else f"{path} line {line}"
        raise InputError(f"{where}: expected an id, got {value!r}; write text or a whole number.")
    return text


def number_of(value: Any, path: Path, line: int | None) -> str:
    """An id that is a number, as text; programs that know no gaps among whole numbers write 17.0 for 17."""
    text = id_of(str(value) if isinstance(value, float) else value, path, line)
    whole = _WHOLE_FLOAT.fullmatch(text)
    return whole[1] if whole else text


def text_of(value: Any, what: str, path: Path, line: int) -> str:
    """Text without white space around it."""
    if not isinstance(value, str):
        raise InputError(f"{path} line {line}: expected text as {what}, got {value!r}; write it as a string.")
    return value.strip()


def claim_of(value: Any, path: Path, line: int) -> str:
    """The text of a claim, which may not be empty."""
    text = mended(text_of(value, "the claim", path, line))
    if not text:
        raise InputError(f"{path} line {line}: the claim is empty; write its text, or take the line out.")
    return text


def document(id: str, title: str, text: str) -> Document:
    """A document; one that is only a title has it as its text."""
    title, text = mended(title), mended(text)
    return Document(id, title, text) if text else Document(id, "", title)


def mended(text: str) -> str:
    """Text with a replacement character for every half of a pair (of an emoji, say) that JSON or Python escapes left.

    No file and no tokenizer takes such a half.
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def checked(path: Path, numbered: Numbered) -> Callable[[], Iterator[Document]]:
    """The documents of a file; those that are empty, and ids that came before, are refused on the way."""

    def documents() -> Iterator[Document]:
        seen: set[str] = set()
        for line, found in numbered():
            if not found.text:
                raise InputError(
                    f"{path} line {line}: document {found.id!r} is empty; write its title or its text, or take it out."
                )
            if found.id in seen:
                first = next(number for number, other in numbered() if other.id == found.id)
                raise InputError(
                    f"{path} line {line}: document id {found.id!r} was on line {first} before; "
                    "keep one of the two, or give one another id."
                )
            seen.add(found.id)
            yield found

    return documents


def in_order(splits: Sequence[str]) -> list[str]:
    """Names of splits as they are used: train, dev, validation, test, then others by name."""
    known = ("train", "dev", "validation", "test")
    return sorted(splits, key=lambda split: (known.index(split) if split in known else len(known), split))
