"""Searching a collection: candidates for all claims of a split, or the papers behind one claim."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import numpy as np

from headwise.errors import InputError, choices
from headwise.limits import parse_json
from headwise.metrics.ranking import MEASURES, RankingScores, score_ranking
from headwise.retrieval.bm25 import IndexOptions
from headwise.retrieval.collections import Collection, Run, check_documents, choose_claims
from headwise.retrieval.formats import read_collection
from headwise.retrieval.fusion import DEPTH, FinalScore, Fit, StageScores, Weights, check_fusion, fit_weights
from headwise.retrieval.stages import ENCODER, Stages, fitting_claims, fitting_split

if TYPE_CHECKING:  # they would load all that training needs
    from headwise.retrieval.dense_index import Mapper
    from headwise.retrieval.reasons import Reasons
    from headwise.retrieval.reranker import Reranker
    from headwise.training.callbacks import Listener

# The last column of TREC runs.
TAGS = {"bm25": "headwise-bm25", "dense": "headwise-dense", "hybrid": "headwise-hybrid"}
# Instead of a split: alpha is not fitted, or on the first split that there is.
NO_FIT, AUTO_FIT = "none", "auto"
# Claims whose papers a re-ranker reads to fit its weight, at most.
RERANKED_CLAIMS = 200
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
    stage: str = "hybrid",
    encoder: str | Path = ENCODER,
    fusion: str = "convex",
    alpha: float | None = None,
    fit: str = "auto",
    options: IndexOptions | None = None,
    cache: Path | None = None,
    rebuild: bool = False,
    mapper: Mapper | None = None,
    measures: Sequence[str] = MEASURES,
) -> Ranking:
    """Find the best documents for every claim of a split; claims without judgements are searched for, not scored.

    Args:
        collection: what `read_collection` returned.
        progress: shows notes and how far it is.
        split: None as in `choose_claims`.
        top: how many candidates a claim may have.
        stage: bm25, dense or hybrid.
        encoder: of the stages dense and hybrid.
        fusion: of hybrid: convex or rrf.
        alpha: the share of the cosine in convex fusion.
        fit: the split that alpha is fitted on, none for the fixed one; auto: validation, dev or train, the first that
            there is and is not searched for.
        options: of the BM25 index.
        cache: the folder of caches.
        rebuild: build the indexes again.
        mapper: embeds papers, as in `open_dense_index`.
        measures: what the ranking is scored by, as in `score_ranking`.
    """
    for note in collection.notes:
        progress.log(note)
    wanted = choose_claims(collection, split).split  # refuses an unknown split before any work
    check_first_stage(collection, stage, fusion, alpha, fit, scored=wanted)
    begin = time.perf_counter()
    stages = Stages.open(
        collection,
        stage=stage,
        encoder=encoder,
        options=options,
        cache=cache,
        rebuild=rebuild,
        mapper=mapper,
        progress=progress,
    )
    seconds, index = time.perf_counter() - begin, stages.index
    checked = check_documents(collection, index.corpus)
    for note in checked.notes[len(collection.notes) :]:
        progress.log(note)
    claims = choose_claims(checked, split)
    depth = max(top, DEPTH) if stage == "hybrid" else top
    final = first_stage_score(stages, checked, fusion, alpha, fit, scored=wanted, depth=depth, progress=progress)
    if stage == "hybrid":
        progress.log(f"score: {final}. {final.note}".rstrip())
    progress.start("search", len(claims.texts))
    try:
        candidates = stages.scores(claims.texts, depth, progress=progress)
    finally:
        progress.end()
    run = {claim: dict(list(each.run(final.scores(each)).items())[:top]) for claim, each in candidates.items()}
    if not any(run.values()):
        raise InputError(
            f"{collection.name}: none of the {len(run)} claims ({claims.split}) shares a word with any of the "
            f"{len(index.corpus)} documents, so nothing is found; check that both are of one language, and that stem "
            "and stop_words suit it."
        )
    missing = [claim for claim, documents in run.items() if not documents]
    if missing:
        progress.log(f"{len(missing)} of {len(run)} claims share no word with any document: {shown_ids(missing)}")
    scores = score_ranking(claims.qrels, run, measures) if claims.qrels else None
    summary = {
        "split": claims.split,
        "claims": len(claims.texts),
        "documents": len(index.corpus),
        "stage": stage,
        **({"encoder": str(encoder)} if stage != "bm25" else {}),
        **({"score": final.as_data()} if stage == "hybrid" else {}),
        "index": {"folder": str(index.folder), "built": index.built, "seconds": round(seconds, 3)},
        "measures": None if scores is None else scores.summary(),
        "without_candidates": missing,
        "top": top,
    }
    return Ranking(run, TAGS[stage], {} if scores is None else {stage: scores}, summary)


def check_first_stage(
    collection: Collection, stage: str, fusion: str, alpha: float | None, fit: str, *, scored: str | None
) -> None:
    """Refuse options of a first stage that do not go together, before any work."""
    Weights.of_stage(stage, alpha)
    check_fusion(fusion)
    if stage != "hybrid" and fusion != "convex":
        raise InputError(f"fusion={fusion} is for the stage hybrid, and the stage is {stage}: leave one of them out.")
    if fusion == "rrf" and alpha is not None:
        raise InputError(f"alpha={alpha} is for fusion=convex: reciprocal rank fusion has no weights; leave one out.")
    if fit in (NO_FIT, AUTO_FIT):
        return
    if stage != "hybrid" or fusion == "rrf":
        raise InputError(f"fit={fit} is for convex fusion of BM25 and cosine: leave fit out, or choose that.")
    if alpha is not None:
        raise InputError(f"alpha={alpha} and fit={fit}: alpha is either given or fitted; leave one of them out.")
    fitting_split(collection, fit, scored)


def first_stage_score(
    stages: Stages,
    collection: Collection,
    fusion: str = "convex",
    alpha: float | None = None,
    fit: str = NO_FIT,
    *,
    scored: str | None = None,
    depth: int = DEPTH,
    progress: Listener,
) -> FinalScore:
    """How BM25 and cosine become one score: with a given alpha, a fitted one, or the fixed one."""
    weights, note = Weights.of_stage(stages.stage, alpha), ""
    if stages.stage == "hybrid" and fusion == "convex" and alpha is None:
        chosen = claims_to_fit(collection, fit, scored)
        if chosen is not None:
            split, claims = chosen
            progress.start("fit", len(claims))
            try:
                scores = stages.scores(claims, depth, progress=progress)
            finally:
                progress.end()
            fitted = fit_weights(scores, collection.qrels[split], first=weights, split=split)
            weights, note = fitted.weights, f"{fitted.note} Split: {split}."
    return FinalScore(weights, weights, fusion, note=note)


def claims_to_fit(collection: Collection, fit: str, scored: str | None, **options: Any) -> tuple[str, Any] | None:
    """What `fitting_claims` returns for the option `fit`; claims that are like those that are ranked are left out."""
    if fit == NO_FIT:
        return None
    without = {} if scored is None else choose_claims(collection, scored).texts
    return fitting_claims(collection, None if fit == AUTO_FIT else fit, scored=scored, without=without, **options)


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
    """The final score."""
    bm25: float
    """0 where it shares no word with the claim."""
    bm25_rank: int | None
    """Among the candidates; None where it shares no word."""
    cosine: float | None = None
    """None without a dense stage."""
    cosine_rank: int | None = None
    reranker: float | None = None
    """None where the re-ranker did not read it."""
    reranker_rank: int | None = None


@dataclass(frozen=True)
class SearchResult:
    """The papers behind a claim."""

    claim: str
    candidates: int
    """How many papers the first stage found."""
    read: int
    """How many of them the re-ranker read."""
    score: FinalScore
    papers: tuple[Paper, ...]
    """The best of them, the best first."""
    explanation: Reasons | None = None
    """Why the best paper was found, if requested."""

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, as JSON takes them."""
        data = asdict(replace(self, explanation=None)) | {"score": self.score.as_data()}
        del data["explanation"]
        return data if self.explanation is None else {**data, "explain": self.explanation.as_dict()}


