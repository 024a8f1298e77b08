"""SciFact: claims about science and the abstracts that support or contradict them.

Two forms are read: CSV files as exported from the Hub (claims_*.csv with one row per piece of evidence, and
corpus_train.csv), and the authors' JSON Lines (claims_*.jsonl, corpus.jsonl). The name after claims_ is the split.

What counts as an answer is `gold`. With "evidence" it is an abstract that supports or contradicts the claim; claims
without any, which SciFact labels NEI, are then in no split's judgements. With "cited" it is every abstract that the
claim cites, as in BEIR, so that NEI claims have answers too. Claims of the test part have neither, so it is no split.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwise.errors import InputError, choices
from headwise.retrieval.collections import (
    Collection,
    Document,
    Place,
    checked,
    claim_of,
    document,
    id_of,
    in_order,
    number_of,
    objects,
    rows,
    text_of,
    value_of,
)

# Arrays as numpy prints them, which is how SciFact's CSV files hold sentences and ids.


# Only the escapes that Python itself writes, so that reading a piece cannot warn.
_ESCAPE = r"""\\(?:[\\'"nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})"""
_PIECE = re.compile(rf"""('(?:[^'\\\n]|{_ESCAPE})*'|"(?:[^"\\\n]|{_ESCAPE})*")(\s*,?\s*)""")
_NUMBERS = re.compile(r"(?:\d+(?:[\s,]+|$))*")


def strings(text: str) -> list[str]:
    """The strings of a printed array; ValueError, with what is wrong, for anything else."""
    body, found, place = _body(text), [], 0
    while place < len(body):
        piece = _PIECE.match(body, place)
        if piece is None:
            raise ValueError(_trouble(body[place:]))
        place = piece.end()
        if not piece[2] and place < len(body):
            raise ValueError(f"two strings without a space between them at {body[place - 1 : place + 20]!r}")
        found.append(_unescaped(piece[1]))
    return found


def numbers(text: str) -> list[str]:
    """The whole numbers of a printed array, as text; ValueError for anything else."""
    body = _body(text)
    good = _NUMBERS.match(body)
    end = good.end() if good else 0
    if end < len(body):
        raise ValueError(_trouble(body[end:]))
    return re.findall(r"\d+", body)


def _body(text: str) -> str:
    bare = text.strip()
    if len(bare) < 2 or bare[0] != "[" or bare[-1] != "]":
        raise ValueError(f"no brackets around {bare[:40]!r}")
    return bare[1:-1].strip()


def _unescaped(piece: str) -> str:
    try:
        return str(ast.literal_eval(piece))
    except (ValueError, SyntaxError):
        raise ValueError(f"a string that Python cannot read at {piece[:40]!r}") from None


def _trouble(rest: str) -> str:
    return "an array that numpy cut short with '...'" if rest.startswith("...") else f"something else at {rest[:40]!r}"


# The claims of SciFact, from its CSV export or from the authors' JSON Lines.


_COLUMNS = ("id", "claim", "evidence_doc_id", "evidence_label", "cited_doc_ids")
_ANSWERS = ("SUPPORT", "CONTRADICT")
_NONE = ("", "NEI")


@dataclass(frozen=True)
class ClaimRow:
    """A line of a file of claims; CSV files have one for every piece of evidence, so a claim may have several."""

    line: int
    id: str
    text: str
    evidence: tuple[str, ...]
    """The documents that support or contradict the claim, as far as this line says."""
    cited: tuple[str, ...]


def csv_rows(path: Path) -> Iterator[ClaimRow]:
    """The rows of a claims_*.csv."""
    for line, (id, text, paper, label, cited) in rows(path, _COLUMNS):
        evidence = (number_of(paper, path, line),) if _answers(label.strip(), path, line) else ()
        try:
            ids = tuple(numbers(cited))
        except ValueError as error:
            raise InputError(
                f"{path} line {line}: expected cited_doc_ids such as [13734012 5152028], got {error}; mend the line."
            ) from None
        yield ClaimRow(line, id_of(id, path, line), claim_of(text, path, line), evidence, ids)


def json_rows(path: Path) -> Iterator[ClaimRow]:
    """The objects of a claims_*.jsonl; those of the test part have only an id and a claim."""
    for line, record in objects(path):
        id = id_of(value_of(record, "id", path, line), path, line)
        text = claim_of(value_of(record, "claim", path, line), path, line)
        cited = record.get("cited_doc_ids", [])
        if not isinstance(cited, list):
            raise InputError(f"{path} line {line}: expected a list as 'cited_doc_ids', got {cited!r}; mend the line.")
        ids = tuple(id_of(document, path, line) for document in cited)
        yield ClaimRow(line, id, text, _evidence(record.get("evidence", {}), path, line), ids)


def _evidence(value: Any, path: Path, line: int) -> tuple[str, ...]:
    """The documents of evidence such as {"13734012": [{"sentences": [4], "label": "SUPPORT"}]}."""
    try:
        labels = {document: [piece["label"] for piece in pieces] for document, pieces in value.items()}
    except (AttributeError, TypeError, KeyError):
        raise InputError(
            f'{path} line {line}: expected evidence such as {{"13734012": [{{"label": "SUPPORT"}}]}}, got {value!r}; '
            "mend the line."
        ) from None
    # All of them are looked at, so that no wrong label hides behind a right one.
    answers = {document: [_answers(str(label), path, line) for label in found] for document, found in labels.items()}
    return tuple(id_of(document, path, line) for document, found in answers.items() if any(found))


def _answers(label: str, path: Path, line: int) -> bool:
    """Whether a label says that the document answers the claim."""
    if label in _NONE:
        return False
    if label not in _ANSWERS:
        raise InputError(f"{path} line {line}: unknown label {label!r}; {choices(label, (*_ANSWERS, 'NEI'))}.")
    return True


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
