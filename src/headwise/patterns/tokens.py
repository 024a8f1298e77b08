"""Patterns of kind: look at the separators, or at the full stops.

All tokens are queries, special ones included. An example without such a token has no target.

Shapes: B batch, Q queries, K keys.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from headwise.patterns.base import Pattern, Target, Tokens, as_rows, register_pattern
from headwise.patterns.marks import FULL_STOP, SEPARATOR


@register_pattern("delim")
class Delim(Pattern):
    """Every token looks at the separators: T[q,k] = 1/n if k is one of the n separators of the example, else 0.

    A separator is a token such as [SEP] or </s>; RoBERTa writes two between the texts of a pair, and both count.
    """

    marks: ClassVar[tuple[str, ...]] = (SEPARATOR,)
    on_special: ClassVar[bool] = True
    needs: ClassVar[str] = "a tokenizer"

    def target(self, tokens: Tokens) -> Target:
        """Even rows over the separators."""
        return _even(self.mark(tokens, SEPARATOR), tokens.valid)


@register_pattern("period")
class Period(Pattern):
    """Every token looks at the full stops: T[q,k] = 1/n if k is one of the n full stops of the example, else 0.

    A full stop is a token whose text is "." or an ideographic or fullwidth full stop. By its number alone it cannot be
    told what it stands for: WordPiece splits "3.5" into "3", "." and "5", and that decimal point counts as a full stop,
    as do the points of abbreviations. A token that joins a stop to something else, such as RoBERTa's '."', does not.
    """

    marks: ClassVar[tuple[str, ...]] = (FULL_STOP,)
    needs: ClassVar[str] = "a tokenizer"

    def target(self, tokens: Tokens) -> Target:
        """Even rows over the full stops."""
        return _even(self.mark(tokens, FULL_STOP), tokens.valid)


def _even(chosen: Tensor, valid: Tensor) -> Target:
    """The same share for every chosen key [B,K], in the row of every valid query [B,Q]."""
    return as_rows((chosen.unsqueeze(1) & valid.unsqueeze(2)).to(torch.float32))
