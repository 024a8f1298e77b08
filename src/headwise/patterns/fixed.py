"""Patterns of place: look at the first token, at the next one, or at the one before.

Places are counted over tokens, so padding before, behind or between them makes no difference. The released code
(Deshpande & Narasimhan 2020) knows no padding: it counts columns, asks padding for the pattern as well, and pulls the
row that has no next or previous column to zeros, which no softmax can give. Here such rows are left out.

Shapes: B batch, Q queries, K keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from headwise.patterns.base import Pattern, Target, Tokens, as_rows, register_pattern


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


# Which tokens are separators or full stops, told by their ids alone, for any tokenizer of transformers.


SEPARATOR = "separator"
FULL_STOP = "full-stop"

# Full stop, ideographic, fullwidth, and halfwidth ideographic.
STOPS = (".", "\u3002", "\uff0e", "\uff61")
# What vocabularies write before the text of a token: WordPiece, byte-level BPE, SentencePiece.
PREFIXES = ("##", "\u0120", "\u2581")
# What some write behind it, at the end of a word.
SUFFIX = "</w>"


def mark_ids(tokenizer: Any) -> dict[str, tuple[int, ...]]:
    """The ids of each kind of token that patterns ask for: separator and full-stop.

    The separator is the tokenizer's sep token, or its eos token if it has none. A kind of which the vocabulary has no
    token is left out.
    """
    found = {SEPARATOR: _separators(tokenizer), FULL_STOP: _full_stops(tokenizer)}
    return {kind: ids for kind, ids in found.items() if ids}


def find_marks(ids: Tensor, known: Mapping[str, tuple[int, ...]], wanted: Iterable[str]) -> dict[str, Tensor]:
    """[B,K] for each wanted kind, True at its tokens; kinds without known ids are left out.

    Args:
        ids: [B,K] input ids.
        known: the ids of each kind, as `mark_ids` gives them.
        wanted: the kinds to look for, as `Pattern.marks` names them.
    """
    return {
        kind: torch.isin(ids, torch.tensor(known[kind], dtype=ids.dtype, device=ids.device))
        for kind in wanted
        if known.get(kind)
    }


def _separators(tokenizer: Any) -> tuple[int, ...]:
    for name in ("sep_token_id", "eos_token_id"):
        number = getattr(tokenizer, name, None)
        if number is not None:
            return (int(number),)
    return ()


def _full_stops(tokenizer: Any) -> tuple[int, ...]:
    surfaces = {*STOPS, *map(_as_bytes, STOPS)}
    return tuple(sorted(number for token, number in tokenizer.get_vocab().items() if _bare(token) in surfaces))


def _bare(token: str) -> str:
    """The text of a token without the marker of its vocabulary."""
    for prefix in PREFIXES:
        if token.startswith(prefix):
            return token[len(prefix) :]
    return token.removesuffix(SUFFIX)


def _as_bytes(text: str) -> str:
    """The text as byte-level BPE writes it: one printable character for every byte of UTF-8.

    Bytes that print as themselves in Latin-1 stay; the others are numbered from 256 on, in their order.
    """
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [byte for byte in range(256) if byte not in printable]
    return "".join(chr(byte if byte in printable else 256 + others.index(byte)) for byte in text.encode())


# Patterns of kind: look at the separators, or at the full stops.


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
