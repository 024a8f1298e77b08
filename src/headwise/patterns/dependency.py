"""dependency: words that are joined in the dependency tree.

Shapes: W words of an example, n words of a text, E arcs.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from headwise.errors import InputError, choices
from headwise.patterns.base import Builder, Knowledge, Resources, Spread, Texts, WordMatrix, register_pattern
from headwise.patterns.parsers import (
    DEFAULT_MODEL,
    OwnParser,
    Parser,
    ParserFunction,
    SpacyParser,
    Tree,
    conllu_hash,
    read_conllu,
)

FUNCTION_NAME = re.compile(r"\w+(\.\w+)*:\w+(\.\w+)*")


@register_pattern("dependency")
class Dependency(Knowledge):
    """Words should attend to the words that they are joined with in the dependency tree (Table 2 of arXiv 2204.02922).

        W[x,y] = 1 if an arc joins x and y, in either direction, else 0

    The arc to the root does not count, so the diagonal is 0. The two texts of a pair are parsed separately: no arc
    joins them.

    Relations: pmi and wordsim also say which words belong together, but of words in general; dependency says it of
    words in their sentence.

    Differences from the authors' released code: there, the two words of an arc are looked up by their text, so that a
    word that occurs twice gets the arcs of both occurrences (in "the dog saw the cat" both "the" would be joined to
    "dog" and to "cat"). Here words are identified by their position.
    """

    needs: ClassVar[str] = "a parser: spaCy (`headwise[knowledge]`), CoNLL-U files, or one of yours"

    source: str | ParserFunction | OwnParser = "spacy"
    """Where trees come from: "spacy", "conllu" (a file), a function, or "package.module:function".

    In a recipe, the name of a function needs permission: allow_code.

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
        source = self.source
        if not isinstance(source, OwnParser) and source not in ("spacy", "conllu"):
            if not isinstance(source, str) or not FUNCTION_NAME.fullmatch(source):
                raise InputError(
                    f"dependency(source={source!r:.100}): {choices(str(source), ['spacy', 'conllu'])}, or a function "
                    "given as package.module:function."
                )
        texts = {"model": (self.model, "name or the folder of a spaCy pipeline")}
        if self.path is not None:
            texts["path"] = (self.path, "path of a CoNLL-U file")
        for option, (value, expected) in texts.items():
            if not isinstance(value, str) or not value:
                raise InputError(f"dependency({option}={value!r}): expected the {expected}.")
        if source == "conllu" and self.path is None:
            raise InputError(
                "dependency(source='conllu') needs a file: give path, the CoNLL-U file with the parsed texts."
            )
        used = {"path": ("conllu", self.path is not None), "model": ("spacy", self.model != DEFAULT_MODEL)}
        for option, (owner, is_set) in used.items():
            if is_set and source != owner:
                raise InputError(
                    f"dependency({option}={getattr(self, option)!r}) goes with source: {owner}, not with {source!r}; "
                    "drop one."
                )
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
            return {"file": conllu_hash(self._file(resources))}
        return self._parser().identity

    def builder(self, corpus: Sequence[Texts], resources: Resources, spread: Spread) -> Builder:
        """The function that builds the matrices; a file is read here, spaCy loads in the processes that parse."""
        parser = read_conllu(self._file(resources)) if self.source == "conllu" else self._parser()
        return functools.partial(self._matrices, parser)

    def _parser(self) -> OwnParser | SpacyParser:
        if isinstance(self.source, OwnParser):
            return self.source
        return SpacyParser(self.model) if self.source == "spacy" else OwnParser.named(str(self.source))

    def _file(self, resources: Resources) -> Path:
        return (resources.data or Path()) / Path(self.path or "").expanduser()

    def _matrices(self, parser: Parser, examples: Sequence[Texts]) -> list[WordMatrix]:
        """One matrix per example; a text that occurs in several is parsed once."""
        distinct = list(dict.fromkeys(text for texts in examples for text in texts))
        trees = dict(zip(distinct, parser(distinct), strict=True))
        return [self._matrix(texts, [trees[text] for text in texts]) for texts in examples]

    def _matrix(self, texts: Texts, trees: Sequence[Tree]) -> WordMatrix:
        spans, arcs, count = [np.zeros((0, 3), np.int32)], [np.zeros((0, 2), np.int64)], 0
        for number, (text, tree) in enumerate(zip(texts, trees, strict=True)):
            # Words that share their characters ("du" is "de" and "le") are one word, with the arcs of all of them.
            new = np.ones(len(tree), bool)
            new[1:] = (tree[1:, :2] != tree[:-1, :2]).any(1)
            word = np.cumsum(new) - 1  # [n] from the parser's words to ours
            words = tree[new, :2]  # [W,2]
            pairs = np.sort(np.stack([word, word[tree[:, 2]]], 1), 1)
            joined = np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0)  # [E,2]
            if not self.punctuation:  # by characters, so that it is the same for all sources
                marks = [all(unicodedata.category(each)[0] == "P" for each in text[a:b]) for a, b in words]
                joined = joined[~np.array(marks, bool)[joined].any(1)]
            spans.append(np.insert(words, 0, number, axis=1))
            arcs.append(joined + count)
            count += len(words)
        both = np.concatenate(arcs).astype(np.int32)
        return WordMatrix(np.concatenate(spans), both[:, 0], both[:, 1], np.ones(len(both), np.float32))
