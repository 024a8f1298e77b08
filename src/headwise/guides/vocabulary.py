"""What a tokenizer tells guides about the tokens of a batch.

Shapes: B batch, K keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from headwise.errors import InputError
from headwise.patterns import find_marks, mark_ids


@dataclass(frozen=True)
class Vocabulary:
    """Which ids are special, and which are tokens of a kind; empty if no tokenizer was given."""

    name: str = ""
    special_ids: tuple[int, ...] = ()
    ids: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By the kind of token, such as separator."""

    @classmethod
    def of(cls, tokenizer: Any) -> Vocabulary:
        """Ask a tokenizer."""
        if tokenizer is None:
            return cls()
        special = getattr(tokenizer, "all_special_ids", None)
        if special is None:
            raise InputError(
                f"tokenizer={tokenizer!r:.80}: expected a tokenizer of transformers, such as "
                "AutoTokenizer.from_pretrained(...)."
            )
        known = mark_ids(tokenizer) if hasattr(tokenizer, "get_vocab") else {}
        return cls(type(tokenizer).__name__, tuple(sorted(set(special))), known)

    def check(self, guide: str, marks: Sequence[str]) -> None:
        """Refuse a guide that needs tokens of which nobody told, or which the tokenizer does not have."""
        for mark in marks:
            if not self.name:
                raise InputError(f"guide {guide} cannot tell which tokens are a {mark}: pass tokenizer=... to guide().")
            if mark not in self.ids:
                raise InputError(f"guide {guide} needs a {mark} token, and {self.name} has none: leave the guide out.")

    def special(self, ids: Tensor | None) -> Tensor | None:
        """[B,K] True at special tokens; None if that cannot be told."""
        if not self.name or ids is None:
            return None
        return torch.isin(ids, torch.tensor(self.special_ids, device=ids.device))

    def marks(self, ids: Tensor | None, wanted: Sequence[str]) -> dict[str, Tensor]:
        """[B,K] True at the tokens of each wanted kind, as far as that can be told."""
        return {} if ids is None else find_marks(ids, self.ids, wanted)
