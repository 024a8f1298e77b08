"""What a re-ranker is to order: claims, their candidates, and where the texts are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from headwise.cache import file_digest, retrieval_cache
from headwise.data.text_files import archive_of
from headwise.errors import InputError
from headwise.metrics.ranking import RankingScores, score_ranking
from headwise.retrieval.collections import Collection, Run
from headwise.retrieval.corpus import documents_key, open_corpus
from headwise.retrieval.cross_genre import TABLES, agreeing_rows, claim_id, pair_rows, single_spaces
from headwise.retrieval.retrieval_task import check_documents
from headwise.retrieval.retrieve import Claims, CollectionChoice, choose_claims
from headwise.retrieval.trec import check_run, claims_without_candidates, read_run
from headwise.training.callbacks import Listener

# How many of the claims without candidates are named.
NAMED = 5


@dataclass(frozen=True)
class Candidates:
    """Candidates of claims, in the order in which they came."""

    claims: Claims
    run: Run
    """Of the claims of the split, so many of each as were asked for."""
    text: Callable[[str, str], str]
    """Of a document, for a claim."""
    key: str
    """A hash of the texts."""
    missing: list[str]
    """The claims of the split without candidates."""
    scores: RankingScores | None
    """What this order is worth; None where no claim is judged, and of a table, whose order means nothing."""

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Claims and documents, by id."""
        return [(claim, document) for claim, found in self.run.items() for document in found]


@dataclass(frozen=True)
class Chosen:
    """Which of the candidates are meant."""

    split: str | None = None
    """None as in `choose_claims`."""
    top: int | None = None
    """Only so many of each claim."""


def brings_texts(path: Path) -> bool:
    """Whether a file of candidates is a table with texts, as those of Cross-genre-IR, rather than a TREC run."""
    return path.name.lower().endswith(TABLES)


def read_candidates(
    path: Path, choice: CollectionChoice, chosen: Chosen, cache: Path | None, listener: Listener
) -> Candidates:
    """Read a TREC run and check that it is of a collection; the texts stay on the disk.

    Args:
        path: the run.
        choice: the collection.
        chosen: its claims, and how many candidates of each.
        cache: where documents are kept.
        listener: is told what is left out.
    """
    run, collection = read_run(path), choice.read()
    choose_claims(collection, chosen.split)  # a split that is not there is said before the documents are read
    key = documents_key(collection)
    corpus = open_corpus(collection, retrieval_cache(cache), key)
    collection = check_documents(collection, corpus, drop_unknown=choice.drop_unknown)
    check_run(run, collection.claims, corpus, path)

    def text(_: str, document: str) -> str:
        return corpus.text(corpus.place(document))

    found = _candidates(path, run, _claims(collection, chosen, listener), text, key, chosen.top, listener)
    qrels = found.claims.qrels
    return replace(found, scores=score_ranking(qrels, found.run)) if qrels else found


def read_given(path: Path, choice: CollectionChoice | None, chosen: Chosen, listener: Listener) -> Candidates:
    """Read a table with the columns Hypothesis, Premise, PMID and Entails: each row is a candidate with its text.

    Of a claim's rows with the same PMID the longest text counts. Without a collection, all claims of the table are
    meant, and Entails says what answers them, so that rows which contradict each other are refused. Its rows have no
    scores: `top` takes them as they stand, but that order is not measured, since the answers often come first.
    """
    texts: dict[tuple[str, str], str] = {}
    claims: dict[str, str] = {}
    gold: dict[str, dict[str, int]] = {}
    for row in (agreeing_rows if choice is None else pair_rows)(path):
        claim = claim_id(row.claim)
        claims.setdefault(claim, single_spaces(row.claim))
        texts[claim, row.document] = max(texts.get((claim, row.document), ""), row.text, key=len)
        if row.relevant:
            gold.setdefault(claim, {})[row.document] = 1
    run: dict[str, dict[str, float]] = {claim: {} for claim in claims}
    for claim, document in texts:
        run[claim][document] = -float(len(run[claim]) + 1)
    meant = Claims("all", claims, gold)
    if choice is not None:
        meant = _claims(choice.read(), chosen, listener)
    elif chosen.split is not None:
        raise InputError(f"--split {chosen.split} chooses claims of a --collection: leave it out, or give one.")

    def text(claim: str, document: str) -> str:
        return texts[claim, document]

    return _candidates(path, run, meant, text, file_digest(archive_of(path) or path), chosen.top, listener)


def _claims(collection: Collection, chosen: Chosen, listener: Listener) -> Claims:
    for note in collection.notes:
        listener.tell(note)
    return choose_claims(collection, chosen.split)


def _candidates(
    path: Path,
    run: Run,
    claims: Claims,
    text: Callable[[str, str], str],
    key: str,
    top: int | None,
    listener: Listener,
) -> Candidates:
    missing = claims_without_candidates(run, claims.texts, path)
    kept = {claim: dict(list(found.items())[:top]) for claim, found in run.items() if claim in claims.texts}
    if strange := len(run) - len(kept):
        listener.tell(f"{strange} claims of the candidates are not in the split {claims.split}: passed over")
    if missing:
        named = ", ".join(missing[:NAMED]) + (", ..." if len(missing) > NAMED else "")
        listener.tell(f"{len(missing)} of {len(claims.texts)} claims have no candidates, and count 0: {named}")
    return Candidates(claims, kept, text, key, missing, scores=None)
