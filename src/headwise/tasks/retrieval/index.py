"""The search for candidates: BM25 over a corpus, with an index that is kept on disk and mapped into memory.

Shapes: N documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import InputError, choices
from headwise.tasks.retrieval.cache import digest, find_or_build, retrieval_cache
from headwise.tasks.retrieval.collection import Collection, Progress
from headwise.tasks.retrieval.corpus import Corpus, documents_key, open_corpus
from headwise.tasks.retrieval.numbered import number_words
from headwise.tasks.retrieval.words import Words, import_bm25s

# Goes into the hash: raise it when the same options come to mean other scores.
FORMAT = 1
# Those of bm25s whose score is 0 where a document and a claim share no word.
METHODS = ("atire", "lucene", "robertson")


@dataclass(frozen=True)
class IndexOptions:
    """What decides the scores.

    The score of a document d for a claim is the sum over the claim's words w, repeated ones counted again, of

        log(1 + (N - n + 0.5) / (n + 0.5)) * f / (f + k1 * (1 - b + b * |d| / mean length))

    where w is in n of N documents and f times in d, and |d| is the number of words of d. This is the method lucene, as
    Lucene has it since version 8, but with exact lengths; atire and robertson differ in both factors.
    """

    words: Words = Words()
    k1: float = 1.5
    b: float = 0.75
    method: str = "lucene"

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        if not 0 <= self.k1 < float("inf"):
            raise InputError(f"k1 {self.k1}: expected a number of 0 or more; 1.5 is usual.")
        if not 0 <= self.b <= 1:
            raise InputError(f"b {self.b}: expected a number from 0 to 1; 0.75 is usual.")
        if self.method not in METHODS:
            raise InputError(f"method {self.method!r}: {choices(self.method, METHODS)}.")


class Index:
    """An index that `open_index` has made or found."""

    def __init__(self, folder: Path, corpus: Corpus, words: Words, *, built: bool = False) -> None:
        """Open a folder.

        Args:
            folder: where the index is.
            corpus: the documents it was made from.
            words: how it cuts texts.
            built: whether it was made now, or found.
        """
        self.folder, self.corpus, self.built = folder, corpus, built
        self._words = words
        self._model = import_bm25s().BM25.load(folder, mmap=True, allow_pickle=False, show_progress=False)
        # As plain arrays, since slices of memmap objects are slow to make; they still look into the files.
        for name in ("data", "indices", "indptr"):
            self._model.scores[name] = self._model.scores[name].view(np.ndarray)

    def search(
        self, texts: Sequence[str], top: int, *, progress: Progress | None = None
    ) -> list[list[tuple[int, float]]]:
        """The places and scores of the best documents for each text, the best first; ties by place.

        Documents that share no word with a text are left out, so that there may be fewer than `top`, or none.
        """
        if top < 1:
            raise InputError(f"top {top}: expected at least 1 candidate for each claim.")
        # One at a time: that takes one score per document, not one per document and text. Threads do not help, since
        # numpy adds up the scores without letting go of the interpreter.
        found = []
        for count, text in enumerate(texts, 1):
            found.append(self._best(text, top))
            if progress is not None:
                progress(count, len(texts))
        return found

    def candidates(
        self, claims: Mapping[str, str], top: int, *, progress: Progress | None = None
    ) -> dict[str, dict[str, float]]:
        """A run: for each claim, by its id, the ids of the best documents with their scores, the best first."""
        found = self.search(list(claims.values()), top, progress=progress)
        ids = self.corpus.ids
        return {claim: {ids[place]: score for place, score in each} for claim, each in zip(claims, found, strict=True)}

    def _best(self, text: str, top: int) -> list[tuple[int, float]]:
        known = self._model.vocab_dict
        numbers = [known[word] for word in self._words.cut(text) if word in known]
        if not numbers:
            return []
        scores = self._model.get_scores_from_ids(numbers)  # [N]
        return _largest(scores, top)


def open_index(
    collection: Collection,
    options: IndexOptions | None = None,
    *,
    cache: Path | None = None,
    rebuild: bool = False,
    progress: Progress | None = None,
) -> Index:
    """The index of a collection: found in the cache, or made now and kept there.

    Args:
        collection: whose documents to search in.
        options: what decides the scores.
        cache: its folder `retrieval` keeps documents and indexes; None: $HEADWISE_CACHE, else the user's cache folder.
        rebuild: make it again even if it is there.
        progress: is told how many documents have been stored, of 0, then how many have been indexed, of all.
    """
    options = options or IndexOptions()
    library, place = import_bm25s(), retrieval_cache(cache)
    key = documents_key(collection)
    corpus = open_corpus(collection, place, key, rebuild=rebuild, progress=progress)
    about = {
        "documents": key,
        "words": options.words.fingerprint(),
        "bm25": {"k1": float(options.k1), "b": float(options.b), "method": options.method},
        "made with": {"format": FORMAT, "bm25s": library.__version__},
    }
    index_key = digest(about)
    folder = place / f"index-{index_key[:24]}"
    build = partial(_build, corpus, options, progress, about)
    built = find_or_build(folder, index_key, build, rebuild=rebuild)
    return Index(folder, corpus, options.words, built=built)


def _build(
    corpus: Corpus, options: IndexOptions, progress: Progress | None, about: Mapping[str, Any], draft: Path
) -> Mapping[str, Any]:
    library = import_bm25s()
    tokens = number_words(corpus, options.words, progress)
    if not tokens.vocab:
        raise InputError(
            f"none of the {len(corpus)} documents has a word to search for: they hold only stop words or signs; choose "
            "other stop words."
        )
    # scipy sorts by counting; the other way of bm25s takes twice the memory.
    model = library.BM25(k1=options.k1, b=options.b, method=options.method, csc_backend="scipy")
    model.index(tokens, create_empty_token=False, show_progress=False)
    model.save(draft, allow_pickle=False, show_progress=False)
    return {"about": about}


def _largest(scores: NDArray[np.float32], top: int) -> list[tuple[int, float]]:
    """Places and values of the largest scores above 0, the largest first, ties by place."""
    least = np.float32(0)
    if top < len(scores):
        least = np.partition(scores, len(scores) - top)[len(scores) - top]
    places = np.flatnonzero(scores >= least if least > 0 else scores > 0)  # more than `top` where the last ones tie
    places = places[np.argsort(-scores[places], kind="stable")][:top]
    return list(zip(places.tolist(), scores[places].tolist(), strict=True))
