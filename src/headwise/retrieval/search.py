"""Searching a collection: candidates for all claims of a split, or the papers behind one claim."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from headwise.errors import InputError, choices
from headwise.metrics.ranking import RankingScores, score_ranking
from headwise.retrieval.bm25 import Index, IndexOptions, open_index
from headwise.retrieval.collections import Collection, Run, check_documents, choose_claims

if TYPE_CHECKING:  # they would load all that training needs
    from headwise.retrieval.explain import Explanation
    from headwise.retrieval.reranker import Reranker
    from headwise.training.callbacks import Listener

BM25_TAG = "headwise-bm25"
PRECISIONS = ("fp32", "bf16")


@dataclass(frozen=True)
class Ranking:
    """A run over the claims of a split, with its measures."""

    run: Run
    tag: str
    """The last column of its TREC file."""
    measures: Mapping[str, RankingScores]
    """By the name of a run; empty where no claim is judged."""
    summary: dict[str, Any]
    """What was done, ready for JSON."""
    partial: Path | None = None
    """The folder of the scores so far."""

    def done(self) -> None:
        """Remove the scores so far: call this when the run is written."""
        if self.partial is not None:
            shutil.rmtree(self.partial, ignore_errors=True)


def retrieve(
    collection: Collection,
    progress: Listener,
    *,
    split: str | None = None,
    top: int = 100,
    options: IndexOptions | None = None,
    cache: Path | None = None,
    rebuild: bool = False,
) -> Ranking:
    """Find the best documents for every claim of a split; claims without judgements are searched for, not scored.

    Args:
        collection: what `read_collection` returned.
        progress: shows notes and how far it is.
        split: None as in `choose_claims`.
        top: how many candidates a claim may have.
        options: of the index.
        cache: the folder of caches.
        rebuild: build the index again.
    """
    for note in collection.notes:
        progress.log(note)
    choose_claims(collection, split)  # refuses an unknown split before any work
    begin = time.perf_counter()
    index = open_index(collection, options, cache=cache, rebuild=rebuild, progress=progress)
    seconds = time.perf_counter() - begin
    checked = check_documents(collection, index.corpus)
    for note in checked.notes[len(collection.notes) :]:
        progress.log(note)
    claims = choose_claims(checked, split)
    progress.start("search", len(claims.texts))
    try:
        run = index.candidates(claims.texts, top, progress=progress)
    finally:
        progress.end()
    if not any(run.values()):
        raise InputError(
            f"{collection.name}: none of the {len(run)} claims ({claims.split}) shares a word with any of the "
            f"{len(index.corpus)} documents, so nothing is found; check that both are of one language, and that stem "
            "and stop_words suit it."
        )
    missing = [claim for claim, documents in run.items() if not documents]
    if missing:
        progress.log(f"{len(missing)} of {len(run)} claims share no word with any document: {shown_ids(missing)}")
    scores = score_ranking(claims.qrels, run) if claims.qrels else None
    summary = {
        "split": claims.split,
        "claims": len(claims.texts),
        "documents": len(index.corpus),
        "index": {"folder": str(index.folder), "built": index.built, "seconds": round(seconds, 3)},
        "measures": None if scores is None else scores.summary(),
        "without_candidates": missing,
        "top": top,
    }
    return Ranking(run, BM25_TAG, {} if scores is None else {"bm25": scores}, summary)


def shown_ids(ids: Sequence[str], most: int = 5) -> str:
    """The first ids of a list, for messages."""
    return ", ".join(ids[:most]) + (", ..." if len(ids) > most else "")


@dataclass(frozen=True)
class Paper:
    """A paper of a search; ranks count from 1."""

    id: str
    title: str
    rank: int
    score: float
    """The logit of the re-ranker."""
    bm25_rank: int
    bm25_score: float


@dataclass(frozen=True)
class SearchResult:
    """The papers behind a claim."""

    claim: str
    candidates: int
    """How many papers the model read."""
    papers: tuple[Paper, ...]
    """The best of them, the best first."""
    explanation: Explanation | None = None
    """Of the best paper, if requested."""

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, as JSON takes them."""
        data = asdict(self)
        explanation = data.pop("explanation")
        return data if explanation is None else {**data, "explain": {"id": self.papers[0].id, **explanation}}


@dataclass(frozen=True)
class Searcher:
    """The index of a collection and a re-ranker, open for any number of claims."""

    index: Index
    reranker: Reranker
    folder: Path | None = None
    """Of the collection, for messages."""

    def search(
        self,
        claim: str,
        *,
        top: int = 5,
        depth: int = 100,
        explain: bool = False,
        batch: int | None = None,
        precision: str = "fp32",
        progress: Listener | None = None,
    ) -> SearchResult:
        """Find the papers behind one claim; those with equal scores stand in the order of BM25.

        Args:
            claim: in words.
            top: papers to return.
            depth: candidates that the model reads.
            explain: also return which words of the best paper the claim attends to (always in fp32).
            batch: pairs at a time; None as in `Reranker.predict`.
            precision: of the scores, fp32 or bf16.
            progress: shows how far it is.
        """
        from headwise.retrieval.explain import explain as explain_pair
        from headwise.training.callbacks import Silence

        claim = check_request(claim, top=top, depth=depth, precision=precision)
        (candidates,) = self.index.search([claim], depth)
        if not candidates:
            raise InputError(
                f"no document of {self.folder} has a word of the claim {shorten(claim, 80)!r}, stop words left out: "
                "put it in other words."
            )
        documents = [self.index.corpus.document(position) for position, _ in candidates]
        progress = progress or Silence()
        progress.start("papers", len(documents))
        try:
            texts = [document.whole for document in documents]
            order = self.reranker.rank(claim, texts, batch=batch, precision=precision, after_batch=progress.advance)
        finally:
            progress.end()
        papers = [
            Paper(documents[position].id, documents[position].title, rank, score, position + 1, candidates[position][1])
            for rank, (position, score) in enumerate(order[:top], 1)
        ]
        explanation = None
        if explain:
            model, tokenizer, length = self.reranker.model, self.reranker.tokenizer, self.reranker.max_length
            explanation = explain_pair(model, tokenizer, claim, texts[order[0][0]], max_length=length)
        return SearchResult(claim, len(candidates), tuple(papers), explanation)


def check_request(claim: str, *, top: int, depth: int, precision: str) -> str:
    """The claim without spaces around it; refuses a search without meaning."""
    try:
        claim.encode()
    except UnicodeEncodeError:  # bytes of a command line that are no characters
        raise InputError(
            "the claim holds bytes that are no UTF-8: type it again, or correct the terminal's encoding."
        ) from None
    if not claim.strip():
        raise InputError("the claim is empty: write it in quotation marks, as one argument.")
    if not 1 <= top <= depth:
        raise InputError(
            f"top {top} of depth {depth}: expected at least 1 paper and no more than the model reads; raise depth or "
            "lower top."
        )
    if precision not in PRECISIONS:
        raise InputError(f"unknown precision {precision!r}: {choices(precision, PRECISIONS)}.")
    return claim.strip()
