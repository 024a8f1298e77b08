"""BM25 over a corpus, with an index that is kept on disk and mapped into memory."""

from __future__ import annotations

import json
import math
import unicodedata
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headwise.cache import digest, find_or_build, retrieval_cache
from headwise.data.near_duplicates import plain_words, word_pattern
from headwise.errors import InputError, choices
from headwise.retrieval.collections import Collection
from headwise.retrieval.corpus import EVERY, Corpus, open_corpus

if TYPE_CHECKING:  # it would load all that training needs
    from headwise.training.callbacks import Listener

NONE = "none"
# Goes into the hash: raise it when the same options come to mean other scores.
FORMAT = 1
METHOD = "lucene"


@dataclass(frozen=True)
class Words:
    """Cuts a text into words, in the same way for documents and for claims.

    A word is a stretch of letters and digits in lower case, or a number such as 0.05, much as in Lucene. The default of
    bm25s drops words of one letter: of "IL-6", "vitamin D" and "type 2 diabetes" it would keep "il", "vitamin" and
    "type diabetes". Hyphens separate words, since authors disagree about them: "IL-6" and "IL 6" are both "il" and "6".
    Languages written without spaces are not cut into words.
    """

    stem: str = "english"
    """Language whose endings are cut off (Snowball), or none."""
    stop_words: str = "english"
    """Language whose most common words are left out, or none."""

    def __post_init__(self) -> None:
        """Refuse unknown languages."""
        for name, known in (("stem", _library("Stemmer").algorithms()), ("stop_words", stop_word_lists())):
            value = getattr(self, name)
            if value != NONE and value not in known:
                raise InputError(f"{name} {value!r}: expected a language; {choices(value, [*known, NONE])}.")

    def cut(self, text: str) -> list[str]:
        """The words of a text, in its order."""
        stop, stem = self.left_out, self.stem_of
        # Stop words go first: the lists hold whole words, and stems could be mistaken for them ("doe" of "does").
        return [stem(word) for word in plain_words(text) if word not in stop]

    def positions(self, text: str) -> list[tuple[int, int, str]]:
        """The words of a text that are no stop words: first character, the one after the last, and as `cut` has it."""
        spans = (match.span() for match in word_pattern().finditer(text))
        return [(start, end, word) for start, end in spans for word in self.cut(text[start:end])[:1]]

    @cached_property
    def left_out(self) -> frozenset[str]:
        """The stop words, cut as texts are: "aren't" is "aren" and "t" there."""
        entries = () if self.stop_words == NONE else stop_word_lists()[self.stop_words]
        return frozenset(word for entry in entries for word in plain_words(entry))

    @cached_property
    def stem_of(self) -> Callable[[str], str]:
        """Cuts the ending off a word."""
        stem: Callable[[str], str] = str if self.stem == NONE else _library("Stemmer").Stemmer(self.stem).stemWord
        return stem

    def fingerprint(self) -> dict[str, Any]:
        """What decides the words: options, and versions of the libraries."""
        versions = {"pattern": digest(word_pattern().pattern), "unicode": unicodedata.unidata_version}
        if self.stem != NONE:
            versions["PyStemmer"] = _library("Stemmer").version()
        return {"stem": self.stem, "stop_words": sorted(self.left_out), **versions}


def stop_word_lists() -> Mapping[str, tuple[str, ...]]:
    """The lists of stop words of bm25s."""
    names = {"EN": "english", "EN_PLUS": "english_plus"}
    lists = {name[10:]: value for name, value in vars(_file_of_bm25s("stopwords")).items() if name[:10] == "STOPWORDS_"}
    return {names.get(name, name.lower()): value for name, value in lists.items()}


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise _missing({"Stemmer": "PyStemmer"}.get(name, name)) from None


def _file_of_bm25s(name: str) -> Any:
    """A file of bm25s as a module, without the rest: all of it takes longer to import than an index to open."""
    package = find_spec("bm25s")
    if package is None or package.origin is None:
        raise _missing("bm25s")
    spec: Any = spec_from_file_location(f"bm25s.{name}", Path(package.origin).with_name(f"{name}.py"))
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _missing(package: str) -> InputError:
    return InputError(f"the search needs {package}: install it by pip install 'headwise[retrieval]'.")


