"""Why a paper was found: the words that it shares with the claim, and the sentence that carries its score.

For every stage, and without a trained re-ranker:

matches     BM25 adds up a part for every word of the claim that the paper has (word endings cut off). The share of a
            word is its part / the BM25 score.
nearest     Of the dense stage: each word of the claim with that word of the paper whose vector has the largest cosine
            with its own. The vector of a word is the mean of the encoder's last hidden states of its tokens, each text
            read alone (as ColBERT compares tokens). The encoder is not trained on such vectors and its score is not
            their sum, so this describes what the encoder takes for alike, and no shares are given.
passages    The title and every sentence of the paper are left out, one at a time, and the paper is scored again: the
            drops are what is missing then. For the final score the other candidates keep their scores, and scores are
            scaled by the lowest and the highest of the search. A negative drop: the paper scores more without it. An
            encoder reads more of the end of a long paper when something before it is left out.
attention   Where the attention of a re-ranker goes; see explain.py. Attention alone is not an explanation.

Sentences are those of `pairs.split_sentences`, words those of BM25 without stop words.

Shapes: N candidates, P passages, T tokens of a text, D the size of vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import InputError
from headwise.retrieval.bm25 import Index
from headwise.retrieval.collections import Document
from headwise.retrieval.fusion import FinalScore, StageScores, Weights, fuse
from headwise.retrieval.pairs import split_sentences

if TYPE_CHECKING:  # they would load all that training needs
    from headwise.retrieval.embedder import Embedder
    from headwise.retrieval.explain import Explanation
    from headwise.retrieval.reranker import Reranker
    from headwise.retrieval.stages import Stages

STAGES = ("bm25", "cosine", "reranker")
# Stage -> [1+P] its score of the paper, then without each passage.
Changed = dict[str, NDArray[np.float64]]


@dataclass(frozen=True)
class Match:
    """A word of the claim that the paper has."""

    word: str
    places: tuple[tuple[int, int], ...]
    """In the paper: first character, and the one after the last."""
    part: float
    """Of the BM25 score."""
    share: float


@dataclass(frozen=True)
class Nearest:
    """A word of the claim and the nearest word of the paper."""

    word: str
    nearest: str
    start: int
    end: int
    cosine: float


@dataclass(frozen=True)
class Passage:
    """The title or a sentence of the paper, and what the scores lose without it."""

    start: int
    end: int
    text: str
    title: bool
    drop: float
    """Of the final score."""
    drops: dict[str, float]
    """Of each stage that was used: bm25, cosine, reranker."""


@dataclass(frozen=True)
class Reasons:
    """Why a paper was found."""

    id: str
    claim: str
    text: str
    """Title and text of the paper, which places refer to."""
    score: float
    matches: tuple[Match, ...]
    """In the order of the claim; empty if no word is shared."""
    nearest: tuple[Nearest, ...]
    """In the order of the claim; empty without a dense stage."""
    passages: tuple[Passage, ...]
    """In the order of the paper; empty if it is a single sentence."""
    attention: Explanation | None = None
    """Of the re-ranker, if there is one."""

    def carrying(self) -> Passage | None:
        """The passage without which the final score drops most; None if there is none."""
        return max(self.passages, key=lambda passage: passage.drop, default=None)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as JSON takes it."""
        carrying = self.carrying()
        sentence = None if carrying is None else self.passages.index(carrying)
        return {**asdict(self), "carrying": sentence}


def explain_paper(
    claim: str,
    id: str,
    stages: Stages,
    scores: StageScores,
    score: FinalScore,
    reranker: Reranker | None = None,
) -> Reasons:
    """Why a candidate of a search was found.

    Args:
        claim: in words.
        id: of the paper.
        stages: the indexes of the search.
        scores: of all candidates of the search, the paper among them.
        score: how the scores of the stages become one.
        reranker: the third stage; needed if it was used.
    """
    if id not in scores.documents:
        raise InputError(f"document {id!r} is no candidate of this search: explain one that is.")
    at, index = scores.documents.index(id), stages.index
    embedder = stages.dense.embedder if stages.dense and (score.weights.cosine or score.first.cosine) else None
    position = index.corpus.position(id)
    document = index.corpus.document(position)
    passages = list(_passages(document))
    texts = [document.whole[:start].rstrip() + " " + document.whole[end:].lstrip() for start, end, _ in passages]
    texts = [document.whole, *map(str.strip, texts)]
    changed: Changed = {}
    if score.weights.bm25 or score.first.bm25:
        changed["bm25"] = np.array([sum(index.parts(claim, position, text).values()) for text in texts])
    if embedder is not None:
        changed["cosine"] = embedder.embed(texts) @ embedder.embed([claim], queries=True)[0].astype(np.float64)
    attention = None
    read = scores.reranker is not None and not np.isnan(scores.reranker[at])
    if score.uses_reranker and reranker is not None and read:
        from headwise.retrieval.explain import explain

        logits = np.asarray(reranker.predict([(claim, text) for text in texts]), np.float64)
        changed["reranker"] = logits + score.offset * _fused(scores, at, changed, score.first)
        if reranker.template is None:  # a template joins both texts to one
            attention = explain(reranker.model, reranker.tokenizer, claim, texts[0], max_length=reranker.max_length)
    finals = rescored(scores, at, changed, score)  # [1+P]
    drops = [{stage: float(each[0] - each[row]) for stage, each in changed.items()} for row in range(len(texts))]
    return Reasons(
        id,
        claim,
        document.whole,
        float(score.scores(scores)[at]),
        tuple(_matches(claim, position, index)) if "bm25" in changed else (),
        () if embedder is None else tuple(nearest_words(claim, document.whole, index, embedder)),
        tuple(
            Passage(start, end, document.whole[start:end], title, float(finals[0] - finals[row]), drops[row])
            for row, (start, end, title) in enumerate(passages, 1)
        ),
        attention,
    )


