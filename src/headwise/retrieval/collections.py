"""A collection: documents to search, claims to search for, and judgements of which document answers which claim."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

from headwise.data.dialects import DELIMITERS, QUOTING, format_of
from headwise.data.readers import DelimitedTable, JsonTable
from headwise.data.text_files import archive_of, is_archive, lines, members
from headwise.errors import HeadwiseWarning, InputError, choices

# Claim -> document -> grade; above 0 is an answer.
Qrels = Mapping[str, Mapping[str, int]]
# Claim -> document -> score, the best first.
Run = Mapping[str, Mapping[str, float]]
EVERY_CLAIM = "all"
SPLITS = ("train", "dev", "validation", "test")


@dataclass(frozen=True)
class Document:
    """A paper: its title may be empty; those whose text is empty too are left out of a collection."""

    id: str
    title: str
    text: str

    @property
    def whole(self) -> str:
        """Title and text, which is what is searched and what a re-ranker reads."""
        return f"{self.title} {self.text}" if self.title else self.text


@dataclass(frozen=True)
class GivenPair:
    """A labelled pair of a claim and a text that comes with the data, such as a row of Cross-genre-IR."""

    claim: str
    document: str
    text: str
    relevant: bool


@dataclass(frozen=True)
class Collection:
    """Claims and judgements in memory, documents streamed from their files each time they are read."""

    name: str
    layout: str
    """How the files are written: one of `formats.LAYOUTS`, or irds."""
    files: tuple[Path, ...]
    """The files that hold the documents: their content decides whether an index can be used again."""
    documents: Callable[[], Iterator[Document]]
    claims: dict[str, str] = field(default_factory=dict)
    """Id -> text."""
    qrels: dict[str, Qrels] = field(default_factory=dict)
    """Split -> judgements; claims without a document above 0 are in none of them."""
    qrels_files: dict[str, Path] = field(default_factory=dict)
    """Split -> the file of its judgements, for messages."""
    given: dict[str, Callable[[], Iterator[GivenPair]]] = field(default_factory=dict)
    """Split -> labelled pairs of the data, if it has any."""
    evidence: Callable[[], dict[tuple[str, str], tuple[tuple[int, int], ...]]] | None = None
    """Of a claim and a document, where in title and text the evidence is, if the data says so."""
    members: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Split -> all its claims, judged or not, if the data says so: none of them may be trained on for another."""
    notes: list[str] = field(default_factory=list)
    """What was left out, for the log."""
    names: tuple[str, ...] = ()
    """What decides the documents besides the content of their files: names of columns, or of text files."""
    folder: Path | None = None
    drop_unknown: bool = False
    """Whether `check_documents` leaves out judgements of unknown documents instead of refusing them."""

    def add_split(self, split: str, path: Path, judged: Qrels, *, answer: str = "relevant document") -> None:
        """Add the judgements of a split while files are read; claims without an answer are only its members."""
        answered = _with_answer(judged)
        self.members[split] = tuple(judged)
        if answered:
            self.qrels[split], self.qrels_files[split] = answered, path
        if left := len(judged) - len(answered):
            self.notes.append(f"{path}: {left} of {len(judged)} claims have no {answer} and are not judged")


@dataclass(frozen=True)
class Claims:
    """Claims of a collection with their judgements, as far as there are any."""

    split: str
    texts: dict[str, str]
    qrels: Qrels


def choose_claims(collection: Collection, split: str | None) -> Claims:
    """The claims of a split; None means test, else the only split, else all claims."""
    if not collection.claims:
        raise InputError(
            f"{collection.name} has papers but no claims: search it with one claim, or add queries.jsonl to it."
        )
    if split is None:
        split = "test" if "test" in collection.qrels else next(iter(collection.qrels), EVERY_CLAIM)
        if len(collection.qrels) > 1 and split != "test":
            raise InputError(
                f"{collection.name} has no split named test but {', '.join(collection.qrels)}: give one as split=..., "
                f"or split={EVERY_CLAIM} for every claim."
            )
    if split == EVERY_CLAIM:
        judged: dict[str, dict[str, int]] = {}
        for qrels in collection.qrels.values():
            for claim, grades in qrels.items():  # a claim may be judged in several splits
                judged.setdefault(claim, {}).update(grades)
        return Claims(split, dict(collection.claims), judged)
    if split not in collection.qrels:
        known = [*collection.qrels, EVERY_CLAIM]
        raise InputError(f"{collection.name} has no split {split!r}: {choices(split, known)}.")
    return Claims(
        split, {claim: collection.claims[claim] for claim in collection.qrels[split]}, collection.qrels[split]
    )


