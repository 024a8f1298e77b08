"""The task of finding the paper behind a claim: what a recipe may say about it."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NoReturn

from headwise.data.examples import Split
from headwise.data.options import mapping, one_of, text
from headwise.data.task import described
from headwise.errors import InputError, choices
from headwise.retrieval import beir, cross_genre, scifact
from headwise.retrieval.collections import Collection, Place, Qrels, line_of, places

# Reading a collection, whatever its layout, and checking that its judgements speak of documents that exist.


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


LOSSES = ("pairs", "list")
METRICS = ("mrr", "recall@1", "recall@3", "recall@5", "recall@20", "ndcg@10")
COUNTS = {"negatives": 1, "passages": 0, "depth": 1, "validation_candidates": 1}
"""Options that are whole numbers, and the least that each may be."""


@dataclass(frozen=True, kw_only=True)
class RetrievalTask:
    """A re-ranker for the candidates that BM25 finds (Cross-genre-IR, SciFact and BEIR collections).

    With `loss: pairs` every pair of a claim and a paper is judged by itself, by binary cross-entropy on one logit
    (Eq. 2); with `loss: list` the candidates of a claim compete in a softmax.
    """

    collection: str = ""
    """Folder of the collection, below the data root."""
    layout: str | None = None
    drop_unknown: bool = False
    splits_of: Mapping[str, str] = field(default_factory=lambda: {"train": "train"})
    """Which claims of the collection are for what: train, validation, test. Written `splits` in a recipe."""
    loss: str = "pairs"
    negatives: int = 10
    """Papers that are not the answer, for each claim: drawn from the best `depth` that BM25 finds."""
    passages: int = 0
    """Extra positives: passages of each gold paper."""
    depth: int = 100
    given: bool = True
    """Whether pairs that come with the data are used, if there are any, instead of drawn ones."""
    validation_candidates: int = 20
    """Papers that are re-ranked for each claim of validation and test."""
    stem: str = "english"
    stop_words: str = "english"
    k1: float = 1.5
    b: float = 0.75

    name = "retrieval"
    description = "Which of these papers is behind the claim?"
    source = "a collection of papers, claims and judgements (BEIR, SciFact, Cross-genre-IR)"
    kind = "ranking"
    labels: tuple[str, ...] = field(default=(), init=False)
    sentences = 2
    metrics = METRICS
    primary = "mrr"
    splits = ("train", "validation")

    def available(self, root: Path | None) -> tuple[str, ...]:
        """Train, if the collection is there."""
        return ("train",) if self.collection and self.folder(root).is_dir() else ()

    def folder(self, root: Path | None) -> Path:
        """Where the collection lies."""
        if not self.collection:
            raise InputError("task retrieval needs a collection: name its folder with task.collection.")
        named = Path(self.collection).expanduser()
        return named if root is None else Path(root).expanduser() / named

    def read(self, split: str, root: Path | None, *, network: bool = False) -> Split:
        """Refused: pairs are drawn by a run's seed, from the candidates that BM25 finds."""
        self._refuse(f"the split {split!r}")

    def read_file(self, path: Path, *, labelled: bool) -> Split:
        """Refused: candidates are a TREC run."""
        self._refuse(str(path))

    def describe(self) -> dict[str, Any]:
        """All there is to know, as plain data."""
        return described(self)

    def _refuse(self, what: str) -> NoReturn:
        raise InputError(
            f"task retrieval cannot read {what} by itself: train with `headwise train`, find candidates with `headwise "
            "retrieve`, and score a trained model with `headwise rerank`."
        )


def retrieval_task(options: Mapping[str, Any]) -> RetrievalTask:
    """The task with a user's options."""
    known = {"splits" if each.name == "splits_of" else each.name for each in fields(RetrievalTask) if each.init}
    given = dict(mapping(options, "options of task 'retrieval'"))
    for name in given:
        if name not in known:
            raise InputError(f"task 'retrieval' has no option {name!r}: {choices(str(name), known)}.")
    if "splits" in given:
        given["splits_of"] = _splits(given.pop("splits"))
    for name, least in COUNTS.items():
        if name in given:
            given[name] = _count(given[name], least, name)
    for name, most in {"k1": None, "b": 1.0}.items():
        if name in given:
            given[name] = _number(given[name], most, name)
    for name in ("drop_unknown", "given"):
        if not isinstance(given.get(name, True), bool):
            raise InputError(f"{name}: expected true or false, got {given[name]!r}.")
    one_of(given.get("loss", "pairs"), LOSSES, "loss")
    if given.get("layout") is not None:
        one_of(given["layout"], LAYOUTS, "layout")
    for name in ("collection", "stem", "stop_words"):
        if name in given:
            text(given[name], name)
    return RetrievalTask(**given)


def _splits(value: Any) -> dict[str, str]:
    found = {
        one_of(use, ("train", "validation", "test"), "splits"): text(name, f"splits.{use}")
        for use, name in mapping(value, "splits").items()
    }
    return {"train": "train", **found}


def _count(value: Any, least: int, option: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{option}: expected a whole number of {least} or more, got {value!r}.")
    return value


def _number(value: Any, most: float | None, option: str) -> float:
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    if not numeric or not 0 <= value <= (most or float("inf")):
        raise InputError(
            f"{option}: expected a number of 0 or more{f', at most {most:g}' if most else ''}, got {value!r}."
        )
    return float(value)
