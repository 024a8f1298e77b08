"""The stages that find candidates: BM25 and the vectors of an encoder, with both scores of every candidate."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING

import numpy as np

from headwise.errors import HeadwiseWarning, InputError, choices
from headwise.retrieval.bm25 import Index, IndexOptions, largest, open_index
from headwise.retrieval.collections import EVERY_CLAIM, Collection
from headwise.retrieval.fusion import DEPTH, StageScores, check_stage
from headwise.retrieval.holdout import without_leaks

if TYPE_CHECKING:  # they would load torch
    from headwise.retrieval.dense_index import DenseIndex, Mapper
    from headwise.training.callbacks import Listener

ENCODER = "builtin:minilm-l6"
# Claims that are searched for together.
TOGETHER = 64
# The splits that weights are fitted on, the first that is there; and at most so many of its claims.
FITTED_ON = ("validation", "dev", "train")
MOST_CLAIMS = 1000


@dataclass(frozen=True)
class Stages:
    """The indexes of a collection, open for any number of claims."""

    stage: str
    """bm25, dense or hybrid: what finds candidates."""
    index: Index
    dense: DenseIndex | None
    """Of the stages dense and hybrid."""

    @classmethod
    def open(
        cls,
        collection: Collection,
        *,
        stage: str = "hybrid",
        encoder: str | Path = ENCODER,
        options: IndexOptions | None = None,
        cache: Path | None = None,
        rebuild: bool = False,
        mapper: Mapper | None = None,
        progress: Listener | None = None,
    ) -> Stages:
        """Open the indexes of a collection; what is not in the cache is built and kept there.

        Args:
            collection: whose papers are searched.
            stage: bm25, dense or hybrid.
            encoder: whose vectors: builtin:minilm-l6, or the folder of an encoder or a sentence-transformers model.
            options: of BM25.
            cache: the folder of caches; None: $HEADWISE_CACHE, else the user's cache folder.
            rebuild: build the indexes again.
            mapper: embeds papers, as in `open_dense_index`.
            progress: shows how far it is.
        """
        check_stage(stage)
        embedder = None
        if stage != "bm25":
            from headwise.retrieval.dense_index import open_dense_index
            from headwise.retrieval.embedder import Embedder

            embedder = Embedder.load(encoder)  # before the index, which may take long to build
        index = open_index(collection, options, cache=cache, rebuild=rebuild, progress=progress)
        dense = None
        if embedder is not None:
            dense = open_dense_index(
                index.corpus, embedder, cache=cache, rebuild=rebuild, progress=progress, mapper=mapper
            )
        return cls(stage, index, dense)

    def scores(
        self, claims: Mapping[str, str], depth: int = DEPTH, *, progress: Listener | None = None
    ) -> dict[str, StageScores]:
        """The candidates of each claim, by its id: the best `depth` of BM25 and of the cosine, with both scores."""
        results: dict[str, StageScores] = {}
        self.warn_of_long(claims)
        for names in _batches([*claims]):
            texts = [claims[name] for name in names]
            near = self.dense.search(texts, depth) if self.dense else [()] * len(texts)
            lexical = [self.index.scores(text) for text in texts]
            chosen = [
                list(dict.fromkeys(position for position, _ in (*self._best(words, depth), *close)))
                for words, close in zip(lexical, near, strict=True)
            ]
            results |= dict(zip(names, self._exact(texts, chosen, lexical), strict=True))
            if progress is not None:
                progress.advance(len(results))
        return results

    def scores_of(self, claims: Mapping[str, str], run: Mapping[str, Iterable[str]]) -> dict[str, StageScores]:
        """The scores of candidates that are given, in their order, by claim."""
        results: dict[str, StageScores] = {}
        self.warn_of_long(claims)
        for names in _batches([*run]):
            texts = [claims[name] for name in names]
            chosen = [[self.index.corpus.position(document) for document in run[name]] for name in names]
            lexical = [self.index.scores(text) for text in texts]
            results |= dict(zip(names, self._exact(texts, chosen, lexical), strict=True))
        return results

    def _best(self, scores: np.ndarray, depth: int) -> list[tuple[int, float]]:
        """What BM25 finds, unless the stage leaves that out."""
        return [] if self.stage == "dense" else largest(scores, depth)

    def _exact(
        self, texts: Sequence[str], chosen: Sequence[Sequence[int]], lexical: Sequence[np.ndarray]
    ) -> list[StageScores]:
        ids = self.index.corpus.ids
        cosines = self.dense.cosines(texts, chosen) if self.dense else [None] * len(texts)
        return [
            StageScores(
                tuple(ids[position] for position in positions),
                words[list(positions)].astype(np.float64),
                None if near is None else np.asarray(near, np.float64),
            )
            for positions, words, near in zip(chosen, lexical, cosines, strict=True)
        ]

    def warn_of_long(self, claims: Mapping[str, str]) -> None:
        """One warning if the encoder cuts claims off; BM25 reads all of them."""
        if self.dense is None or not claims:
            return
        embedder = self.dense.embedder
        counts = embedder.token_counts(list(claims.values()))
        longest = max(counts)
        if longest <= embedder.max_length:
            return
        cut = sum(count > embedder.max_length for count in counts)
        text = next(text for text, count in zip(claims.values(), counts, strict=True) if count == longest)
        warnings.warn(
            f"{cut} of {len(counts)} claims are longer than {embedder.name} reads, which takes the first "
            f"{embedder.max_length} tokens: the longest has {longest}, {shorten(text, 60)!r}.",
            HeadwiseWarning,
            stacklevel=3,
        )


def _batches(names: list[str]) -> list[list[str]]:
    return [names[start : start + TOGETHER] for start in range(0, len(names), TOGETHER)]


def fitting_split(collection: Collection, split: str | None, scored: str | None) -> str | None:
    """The split whose claims weights are fitted on; one that is scored is refused."""
    if split is None:
        free = [name for name in FITTED_ON if name in collection.qrels and scored not in (name, EVERY_CLAIM)]
        return free[0] if free else None
    if split not in collection.qrels:
        raise InputError(f"fit={split}: {collection.name} has no such split; {choices(split, collection.qrels)}.")
    if scored in (split, EVERY_CLAIM):
        raise InputError(
            f"fit={split} and split={scored}: weights are never fitted on the claims that are scored; name another "
            "split, or give alpha."
        )
    return split


def fitting_claims(
    collection: Collection,
    split: str | None,
    *,
    scored: str | None = None,
    without: Mapping[str, str] | None = None,
    most: int = MOST_CLAIMS,
) -> tuple[str, dict[str, str]] | None:
    """The split and the claims that weights are fitted on; None if there are none.

    Args:
        collection: has the claims and judgements.
        split: its split; None: validation, dev or train, the first that there is and that is not scored.
        scored: the split whose claims are ranked; they are never fitted on.
        without: texts of claims by their ids: claims that are like them are left out.
        most: so many claims at most, evenly spaced.
    """
    split = fitting_split(collection, split, scored)
    if split is None:
        return None
    claims = {claim: collection.claims[claim] for claim in collection.qrels[split]}
    if without:
        claims = {claim: claims[claim] for claim in without_leaks(claims, without).kept}
    step = max(1, -(-len(claims) // most))
    return (split, {claim: claims[claim] for claim in list(claims)[::step]}) if claims else None
