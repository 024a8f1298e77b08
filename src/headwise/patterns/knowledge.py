"""Knowledge: patterns that come from the text's words, and are worked out once per data set.

Shapes: B batch, K keys, W words of an example, E entries of a sparse matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from headwise.errors import InputError
from headwise.patterns.base import (
    Form,
    Pattern,
    ReceivedTarget,
    Target,
    Tokens,
    as_rows,
    as_shares,
    digest,
    options_of,
)

# The one or two texts of an example.
Texts = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class WordMatrix:
    """What is known about the words of one example: a symmetric matrix, of which one half is kept."""

    spans: NDArray[np.int32]
    """[W,3] of each word: which text it stands in, its first character, and the one after its last."""
    rows: NDArray[np.int32]
    """[E]"""
    columns: NDArray[np.int32]
    """[E] with rows <= columns; no pair twice."""
    values: NDArray[np.float32]
    """[E] above 0."""

    def dense(self) -> NDArray[np.float32]:
        """[W,W], symmetric."""
        matrix = np.zeros((len(self.spans), len(self.spans)), np.float32)
        matrix[self.rows, self.columns] = self.values
        matrix[self.columns, self.rows] = self.values
        return matrix


class WordVectors(Protocol):
    """Something that knows vectors of words, such as an encoder's input embeddings."""

    @property
    def fingerprint(self) -> str:
        """Changes when the vectors do."""

    def look_up(self, words: Sequence[str]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """[n,D] a vector for each word, and [n] whether the word is known (its vector counts)."""


@dataclass(frozen=True)
class Resources:
    """What a source of knowledge may draw on besides the texts."""

    data: Path | None = None
    """The folder below which the files that a recipe names lie; None: they are found from where we are."""
    embeddings: WordVectors | None = None
    """The encoder's own input embeddings."""


# Called in other processes, with a part of the examples: it must be picklable, and give one matrix per example.
Builder = Callable[[Sequence[Texts]], list[WordMatrix]]


class Spread(Protocol):
    """Applies a picklable function to every part of the examples, in several processes; yields in order."""

    def __call__(self, function: Callable[[Sequence[Texts]], Any], examples: Sequence[Texts]) -> Iterable[Any]:
        """One answer for each part."""


class Knowledge(Pattern):
    """Base of the patterns that come from words. A subclass says how to make the matrices of words.

    As a target, the matrix W is spread over sub-words; a map is pulled to its rows, each divided by its sum, and
    received attention to its column means. Words about which nothing is known have no target.
    """

    form: ClassVar[Form] = "received"
    from_corpus: ClassVar[bool] = False
    """Whether the values depend on the training texts, not only on the example's own."""

    @property
    def key(self) -> str:
        """Tells this pattern with these options from others."""
        return f"{self.name}-{digest(options_of(self))[:8]}"

    def entry(self, form: Form) -> str:
        """The name under which a batch carries this knowledge."""
        return f"{self.key}:{form}"

    def fingerprint(self, resources: Resources) -> dict[str, Any]:
        """What decides the values besides options and texts: versions and hashes of models and files. Plain data.

        Refuses, with the way out, what is not installed or not there; so it is called before any work is done.
        """
        return {}

    def builder(self, corpus: Sequence[Texts], resources: Resources, spread: Spread) -> Builder:
        """The function that makes the matrices.

        Args:
            corpus: the training texts (only for those with `from_corpus`; empty otherwise).
            resources: what else there is to draw on.
            spread: to work through the corpus in parallel.
        """
        raise NotImplementedError

    def target(self, tokens: Tokens) -> Target:
        """Each row of the matrix as shares of its sum."""
        return as_rows(self._carried(tokens, "map") * (tokens.valid.unsqueeze(1) & tokens.valid.unsqueeze(2)))

    def received(self, tokens: Tokens) -> ReceivedTarget:
        """The column means as shares of their sum."""
        return as_shares(self._carried(tokens, "received") * tokens.valid)

    def _carried(self, tokens: Tokens, form: Form) -> Tensor:
        if self.entry(form) not in tokens.knowledge:
            raise InputError(
                f"the batch carries no {self.name} knowledge ({self.entry(form)}): build it with "
                "headwise.training.add_knowledge and let it through to the model (remove_unused_columns=False)."
            )
        return tokens.knowledge[self.entry(form)]
