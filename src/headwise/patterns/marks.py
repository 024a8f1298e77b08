"""Which tokens are separators or full stops, told by their ids alone, for any tokenizer of transformers.

Shapes: B batch, K keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

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
