"""What a pattern is: tokens in, the attention that one might want out. No model, no loss.

Shapes: B batch, Q queries, K keys.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, Literal, TypeVar, dataclass_transform

import torch
from torch import Tensor

from headwise.code_permission import refuse_code
from headwise.errors import InputError
from headwise.registry import Registry, politely

PATTERNS = Registry("pattern")

Kind = TypeVar("Kind", bound="type[Pattern]")
Form = Literal["map", "received"]


@dataclass(frozen=True)
class Tokens:
    """A batch, as far as patterns are concerned."""

    valid: Tensor
    """[B,K] True where a position is a token, False where it is padding (on either side, or in between)."""
    marks: Mapping[str, Tensor] = field(default_factory=dict)
    """[B,K] True at tokens of a kind, by the name of the kind: separator, full-stop."""
    knowledge: Mapping[str, Tensor] = field(default_factory=dict)
    """What the batch carries of knowledge, by `Knowledge.entry`: [B,K,K] for maps, [B,K] for received attention."""


@dataclass(frozen=True)
class Target:
    """Where attention should go."""

    rows: Tensor
    """[B,Q,K] float32: for each query a distribution over the valid keys; all 0 for a query without a target."""
    present: Tensor
    """[B,Q] bool: which queries have a target. Padding never has one."""


@dataclass(frozen=True)
class ReceivedTarget:
    """How attention should be shared out over the keys, whoever gives it."""

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
    """The kinds of tokens that it must be told of."""
    form: ClassVar[Form] = "map"
    """What a guide compares with it unless told otherwise."""
    on_special: ClassVar[bool] = False
    """Whether it wants special tokens to be looked at, and no others."""
    needs: ClassVar[str] = "nothing"
    """What a user must have, in a few words."""

    @property
    def named_code(self) -> tuple[str, str]:
        """An option that names Python code to import, and the code; both empty if there is none.

        Code that a recipe or a record names is imported only with permission (see `code_permission`).
        """
        return "", ""

    def target(self, tokens: Tokens) -> Target:
        """The rows of the map that this pattern wants."""
        raise NotImplementedError

    def received(self, tokens: Tokens) -> ReceivedTarget:
        """The same summed over the queries that have a target, as shares of the whole."""
        target = self.target(tokens)
        return as_shares(target.rows.sum(1))

    def mark(self, tokens: Tokens, name: str) -> Tensor:
        """[B,K] the tokens of a kind, which the batch must know."""
        if name not in tokens.marks:
            raise InputError(
                f"pattern {self.name} cannot tell which tokens are a {name}: call the model with input_ids, and give "
                "the tokenizer to guide()."
            )
        return tokens.marks[name] & tokens.valid


@dataclass_transform(frozen_default=True, kw_only_default=True)
def register_pattern(name: str) -> Callable[[Kind], Kind]:
    """Make a class a pattern: a frozen dataclass under a name, with unknown options answered by the known ones."""

    def decorate(kind: Kind) -> Kind:
        made: Any = dataclass(frozen=True, kw_only=True)(kind)
        made.name = name
        made.__init__ = politely(made, f"pattern {name}")
        PATTERNS.add(name, made)
        return kind

    return decorate


def build_pattern(choice: Pattern | str | Mapping[str, Any]) -> Pattern:
    """A pattern from itself, from its name, or from its name with options, as a recipe gives it."""
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
