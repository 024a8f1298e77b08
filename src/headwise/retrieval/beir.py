"""The layout of BEIR: corpus.jsonl, queries.jsonl and qrels/*.tsv, each of which is a split.

Judgements may also be in TREC's form, and then be named .txt, .qrels or .trec.

A document has `_id`, `text` and perhaps `title`; a query `_id` and `text`; other keys are passed over. Every
file may be gzipped. Queries without judgements stay among the claims, since one can search for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from headwise.errors import InputError
from headwise.retrieval.collections import (
    Collection,
    Document,
    Place,
    Qrels,
    checked,
    claim_of,
    document,
    id_of,
    in_order,
    objects,
    text_of,
    value_of,
)
from headwise.retrieval.trec import qrels_rows, read_qrels

_JUDGEMENTS = (".tsv", ".txt", ".qrels", ".trec")
NEEDS = "corpus.jsonl and queries.jsonl (and qrels/*.tsv to train and to score)"


def fits(place: Place) -> bool:
    """Whether the files are named as in BEIR."""
    return place.find("corpus.jsonl") is not None and place.find("queries.jsonl") is not None


def read(place: Place, name: str) -> Collection:
    """The collection in a place that fits."""
    corpus, queries = place.find("corpus.jsonl"), place.find("queries.jsonl")
    if corpus is None or queries is None:
        raise InputError(f"{place.root} holds no collection as in BEIR: it needs {NEEDS}.")
    claims = read_claims(queries)
    files, notes = _split_files(place)
    qrels, members = {}, {}
    for split, path in files.items():
        judged = _judged(path, claims, queries)
        qrels[split], note = _answered(path, judged)
        members[split] = tuple(judged)
        notes += note
    if not files:
        notes.append("no qrels/*.tsv: the claims can be searched for, but not trained on or scored")
    return Collection(
        name,
        "beir",
        place.on_disk([corpus]),
        read_documents(corpus),
        claims,
        qrels,
        places=files,
        members=members,
        notes=tuple(notes),
    )


def read_documents(path: Path) -> Callable[[], Iterator[Document]]:
    """The documents of a corpus.jsonl, streamed."""

    def numbered() -> Iterator[tuple[int, Document]]:
        for line, record in objects(path):
            id = id_of(value_of(record, "_id", path, line), path, line)
            text = text_of(value_of(record, "text", path, line), "'text'", path, line)
            yield line, document(id, text_of(record.get("title") or "", "'title'", path, line), text)

    return checked(path, numbered)


def read_claims(path: Path) -> dict[str, str]:
    """The claims of a queries.jsonl, in its order."""
    claims: dict[str, str] = {}
    places: dict[str, int] = {}
    for line, record in objects(path):
        id = id_of(value_of(record, "_id", path, line), path, line)
        if id in places:
            raise InputError(
                f"{path} line {line}: claim id {id!r} was on line {places[id]} before; "
                "keep one of the two, or give one another id."
            )
        claims[id], places[id] = claim_of(value_of(record, "text", path, line), path, line), line
    if not claims:
        raise InputError(f"{path} is empty: expected one JSON object per line; fetch or write it again.")
    return claims


def _split_files(place: Place) -> tuple[dict[str, Path], list[str]]:
    """Split -> its file, by the name without its ending, and notes."""
    files: dict[str, Path] = {}
    notes = []
    for name in place.names:
        plain, path = PurePosixPath(name.removesuffix(".gz")), place.root / name
        # Of a plain and a gzipped file the plain one counts.
        if not name.startswith("qrels/") or plain.suffix not in _JUDGEMENTS or place.find(str(plain)) != path:
            continue
        if plain.suffix == ".txt" and not _has_judgements(path):
            notes.append(f"{path}: passed over, since it does not begin with a judgement")
            continue
        if plain.stem in files:
            raise InputError(f"{files[plain.stem]} and {path} are both of the split {plain.stem!r}: keep one of them.")
        files[plain.stem] = path
    return {split: files[split] for split in in_order(list(files))}, notes


def _has_judgements(path: Path) -> bool:
    """Whether the first line is one of judgements: a .txt may be a README."""
    try:
        return next(qrels_rows(path), None) is not None
    except InputError:
        return False


def _judged(path: Path, claims: Mapping[str, str], queries: Path) -> Qrels:
    """All judgements of a split, of claims that are known."""
    judged = read_qrels(path)
    if not judged.keys() <= claims.keys():
        line, claim = next((line, claim) for line, claim, _, _ in qrels_rows(path) if claim not in claims)
        more = len(judged.keys() - claims.keys()) - 1
        raise InputError(
            f"{path} line {line}: claim {claim!r} is not in {queries}{f', nor are {more} more' if more else ''}; "
            "add it there, or take its judgements out."
        )
    return judged


def _answered(path: Path, judged: Qrels) -> tuple[Qrels, list[str]]:
    """The judgements without the claims that nothing answers, and how many those are."""
    answered = {claim: documents for claim, documents in judged.items() if max(documents.values()) > 0}
    if not answered:
        raise InputError(f"{path} has no judgement above 0: expected a document that answers a claim; add one.")
    left = len(judged) - len(answered)
    return answered, [f"{path}: {left} claims without any document above 0 are left out"] if left else []