@dataclass(frozen=True)
class StoredScore:
    """What a run keeps of its final score."""

    stage: str
    encoder: str | None
    score: FinalScore

    @classmethod
    def read(cls, folder: Path) -> StoredScore | None:
        """Of the run in a folder; None if it is none, or one that has no final score."""
        path = folder / "headwise.json"
        if not path.is_file():
            return None
        try:
            final = parse_json(path.read_text(encoding="utf-8"))["results"]["final"]
            if final is None:
                return None
            fit = Fit.from_data(final["fit"])
            score = FinalScore(fit.first, fit.weights, "convex", int(final["depth"]), float(final["offset"]), fit.note)
            return cls(str(final["stage"]), final["encoder"], score)
        except (OSError, ValueError, KeyError, TypeError):  # an older run, or one that `Reranker.load` refuses
            return None


class Searcher:
    """The stages of a collection, open for any number of claims.

    searcher = hw.Searcher("FOLDER")
    for paper in searcher.search("Vitamin D protects against colds.", top=10).papers:
        print(paper.id, paper.score, paper.bm25, paper.cosine)
    """

    def __init__(
        self,
        collection: Collection | Path | str,
        *,
        encoder: str | Path | None = None,
        stage: str | None = None,
        fusion: str = "convex",
        alpha: float | None = None,
        fit: str = NO_FIT,
        reranker: Reranker | Path | str | None = None,
        weights: Weights | Sequence[float] | None = None,
        depth: int = DEPTH,
        reads: int | None = None,
        layout: str | None = None,
        scored: str | None = None,
        options: IndexOptions | None = None,
        cache: Path | None = None,
        progress: Listener | None = None,
    ) -> None:
        """Open the indexes of a collection; what is not in the cache is built and kept there.

        A re-ranker that was loaded from a run brings its stage, encoder, weights and number of papers to
        read; what is given here replaces them.

        Args:
            collection: its folder, or what `read_collection` returned.
            encoder: builtin:minilm-l6, or the folder of an encoder or a sentence-transformers model.
            stage: bm25, dense or hybrid (both).
            fusion: convex, or rrf (reciprocal rank fusion).
            alpha: the share of the cosine in convex fusion, from 0 to 1; 0.6 if it is not given.
            fit: a split of the collection, whose judged claims alpha is fitted on; auto: validation, dev or train,
                the first that there is.
            reranker: a `Reranker`, or the folder of one.
            weights: of BM25, cosine and re-ranker.
            depth: candidates that BM25 and the encoder find each.
            reads: papers that the re-ranker reads; 20 if neither this nor a run says so.
            layout: of the folder; None decides by its files.
            scored: a split that is going to be ranked, whose claims are never fitted on.
            options: of BM25.
            cache: the folder of caches.
            progress: shows how far it is.
        """
        from headwise.training.callbacks import Silence

        if isinstance(reranker, str | Path):
            from headwise.retrieval.reranker import Reranker

            reranker = Reranker.load(reranker)  # before indexes, which may take long
        self.reranker = reranker
        stored = StoredScore.read(reranker.folder) if reranker is not None and reranker.folder else None
        stage = stage or (stored.stage if stored else "hybrid")
        encoder = encoder or (stored and stored.encoder) or ENCODER
        if not isinstance(collection, Collection):
            collection = read_collection(Path(collection).expanduser(), layout)
        self.folder, self.depth = collection.folder, depth
        check_first_stage(collection, stage, fusion, alpha, fit, scored=scored)
        weights = weights if weights is None or isinstance(weights, Weights) else Weights(*weights)
        if weights is not None:
            check_weights(weights, stage, reranker)
        own = None
        if stored is not None and (stage, str(encoder)) == (stored.stage, str(stored.encoder or encoder)):
            if (alpha, weights, fusion) == (None, None, "convex") and fit in (NO_FIT, AUTO_FIT):
                own = stored.score
        progress = progress or Silence()
        self.stages = Stages.open(
            collection, stage=stage, encoder=encoder, options=options, cache=cache, progress=progress
        )
        if own is not None:
            score = own
        elif weights is not None:
            alone = weights.bm25 + weights.cosine == 0
            score = FinalScore(Weights.of_stage(stage) if alone else replace(weights, reranker=0.0), weights, fusion)
        else:
            score = first_stage_score(
                self.stages, collection, fusion, alpha, fit, scored=scored, depth=depth, progress=progress
            )
        self.score = score if reads is None else replace(score, reads=reads)
        if reranker is not None and own is None and weights is None:
            self.score = replace(self.score, weights=score.weights.with_reranker())
            if fusion == "convex":
                self._fit_reranker(collection, claims_to_fit(collection, fit, scored, most=RERANKED_CLAIMS), progress)

    def _fit_reranker(
        self, collection: Collection, chosen: tuple[str, Mapping[str, str]] | None, progress: Listener
    ) -> None:
        """Fit the weights of all stages on judged claims, of which the re-ranker reads the best papers."""
        if chosen is None:
            return
        split, claims = chosen
        progress.start("fit re-ranker", len(claims))
        try:
            scores = self.stages.scores(claims, self.depth)
            for done, (claim, each) in enumerate(scores.items(), 1):
                scores[claim] = self._read(claims[claim], each)
                progress.advance(done)
        finally:
            progress.end()
        fitted = fit_weights(scores, collection.qrels[split], first=self.score.first, split=split)
        self.score = replace(self.score, weights=fitted.weights, note=f"{fitted.note} Split: {split}.")

    def _read(self, claim: str, scores: StageScores, **options: Any) -> StageScores:
        """The scores with those of the re-ranker, which reads the best papers of the first stage."""
        reranker: Any = self.reranker
        read = [scores.documents[position] for position in self.score.to_read(scores)]
        logits = reranker.predict([(claim, self.stages.index.corpus.text_of(each)) for each in read], **options)
        return self.score.with_reranker(scores, dict(zip(read, logits.tolist(), strict=True)))

    def scores(self, claims: Mapping[str, str]) -> dict[str, StageScores]:
        """The scores of all stages for the candidates of each claim, by its id; `score.scores` makes one of them."""
        scores = self.stages.scores(claims, self.depth)
        if self.reranker is None or not self.score.uses_reranker:
            return scores
        return {claim: self._read(claims[claim], each) for claim, each in scores.items()}

    def search(
        self,
        claim: str,
        *,
        top: int = 10,
        explain: bool = False,
        batch: int | None = None,
        precision: str = "fp32",
        progress: Listener | None = None,
    ) -> SearchResult:
        """Find the papers behind one claim.

        Args:
            claim: in words.
            top: papers to return.
            explain: also return why the best paper was found, by `explain_paper` (always in fp32).
            batch: pairs that the re-ranker reads at a time; None as in `Reranker.predict`.
            precision: of the re-ranker, fp32 or bf16.
            progress: shows how far it is.
        """
        from headwise.training.callbacks import Silence

        claim = check_request(claim, top=top, depth=self.depth, precision=precision)
        scores = self.stages.scores({"claim": claim}, self.depth)["claim"]
        if not scores.documents:
            raise InputError(
                f"no document of {self.folder} has a word of the claim {shorten(claim, 80)!r}, stop words left out: "
                "put it in other words."
            )
        if self.reranker is not None and self.score.uses_reranker:
            progress = progress or Silence()
            progress.start("papers", min(self.score.reads, len(scores.documents)))
            try:
                scores = self._read(claim, scores, batch=batch, precision=precision, after_batch=progress.advance)
            finally:
                progress.end()
        papers = self._papers(scores, top)
        explanation = None
        if explain:
            from headwise.retrieval.reasons import explain_paper

            explanation = explain_paper(claim, papers[0].id, self.stages, scores, self.score, self.reranker)
        read_count = 0 if scores.reranker is None else int((~np.isnan(scores.reranker)).sum())
        return SearchResult(claim, len(scores.documents), read_count, self.score, papers, explanation)

    def _papers(self, scores: StageScores, top: int) -> tuple[Paper, ...]:
        """The best papers with the scores and ranks of every stage."""
        final, corpus = self.score.scores(scores), self.stages.index.corpus
        shared = np.where(scores.bm25 > 0, scores.bm25, np.nan)
        stages = {"bm25": shared, "cosine": scores.cosine, "reranker": scores.reranker}
        columns: dict[str, Sequence[Any]] = {}
        for name, values in stages.items():
            if values is not None:
                order = np.argsort(-np.nan_to_num(values, nan=-np.inf), kind="stable")
                ranks = np.empty(len(order), int)
                ranks[order] = np.arange(1, len(order) + 1)
                known = ~np.isnan(values)
                columns[f"{name}_rank"] = [int(rank) if here else None for rank, here in zip(ranks, known, strict=True)]
                columns[name] = [float(value) if here else None for value, here in zip(values, known, strict=True)]
        columns["bm25"] = scores.bm25.tolist()
        papers = []
        for rank, position in enumerate(np.argsort(-final, kind="stable")[:top].tolist(), 1):
            document = corpus.document(corpus.position(scores.documents[position]))
            numbers = {name: values[position] for name, values in columns.items()}
            papers.append(Paper(document.id, document.title, rank, float(final[position]), **numbers))
        return tuple(papers)

    def as_pyterrier(self, top: int = 100) -> Any:
        """A `pyterrier.Transformer` that finds so many papers for each topic (columns qid and query)."""
        from headwise.retrieval.terrier import transformer

        return transformer(self, top)


def check_weights(weights: Weights, stage: str, reranker: object) -> None:
    """Refuse a weight for a stage that is not there."""
    there = {"bm25": stage != "dense", "cosine": stage != "bm25", "reranker": reranker is not None}
    for name, here in there.items():
        if getattr(weights, name) and not here:
            what = "no re-ranker is given" if name == "reranker" else f"the stage is {stage}"
            raise InputError(f"the weight of {name} is {getattr(weights, name)}, but {what}: make it 0, or add it.")


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
            f"top {top} of depth {depth}: expected at least 1 paper and no more than each stage finds; raise depth or "
            "lower top."
        )
    if precision not in PRECISIONS:
        raise InputError(f"unknown precision {precision!r}: {choices(precision, PRECISIONS)}.")
    return claim.strip()
