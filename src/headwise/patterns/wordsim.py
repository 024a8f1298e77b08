"""Similarity of words: WordNet, word vectors, or the encoder's input embeddings.

Shapes: W words of an example, U different words of many examples, D size of a vector.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from headwise.errors import InputError, choices
from headwise.patterns.align import RULES, words_of
from headwise.patterns.base import (
    Builder,
    Knowledge,
    Resources,
    Spread,
    Texts,
    WordMatrix,
    WordVectors,
    register_pattern,
)
from headwise.patterns.vectors import PackagedVectors, VectorFile
from headwise.patterns.wordnet import find_wordnet, open_wordnet, wordnet_fingerprint

SOURCES = ("wordnet", "vectors", "embeddings")


@register_pattern("wordsim")
class WordSimilarity(Knowledge):
    """Words should attend to words of similar meaning (1 for a word with itself, 0 where one is unknown).

    * source wordnet: Wu-Palmer similarity of the first senses on WordNet, as in NLTK (Wu and Palmer 1994);
    * source vectors: cosine of word vectors such as GloVe's, with negative ones as 0;
    * source embeddings: the same with the encoder's input embeddings, where the vector of a word is the mean of its
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
            return {"words": RULES, **wordnet_fingerprint(find_wordnet(self._file(resources)))}
        return {"words": RULES, self.source: self._vectors(resources).fingerprint}

    def builder(self, corpus: Sequence[Texts], resources: Resources, spread: Spread) -> Builder:
        """The function that builds the matrices; it carries paths of files, and vectors only if they have none."""
        wordnet = self.source == "wordnet"
        source = find_wordnet(self._file(resources)) if wordnet else self._vectors(resources)
        return functools.partial(self._matrices, source)

    def _vectors(self, resources: Resources) -> WordVectors:
        if self.source == "vectors":
            file = self._file(resources)
            return PackagedVectors.find() if file is None else VectorFile(file)
        if resources.embeddings is None:
            raise InputError(
                "wordsim(source='embeddings') needs the encoder's input embeddings: a recipe gives them; in Python, "
                "pass Resources(embeddings=InputEmbeddings(tokenizer, model.get_input_embeddings().weight))."
            )
        return resources.embeddings

    def _file(self, resources: Resources) -> Path | None:
        if self.path is None:
            return None
        return ((resources.data or Path()) / Path(self.path).expanduser()).absolute()

    def _matrices(self, source: Path | WordVectors, examples: Sequence[Texts]) -> list[WordMatrix]:
        """One matrix for each example, from the similarities of its different words.

        The source is the path of a WordNet, which each process reads once, or word vectors.
        """
        split = [words_of(texts) for texts in examples]
        different = [list(dict.fromkeys(words)) for words, _ in split]
        if isinstance(source, Path):
            similarities: Iterable[NDArray[np.float32]] = map(open_wordnet(source).similarities, different)
        else:
            similarities = cosines(source, different)
        matrices = []
        for (words, spans), distinct, matrix in zip(split, different, similarities, strict=True):
            numbers = {word: number for number, word in enumerate(distinct)}
            number = np.array([numbers[word] for word in words], np.intp)
            rows, columns = np.triu_indices(len(words))
            values = matrix[number[rows], number[columns]]
            kept = (values > 0) & (values >= self.threshold)
            matrices.append(
                WordMatrix(spans, rows[kept].astype(np.int32), columns[kept].astype(np.int32), values[kept])
            )
        return matrices


def cosines(source: WordVectors, examples: Sequence[Sequence[str]]) -> Iterator[NDArray[np.float32]]:
    """[W,W] for the different words of each example, 0 for words that are not known and where it is negative."""
    rows = {word: row for row, word in enumerate(dict.fromkeys(word for words in examples for word in words))}
    vectors, known = source.look_up(list(rows))
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True).clip(np.finfo(np.float32).tiny)  # [U,D]
    for words in examples:
        chosen = [rows[word] for word in words]
        unit, both = vectors[chosen], known[chosen]
        matrix: NDArray[np.float32] = (unit @ unit.T).clip(0, 1)  # one array, or the last bits would differ
        np.fill_diagonal(matrix, 1)
        yield matrix * both * both[:, None]
