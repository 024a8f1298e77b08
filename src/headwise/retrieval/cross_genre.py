"""Cross-genre-IR (Zuo et al. 2020): claims from the news and the research papers behind them.

A split is a CSV or TSV file whose name has the word train, dev, validation or test in it, with the columns Hypothesis
(the claim), Premise (title and abstract, or a passage of them), PMID and Entails (1 or 0, true or false). Beside it may
lie a JSON with the same word in its name that maps the text of a claim to a list of PMIDs; it then says what answers
the claim, else Entails does. As a pair to train on, a row counts as an answer if either of them says so.

Claims have no ids, so they get one made of their text: c and the first 12 hexadecimal digits of the SHA-256 of the
text in UTF-8, its white space made single spaces. A PMID is one document. It may come with several texts, since the
released training file adds passages of the right papers as further positives: the longest, the first of them where
several are as long, is the document, and every row stays a pair of its split. If there is a corpus.jsonl as in BEIR,
the documents are those instead.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwise.data.text_files import whole_text
from headwise.errors import InputError
from headwise.limits import parse_json
from headwise.retrieval import beir
from headwise.retrieval.collections import (
    Collection,
    Document,
    GivenPair,
    Place,
    Qrels,
    claim_of,
    in_order,
    number_of,
    open_delimited,
    rows,
)

# The files of Cross-genre-IR: which split each is of, and what stands in them.


COLUMNS = ("Hypothesis", "Premise", "PMID", "Entails")
SPLITS = ("train", "dev", "validation", "test")
TABLES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_WORD = re.compile(rf"(?<![a-z])({'|'.join(SPLITS)})(?![a-z])")
_START = re.compile(rf"(?<![a-z])({'|'.join(SPLITS)})")
_TRUTH = {"1": True, "0": False, "true": True, "false": False}


@dataclass(frozen=True)
class SplitFiles:
    """The files of a split; it has at least one of the two."""

    split: str
    table: Path | None
    answers: Path | None


@dataclass(frozen=True)
class PairRow:
    """A row of a table."""

    path: Path
    line: int
    claim: str
    text: str
    document: str
    relevant: bool


def find_tables(place: Place) -> dict[str, Path]:
    """Split -> its table."""
    named = [name for name in place.names if name.lower().endswith(TABLES) and _splits(name)]
    return _by_split(place, [name for name in named if _has_columns(place.root / name)])


def find_splits(place: Place) -> tuple[list[SplitFiles], list[str]]:
    """The splits that the names of the files tell of, and notes; dev and validation are the same one."""
    found = find_tables(place)
    named = [name for name in place.names if name.lower().endswith(".json") and _splits(name)]
    strange = [name for name in named if not _may_be_answers(place.root / name)]
    answers = _by_split(place, [name for name in named if name not in strange])
    for split in list(answers):
        other = {"dev": "validation", "validation": "dev"}.get(split, "")
        if split not in found and other in found:
            answers[other] = answers.pop(split)
    splits = [SplitFiles(split, found.get(split), answers.get(split)) for split in in_order([*{**found, **answers}])]
    return splits, [f"{place.root / name}: passed over, since it maps no claims to lists of PMIDs" for name in strange]


def pair_rows(path: Path) -> Iterator[PairRow]:
    """The rows of a table, checked."""
    quoted = ".tsv" in path.name.lower()
    for line, fields in rows(path, COLUMNS):
        claim, text, document, entails = [_unquoted(field) if quoted else field for field in fields]
        relevant = _TRUTH.get(entails.strip().lower())
        if relevant is None:
            raise InputError(
                f"{path} line {line}: expected 1, 0, true or false as Entails, got {entails!r}; mend the line."
            )
        if not text.strip():
            raise InputError(f"{path} line {line}: document {document!r} is empty; write its text, or take it out.")
        id = number_of(document, path, line)
        yield PairRow(path, line, claim_of(claim, path, line), text.strip(), id, relevant)


def agreeing_rows(path: Path) -> Iterator[PairRow]:
    """The rows of a table whose Entails decides: a paper that both answers and does not answer a claim is refused."""
    labels: dict[tuple[str, str], bool] = {}
    for row in pair_rows(path):
        if labels.setdefault((claim_id(row.claim), row.document), row.relevant) != row.relevant:
            raise InputError(
                f"{path} line {row.line}: PMID {row.document!r} both answers and does not answer the claim "
                f"{row.claim[:60]!r}; make its rows agree in Entails."
            )
        yield row


def read_answers(path: Path) -> dict[str, list[str]]:
    """Claim -> PMIDs of a JSON file; white space around a claim, such as the line feed of the authors, goes."""
    content = _content(path)
    if not isinstance(content, dict):
        raise InputError(
            f"{path}: expected a JSON object of claims and lists of PMIDs, got a {type(content).__name__}; mend it."
        )
    found: dict[str, list[str]] = {}
    for claim, documents in content.items():
        if not claim.strip() or not isinstance(documents, list):
            raise InputError(
                f"{path}: expected a list of PMIDs for the claim {claim[:60]!r}, got {documents!r}; mend it."
            )
        found.setdefault(single_spaces(claim), []).extend(number_of(document, path, None) for document in documents)
    return found


def claim_id(text: str) -> str:
    """The id of a claim, made of its text."""
    return "c" + hashlib.sha256(single_spaces(text).encode("utf-8", "surrogatepass")).hexdigest()[:12]


def single_spaces(text: str) -> str:
    """The text with every run of white space as one space, and none around it."""
    return " ".join(text.split())


def _splits(name: str) -> list[str]:
    """The splits that a name tells of: its words or, if none is one, beginnings of words, as in trainset.csv."""
    found = _WORD.findall(name.lower()) or _START.findall(name.lower())
    return list(dict.fromkeys(found))


def _content(path: Path) -> Any:
    try:
        return parse_json(whole_text(path, "utf-8"))
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: expected a JSON object, got invalid JSON ({error}); mend the file.") from None


def _may_be_answers(path: Path) -> bool:
    """Whether a JSON maps to lists, mostly: settings (train_config.json) do not, but one bad value is a mistake."""
    try:
        content = _content(path)
    except InputError:
        return True  # what is broken may be the answers, so it is told of where they are read
    lists = [isinstance(value, list) for value in content.values()] if isinstance(content, dict) else [False]
    return 2 * sum(lists) >= len(lists)


def _by_split(place: Place, names: list[str]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for name in names:
        path, (split, *others) = place.root / name, _splits(name)
        if others:
            raise InputError(f"{path} is named after the splits {split!r} and {others[0]!r}: rename it after one.")
        if split in found:
            raise InputError(f"{found[split]} and {path} are both of the split {split!r}: keep one, or rename one.")
        found[split] = path
    return found


def _has_columns(path: Path) -> bool:
    """Whether the header has at least two of the columns; a missing one is then told of where it is needed."""
    return len(set(COLUMNS) & set(open_delimited(path).first)) >= 2


def _unquoted(field: str) -> str:
    """A field of a TSV file without the quotation marks that pandas puts around text with quotation marks."""
    inner = field[1:-1]
    if len(field) < 2 or field[0] != '"' or field[-1] != '"' or '"' in inner.replace('""', ""):
        return field
    return inner.replace('""', '"')


NEEDS = (
    "a CSV or TSV file with the columns Hypothesis, Premise, PMID and Entails per split, named with train, dev, "
    "validation or test"
)


def fits(place: Place) -> bool:
    """Whether there is a table with such columns."""
    return bool(find_tables(place))


def read(place: Place, name: str) -> Collection:
    """The collection in a place that fits."""
    splits, notes = find_splits(place)
    tables = [files.table for files in splits if files.table]
    if not tables:
        raise InputError(f"{place.root} holds no collection as in Cross-genre-IR: it needs {NEEDS}.")
    pairs = _Pairs(notes=notes)
    for files in splits:
        pairs.read(files)
    corpus = place.find("corpus.jsonl")
    return Collection(
        name,
        "cross-genre",
        place.on_disk(tables if corpus is None else [corpus]),
        pairs.documents if corpus is None else beir.read_documents(corpus),
        pairs.claims,
        pairs.qrels,
        places=pairs.places,
        given={files.split: _given(files.table, pairs.qrels.get(files.split, {})) for files in splits if files.table},
        members=pairs.members,
        notes=tuple(pairs.notes),
    )


def _given(path: Path, qrels: Qrels) -> Callable[[], Iterator[GivenPair]]:
    def given() -> Iterator[GivenPair]:
        for row in pair_rows(path):
            claim = claim_id(row.claim)
            # What the JSON calls an answer is no negative, whatever Entails says.
            relevant = row.relevant or row.document in qrels.get(claim, {})
            yield GivenPair(claim, row.document, row.text, relevant)

    return given


@dataclass
class _Pairs:
    """What has been read so far: claims and judgements, and of the texts only where the longest of each PMID is."""

    claims: dict[str, str] = field(default_factory=dict)
    qrels: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    members: dict[str, tuple[str, ...]] = field(default_factory=dict)
    places: dict[str, Path] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _tables: list[Path] = field(default_factory=list)
    # PMID -> length of its longest text, the file and the line where that is
    _longest: dict[str, tuple[int, Path, int]] = field(default_factory=dict)

    def read(self, files: SplitFiles) -> None:
        """Take in the pairs and the answers of a split."""
        answers = {} if files.answers is None else read_answers(files.answers)
        judged = {self._claim(claim): dict.fromkeys(documents, 1) for claim, documents in answers.items()}
        self._tables += [files.table] if files.table else []
        checked = agreeing_rows if files.answers is None else pair_rows
        for row in checked(files.table) if files.table else ():
            found = judged.setdefault(self._claim(row.claim), {})
            self._measure(row)
            if files.answers is None and row.relevant:
                found[row.document] = 1
        self._keep(files, judged)

    def documents(self) -> Iterator[Document]:
        """One document per PMID, streamed from the tables a second time."""
        for path in self._tables:
            for row in pair_rows(path):
                if self._longest[row.document][1:] == (path, row.line):
                    yield Document(row.document, "", row.text)

    def _claim(self, text: str) -> str:
        id = claim_id(text)
        self.claims.setdefault(id, single_spaces(text))
        return id

    def _measure(self, row: PairRow) -> None:
        length, _, _ = self._longest.get(row.document, (0, None, 0))
        if len(row.text) > length:
            self._longest[row.document] = (len(row.text), row.path, row.line)

    def _keep(self, files: SplitFiles, judged: dict[str, dict[str, int]]) -> None:
        place = files.answers or files.table
        answered = {claim: documents for claim, documents in judged.items() if documents}
        self.members[files.split] = tuple(judged)
        if answered and place:
            self.qrels[files.split], self.places[files.split] = answered, place
        if left := len(judged) - len(answered):
            self.notes.append(f"{place}: {left} claims without any paper that answers them have no judgements")
