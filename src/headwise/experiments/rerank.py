"""The second stage of retrieval: candidates in the order of a re-ranker, piece by piece, and what that is worth."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.disk import cache_folder, user_cache
from headwise.errors import InputError
from headwise.experiments import record
from headwise.experiments.collections import Claims, CollectionChoice, choose_claims
from headwise.experiments.partial import SUFFIX, Partial, alone
from headwise.metrics.ranking import RankingScores, score_ranking
from headwise.tasks import build_task
from headwise.tasks.retrieval.cache import digest, file_digest, retrieval_cache
from headwise.tasks.retrieval.collection import Run
from headwise.tasks.retrieval.corpus import documents_key, open_corpus
from headwise.tasks.retrieval.read import check_documents
from headwise.tasks.retrieval.task import RetrievalTask
from headwise.tasks.retrieval.trec import check_run, claims_without_candidates, read_run
from headwise.training.progress import Listener
from headwise.training.reranking import Reranker

TAG = "headwise-rerank"
# Pairs that are scored, and kept, together: a kill loses at most so many. The same whatever the batch is, since it
# decides which pairs share a batch and so the last bits of their scores.
PIECE = 1024
# The files of a model, beside its weights, that decide its scores.
MODEL = ("config.json", "tokenizer.json", "tokenizer_config.json")
# How many of the claims without candidates are named.
NAMED = 5


@dataclass(frozen=True)
class Scoring:
    """How pairs are scored, and where the scores are kept until all are there."""

    batch: int | None = None
    precision: str = "fp32"
    cache: Path | None = None
    output: Path | None = None
    """The scores are kept beside this file; None: in the cache."""
    overwrite: bool = False


@dataclass(frozen=True)
class Candidates:
    """What is to be ordered: claims, their candidates, and their texts."""

    claims: Claims
    run: Run
    """As it came: the claims of the split, so many candidates of each as were asked for."""
    text: Callable[[str, str], str]
    """Of a document, for a claim."""
    key: str
    """A hash of the documents."""
    missing: list[str]
    """The claims of the split without candidates."""
    scores: RankingScores | None
    """None where no claim is judged."""

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Claims and documents, by id, in the order in which they came."""
        return [(claim, document) for claim, found in self.run.items() for document in found]


@dataclass(frozen=True)
class Reranked:
    """Candidates in their new order."""

    candidates: Candidates
    run: Run
    scores: RankingScores | None
    resumed: int
    """How many of the pairs an earlier command had scored."""
    seconds: float
    """How long the others took."""
    kept: Path
    """The file with the scores so far, which can go when the run is written."""

    def summary(self) -> dict[str, Any]:
        """What happened, ready for JSON."""
        claims, pairs = self.candidates.claims, len(self.candidates.pairs)
        before = self.candidates.scores
        return {
            "split": claims.split,
            "claims": len(claims.texts),
            "pairs": pairs,
            "resumed": self.resumed,
            "seconds": round(self.seconds, 3),
            "pairs_per_second": round((pairs - self.resumed) / self.seconds, 2) if self.seconds else None,
            "measures": None
            if before is None or self.scores is None
            else {"candidates": before.summary(), "reranked": self.scores.summary()},
            "without_candidates": self.candidates.missing,
        }


def collection_of(folder: Path) -> CollectionChoice:
    """The collection that a run was trained on."""
    if not (folder / record.NAME).is_file():
        raise InputError(
            f"{folder} is not a run of headwise, so nothing says which collection it is for: name it with --collection."
        )
    content = record.read(folder)
    recipe = record.recipe_of(content)
    task = build_task(recipe.task.name, recipe.task.options)
    if not isinstance(task, RetrievalTask):
        raise InputError(f"{folder} was trained for the task {task.name}: name a run of the task retrieval.")
    root = content["asked"]["data"]
    place = task.folder(None if root is None else Path(root))
    return CollectionChoice(place, layout=task.layout, drop_unknown=task.drop_unknown)


def read_candidates(
    path: Path, choice: CollectionChoice, split: str | None, top: int | None, cache: Path | None, listener: Listener
) -> Candidates:
    """Read candidates and check that they are of a collection; the texts stay on the disk.

    Args:
        path: a TREC run.
        choice: the collection.
        split: the split; None as in `choose_claims`.
        top: only so many candidates of each claim.
        cache: where documents are kept.
        listener: is told what is left out.
    """
    run = read_run(path)
    collection = choice.read()
    choose_claims(collection, split)  # a split that is not there is said before the documents are read
    key = documents_key(collection)
    corpus = open_corpus(collection, retrieval_cache(cache), key)
    checked = check_documents(collection, corpus, drop_unknown=choice.drop_unknown)
    for note in checked.notes:
        listener.tell(note)
    claims = choose_claims(checked, split)
    check_run(run, checked.claims, corpus, path)
    missing = claims_without_candidates(run, claims.texts, path)
    chosen = {claim: dict(list(found.items())[:top]) for claim, found in run.items() if claim in claims.texts}
    _tell_left_out(len(run) - len(chosen), missing, claims, listener)
    scores = score_ranking(claims.qrels, chosen) if claims.qrels else None
    return Candidates(claims, chosen, lambda _, document: corpus.text(corpus.place(document)), key, missing, scores)


