"""Similarity of words: WordNet, word vectors, or the encoder's own embeddings.

Shapes: W words of an example, U different words of many examples, D size of a vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from headwise.errors import InputError, choices
from headwise.patterns.align import RULES, words_of
from headwise.patterns.base import register_pattern
from headwise.patterns.knowledge import Builder, Knowledge, Resources, Spread, Texts, WordMatrix, WordVectors
from headwise.patterns.vectors import PackagedVectors, VectorFile
from headwise.patterns.wordnet import find_wordnet, open_wordnet, wordnet_fingerprint

SOURCES = ("wordnet", "vectors", "embeddings")


@register_pattern("wordsim")
class WordSimilarity(Knowledge):
    """Words should look at words of similar meaning (1 for a word with itself, 0 where one is unknown).

    * source wordnet: Wu-Palmer similarity of the first senses on WordNet, as NLTK has it (Wu and Palmer 1994);
    * source vectors: cosine of word vectors such as GloVe's, with negative ones as 0;
    * source embeddings: the same with the encoder's own input embeddings, a word's vector being the mean of its
      sub-words'.

    WordNet knows little about small words: `a`, `in` and `as` are angstrom, inch and arsenic to it, so they are alike,
    and any two adjectives get 0.5. `threshold` leaves out what is not very similar.

    Relations: unlike `pmi` it does not depend on the training texts, and unlike `dependency` not on the order of words.

    Difference from the authors' released code: only the source wordnet is theirs.
    """

    needs: ClassVar[str] = "WordNet 3.0 (and `headwise[knowledge]`), word vectors, or only the encoder"

    source: Literal["wordnet", "vectors", "embeddings"] = "wordnet"
    """Where similarities come from."""
    path: str | None = None
    """The folder of WordNet, or the file of vectors; None: those that are installed."""
    threshold: float = 0.0
    """Smaller values count as 0."""

    def __post_init__(self) -> None:
        """Check the options."""
        if self.source not in SOURCES:
            raise InputError(f"wordsim(source={self.source!r}): {choices(str(self.source), SOURCES)}.")
        if self.path is not None and (not isinstance(self.path, str) or not self.path):
            raise InputError(f"wordsim(path={self.path!r}): expected the path of a folder or file, or None.")
        if self.path is not None and self.source == "embeddings":
            raise InputError(
                f"wordsim(source='embeddings', path={self.path!r}): embeddings have no path, leave it out."
            )
        number = self.threshold
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number <= 1:
            raise InputError(f"wordsim(threshold={number!r}): expected a number from 0 to 1.")

    def fingerprint(self, resources: Resources) -> dict[str, Any]:
        """The rules for splitting texts into words, and hashes of what is known about words."""
        if self.source == "wordnet":
            return {"words": RULES, **wordnet_fingerprint(self._wordnet(resources))}
        return {"words": RULES, self.source: self._vectors(resources).fingerprint}

    def builder(self, corpus: Sequence[Texts], resources: Resources, spread: Spread) -> Builder:
        """What makes the matrices; it carries places of files, and vectors only if they have none."""
        similar = (
            WordNetSimilarity(self._wordnet(resources))
            if self.source == "wordnet"
            else VectorSimilarity(self._vectors(resources))
        )
        return SimilarityBuilder(similar, self.threshold)

    def _wordnet(self, resources: Resources) -> Path:
        return find_wordnet(self._place(resources))

    def _vectors(self, resources: Resources) -> WordVectors:
        if self.source == "vectors":
            place = self._place(resources)
            return PackagedVectors.find() if place is None else VectorFile(place)
        if resources.embeddings is None:
            raise InputError(
                "wordsim(source='embeddings') needs the encoder's input embeddings: a recipe gives them; in Python, "
                "pass Resources(embeddings=InputEmbeddings(tokenizer, model.get_input_embeddings().weight))."
            )
        return resources.embeddings

    def _place(self, resources: Resources) -> Path | None:
        if self.path is None:
            return None
        place = Path(self.path).expanduser()
        return (place if resources.data is None else resources.data / place).absolute()


class Similarity(Protocol):
    """Knows how similar words are."""

    def __call__(self, examples: Sequence[Sequence[str]]) -> list[NDArray[np.float32]]:
        """For each example, a list of different words: [W,W], 0 for words that are not known."""


@dataclass(frozen=True)
class WordNetSimilarity:
    """By WordNet, of which each process reads its own."""

    path: Path

    def __call__(self, examples: Sequence[Sequence[str]]) -> list[NDArray[np.float32]]:
        """[W,W] for each example."""
        wordnet = open_wordnet(self.path)
        return [wordnet.similarities(words) for words in examples]


@dataclass(frozen=True, eq=False)
class VectorSimilarity:
    """By the cosine of vectors."""

    vectors: WordVectors

    def __call__(self, examples: Sequence[Sequence[str]]) -> list[NDArray[np.float32]]:
        """[W,W] for each example."""
        numbers = {
            word: number for number, word in enumerate(dict.fromkeys(word for each in examples for word in each))
        }
        vectors, known = self.vectors.look_up(list(numbers))
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True).clip(np.finfo(np.float32).tiny)  # [U,D]
        rows = [[numbers[word] for word in words] for words in examples]
        return [_cosines(vectors[row], known[row]) for row in rows]


def _cosines(unit: NDArray[np.float32], known: NDArray[np.bool_]) -> NDArray[np.float32]:
    matrix: NDArray[np.float32] = (unit @ unit.T).clip(0, 1)
    np.fill_diagonal(matrix, 1)
    return matrix * known * known[:, None]


@dataclass(frozen=True, eq=False)
class SimilarityBuilder:
    """Makes the matrices of examples from the similarities of their different words."""

    similar: Similarity
    threshold: float

    def __call__(self, examples: Sequence[Texts]) -> list[WordMatrix]:
        """One matrix for each example."""
        found = [words_of(texts) for texts in examples]
        different = [list(dict.fromkeys(words)) for words, _ in found]
        matrices = self.similar(different)
        return [self._matrix(*each) for each in zip(*zip(*found, strict=True), different, matrices, strict=True)]

    def _matrix(
        self, words: list[str], spans: NDArray[np.int32], different: list[str], matrix: NDArray[np.float32]
    ) -> WordMatrix:
        numbers = {word: number for number, word in enumerate(different)}
        place = np.array([numbers[word] for word in words], np.intp)
        rows, columns = np.triu_indices(len(words))
        values = matrix[place[rows], place[columns]]
        kept = (values > 0) & (values >= self.threshold)
        return WordMatrix(spans, rows[kept].astype(np.int32), columns[kept].astype(np.int32), values[kept])