@dataclass(frozen=True)
class IndexOptions:
    """What decides the scores.

    The score of a document d for a claim is the sum over the claim's words w, repeated ones counted again, of

        log(1 + (N - n + 0.5) / (n + 0.5)) * f / (f + k1 * (1 - b + b * |d| / mean length))

    where w is in n of N documents and f times in d, and |d| is the number of words of d, as in Lucene since version 8,
    but with exact lengths.
    """

    words: Words = field(default_factory=Words)
    k1: float = 1.5
    b: float = 0.75

    def __post_init__(self) -> None:
        """Refuse values without meaning."""
        if not 0 <= self.k1 < float("inf"):
            raise InputError(f"k1 {self.k1}: expected a number of 0 or more; 1.5 is usual.")
        if not 0 <= self.b <= 1:
            raise InputError(f"b {self.b}: expected a number from 0 to 1; 0.75 is usual.")


class Index:
    """An index that `open_index` has built or found."""

    def __init__(self, folder: Path, corpus: Corpus, words: Words, *, built: bool = False) -> None:
        """Open the folder of an index of these documents, which were cut into these words now (`built`) or before."""
        self.folder, self.corpus, self.built, self.words = folder, corpus, built, words
        self._vocabulary: dict[str, int] = json.loads((folder / "vocab.index.json").read_text(encoding="utf-8"))
        # Word by word: the documents that have it, with its part of their scores. As plain arrays, since slices of
        # memmap objects are slow to make; they still read from the files.
        self._parts, self._documents, self._starts = (
            np.load(folder / f"{name}.csc.index.npy", mmap_mode="r", allow_pickle=False).view(np.ndarray)
            for name in ("data", "indices", "indptr")
        )

    def search(
        self, texts: Sequence[str], top: int, *, progress: Listener | None = None
    ) -> list[list[tuple[int, float]]]:
        """The positions and scores of the best documents for each text, the best first; ties by position.

        Documents that share no word with a text are left out, so that there may be fewer than `top`, or none.
        """
        if top < 1:
            raise InputError(f"top {top}: expected at least 1 candidate for each claim.")
        # One at a time: that takes one score per document, not one per document and text. Threads do not help, since
        # numpy adds up the scores without releasing the interpreter.
        results = []
        for count, text in enumerate(texts, 1):
            results.append(largest(self.scores(text), top))
            if progress is not None:
                progress.advance(count)
        return results

    def scores(self, text: str) -> NDArray[np.float32]:
        """[N] the score of every document for a text."""
        scores, known = np.zeros(len(self.corpus), np.float32), self._vocabulary
        for number in [known[word] for word in self.words.cut(text) if word in known]:
            start, end = self._starts[number : number + 2]
            np.add.at(scores, self._documents[start:end], self._parts[start:end])  # faster than scores[...] += ...
        return scores

    def parts(self, claim: str, position: int, text: str | None = None) -> dict[str, float]:
        """The part of every word of the claim, as `Words.cut` writes it, in the score of a document.

        Words that it lacks are left out; the others come in the order of the claim, repeated ones counted again.

        Args:
            claim: in words.
            position: of the document.
            text: scored in place of the document; how common words are stays as it is in the index.
        """
        stored, added = {}, Counter(self.words.cut(claim))
        for word in [word for word in added if word in self._vocabulary]:
            start, end = self._starts[self._vocabulary[word] : self._vocabulary[word] + 2]
            at = start + np.searchsorted(self._documents[start:end], position)
            if at < end and self._documents[at] == position:
                stored[word] = float(self._parts[at]), int(end - start)
        if text is None or not stored:
            return {word: part * added[word] for word, (part, _) in stored.items()}
        options = json.loads((self.folder / "params.index.json").read_text(encoding="utf-8"))
        whole, words = (Counter(self.words.cut(each)) for each in (self.corpus.document(position).whole, text))
        rarity = {w: math.log(1 + (len(self.corpus) - n + 0.5) / (n + 0.5)) for w, (_, n) in stored.items()}
        # A part is rarity * f / (f + K), and K = k1 * (1 - b + b * length / mean length): from it the mean length.
        word, (part, _) = max(stored.items(), key=lambda each: each[1][0])
        fixed = options["k1"] * (1 - options["b"])
        by_length = (whole[word] * (rarity[word] / part - 1) - fixed) / whole.total()
        return {
            word: added[word] * rarity[word] * words[word] / (words[word] + fixed + by_length * words.total())
            for word in stored
            if words[word]
        }

    def candidates(
        self, claims: Mapping[str, str], top: int, *, progress: Listener | None = None
    ) -> dict[str, dict[str, float]]:
        """A run: for each claim, by its id, the ids of the best documents with their scores, the best first."""
        results, ids = self.search(list(claims.values()), top, progress=progress), self.corpus.ids
        return {
            claim: {ids[position]: score for position, score in each}
            for claim, each in zip(claims, results, strict=True)
        }


