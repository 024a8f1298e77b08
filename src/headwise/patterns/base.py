"""What a pattern is: tokens in, the attention that one might want out. No model, no loss.

Knowledge is a pattern that comes from the words of the text and is computed once per data set.

Shapes: B batch, Q queries, K keys, W words of an example, E entries of a sparse matrix.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeVar, dataclass_transform

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise.errors import InputError
from headwise.limits import refuse_code
from headwise.registry import Registry, politely

# A new pattern is one file and one line here: its name, and the module that registers it.
PATTERNS = Registry(
    "pattern",
    {
        "dependency": "headwise.patterns.dependency",
        "first": "headwise.patterns.fixed",
        "next": "headwise.patterns.fixed",
        "prev": "headwise.patterns.fixed",
        "delim": "headwise.patterns.fixed",
        "period": "headwise.patterns.fixed",
        "pmi": "headwise.patterns.pmi",
        "relations": "headwise.patterns.relations",
        "wordsim": "headwise.patterns.wordsim",
    },
)

Kind = TypeVar("Kind", bound="type[Pattern]")
Form = Literal["map", "received"]
# The one or two texts of an example.
Texts = tuple[str, ...]


@dataclass(frozen=True)
class Tokens:
    """A batch, as far as patterns are concerned."""

    valid: Tensor
    """[B,K] True where a position is a token, False where it is padding (on either side, or in between)."""
    marks: Mapping[str, Tensor] = field(default_factory=dict)
    """[B,K] True at tokens of a kind, by the name of the kind: separator, full-stop."""
    knowledge: Mapping[str, Tensor] = field(default_factory=dict)
    """The knowledge that the batch carries, by `Knowledge.entry`: [B,K,K] for maps, [B,K] for received attention."""


@dataclass(frozen=True)
class Target:
    """Where attention should go."""

    rows: Tensor
    """[B,Q,K] float32: for each query a distribution over the valid keys; all 0 for a query without a target."""
    present: Tensor
    """[B,Q] bool: which queries have a target. Padding never has one."""


@dataclass(frozen=True)
class ReceivedTarget:
    """How attention should be shared out over the keys, whichever query it comes from."""

    shares: Tensor
    """[B,K] float32: a distribution over the valid keys; all 0 for an example without a target."""
    present: Tensor
    """[B] bool: which examples have a target."""


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """Base of all patterns: a frozen dataclass whose fields are its options.

    @register_pattern("mine")
    class Mine(Pattern):
        def target(self, tokens):
            return Target(rows, present)
    """

    name: ClassVar[str] = "pattern"
    marks: ClassVar[tuple[str, ...]] = ()
    """The kinds of tokens that it needs to know."""
    form: ClassVar[Form] = "map"
    """What a guide compares with it by default."""
    on_special: ClassVar[bool] = False
    """Whether it directs attention to special tokens, and to no others."""
    needs: ClassVar[str] = "nothing"
    """What a user must have, in a few words."""

    @property
    def named_code(self) -> tuple[str, str]:
        """An option that names Python code to import, and the code; both empty if there is none.

        Code that a recipe or a record names is imported only with permission (see `limits`).
        """
        return "", ""

    def target(self, tokens: Tokens) -> Target:
        """The rows of the map that this pattern asks for."""
        raise NotImplementedError

    def received(self, tokens: Tokens) -> ReceivedTarget:
        """The same summed over the queries that have a target, as shares of the whole."""
        return as_shares(self.target(tokens).rows.sum(1))

    def mark(self, tokens: Tokens, name: str) -> Tensor:
        """[B,K] the tokens of a kind, which the batch must know."""
        if name not in tokens.marks:
            raise InputError(
                f"pattern {self.name} does not know which tokens are a {name}: call the model with input_ids, and pass "
                "the tokenizer to guide()."
            )
        return tokens.marks[name] & tokens.valid


@dataclass_transform(frozen_default=True, kw_only_default=True)
def register_pattern(name: str) -> Callable[[Kind], Kind]:
    """Make a class a pattern: a frozen dataclass under a name, with unknown options answered by the known ones."""

    def decorate(kind: Kind) -> Kind:
        pattern: Any = dataclass(frozen=True, kw_only=True)(kind)
        pattern.name = name
        pattern.__init__ = politely(pattern, f"pattern {name}")
        PATTERNS.add(name, pattern)
        return kind

    return decorate


def build_pattern(choice: Pattern | str | Mapping[str, Any]) -> Pattern:
    """A pattern from itself, from its name, or from its name with options as in a recipe."""
    if isinstance(choice, Pattern):
        return choice
    if isinstance(choice, str):
        choice = {"name": choice}
    if not isinstance(choice, Mapping) or not isinstance(choice.get("name"), str):
        raise InputError(
            f"pattern {choice!r:.200}: expected a name such as 'next', or a name with options such as "
            "{name: pmi, window: 5}."
        )
    options = {str(key): value for key, value in choice.items() if key != "name"}
    pattern = PATTERNS[choice["name"]](**options)
    if not isinstance(pattern, Pattern):
        raise InputError(f"{choice['name']!r} is not a pattern.")
    return pattern


def refuse_named_code(pattern: Pattern, where: str) -> None:
    """Refuse a pattern of a file that names Python code, unless that is allowed; `where` is the key of the pattern."""
    option, code = pattern.named_code
    refuse_code(code, f"{where}.{option}")


def as_shares(weights: Tensor) -> ReceivedTarget:
    """Non-negative weights [B,K] as shares of their sum."""
    total = weights.sum(1, keepdim=True)
    return ReceivedTarget(weights / total.clamp_min(torch.finfo(weights.dtype).tiny), total[:, 0] > 0)


def as_rows(weights: Tensor) -> Target:
    """Non-negative weights [B,Q,K], each row as shares of its sum; rows of zeros have no target."""
    total = weights.sum(2, keepdim=True)
    return Target(weights / total.clamp_min(torch.finfo(weights.dtype).tiny), total[..., 0] > 0)


def package_folders(name: str) -> list[Path]:
    """The folders of an installed package, which is not imported; none if there is no such package."""
    package = importlib.util.find_spec(name)
    return [Path(folder) for folder in (package and package.submodule_search_locations) or ()]


def options_of(pattern: Pattern) -> dict[str, Any]:
    """The options of a pattern as plain data."""
    return {each.name: _plain(getattr(pattern, each.name)) for each in fields(pattern)}


def digest(data: Any) -> str:
    """A short hash of plain data."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if isinstance(value, str | int | float | bool | None) else repr(value)


