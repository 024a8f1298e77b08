"""The search for candidates: BM25 over a corpus, with an index that is kept on disk and mapped into memory.

Shapes: N documents.
"""

from __future__ import annotations

import unicodedata
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.cache import digest, find_or_build, retrieval_cache
from headwise.data.near_duplicates import plain_words, word_pattern
from headwise.errors import InputError, choices
from headwise.retrieval.collections import Collection, Progress
from headwise.retrieval.corpus import EVERY, Corpus, documents_key, open_corpus

# How text becomes words for the search.


INSTALL = "pip install 'headwise[retrieval]'"
NONE = "none"


@dataclass(frozen=True)
class Words:
    """Cuts a text into words: the same for documents and for claims, or they would not meet.

    A word is a stretch of letters and digits in lower case, or a number such as 0.05, much as in Lucene. The default of
    bm25s drops words of one letter: of "IL-6", "vitamin D" and "type 2 diabetes" it would keep "il", "vitamin" and
    "type diabetes". Hyphens part words, since authors disagree about them: "IL-6" and "IL 6" are both "il" and "6".
    Languages written without spaces are not cut into words.
    """

    stem: str = "english"
    """Language whose endings are cut off (Snowball), or none."""
    stop_words: str = "english"
    """Language whose commonest words are left out, or none."""

    def __post_init__(self) -> None:
        """Refuse languages that nobody knows."""
        _check("stem", self.stem, stemmers())
        _check("stop_words", self.stop_words, tuple(stop_word_lists()))

    def cut(self, text: str) -> list[str]:
        """The words of a text, in its order."""
        stop, stem = self.left_out(), self.stemmer()
        # Stop words go first: the lists hold whole words, and stems could be mistaken for them ("doe" of "does").
        return [stem(word) for word in plain_words(text) if word not in stop]

    def left_out(self) -> frozenset[str]:
        """The words that count for nothing."""
        return _stop_words(self.stop_words)

    def stemmer(self) -> Callable[[str], str]:
        """What cuts the ending off a word."""
        return str if self.stem == NONE else _stemmer(self.stem)

    def fingerprint(self) -> dict[str, Any]:
        """What decides the words: options, and versions of what they are made with."""
        made_with = {"pattern": digest(word_pattern().pattern), "unicode": unicodedata.unidata_version}
        if self.stem != NONE:
            made_with["PyStemmer"] = _import_stemmer().version()
        return {"stem": self.stem, "stop_words": sorted(self.left_out()), **made_with}


@cache
def stemmers() -> tuple[str, ...]:
    """The languages that can be stemmed."""
    return tuple(_import_stemmer().algorithms())


def stop_word_lists() -> Mapping[str, tuple[str, ...]]:
    """The lists of stop words that bm25s brings along."""
    stopwords = import_bm25s().stopwords
    names = {"EN": "english", "EN_PLUS": "english_plus"}
    lists = {name[10:]: value for name, value in vars(stopwords).items() if name.startswith("STOPWORDS_")}
    return {names.get(name, name.lower()): value for name, value in lists.items()}


def import_bm25s() -> Any:
    """The library of the search, or the line that installs it."""
    try:
        import bm25s  # type: ignore[import-untyped]
    except ImportError:
        raise InputError(f"the search needs bm25s: install it by {INSTALL}.") from None
    return bm25s


def _import_stemmer() -> Any:
    try:
        import Stemmer  # type: ignore[import-not-found]
    except ImportError:
        raise InputError(f"stemming needs PyStemmer: install it by {INSTALL}, or choose stem {NONE}.") from None
    return Stemmer


def _check(name: str, value: str, known: tuple[str, ...]) -> None:
    if value != NONE and value not in known:
        raise InputError(f"{name} {value!r}: expected a language; {choices(value, [*known, NONE])}.")


@cache
def _stemmer(language: str) -> Callable[[str], str]:
    stem: Callable[[str], str] = _import_stemmer().Stemmer(language).stemWord
    return stem


@cache
def _stop_words(language: str) -> frozenset[str]:
    """The list of a language, cut as texts are: "aren't" is "aren" and "t" there."""
    if language == NONE:
        return frozenset()
    return frozenset(word for entry in stop_word_lists()[language] for word in plain_words(entry))


# The words of all documents as numbers, in little memory: what an index is made from.


# How often a corpus is gone through: by us, and for lengths, counts and scores by bm25s.
ROUNDS = 4


@dataclass(frozen=True)
class NumberedWords:
    """What bm25s takes: it asks for `ids`, a sequence of lists of numbers, and `vocab`."""

    ids: Lists
    vocab: dict[str, int]


@dataclass
class Lists:
    """A list of numbers for each document, made when it is asked for.

    That takes 4 bytes a word. Lists in a list would take 8 for the place of each number, and 32 more for many numbers.
    """

    numbers: NDArray[np.int32]  # [T]
    starts: NDArray[np.int64]  # [N+1]
    progress: Progress | None = None
    rounds: int = 0

    def __len__(self) -> int:
        """How many documents there are."""
        return len(self.starts) - 1

    def __iter__(self) -> Iterator[list[int]]:
        """The numbers of one document after the other."""
        self.rounds += 1
        told = _Round(self.progress, len(self), self.rounds)
        for place, (start, end) in enumerate(zip(self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True)):
            yield self.numbers[start:end].tolist()
            told(place + 1)


def number_words(corpus: Corpus, words: Words, progress: Progress | None = None) -> NumberedWords:
    """Cut all documents into words, and number these in the order in which they are first met."""
    numbers, starts, numbered = array("i"), array("q", [0]), _Numbers(words)
    told = _Round(progress, len(corpus), 0)
    for place in range(len(corpus)):
        found = map(numbered.__getitem__, plain_words(corpus.text(place)))
        numbers.extend([number for number in found if number >= 0])
        starts.append(len(numbers))
        told(place + 1)
    lists = Lists(np.frombuffer(numbers, np.int32), np.frombuffer(starts, np.int64), progress)
    return NumberedWords(lists, numbered.vocabulary)


class _Numbers(dict[str, int]):
    """Word as it stands in texts -> number of its stem, found out when first met; -1 for stop words."""

    def __init__(self, words: Words) -> None:
        super().__init__(dict.fromkeys(words.left_out(), -1))
        self._stem = words.stemmer()
        self.vocabulary: dict[str, int] = {}

    def __missing__(self, word: str) -> int:
        self[word] = number = self.vocabulary.setdefault(self._stem(word), len(self.vocabulary))
        return number


@dataclass(frozen=True)
class _Round:
    """Tells the progress of one round as a share of all rounds."""

    progress: Progress | None
    documents: int
    before: int

    def __call__(self, done: int) -> None:
        if self.progress is not None and (done % EVERY == 0 or done == self.documents):
            # A later bm25s may go round more often.
            share = (self.before * self.documents + done) // ROUNDS
            self.progress(min(share, self.documents), self.documents)


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
