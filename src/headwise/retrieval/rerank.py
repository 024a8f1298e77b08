"""Re-ranking: candidates in the order of a re-ranker. Scores are kept piece by piece, so that a stopped job resumes."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.cache import digest, file_digest
from headwise.data.text_files import archive_of
from headwise.disk import LOCK, cache_folder, disk_errors, held, user_cache, write_atomically
from headwise.errors import InputError, Stopped
from headwise.limits import parse_json
from headwise.metrics.ranking import MEASURES, RankingScores, score_ranking
from headwise.retrieval import cross_genre
from headwise.retrieval.collections import Claims, Collection, Run, check_documents, choose_claims
from headwise.retrieval.corpus import open_corpus
from headwise.retrieval.fusion import FinalScore, StageScores, fuse
from headwise.retrieval.search import Ranking, Searcher, shown_ids
from headwise.retrieval.trec import check_run, read_run

if TYPE_CHECKING:  # it would load all that training needs
    from headwise.retrieval.reranker import Reranker
    from headwise.training.callbacks import Listener

RERANK_TAG = "headwise-rerank"
# Pairs that are scored, and kept, together: a kill loses at most so many. The same whatever the batch is, since it
# decides which pairs share a batch and so the last bits of their scores.
PIECE = 1024
# The files of a model, beside its weights, that decide its scores.
MODEL = ("config.json", "tokenizer.json", "tokenizer_config.json")


@dataclass(frozen=True)
class Candidates:
    """Candidates of claims, in the order in which they came."""

    claims: Claims
    run: Run
    """Of the claims of the split, cut to the best `top` of each."""
    text: Callable[[str, str], str]
    """The text of a document, for a claim."""
    key: str
    """A hash of the texts."""
    missing: list[str]
    """The claims of the split without candidates."""
    scores: RankingScores | None
    """The measures of this order; None where no claim is judged, and of a table, whose order means nothing."""
    stages: Mapping[str, StageScores] | None = None
    """Of each claim the scores of BM25 and cosine, for a final score of all stages; None: the re-ranker alone."""
    final: FinalScore | None = None
    """How they become one score."""
    measures: Sequence[str] = MEASURES
    """What rankings of them are scored by."""


def is_table(path: Path) -> bool:
    """Whether a file of candidates is a table with texts, as those of Cross-genre-IR, rather than a TREC run."""
    return path.name.lower().endswith(cross_genre.TABLES)


def read_candidates(
    path: Path,
    collection: Collection | None,
    progress: Listener,
    *,
    split: str | None = None,
    top: int | None = None,
    cache: Path | None = None,
    measures: Sequence[str] = MEASURES,
) -> Candidates:
    """Read the candidates of claims from a TREC run of a collection, or from a table that has the texts.

    A table has the columns Hypothesis, Premise, PMID and Entails; each row is a candidate. Of a claim's rows with the
    same PMID the longest text counts. Without a collection, all claims of the table are meant, and Entails says what
    answers them, so that rows which contradict each other are refused. Its rows have no scores: `top` takes them as
    they stand, but that order is not measured, since the answers often come first.

    Args:
        path: the run or the table.
        collection: of the claims; a table needs none.
        progress: receives notes about what is left out.
        split: the claims that are meant; None as in `choose_claims`.
        top: only the first so many candidates of each claim.
        cache: the folder of caches.
        measures: what rankings are scored by, as in `score_ranking`.
    """
    if is_table(path):
        run, texts, claims = _read_table(path, consistent=collection is None)
        key = file_digest(archive_of(path) or path)
        if collection is None and split is not None:
            raise InputError(f"split={split} chooses claims of a collection: leave it out, or give collection=FOLDER.")

        def text(claim: str, document: str) -> str:
            return texts[claim, document]

    elif collection is None:
        raise InputError(f"{path} has no texts: give the collection that it is from as collection=FOLDER.")
    else:
        run = read_run(path)
        choose_claims(collection, split)  # refuses an unknown split before the documents are read
        corpus = open_corpus(collection, cache)
        key, collection = corpus.key, check_documents(collection, corpus)
        check_run(run, collection.claims, corpus, path)

        def text(claim: str, document: str) -> str:
            return corpus.text_of(document)

    if collection is not None:
        for note in collection.notes:
            progress.log(note)
        claims = choose_claims(collection, split)
    missing = [claim for claim in claims.texts if not run.get(claim)]
    if len(missing) == len(claims.texts):
        raise InputError(
            f"{path} has no candidates for any of the {len(missing)} claims, such as {missing[:1]}; name the split or "
            "the collection that it was made for."
        )
    kept = {claim: dict(islice(scores.items(), top)) for claim, scores in run.items() if claim in claims.texts}
    if others := len(run) - len(kept):
        progress.log(f"{others} claims of the candidates are not in the split {claims.split}: ignored")
    if missing:
        progress.log(
            f"{len(missing)} of {len(claims.texts)} claims have no candidates, and count 0: {shown_ids(missing)}"
        )
    scores = score_ranking(claims.qrels, kept, measures) if claims.qrels and not is_table(path) else None
    return Candidates(claims, kept, text, key, missing, scores, measures=measures)


def _read_table(
    path: Path, *, consistent: bool
) -> tuple[dict[str, dict[str, float]], dict[tuple[str, str], str], Claims]:
    """The rows of a table as a run, the text of every pair, and the claims with the answers that Entails names."""
    run: dict[str, dict[str, float]] = {}
    texts: dict[tuple[str, str], str] = {}
    claims: dict[str, str] = {}
    gold: dict[str, dict[str, int]] = {}
    for row in cross_genre.pair_rows(path, consistent=consistent):
        claims.setdefault(row.claim, row.claim_text)
        pair = row.claim, row.document
        documents = run.setdefault(row.claim, {})
        documents.setdefault(row.document, -float(len(documents) + 1))
        texts[pair] = max(texts.get(pair, ""), row.text, key=len)
        if row.relevant:
            gold.setdefault(row.claim, {})[row.document] = 1
    return run, texts, Claims("all", claims, gold)


def find_candidates(
    collection: Collection,
    progress: Listener,
    *,
    reranker: Reranker,
    split: str | None = None,
    given: Candidates | None = None,
    top: int | None = None,
    cache: Path | None = None,
    measures: Sequence[str] = MEASURES,
    **options: Any,
) -> Candidates:
    """The candidates of a first stage, with all that the final score of a re-ranker needs.

    Args:
        collection: what `read_collection` returned.
        progress: shows how far it is.
        reranker: brings its stage, encoder, weights and number of papers if it is one of a run.
        split: the claims that are meant; None as in `choose_claims`.
        given: candidates that were read from a file, in place of those that the stage finds.
        top: how many papers of each claim the re-ranker reads, if not as many as it was validated on.
        cache: the folder of caches.
        measures: what rankings are scored by, as in `score_ranking`.
        options: more of `Searcher`.
    """
    wanted = choose_claims(collection, split).split  # refuses an unknown split before any work
    searcher = Searcher(
        collection, reranker=reranker, reads=top, scored=wanted, cache=cache, progress=progress, **options
    )
    corpus, final = searcher.stages.index.corpus, searcher.score
    claims = choose_claims(check_documents(collection, corpus), split)
    progress.start("search", len(claims.texts))
    try:
        if given is None:
            stages = searcher.stages.scores(claims.texts, searcher.depth, progress=progress)
        else:
            stages = searcher.stages.scores_of(claims.texts, given.run)
            final = replace(final, reads=top or max(map(len, given.run.values())))
    finally:
        progress.end()
    first = {claim: each.run(fuse(each, final.first, final.fusion)) for claim, each in stages.items() if each.documents}
    missing = [claim for claim in claims.texts if claim not in first]
    if not first:
        raise InputError(f"{collection.name}: no claim of {claims.split} shares a word with any document.")
    scores = score_ranking(claims.qrels, first, measures) if claims.qrels else None
    run = first
    if final.uses_reranker:
        run = {claim: {stages[claim].documents[at]: 0.0 for at in final.to_read(stages[claim])} for claim in first}
    else:
        progress.log(f"the re-ranker is not run: the score is {final}. {final.note}".rstrip())
        run = {}

    def text(claim: str, document: str) -> str:
        return corpus.text_of(document)

    used = {name: stages[name] for name in first}
    return Candidates(claims, run, text, corpus.key, missing, scores, used, final, measures)


def rerank(
    folder: Path,
    candidates: Candidates,
    progress: Listener,
    *,
    reranker: Reranker | None = None,
    batch: int | None = None,
    precision: str = "fp32",
    cache: Path | None = None,
) -> Ranking:
    """Score all pairs and order the candidates of each claim; resumes where an earlier call was stopped.

    Args:
        folder: of the re-ranker.
        candidates: what `read_candidates` or `find_candidates` returned.
        progress: shows how far it is.
        reranker: the same, if it is loaded.
        batch: pairs at a time; None as in `Reranker.predict`.
        precision: fp32 or bf16.
        cache: the folder of caches, which keeps the scores so far. Call `Ranking.done` once the run is written.
    """
    if reranker is None:
        from headwise.retrieval.reranker import Reranker

        reranker = Reranker.load(folder)
    claims = candidates.claims
    pairs = [(claim, document) for claim, documents in candidates.run.items() for document in documents]
    # The record and the figures of training are in the same folder, but decide no score.
    files = [*folder.glob("*.safetensors"), *(folder / name for name in MODEL if (folder / name).is_file())]
    texts = {claim: claims.texts[claim] for claim in candidates.run}
    key = digest(
        {
            "model": {path.name: file_digest(path) for path in sorted(files)},
            "pairs": [pairs, texts, candidates.key],
            "options": [precision, reranker.max_length, PIECE, *([reranker.template] if reranker.template else [])],
        }
    )
    path = (cache or cache_folder() or user_cache()) / "rerank" / key[:24]
    starts = range(0, len(pairs), PIECE)
    with locked_folder(path):
        partial = PartialScores(path, [min(PIECE, len(pairs) - start) for start in starts])
        resumed = min(len(partial.scores) * PIECE, len(pairs))
        if resumed:
            progress.log(f"resuming from pair {resumed} of {len(pairs)}: the scores before it are in {path}")
        begin = time.perf_counter()
        try:
            progress.start("rerank", len(pairs), resumed)
            for start in starts[len(partial.scores) :]:  # each alone, so that it does not matter where a job began
                piece = [(texts[claim], candidates.text(claim, paper)) for claim, paper in pairs[start : start + PIECE]]
                scores = reranker.predict(
                    piece,
                    batch=batch,
                    precision=precision,
                    after_batch=lambda done, start=start: progress.advance(start + done),  # type: ignore[misc]
                )
                partial.add(scores.tolist())
            progress.end()
        except KeyboardInterrupt:
            if partial.scores:
                raise Stopped("the scores so far are kept, and the same command resumes from there") from None
            shutil.rmtree(path, ignore_errors=True)
            raise
    seconds = time.perf_counter() - begin
    by_claim: dict[str, dict[str, float]] = {claim: {} for claim in candidates.run}
    for (claim, paper), score in zip(pairs, chain.from_iterable(partial.scores), strict=True):
        by_claim[claim][paper] = score
    if candidates.stages is None or candidates.final is None:
        # Documents with equal scores stay in their order.
        run = {claim: dict(sorted(each.items(), key=lambda pair: -pair[1])) for claim, each in by_claim.items()}
    else:
        run, final = {}, candidates.final
        for claim, each in candidates.stages.items():
            every = final.with_reranker(each, by_claim[claim]) if final.uses_reranker else each
            run[claim] = every.run(final.scores(every))
    reranked = score_ranking(claims.qrels, run, candidates.measures) if claims.qrels else None
    both = {"candidates": candidates.scores, "reranked": reranked}
    measures = {name: each for name, each in both.items() if each is not None}
    summary = {
        "split": claims.split,
        "claims": len(claims.texts),
        "pairs": len(pairs),
        **({} if candidates.final is None else {"score": candidates.final.as_data()}),
        "resumed": resumed,
        "seconds": round(seconds, 3),
        "pairs_per_second": round((len(pairs) - resumed) / seconds, 2) if seconds else None,
        "measures": {name: each.summary() for name, each in measures.items()} or None,
        "without_candidates": candidates.missing,
    }
    return Ranking(run, RERANK_TAG, measures, summary, path)


class PartialScores:
    """The scores of a job, kept piece by piece in a folder. A kill loses at most the piece that was being scored."""

    def __init__(self, folder: Path, sizes: Sequence[int]) -> None:
        """Read the pieces that are there, up to the first that is missing or not whole; `sizes`: scores of each."""
        self.folder, self.scores = folder, list[list[float]]()
        for number, size in enumerate(sizes):
            try:
                scores = parse_json((folder / f"{number}.json").read_bytes())
            except (OSError, ValueError):
                break
            if not isinstance(scores, list) or len(scores) != size:
                break
            if not all(isinstance(score, float) and math.isfinite(score) for score in scores):
                break
            self.scores.append(scores)

    def add(self, scores: Sequence[float]) -> None:
        """Keep the scores of the next piece; they are on the disk when this returns."""
        values = [float(score) for score in scores]
        with _disk_errors(self.folder):
            write_atomically(self.folder / f"{len(self.scores)}.json", json.dumps(values))
        self.scores.append(values)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Let only one process work on a folder of scores; the lock of a dead process is free."""
    with ExitStack() as stack:
        with _disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(held(folder.with_name(folder.name + LOCK), folder))
        yield


def _disk_errors(folder: Path) -> AbstractContextManager[None]:
    remedy = "make room, or give another cache=FOLDER; the same command then resumes."
    return disk_errors(f"the scores so far could not be kept in {folder}", remedy)
