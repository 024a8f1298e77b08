"""The first stage of retrieval: candidates for the claims of a collection, and what they are worth."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.errors import InputError, choices
from headwise.metrics.ranking import RankingScores, score_ranking
from headwise.retrieval.bm25 import Index, IndexOptions, open_index
from headwise.retrieval.collections import Collection, Qrels, Run
from headwise.retrieval.retrieval_task import check_documents, read_collection

if TYPE_CHECKING:  # it would load all that training needs
    from headwise.training.callbacks import Listener


# Which collection is meant, and which of its claims.


EVERY_CLAIM = "all"


@dataclass(frozen=True)
class CollectionChoice:
    """A folder, and how it is to be read."""

    folder: Path
    layout: str | None = None
    gold: str = "evidence"
    drop_unknown: bool = False

    def read(self) -> Collection:
        """Read claims and judgements; the documents are not read yet."""
        return read_collection(self.folder, self.layout, gold=self.gold)


@dataclass(frozen=True)
class Claims:
    """Claims of a collection with their judgements, as far as there are any."""

    split: str
    texts: dict[str, str]
    qrels: Qrels


def choose_claims(collection: Collection, split: str | None) -> Claims:
    """The claims of a split: the one that is named, else test, else the only one, else all claims."""
    if split is None:
        split = "test" if "test" in collection.qrels else next(iter(collection.qrels), EVERY_CLAIM)
        if len(collection.qrels) > 1 and split != "test":
            raise InputError(
                f"{collection.name} has no split named test but {', '.join(collection.qrels)}: choose one with "
                f"--split, or {EVERY_CLAIM} for every claim."
            )
    if split == EVERY_CLAIM:
        judged: dict[str, dict[str, int]] = {}
        for qrels in collection.qrels.values():
            for claim, grades in qrels.items():  # a claim may be judged in several splits
                judged.setdefault(claim, {}).update(grades)
        return Claims(split, dict(collection.claims), judged)
    if split not in collection.qrels:
        raise InputError(
            f"{collection.name} has no split {split!r}: {choices(split, [*collection.qrels, EVERY_CLAIM])}."
        )
    chosen = collection.qrels[split]
    return Claims(split, {claim: collection.claims[claim] for claim in chosen}, chosen)


BM25_TAG = "headwise-bm25"
# How often it is said how many documents have been stored; how many there are nobody knows yet.
EVERY = 50_000


@dataclass(frozen=True)
class Searching:
    """How the index is made, and where it is kept."""

    options: IndexOptions
    cache: Path | None = None
    rebuild: bool = False


@dataclass(frozen=True)
class Retrieved:
    """Candidates of claims."""

    claims: Claims
    run: Run
    index: Index
    seconds: float
    """How long it took to make or open the index."""
    scores: RankingScores | None
    """None where no claim is judged."""

    @property
    def without_candidates(self) -> list[str]:
        """The claims that share no word with any document."""
        return [claim for claim, found in self.run.items() if not found]

    def summary(self) -> dict[str, Any]:
        """What happened, ready for JSON."""
        index = {"folder": str(self.index.folder), "built": self.index.built, "seconds": round(self.seconds, 3)}
        return {
            "split": self.claims.split,
            "claims": len(self.claims.texts),
            "documents": len(self.index.corpus),
            "index": index,
            "measures": None if self.scores is None else self.scores.summary(),
            "without_candidates": self.without_candidates,
        }


def retrieve(
    choice: CollectionChoice, split: str | None, top: int, searching: Searching, listener: Listener
) -> Retrieved:
    """Find the best documents for every claim of a split; claims without judgements are searched for, not scored.

    Args:
        choice: the collection.
        split: the split; None as in `choose_claims`.
        top: how many candidates a claim may have.
        searching: the index.
        listener: is told what happens.
    """
    collection = choice.read()
    _tell(collection.notes, listener)
    choose_claims(collection, split)  # a split that is not there is said before any work
    begin = time.perf_counter()
    index = index_of(collection, searching, listener)
    seconds = time.perf_counter() - begin
    checked = check_documents(collection, index.corpus, drop_unknown=choice.drop_unknown)
    _tell(checked.notes[len(collection.notes) :], listener)
    claims = choose_claims(checked, split)
    run = _searched(index, claims, top, listener)
    if not any(run.values()):
        raise InputError(
            f"{collection.name}: none of the {len(run)} claims ({claims.split}) shares a word with any of the "
            f"{len(index.corpus)} documents, so nothing is found; see that both are of one language, and that --stem "
            "and --stop-words suit it."
        )
    scores = score_ranking(claims.qrels, run) if claims.qrels else None
    return Retrieved(claims, run, index, seconds, scores)


def index_of(collection: Collection, searching: Searching, listener: Listener) -> Index:
    """The index of a collection; where it has to be made, a listener is told how far it is."""
    stages = _Stages(listener)
    try:
        return open_index(
            collection, searching.options, cache=searching.cache, rebuild=searching.rebuild, progress=stages
        )
    finally:
        listener.end()


def _tell(notes: tuple[str, ...], listener: Listener) -> None:
    for note in notes:
        listener.tell(note)


def _searched(index: Index, claims: Claims, top: int, listener: Listener) -> Run:
    listener.start("search", len(claims.texts))
    try:
        return index.candidates(claims.texts, top, progress=lambda done, _: listener.advance(done))
    finally:
        listener.end()


class _Stages:
    """Shows how an index is made; one that is merely found needs no bar."""

    def __init__(self, listener: Listener) -> None:
        self._listener, self._begun = listener, False

    def __call__(self, done: int, total: int) -> None:
        if total:
            if not self._begun:
                self._listener.start("index", total)
                self._begun = True
            self._listener.advance(done)
        elif done % EVERY == 0:
            self._listener.tell(f"documents stored: {done}")