def check_documents(collection: Collection, known: Container[str]) -> Collection:
    """The collection, if its judgements name only known documents; others are refused or dropped.

    With `drop_unknown` such judgements are left out, and claims that then have no answer.

    Args:
        collection: what `read_collection` returned.
        known: the ids of all documents.
    """
    unknown = [
        (split, claim, document)
        for split, judged in collection.qrels.items()
        for claim, grades in judged.items()
        for document in grades
        if document not in known
    ]
    if unknown and not collection.drop_unknown:
        split, claim, document = unknown[0]
        path = collection.qrels_files.get(split)
        line = line_of(path, claim, document) if path else None
        more = f", and neither are those of {len(unknown) - 1} more judgements" if len(unknown) > 1 else ""
        raise InputError(
            f"{path or f'split {split}'}{f' line {line}' if line else ''}: document {document!r}, judged for claim "
            f"{claim!r}, is not in the corpus{more}; correct the ids, or leave such judgements out with "
            "drop_unknown=True."
        )
    qrels, notes = dict(collection.qrels), list(collection.notes)
    for split, count in Counter(split for split, _, _ in unknown).items():
        where, judged = collection.qrels_files.get(split, split), qrels[split]
        parts = {claim: {name: grade for name, grade in judged[claim].items() if name in known} for claim in judged}
        qrels[split] = _with_answer(parts)
        if not qrels[split]:
            raise InputError(
                f"{where}: no claim has an answer in the corpus; check that judgements and corpus use the same ids."
            )
        notes.append(
            f"{where}: {count} judgements of documents that are not in the corpus are left out, and with them "
            f"{len(judged) - len(qrels[split])} claims without another answer"
        )
    return replace(collection, qrels=qrels, notes=notes)


def _with_answer(judged: Qrels) -> Qrels:
    return {claim: grades for claim, grades in judged.items() if any(grade > 0 for grade in grades.values())}


def line_of(path: Path, *ids: str) -> int | None:
    """The first line that has all of these ids, else the first that has the last one, else None: for messages."""
    second = None
    for number, line in enumerate(lines(path, "utf-8"), 1):
        words = {*line.split(), *re.split(r"""[\s,;:"'\[\]{}]+""", line)}
        if words.issuperset(ids):
            return number
        if second is None and ids[-1] in words:
            second = number
    return second


# The files of a collection: by their names below its root, those of gzipped files without .gz.
Files = Mapping[str, Path]


def find_files(folder: Path) -> list[Files]:
    """The files of a folder, then those of its zip if it holds exactly one; a zip may also be named itself."""
    archives, results = [folder], []
    if folder.is_dir():
        parts = [part for part in (folder, folder / "qrels") if part.is_dir()]
        paths = [path for part in parts for path in part.iterdir() if path.is_file()]
        archives = [path for path in folder.iterdir() if is_archive(path)]
        results.append(_by_name(folder, [path.relative_to(folder).as_posix() for path in paths]))
    elif not is_archive(folder):
        if folder.is_file():
            raise InputError(f"{folder} is a file: expected a folder with a collection, or a zip of one; name that.")
        raise InputError(f"{folder} does not exist: correct the path or put the collection there.")
    if len(archives) == 1:
        names = members(archives[0])
        # If all lie in one folder, as in the downloads of BEIR, that folder is the root.
        tops = {PurePosixPath(name).parts[0] for name in names if "/" in name and not name.startswith("qrels/")}
        top = tops.pop() if len(tops) == 1 and all("/" in name for name in names) else ""
        results.append(_by_name(archives[0] / top, [name.removeprefix(f"{top}/" if top else "") for name in names]))
    return results


def _by_name(root: Path, names: Sequence[str]) -> Files:
    """Of a plain and a gzipped file the first."""
    files: dict[str, Path] = {}
    for name in sorted(names):
        files.setdefault(name.removesuffix(".gz"), root / name)
    return files


def on_disk(*paths: Path) -> tuple[Path, ...]:
    """The files that hold these: themselves, or the zip that they are in."""
    return tuple(dict.fromkeys(archive_of(path) or path for path in paths))


def in_order(splits: Iterable[str]) -> list[str]:
    """Names of splits as they are used: train, dev, validation, test, then others by name."""
    return sorted(splits, key=lambda split: (SPLITS.index(split) if split in SPLITS else len(SPLITS), split))


