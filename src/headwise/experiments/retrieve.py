"""The first stage of retrieval: candidates for the claims of a collection, and what they are worth."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.errors import InputError
from headwise.experiments.collections import Claims, CollectionChoice, choose_claims
from headwise.metrics.ranking import RankingScores, score_ranking
from headwise.tasks.retrieval.collection import Collection, Run
from headwise.tasks.retrieval.index import Index, IndexOptions, open_index
from headwise.tasks.retrieval.read import check_documents

if TYPE_CHECKING:  # it would load all that training needs
    from headwise.training.progress import Listener

TAG = "headwise-bm25"
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