def _passages(document: Document) -> Iterator[tuple[int, int, bool]]:
    """First character, the one after the last, and whether it is the title; none if this is all of the paper."""
    sentences = split_sentences(document.text)
    if not document.title and len(sentences) < 2:
        return
    end = len(document.title)
    if document.title:
        yield 0, end, True
    for sentence in sentences:
        start = document.whole.index(sentence, end)
        end = start + len(sentence)
        yield start, end, False


def rescored(scores: StageScores, at: int, changed: Changed, score: FinalScore) -> NDArray[np.float64]:
    """[P] the final score of one candidate whose stages have other scores [P], all else as in the search."""
    used = [stage for stage in STAGES if getattr(score.weights, stage)]
    if used in (["bm25"], ["cosine"]):
        return changed[used[0]]
    return _fused(scores, at, changed, score.weights, score.fusion)


def _fused(
    scores: StageScores, at: int, changed: Changed, weights: Weights, fusion: str = "convex"
) -> NDArray[np.float64]:
    rows = [dict(zip(changed, row, strict=True)) for row in zip(*changed.values(), strict=True)]
    if fusion == "rrf":
        return np.array([fuse(_with(scores, at, row), weights, fusion)[at] for row in rows])
    finals = np.zeros(len(rows))
    for stage, values in changed.items():
        known = getattr(scores, stage)
        low, high = np.nanmin(known), np.nanmax(known)
        finals += getattr(weights, stage) * (values - low) / ((high - low) or 1.0)  # of a single candidate: as it is
    return finals


def _with(scores: StageScores, at: int, row: dict[str, float]) -> StageScores:
    changed = {}
    for stage, value in row.items():
        values = getattr(scores, stage).copy()
        values[at] = value
        changed[stage] = values
    return replace(scores, **changed)


def _matches(claim: str, position: int, index: Index) -> Iterator[Match]:
    parts = index.parts(claim, position)
    total = sum(parts.values())
    places: dict[str, list[tuple[int, int]]] = {}
    for start, end, word in index.words.positions(index.corpus.document(position).whole):
        places.setdefault(word, []).append((start, end))
    written = {word: claim[start:end] for start, end, word in reversed(index.words.positions(claim))}
    for word, part in parts.items():
        yield Match(written.get(word, word), tuple(places.get(word, ())), part, part / total)


def nearest_words(claim: str, text: str, index: Index, embedder: Embedder) -> Iterator[Nearest]:
    """For each word of the claim, the word of the paper whose vector is nearest; only words that the encoder reads."""
    (names, _, own), (others, spans, theirs) = (_word_vectors(each, index, embedder) for each in (claim, text))
    if not len(own) or not len(theirs):
        return
    cosines = own @ theirs.T
    for name, row in zip(names, cosines, strict=True):
        best = int(row.argmax())
        yield Nearest(name, others[best], *spans[best], float(row[best]))


def _word_vectors(text: str, index: Index, embedder: Embedder) -> tuple[list[str], list[tuple[int, int]], Any]:
    """The words of a text that the encoder reads, their places, and their unit vectors."""
    vectors, offsets = _token_vectors(text, embedder)
    names, spans, rows = [], [], []
    for start, end, _ in index.words.positions(text):
        tokens = (offsets[:, 0] < end) & (offsets[:, 1] > start)
        if tokens.any():
            mean = vectors[tokens].mean(0)
            names.append(text[start:end])
            spans.append((start, end))
            rows.append(mean / max(float(np.linalg.norm(mean)), 1e-12))
    return names, spans, np.array(rows)


def _token_vectors(text: str, embedder: Embedder) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """[T,D] the last hidden state of each token, and [T,2] its place in the text; special tokens have none."""
    import torch

    inputs = embedder.tokenizer(
        text.lower() if embedder.settings.lower else text,
        truncation=True,
        max_length=embedder.max_length,
        return_offsets_mapping=True,
        return_tensors="pt",
        verbose=False,
    )
    device = next(embedder.model.parameters()).device
    with torch.inference_mode():
        states = embedder.model(input_ids=inputs["input_ids"].to(device)).last_hidden_state[0]
    return states.float().cpu().numpy(), inputs["offset_mapping"][0].numpy()