@dataclass(frozen=True)
class Record:
    """An object of a JSON Lines file or a row of a table; errors name the file and the line."""

    path: Path
    line: int
    values: Mapping[str, Any]

    def refuse(self, problem: str) -> NoReturn:
        """Raise an InputError about this line."""
        raise InputError(f"{self.path} line {self.line}: {problem}")

    def value(self, key: str) -> Any:
        """The value of a key that must be there."""
        if key not in self.values:
            self.refuse(f"expected the key {key!r}, got {', '.join(map(repr, self.values)) or 'none'}; add it.")
        return self.values[key]

    def id(self, key: str, *, number: bool = False) -> str:
        """An id as text; see `checked_id`."""
        return checked_id(self.value(key), f"{self.path} line {self.line}", number=number)

    def text(self, value: Any, what: str) -> str:
        """Text without white space around it."""
        if not isinstance(value, str):
            self.refuse(f"expected text as {what}, got {value!r}; write it as a string.")
        return _whole_characters(value.strip())

    def claim(self, key: str) -> str:
        """The text of a claim, which may not be empty."""
        text = self.text(self.value(key), "the claim")
        if not text:
            self.refuse("the claim is empty; write its text, or take the line out.")
        return text

    def document(self, id: str, text: str, title: str = "title") -> Document:
        """A document with the title of this record; one that is only a title has it as its text."""
        title = self.text(self.values.get(title) or "", repr(title))
        return Document(id, title, text) if text else Document(id, "", title)


def checked_id(value: Any, where: str, *, number: bool = False) -> str:
    """An id as text; whole numbers count. A `number` may be written as 17.0, as pandas does in columns with gaps."""
    if number and isinstance(value, float):
        value = str(value)
    text = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not text or _whole_characters(text) != text:
        raise InputError(f"{where}: expected an id, got {value!r}; write text or a whole number.")
    if text.split() != [text]:
        raise InputError(
            f"{where}: the id {text!r} has white space, which a TREC run cannot hold; rename it, for example "
            f"{'_'.join(text.split())!r}."
        )
    return re.sub(r"^(\d+)\.0+$", r"\1", text) if number else text


def _whole_characters(text: str) -> str:
    """Text with a replacement character for every lone surrogate, which no file and no tokenizer takes."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def json_records(path: Path) -> Iterator[Record]:
    """The objects of a JSON Lines file."""
    return (Record(path, line, values) for line, values in JsonTable(path, "utf-8").objects())


def open_delimited(path: Path) -> DelimitedTable:
    """A CSV or TSV file, by its ending."""
    kind = format_of(path)
    if kind not in DELIMITERS:
        raise InputError(f"{path} is a {kind} file: expected CSV or TSV; save it as one of them.")
    return DelimitedTable(path, DELIMITERS[kind], QUOTING[kind], "utf-8")


def table_records(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    """These columns of a CSV or TSV file with a header."""
    table = open_delimited(path)
    missing = [name for name in columns if name not in table.first]
    if missing:
        raise InputError(
            f"{path} has no column {missing[0]!r}: expected {', '.join(map(repr, columns))}, got "
            f"{', '.join(map(repr, table.first))}; add it to the first line."
        )

    def refuse(sentence: str) -> NoReturn:
        raise InputError(sentence)

    for line, fields in table.rows(columns, None, refuse):
        yield Record(path, line, dict(zip(columns, fields, strict=True)))


def unique_documents(
    records: Callable[[Path], Iterator[Record]], path: Path, document_of: Callable[[Record], Document]
) -> Iterator[Document]:
    """The documents of a file, without those that have no text; ids that came before are refused."""
    lines: dict[str, int] = {}
    empty: list[str] = []
    for record in records(path):
        document = document_of(record)
        first = lines.setdefault(document.id, record.line)
        if first != record.line:
            record.refuse(
                f"document id {document.id!r} was on line {first} before; keep one of the two, or give one another id."
            )
        if document.text:
            yield document
        else:
            empty.append(document.id)
    report_empty(empty, len(lines), str(path), lines)


def report_empty(empty: Sequence[str], count: int, where: str, lines: Mapping[str, int] | None = None) -> None:
    """Warn of documents that are left out because they have no text; if that is all of them, refuse the file."""
    if not empty:
        return
    first = f"{empty[0]!r}{f' on line {lines[empty[0]]}' if lines else ''}"
    if len(empty) == count:
        raise InputError(f"{where}: none of the {count} documents has a title or a text, the first is {first}; add it.")
    warnings.warn(
        f"{where}: {len(empty)} of {count} documents have neither title nor text and are left out; the first is "
        f"{first}.",
        HeadwiseWarning,
        stacklevel=2,
    )


def beir_documents(corpus: Path) -> Iterator[Document]:
    """The documents of a corpus.jsonl as in BEIR."""
    return unique_documents(
        json_records, corpus, lambda row: row.document(row.id("_id"), row.text(row.value("text"), "'text'"))
    )