@dataclass(frozen=True, eq=False)
class WordMatrix:
    """What is known about the words of one example: a symmetric matrix, of which one half is stored."""

    spans: NDArray[np.int32]
    """[W,3] of each word: the number of its text, its first character, and the one after its last."""
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
    """A source of word vectors, such as an encoder's input embeddings."""

    @property
    def fingerprint(self) -> str:
        """Changes when the vectors do."""

    def look_up(self, words: Sequence[str]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """[n,D] a vector for each word, and [n] whether the word is known (its vector counts)."""


@dataclass(frozen=True)
class Resources:
    """What knowledge may come from besides the texts."""

    data: Path | None = None
    """The folder of the files that a recipe names; None: the current folder."""
    embeddings: WordVectors | None = None
    """The encoder's input embeddings."""


# Called in other processes with a part of the examples: it must be picklable, and return one matrix per example.
Builder = Callable[[Sequence[Texts]], list[WordMatrix]]
# Applies a picklable function to parts of the examples in several processes; yields one result per part, in order.
Spread = Callable[[Callable[[Sequence[Texts]], Any], Sequence[Texts]], Iterable[Any]]


class Knowledge(Pattern):
    """Base of the patterns that come from words. A subclass says how to build the matrices of words.

    As a target, the matrix W is spread over sub-words; a map is pulled to its rows, each divided by its sum, and
    received attention to its column means. Words about which nothing is known have no target.
    """

    form: ClassVar[Form] = "received"
    from_corpus: ClassVar[bool] = False
    """Whether the values depend on the training texts, not only on those of the example."""
    unknown: ClassVar[str] = "knows nothing about any word"
    """What a message says before "of the N training examples" if there is not a single value."""

    @property
    def key(self) -> str:
        """Identifies this pattern with these options."""
        return f"{self.name}-{digest(options_of(self))[:8]}"

    def entry(self, form: Form) -> str:
        """The name under which a batch carries this knowledge."""
        return f"{self.key}:{form}"

    def fingerprint(self, resources: Resources) -> dict[str, Any]:
        """What decides the values besides options and texts: versions and hashes of models and files. Plain data.

        Raises an InputError, with the fix, for anything that is missing; so it is called before any work is done.
        """
        return {}

    def builder(self, corpus: Sequence[Texts], resources: Resources, spread: Spread) -> Builder:
        """The function that builds the matrices.

        Args:
            corpus: the training texts (only for patterns with `from_corpus`; empty otherwise).
            resources: other sources.
            spread: to process the corpus in parallel.
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
