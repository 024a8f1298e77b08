"""Patterns of place: look at the first token, at the next one, or at the one before.

Places are counted over tokens, so padding before, behind or between them makes no difference. The released code
(Deshpande & Narasimhan 2020) knows no padding: it counts columns, asks padding for the pattern as well, and pulls the
row that has no next or previous column to zeros, which no softmax can give. Here such rows are left out.

Shapes: B batch, Q queries, K keys.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from headwise.patterns.base import Pattern, Target, Tokens, register_pattern


@register_pattern("first")
class First(Pattern):
    """Every token looks at the first one: T[q,k] = 1 if k is the first token of the example, else 0."""

    on_special: ClassVar[bool] = True  # [CLS] in all families that we know

    def target(self, tokens: Tokens) -> Target:
        """One-hot rows, for every token."""
        first = tokens.valid & (tokens.valid.cumsum(1) == 1)  # [B,K]
        return _rows(first.unsqueeze(1) & tokens.valid.unsqueeze(2))


@register_pattern("next")
class Next(Pattern):
    """Every token looks at the one after it: T[q,k] = 1 if k is the next token; the last one has no target."""

    def target(self, tokens: Tokens) -> Target:
        """One-hot rows, for every token but the last."""
        return _rows(_step(tokens.valid))


@register_pattern("prev")
class Prev(Pattern):
    """Every token looks at the one before it: T[q,k] = 1 if k is the token before q; the first one has no target."""

    def target(self, tokens: Tokens) -> Target:
        """One-hot rows, for every token but the first."""
        return _rows(_step(tokens.valid).transpose(1, 2))


def _step(valid: Tensor) -> Tensor:
    """[B,Q,K] True where the key is the token right after the query."""
    place = valid.cumsum(1)  # [B,K] counts tokens; padding has the place of the token before it, so it is masked out
    after = place.unsqueeze(1) == place.unsqueeze(2) + 1
    return after & valid.unsqueeze(1) & valid.unsqueeze(2)


def _rows(wanted: Tensor) -> Target:
    """A target of which every row has one key or none."""
    return Target(wanted.to(torch.float32), wanted.any(2))
