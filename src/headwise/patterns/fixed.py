"""Fixed patterns: attend to the first, the next or the previous token, to separators, or to full stops.

Positions are counted over tokens, so padding before, behind or between them makes no difference. The released code
(Deshpande & Narasimhan 2020) knows no padding: it counts columns, asks padding for the pattern as well, and pulls the
row that has no next or previous column to zeros, which no softmax can give. Here such rows are left out.

Shapes: B batch, Q queries, K keys.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch
from tokenizers.pre_tokenizers import ByteLevel
from torch import Tensor

from headwise.patterns.base import Pattern, Target, Tokens, as_rows, register_pattern

SEPARATOR = "separator"
FULL_STOP = "full-stop"
PUNCTUATION = "punctuation"

# Full stop, ideographic, fullwidth, and halfwidth ideographic.
STOPS = (".", "\u3002", "\uff0e", "\uff61")
# What vocabularies write before and behind the text of a token: nothing, WordPiece, byte-level BPE, SentencePiece, and
# some at the end of a word.
MARKERS = (("", ""), ("##", ""), ("\u0120", ""), ("\u2581", ""), ("", "</w>"))


@register_pattern("first")
class First(Pattern):
    """Every token attends to the first one: T[q,k] = 1 if k is the first token of the example, else 0."""

    on_special: ClassVar[bool] = True  # [CLS] in all supported families

    def target(self, tokens: Tokens) -> Target:
        """One-hot rows, for every token."""
        first = tokens.valid & (tokens.valid.cumsum(1) == 1)  # [B,K]
        return _one_hot(first.unsqueeze(1) & tokens.valid.unsqueeze(2))


@register_pattern("next")
class Next(Pattern):
    """Every token attends to the one after it: T[q,k] = 1 if k is the next token; the last one has no target."""

    def target(self, tokens: Tokens) -> Target:
        """One-hot rows, for every token but the last."""
        return _one_hot(_following(tokens.valid))


@register_pattern("prev")
class Prev(Pattern):
    """Every token attends to the one before it: T[q,k] = 1 if k is the token before q; the first one has no target."""

    def target(self, tokens: Tokens) -> Target:
        """One-hot rows, for every token but the first."""
        return _one_hot(_following(tokens.valid).transpose(1, 2))


@register_pattern("delim")
class Delim(Pattern):
    """Every token attends to the separators: T[q,k] = 1/n if k is one of the n separators of the example, else 0.

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
    """Every token attends to the full stops: T[q,k] = 1/n if k is one of the n full stops of the example, else 0.

    A full stop is a token whose text is "." or an ideographic or fullwidth full stop. Its id alone does not say what it
    stands for: WordPiece splits "3.5" into "3", "." and "5", and that decimal point counts as a full stop, as do the
    points of abbreviations. A token that joins a stop to something else, such as RoBERTa's '."', does not.
    """

    marks: ClassVar[tuple[str, ...]] = (FULL_STOP,)
    needs: ClassVar[str] = "a tokenizer"

    def target(self, tokens: Tokens) -> Target:
        """Even rows over the full stops."""
        return _even(self.mark(tokens, FULL_STOP), tokens.valid)


def _following(valid: Tensor) -> Tensor:
    """[B,Q,K] True where the key is the token right after the query."""
    position = valid.cumsum(1)  # [B,K] over tokens; padding has the position of the token before it, and is masked out
    after = position.unsqueeze(1) == position.unsqueeze(2) + 1
    return after & valid.unsqueeze(1) & valid.unsqueeze(2)


def _one_hot(cells: Tensor) -> Target:
    """A target of which every row has one key or none."""
    return Target(cells.to(torch.float32), cells.any(2))


def _even(keys: Tensor, valid: Tensor) -> Target:
    """The same share for each of these keys [B,K], in the row of every valid query [B,Q]."""
    return as_rows((keys.unsqueeze(1) & valid.unsqueeze(2)).to(torch.float32))


def special_ids(tokenizer: Any) -> tuple[int, ...]:
    """The ids of special tokens, without that of the unknown token, which stands for a word of the text."""
    names = ("bos", "eos", "sep", "cls", "pad", "mask")
    # In some vocabularies, such as GPT-2's, the unknown token is also the end of the text: then it is special.
    named = {getattr(tokenizer, f"{name}_token_id", None) for name in names}
    unknown = {getattr(tokenizer, "unk_token_id", None)} - named
    return tuple(sorted({int(number) for number in tokenizer.all_special_ids if number not in unknown}))


def mark_ids(tokenizer: Any) -> dict[str, tuple[int, ...]]:
    """The ids of each kind of token that patterns and guides need: separator, full-stop and punctuation.

    The separator is the tokenizer's sep token, or its eos token if it has none. Punctuation is every token without a
    letter or digit. A kind of which the vocabulary has no token is left out.
    """
    numbers = (getattr(tokenizer, name, None) for name in ("sep_token_id", "eos_token_id"))
    separators = [int(number) for number in numbers if number is not None][:1]
    # As they are, and as byte-level BPE writes them: one printable character for every byte of UTF-8.
    byte_level = ByteLevel(add_prefix_space=False, use_regex=False)
    spellings = {*STOPS, *(byte_level.pre_tokenize_str(stop)[0][0] for stop in STOPS)}
    tokens = [f"{before}{stop}{after}" for stop in spellings for before, after in MARKERS]
    vocabulary = tokenizer.get_vocab()
    stops = sorted(vocabulary[token] for token in tokens if token in vocabulary)
    special = set(getattr(tokenizer, "all_special_ids", ()))
    punctuation = sorted(number for token, number in vocabulary.items() if number not in special and _wordless(token))
    marks = {SEPARATOR: tuple(separators), FULL_STOP: tuple(stops), PUNCTUATION: tuple(punctuation)}
    return {kind: ids for kind, ids in marks.items() if ids}


def _wordless(token: str) -> bool:
    """Whether a token of a vocabulary has neither letters nor digits, also if it is written byte by byte."""
    for before, after in MARKERS:
        if (before or after) and len(token) > len(before + after):
            token = token.removeprefix(before).removesuffix(after)
    if any(each.isascii() and each.isalnum() for each in token):
        return False
    if all(each in _BYTES for each in token):
        try:
            token = bytes(_BYTES[each] for each in token).decode()
        except UnicodeDecodeError:
            pass  # a part of a character, or no byte-level vocabulary at all
    return not any(each.isalnum() or unicodedata.category(each)[0] == "M" for each in token)


# The byte that a character of a byte-level vocabulary stands for: printable ones for themselves, the others in order.
_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = (each for each in range(0x100) if each not in _PRINTABLE)
_BYTES = {chr(each): each for each in _PRINTABLE} | {chr(0x100 + index): each for index, each in enumerate(_OTHERS)}


def find_marks(ids: Tensor, known: Mapping[str, tuple[int, ...]], wanted: Iterable[str]) -> dict[str, Tensor]:
    """[B,K] for each wanted kind, True at its tokens; kinds without known ids are left out.

    Args:
        ids: [B,K] input ids.
        known: the ids of each kind, from `mark_ids`.
        wanted: the kinds to look for, as in `Pattern.marks`.
    """
    return {
        kind: torch.isin(ids, torch.tensor(known[kind], dtype=ids.dtype, device=ids.device))
        for kind in wanted
        if known.get(kind)
    }
