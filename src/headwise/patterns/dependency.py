"""dependency: words that are joined in the dependency tree.

Shapes: W words of an example, n words of a text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from headwise.errors import InputError, choices
from headwise.patterns.base import register_pattern
from headwise.patterns.conllu_trees import file_hash, read_conllu
from headwise.patterns.knowledge import Builder, Knowledge, Resources, Spread, Texts, WordMatrix
from headwise.patterns.parsers import DEFAULT_MODEL, OwnParser, ParserFunction, SpacyParser, find_function

FUNCTION_NAME = re.compile(r"\w+(\.\w+)*:\w+(\.\w+)*")


class Parser(Protocol):
    """Finds the trees of many texts. Sent to other processes: it must be picklable."""

    def __call__(self, texts: Sequence[str]) -> Iterator[NDArray[np.int32]]:
        """For each text [n,3]: of each word its first character, the one after its last, and its head (a root: own)."""


@register_pattern("dependency")
class Dependency(Knowledge):
    """Words should look at the words that they are joined with in the dependency tree (Table 2 of arXiv 2204.02922).

        W[x,y] = 1 if an arc joins x and y, in either direction, else 0

    The arc to the root does not count, so the diagonal is 0. The two texts of a pair are parsed on their own: no arc
    joins them.

    Relations: pmi and wordsim also say which words belong together, but of words as such, wherever they stand;
    dependency says it of words in their sentence.

    Differences from the authors' released code: there, the two words of an arc are looked up by their text, so that a
    word that occurs twice gets the arcs of both places (in "the dog saw the cat" both "the" would be joined to "dog"
    and to "cat"). Here words are told apart by where they stand.
    """

    needs: ClassVar[str] = "a parser: spaCy (`headwise[knowledge]`), CoNLL-U files, or one of yours"

    source: str | ParserFunction | OwnParser = "spacy"
    """Where trees come from: "spacy", "conllu" (a file), a function, or "package.module:function".

    In a recipe, the name of a function needs permission: --allow-code on the command line.

    A function takes a text and returns its words as (start, end, head): their characters, and the index of the head
    among the words returned (a root: its own index, or None).
    """
    model: str = DEFAULT_MODEL
    """For spacy: the pipeline, by the name of its installed package or by its folder; its data alone are loaded."""
    path: str | None = None
    """For conllu: the file, below the data folder unless absolute."""
    punctuation: bool = True
    """Whether arcs to punctuation (words of nothing but punctuation characters) count."""

    def __post_init__(self) -> None:
        """Check the options, alone and together."""
        if isinstance(self.path, PathLike):
            object.__setattr__(self, "path", str(self.path))
        if callable(self.source) and not isinstance(self.source, OwnParser):
            object.__setattr__(self, "source", OwnParser(self.source))
        _check_source(self.source)
        _check_together(self)
        if not isinstance(self.punctuation, bool):
            raise InputError(f"dependency(punctuation={self.punctuation!r}): expected true or false.")

    @property
    def named_code(self) -> tuple[str, str]:
        """A function by name; one that was passed as such names nothing."""
        named = isinstance(self.source, str) and self.source not in ("spacy", "conllu")
        return ("source", str(self.source)) if named else ("", "")

    def fingerprint(self, resources: Resources) -> dict[str, Any]:
        """Versions of spaCy and its model, or a hash of the file, or of the function."""
        if self.source == "conllu":
            return {"file": file_hash(self._file(resources))}
        parser = self._function_or_spacy()
        return parser.identity if isinstance(parser, OwnParser) else parser.fingerprint()

    def builder(self, corpus: Sequence[Texts], resources: Resources, spread: Spread) -> Builder:
        """The function that makes the matrices; a file is read here, spaCy loads in the processes that parse."""
        del corpus, spread
        if self.source == "conllu":
            return DependencyBuilder(read_conllu(self._file(resources)), self.punctuation)
        return DependencyBuilder(self._function_or_spacy(), self.punctuation)

    def _function_or_spacy(self) -> OwnParser | SpacyParser:
        if isinstance(self.source, OwnParser):
            return self.source
        return SpacyParser(self.model) if self.source == "spacy" else find_function(str(self.source))

    def _file(self, resources: Resources) -> Path:
        return (resources.data or Path()) / Path(self.path or "").expanduser()


@dataclass(frozen=True)
class DependencyBuilder:
    """Makes the matrices of a part of the examples."""

    parser: Parser
    punctuation: bool = True

    def __call__(self, examples: Sequence[Texts]) -> list[WordMatrix]:
        """One matrix per example; a text that occurs in several is parsed once."""
        distinct = list(dict.fromkeys(text for texts in examples for text in texts))
        trees = dict(zip(distinct, self.parser(distinct), strict=True))
        return [self._matrix(texts, [trees[text] for text in texts]) for texts in examples]

    def _matrix(self, texts: Texts, trees: Sequence[NDArray[np.int32]]) -> WordMatrix:
        spans, arcs, count = [np.zeros((0, 3), np.int32)], [np.zeros((0, 2), np.int64)], 0
        for number, (text, tree) in enumerate(zip(texts, trees, strict=True)):
            words, joined = _words_and_arcs(tree)
            if not self.punctuation:
                joined = joined[~_punctuation(text, words)[joined].any(1)]
            spans.append(np.insert(words, 0, number, axis=1))
            arcs.append(joined + count)
            count += len(words)
        pairs = np.concatenate(arcs).astype(np.int32)
        return WordMatrix(np.concatenate(spans), pairs[:, 0], pairs[:, 1], np.ones(len(pairs), np.float32))


def _words_and_arcs(tree: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """[W,2] and [E,2]: the words of a text, and the pairs that an arc joins, the smaller index first.

    Words that share their characters ("du" is "de" and "le") are one word, which has the arcs of all of them.
    """
    new = np.ones(len(tree), bool)
    new[1:] = (tree[1:, :2] != tree[:-1, :2]).any(1)
    place = np.cumsum(new) - 1  # [n] from the parser's words to ours
    pairs = np.sort(np.stack([place, place[tree[:, 2]]], 1), 1)
    return tree[new, :2], np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0)


def _punctuation(text: str, words: NDArray[np.int32]) -> NDArray[np.bool_]:
    """[W] which words are punctuation: by their characters, so that it is the same for all sources."""
    return np.array([all(unicodedata.category(each)[0] == "P" for each in text[a:b]) for a, b in words], bool)


def _check_source(source: Any) -> None:
    if isinstance(source, OwnParser) or source in ("spacy", "conllu"):
        return
    if not isinstance(source, str) or not FUNCTION_NAME.fullmatch(source):
        raise InputError(
            f"dependency(source={source!r:.100}): {choices(str(source), ['spacy', 'conllu'])}, or a function given as "
            "package.module:function."
        )


def _check_together(pattern: Dependency) -> None:
    if not isinstance(pattern.model, str) or not pattern.model:
        raise InputError(f"dependency(model={pattern.model!r}): expected the name or the folder of a spaCy pipeline.")
    if pattern.path is not None and (not isinstance(pattern.path, str) or not pattern.path):
        raise InputError(f"dependency(path={pattern.path!r}): expected the path of a CoNLL-U file.")
    if pattern.source == "conllu" and pattern.path is None:
        raise InputError("dependency(source='conllu') needs a file: give path, the CoNLL-U file with the parsed texts.")
    if pattern.source != "conllu" and pattern.path is not None:
        raise InputError(
            f"dependency(path={pattern.path!r}) goes with source: conllu, not with {pattern.source!r}; drop one."
        )
    if pattern.source != "spacy" and pattern.model != DEFAULT_MODEL:
        raise InputError(
            f"dependency(model={pattern.model!r}) goes with source: spacy, not with {pattern.source!r}; drop one."
        )
