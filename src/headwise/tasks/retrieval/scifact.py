"""SciFact: claims about science and the abstracts that support or contradict them.

Two forms are read: CSV files as exported from the Hub (claims_*.csv with one row per piece of evidence, and
corpus_train.csv), and the authors' JSON Lines (claims_*.jsonl, corpus.jsonl). The name after claims_ is the split.

What counts as an answer is `gold`. With "evidence" it is an abstract that supports or contradicts the claim; claims
without any, which SciFact labels NEI, are then in no split's judgements. With "cited" it is every abstract that the
claim cites, as in BEIR, so that NEI claims have answers too. Claims of the test part have neither, so it is no split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwise.errors import InputError
from headwise.tasks.retrieval.collection import Collection, Document
from headwise.tasks.retrieval.numpy_text import strings
from headwise.tasks.retrieval.place import Place
from headwise.tasks.retrieval.records import checked, document, id_of, in_order, objects, rows, text_of, value_of
from headwise.tasks.retrieval.scifact_claims import ClaimRow, csv_rows, json_rows

NEEDS = "claims_*.csv and corpus_train.csv, or claims_*.jsonl and corpus.jsonl"
GOLDS = ("evidence", "cited")


@dataclass(frozen=True)
class _Form:
    """How one of the two forms is named and read."""

    ending: str
    corpus: tuple[str, ...]
    claims: Callable[[Path], Iterator[ClaimRow]]
    documents: Callable[[Path], Iterator[tuple[int, Document]]]
    repeats: bool
    """Whether a claim may stand on several lines of its file."""

    def find(self, place: Place) -> tuple[Path, dict[str, Path]] | None:
        """The file of the documents, and of each split that of its claims."""
        corpus = place.find(*self.corpus)
        endings = (f".{self.ending}", f".{self.ending}.gz")
        names = [name for name in place.names if name.startswith("claims_") and name.endswith(endings)]
        # Backwards, so that of a plain and a gzipped file the plain one counts.
        files = {name.split(".")[0].removeprefix("claims_"): place.root / name for name in reversed(names)}
        return (corpus, {split: files[split] for split in in_order(list(files))}) if corpus and files else None


def fits(place: Place) -> bool:
    """Whether the files are named as those of SciFact."""
    return any(form.find(place) for form in _FORMS)


def read(place: Place, name: str, gold: str = "evidence") -> Collection:
    """The collection in a place that fits."""
    form = next((form for form in _FORMS if form.find(place)), _FORMS[0])
    found = form.find(place)
    if found is None:
        raise InputError(f"{place.root} holds no collection as in SciFact: it needs {NEEDS}.")
    corpus, files = found
    claims = _Claims(gold, form.repeats)
    for split, path in files.items():
        claims.read(split, path, form.claims(path))
    return Collection(
        name,
        "scifact",
        place.on_disk([corpus]),
        checked(corpus, lambda: form.documents(corpus)),
        claims.texts,
        claims.qrels,
        places={split: files[split] for split in claims.qrels},
        members=claims.members,
        notes=tuple(claims.notes),
    )


@dataclass
class _Claims:
    """What has been read of the claims so far."""

    gold: str
    repeats: bool
    texts: dict[str, str] = field(default_factory=dict)
    qrels: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    members: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _places: dict[str, tuple[Path, int]] = field(default_factory=dict)

    def read(self, split: str, path: Path, lines: Iterator[ClaimRow]) -> None:
        """Take in the claims of a split; one without answers is told of and left out of its judgements."""
        judged: dict[str, dict[str, int]] = {}
        for row in lines:
            self._check(row, path)
            self.texts[row.id] = row.text
            answers = row.evidence if self.gold == "evidence" else row.cited
            judged.setdefault(row.id, {}).update(dict.fromkeys(answers, 1))
        self.members[split] = tuple(judged)
        answered = {claim: documents for claim, documents in judged.items() if documents}
        if answered:
            self.qrels[split] = answered
        if len(answered) < len(judged):
            what = "evidence" if self.gold == "evidence" else "a cited document"
            left = len(judged) - len(answered)
            self.notes.append(f"{path}: {left} of {len(judged)} claims are without {what} and have no judgements")

    def _check(self, row: ClaimRow, path: Path) -> None:
        first, line = self._places.setdefault(row.id, (path, row.line))
        again = (first, line) != (path, row.line)
        if again and not (self.repeats and first == path and self.texts[row.id] == row.text):
            raise InputError(
                f"{path} line {row.line}: claim id {row.id!r} was on line {line} of {first} before"
                f"{' with another text' if self.repeats and first == path else ''}; keep one of the two, or give one "
                "another id."
            )


def _csv_documents(path: Path) -> Iterator[tuple[int, Document]]:
    for line, (id, title, abstract) in rows(path, ("doc_id", "title", "abstract")):
        try:
            sentences = strings(abstract)
        except ValueError as error:
            raise InputError(
                f"{path} line {line}: expected an abstract such as ['One sentence.' 'Another.'], got {error}; "
                "mend the line."
            ) from None
        yield line, document(id_of(id, path, line), title.strip(), _joined(sentences))


def _json_documents(path: Path) -> Iterator[tuple[int, Document]]:
    for line, record in objects(path):
        id = id_of(value_of(record, "doc_id", path, line), path, line)
        title = text_of(record.get("title") or "", "'title'", path, line)
        yield line, document(id, title, _joined(_sentences(value_of(record, "abstract", path, line), path, line)))


def _sentences(value: Any, path: Path, line: int) -> list[str]:
    if not isinstance(value, list):
        raise InputError(f"{path} line {line}: expected a list of sentences as abstract, got {value!r}; mend the line.")
    return [text_of(sentence, "a sentence", path, line) for sentence in value]


def _joined(sentences: list[str]) -> str:
    """The abstract as one text; many sentences end in white space of their own."""
    return " ".join(sentence.strip() for sentence in sentences).strip()


_FORMS = (
    _Form("csv", ("corpus_train.csv", "corpus.csv"), csv_rows, _csv_documents, repeats=True),
    _Form("jsonl", ("corpus.jsonl",), json_rows, _json_documents, repeats=False),
)
