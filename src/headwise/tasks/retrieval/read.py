"""Reading a collection, whatever its layout, and checking that its judgements speak of documents that exist."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from pathlib import Path

from headwise.errors import InputError, choices
from headwise.tasks.retrieval import beir, cross_genre, scifact
from headwise.tasks.retrieval.collection import Collection, Qrels
from headwise.tasks.retrieval.find_line import line_of
from headwise.tasks.retrieval.place import Place, places

LAYOUTS = ("beir", "scifact", "cross-genre")
_READERS = dict(zip(LAYOUTS, (beir, scifact, cross_genre), strict=True))


def read_collection(folder: Path, layout: str | None = None, *, gold: str = "evidence") -> Collection:
    """The collection in a folder: claims and judgements in memory, documents streamed as they are asked for.

    Args:
        folder: A folder with the files, or with one zip of them, or such a zip.
        layout: One of LAYOUTS; None finds out from the names of the files.
        gold: What answers a claim of SciFact: "evidence" or "cited".
    """
    for what, value, known in (("layout", layout or "beir", LAYOUTS), ("gold", gold, scifact.GOLDS)):
        if value not in known:
            raise InputError(f"unknown {what} {value!r}: {choices(value, known)}.")
    found, place = _fitting(folder, LAYOUTS if layout is None else (layout,))
    name = folder.resolve().name.removesuffix(".zip")
    if found == "scifact":
        return scifact.read(place, name, gold)
    if gold != "evidence":
        raise InputError(f"gold: {gold} is for SciFact, and {folder} is in the layout {found}: leave gold out.")
    return beir.read(place, name) if found == "beir" else cross_genre.read(place, name)


def check_documents(collection: Collection, known: Container[str], *, drop_unknown: bool = False) -> Collection:
    """The collection, if its judgements name only documents that are known.

    Args:
        collection: What `read_collection` gave.
        known: The ids of all documents.
        drop_unknown: Leave such judgements out instead of refusing them, and claims that then have no answer.
    """
    unknown = {
        split: [(claim, document) for claim, judged in qrels.items() for document in judged if document not in known]
        for split, qrels in collection.qrels.items()
    }
    unknown = {split: pairs for split, pairs in unknown.items() if pairs}
    if unknown and not drop_unknown:
        raise InputError(_unknown_sentence(collection, unknown))
    qrels, notes = dict(collection.qrels), list(collection.notes)
    for split, pairs in unknown.items():
        qrels[split] = _without_unknown(collection, split, known)
        claims = len(collection.qrels[split]) - len(qrels[split])
        notes.append(
            f"{collection.places.get(split, split)}: {len(pairs)} judgements of documents that are not in the corpus "
            f"are left out, and with them {claims} claims without another answer"
        )
    return replace(collection, qrels=qrels, notes=tuple(notes)) if unknown else collection


def _fitting(folder: Path, layouts: tuple[str, ...]) -> tuple[str, Place]:
    looked = places(folder)
    for place in looked:
        # By names first: only Cross-genre-IR is known by what stands in its files, so others' are not opened in vain.
        fitting = [layout for layout in layouts if layout != "cross-genre" and _READERS[layout].fits(place)]
        if not fitting and "cross-genre" in layouts and cross_genre.fits(place):
            return "cross-genre", place
        if len(fitting) > 1:
            raise InputError(f"{place.root} holds files as in {' and in '.join(fitting)}: say which, as layout.")
        if fitting:
            return fitting[0], place
    names = [name for place in looked for name in place.names]
    needs = "; ".join(f"{layout} needs {_READERS[layout].NEEDS}" for layout in layouts)
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    raise InputError(f"{folder} holds no collection, but {shown or 'no files'}: {needs}; put those files there.")


def _unknown_sentence(collection: Collection, unknown: Mapping[str, list[tuple[str, str]]]) -> str:
    split, pairs = next(iter(unknown.items()))
    claim, document = pairs[0]
    path = collection.places.get(split)
    line = line_of(path, claim, document) if path else None
    where = f"{path or f'split {split}'}{f' line {line}' if line else ''}"
    more = sum(map(len, unknown.values())) - 1
    return (
        f"{where}: document {document!r}, judged for claim {claim!r}, is not in the corpus"
        f"{f', and neither are those of {more} more judgements' if more else ''}; mend the ids, or leave such "
        "judgements out with --drop-unknown (drop_unknown: true)."
    )


def _without_unknown(collection: Collection, split: str, known: Container[str]) -> Qrels:
    kept = {
        claim: {document: grade for document, grade in judged.items() if document in known}
        for claim, judged in collection.qrels[split].items()
    }
    answered = {claim: judged for claim, judged in kept.items() if any(grade > 0 for grade in judged.values())}
    if not answered:
        raise InputError(
            f"{collection.places.get(split, split)}: no claim has an answer in the corpus; check that judgements and "
            "corpus use the same ids."
        )
    return answered