def rerank(folder: Path, candidates: Candidates, scoring: Scoring, listener: Listener) -> Reranked:
    """Score all pairs and order the candidates; goes on where an earlier command was stopped."""
    reranker, pairs = Reranker.load(folder), candidates.pairs
    of = _fingerprint(folder, reranker.max_length, candidates, scoring.precision)
    path = _place(scoring, of)
    sizes = [min(PIECE, len(pairs) - start) for start in range(0, len(pairs), PIECE)]
    with alone(path):
        partial = Partial(path, of, sizes, overwrite=scoring.overwrite)
        resumed = sum(sizes[: len(partial.scores)])
        if resumed:
            listener.tell(f"going on from pair {resumed} of {len(pairs)}: the scores before it are in {path}")
        begin = time.perf_counter()
        _score(reranker, candidates, partial, scoring, listener)
        seconds = time.perf_counter() - begin
    run = _ordered(pairs, [score for piece in partial.scores for score in piece])
    qrels = candidates.claims.qrels
    return Reranked(candidates, run, score_ranking(qrels, run) if qrels else None, resumed, seconds, path)


def _score(reranker: Reranker, candidates: Candidates, partial: Partial, scoring: Scoring, listener: Listener) -> None:
    """Score the pieces that are not there yet, each by itself, so that it does not matter where one began."""
    pairs, claims = candidates.pairs, candidates.claims.texts
    first = len(partial.scores) * PIECE
    listener.start("rerank", len(pairs), min(first, len(pairs)))
    for start in range(first, len(pairs), PIECE):
        piece = [(claims[claim], candidates.text(claim, document)) for claim, document in pairs[start : start + PIECE]]
        advance = functools.partial(_advance, listener, start)
        scores = reranker.predict(piece, batch=scoring.batch, precision=scoring.precision, after_batch=advance)
        partial.add(scores.tolist())
    listener.end()


def _advance(listener: Listener, before: int, done: int) -> None:
    listener.advance(before + done)


def _ordered(pairs: list[tuple[str, str]], scores: list[float]) -> Run:
    """A run, the best first; candidates with equal scores stay in their order."""
    found: dict[str, dict[str, float]] = {}
    for (claim, document), score in zip(pairs, scores, strict=True):
        found.setdefault(claim, {})[document] = score
    return {claim: dict(sorted(each.items(), key=lambda pair: -pair[1])) for claim, each in found.items()}


def _fingerprint(folder: Path, length: int, candidates: Candidates, precision: str) -> dict[str, Any]:
    """All that decides the scores, by names that a message may use; the batch changes only their last bits."""
    files = sorted([*folder.glob("*.safetensors"), *folder.glob("*.json")])
    # The record and the figures of training are beside the model, not of it.
    model = {path.name: file_digest(path) for path in files if path.suffix == ".safetensors" or path.name in MODEL}
    texts = {claim: candidates.claims.texts[claim] for claim in candidates.run}
    return {
        "model": digest(model),
        "list of candidates": digest([candidates.pairs, texts]),
        "collection": candidates.key,
        "precision": precision,
        "max_length": length,
        "piece": PIECE,
    }


def _place(scoring: Scoring, of: Mapping[str, Any]) -> Path:
    """Where scores are kept: beside the output, or under their hash in the cache."""
    if scoring.output is not None:
        return scoring.output.with_name(scoring.output.name + SUFFIX)
    return (scoring.cache or cache_folder() or user_cache()) / "rerank" / f"{digest(dict(of))[:24]}{SUFFIX}"


def _tell_left_out(strange: int, missing: list[str], claims: Claims, listener: Listener) -> None:
    if strange:
        listener.tell(f"{strange} claims of the candidates are not in the split {claims.split}: passed over")
    if missing:
        named = ", ".join(missing[:NAMED]) + (", ..." if len(missing) > NAMED else "")
        listener.tell(f"{len(missing)} of {len(claims.texts)} claims have no candidates, and count 0: {named}")