def largest(scores: NDArray[np.float32], top: int) -> list[tuple[int, float]]:
    """Positions and values of the largest scores above 0, the largest first, ties by position."""
    least = np.float32(0)
    if top < len(scores):
        least = np.partition(scores, len(scores) - top)[len(scores) - top]
    positions = np.flatnonzero(scores >= least if least > 0 else scores > 0)  # more than `top` where the last ones tie
    positions = positions[np.argsort(-scores[positions], kind="stable")][:top]
    return list(zip(positions.tolist(), scores[positions].tolist(), strict=True))


def open_index(
    collection: Collection,
    options: IndexOptions | None = None,
    *,
    cache: Path | None = None,
    rebuild: bool = False,
    progress: Listener | None = None,
) -> Index:
    """The index of a collection: found in the cache, or built now and kept there.

    Args:
        collection: whose documents to search in.
        options: what decides the scores.
        cache: its folder `retrieval` keeps documents and indexes; None: $HEADWISE_CACHE, else the user's cache folder.
        rebuild: build it again even if it is there.
        progress: shows how far it is, if something has to be built.
    """
    options = options or IndexOptions()
    corpus = open_corpus(collection, cache, rebuild=rebuild, progress=progress)
    about = {
        "documents": corpus.key,
        "words": options.words.fingerprint(),
        "bm25": {"k1": float(options.k1), "b": float(options.b), "method": METHOD},
        "made with": {"format": FORMAT, "bm25s": _file_of_bm25s("version").__version__},
    }
    index_key = digest(about)
    folder = retrieval_cache(cache) / f"index-{index_key[:24]}"

    def build(draft: Path) -> Mapping[str, Any]:
        if progress is not None:
            progress.start("index", len(corpus))
        documents, vocabulary = _numbered_words(corpus, options.words, progress)
        if not vocabulary:
            raise InputError(
                f"none of the {len(corpus)} documents has a word to search for: they hold only stop words or signs; "
                "choose other stop words."
            )
        # scipy sorts by counting; the other backend of bm25s takes twice the memory.
        model = _library("bm25s").BM25(k1=options.k1, b=options.b, method=METHOD, csc_backend="scipy")
        model.index((documents, vocabulary), create_empty_token=False, show_progress=False)
        model.save(draft, allow_pickle=False, show_progress=False)
        if progress is not None:
            progress.advance(len(corpus))
        return {"about": about}

    try:
        built = find_or_build(folder, index_key, build, rebuild=rebuild)
    finally:
        if progress is not None:
            progress.end()
    return Index(folder, corpus, options.words, built=built)


def _numbered_words(corpus: Corpus, words: Words, progress: Listener | None) -> tuple[list[array[int]], dict[str, int]]:
    """The words of each document as numbers, and the number of each word, in the order in which they first occur."""
    vocabulary: dict[str, int] = {}
    # Word of a text -> number of its stem; -1 for stop words.
    known, stem, documents = dict.fromkeys(words.left_out, -1), words.stem_of, []
    for position in range(len(corpus)):
        text = plain_words(corpus.document(position).whole)
        for word in [word for word in text if word not in known]:
            known[word] = vocabulary.setdefault(stem(word), len(vocabulary))
        # Arrays take 4 bytes a word, lists would take 8 for each reference.
        documents.append(array("i", [number for number in map(known.__getitem__, text) if number >= 0]))
        if progress is not None and (position + 1) % EVERY == 0:
            progress.advance((position + 1) // 2)  # bm25s takes about as long
    return documents, vocabulary
