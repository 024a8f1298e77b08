"""A collection: documents to search, claims to search for, and which document answers which claim."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

from headwise.data.layouts import Row
from headwise.data.readers import DELIMITERS, QUOTING, DelimitedTable, JsonTable, format_of
from headwise.data.text_files import is_archive, lines, members
from headwise.errors import InputError

# Claim -> document -> grade; above 0 is an answer.
Qrels = Mapping[str, Mapping[str, int]]
# Claim -> document -> score, the best first.
Run = Mapping[str, Mapping[str, float]]
# Told how much is done, of how much; 0 where nobody knows.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Document:
    """A paper: its title may be empty, its text may not."""

    id: str
    title: str
    text: str

    @property
    def whole(self) -> str:
        """Title and text, which is what is searched and what a re-ranker reads."""
        return f"{self.title} {self.text}" if self.title else self.text


@dataclass(frozen=True)
class GivenPair:
    """A pair of a claim and a text that comes with the data, such as a row of Cross-genre-IR."""

    claim: str
    document: str
    text: str
    relevant: bool


@dataclass(frozen=True)
class Collection:
    """Claims and judgements in memory, documents streamed from their files as often as they are asked for."""

    name: str
    layout: str
    """How the files are written: beir, scifact or cross-genre."""
    files: tuple[Path, ...]
    """The files that hold the documents: their content decides whether an index can be used again."""
    documents: Callable[[], Iterator[Document]]
    claims: Mapping[str, str]
    """Id -> text."""
    qrels: Mapping[str, Qrels]
    """Split -> judgements; claims without a document above 0 are in none of them."""
    places: Mapping[str, Path] = field(default_factory=dict)
    """Split -> the file its judgements come from, for messages."""
    given: Mapping[str, Callable[[], Iterator[GivenPair]]] = field(default_factory=dict)
    """Split -> pairs that the data brings along, if any."""
    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Split -> all its claims, judged or not, where the data say so: none of them may be trained on for another."""
    notes: tuple[str, ...] = ()
    """What was left out, for the log."""


# What every layout reads: objects and rows with their lines, ids, texts, and documents that are checked on the way.


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


# Finding the line of a file that a message is about, once something is wrong.


_MARKS = re.compile(r"""[\s,;:"'\[\]{}]+""")


def line_of(path: Path, *ids: str) -> int | None:
    """The first line that has all of these ids, else the first that has the last one, else None."""
    second = None
    for number, line in enumerate(lines(path, "utf-8"), 1):
        words = {*line.split(), *_MARKS.split(line)}
        if words.issuperset(ids):
            return number
        if second is None and ids[-1] in words:
            second = number
    return second


# Where the files of a collection lie: in a folder, or in a zip.


@dataclass(frozen=True)
class Place:
    """The names of the files and where they are."""

    root: Path
    names: tuple[str, ...]
    archive: Path | None = None

    def find(self, *names: str) -> Path | None:
        """The first of these files that is there, plain or gzipped."""
        present = (name for plain in names for name in (plain, f"{plain}.gz") if name in self.names)
        name = next(present, None)
        return None if name is None else self.root / name

    def on_disk(self, paths: Iterable[Path]) -> tuple[Path, ...]:
        """The files that hold these: themselves, or the zip that they are in."""
        return tuple(paths) if self.archive is None else (self.archive,)


def places(folder: Path) -> tuple[Place, ...]:
    """Where to look: in the folder itself, then in its zip if it holds exactly one; a zip may also be named itself."""
    if is_archive(folder):
        return (_inside(folder),)
    if folder.is_file():
        raise InputError(f"{folder} is a file: expected a folder with a collection, or a zip of one; name that.")
    if not folder.is_dir():
        raise InputError(f"{folder} does not exist: correct the path or put the collection there.")
    archives = [path for path in folder.iterdir() if is_archive(path)]
    return (_folder(folder), *(map(_inside, archives) if len(archives) == 1 else ()))


def _folder(folder: Path) -> Place:
    found = [path for part in (folder, folder / "qrels") if part.is_dir() for path in part.iterdir() if path.is_file()]
    return Place(folder, tuple(sorted(path.relative_to(folder).as_posix() for path in found)))


def _inside(archive: Path) -> Place:
    """The files of a zip; if all lie in one folder, as in the downloads of BEIR, that folder is the root."""
    names = members(archive)
    tops = {PurePosixPath(name).parts[0] for name in names if "/" in name and not name.startswith("qrels/")}
    top = tops.pop() if len(tops) == 1 and all("/" in name for name in names) else ""
    short = sorted(name.removeprefix(f"{top}/") if top else name for name in names)
    return Place(archive / top, tuple(short), archive)
