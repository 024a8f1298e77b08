"""Texts to token ids, once for all epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import InputError, is_panic
from headwise.tasks.split import Label, Spans, Split

if TYPE_CHECKING:
    from tokenizers import Encoding
    from transformers import PreTrainedTokenizerBase

BATCH = 1000  # texts per call of the tokenizer: enough to keep it busy, few enough to bound memory


@dataclass(frozen=True, eq=False)
class Encoded:
    """Encoded examples: one flat row of ids, and where each example begins in it. Works as a torch data set."""

    ids: NDArray[np.int32]
    starts: NDArray[np.int64]
    """One more than there are examples."""
    types: NDArray[np.int8] | None
    """Token types, if the tokenizer makes them."""
    labels: tuple[Label, ...] | None
    """None unless every example has one."""
    truncated: int
    """How many examples lost tokens."""
    deciding: list[NDArray[np.bool_]] | None = None
    """For each example the tokens that decide its label, if asked for."""
    offsets: NDArray[np.int32] | None = None
    """[N,2] of each token its first character and the one after its last, if asked for."""
    sources: NDArray[np.int8] | None = None
    """[N] of each token the number of its text, -1 for special tokens; there when the offsets are."""
    words: NDArray[np.int32] | None = None
    """[N] of each token the number of its word in its text, -1 for special tokens, if asked for."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How many tokens each example has."""
        return np.diff(self.starts)

    def __len__(self) -> int:
        """How many examples there are."""
        return len(self.starts) - 1

    def __getitem__(self, index: int) -> dict[str, Any]:
        """An example: input_ids, token_type_ids, labels and word_ids, as far as there are any."""
        place = range(len(self))[index]  # negative ones count from the end, and those beyond it raise
        part = slice(self.starts[place], self.starts[place + 1])
        item: dict[str, Any] = {"input_ids": self.ids[part]}
        if self.types is not None:
            item["token_type_ids"] = self.types[part]
        if self.labels is not None:
            item["labels"] = self.labels[place]
        if self.words is not None:
            item["word_ids"] = self.words[part]
        return item


def encode(
    split: Split,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    *,
    spans: bool = False,
    offsets: bool = False,
    words: bool = False,
) -> Encoded:
    """Tokenise a split with special tokens and without padding.

    Args:
        split: the examples.
        tokenizer: a fast tokenizer.
        max_length: the longest example in tokens; the longer text of a pair is cut first.
        spans: whether to find the tokens of the split's spans.
        offsets: whether to keep where in its text each token stands.
        words: whether to keep which word each token is of.

    Returns:
        The encoded examples, in the same order.
    """
    if offsets and not tokenizer.is_fast:
        raise InputError(
            f"{type(tokenizer).__name__} has no word ids, so it cannot tell which word a token belongs to: load a fast "
            "tokenizer (a model folder needs its tokenizer.json)."
        )
    _check(split, tokenizer, max_length, spans=spans)
    begins = range(0, len(split), BATCH)
    parts = [split.subset(range(begin, min(begin + BATCH, len(split)))) for begin in begins]
    wanted = {"spans": spans, "offsets": offsets, "words": words}
    return _joined([_encode_part(part, tokenizer, max_length, **wanted) for part in parts], split)


def _check(split: Split, tokenizer: PreTrainedTokenizerBase, max_length: int, *, spans: bool) -> None:
    if not len(split):
        raise InputError("there is nothing to encode: give a split with at least one example.")
    if not tokenizer.is_fast:
        raise InputError(f"{type(tokenizer).__name__} is a slow tokenizer: load one with use_fast=True.")
    special = tokenizer.num_special_tokens_to_add(pair=len(split.texts[0]) == 2)
    if max_length <= special:
        raise InputError(
            f"max_length {max_length} leaves no room beside the {special} special tokens: expected more than that; "
            "raise it."
        )
    if spans and split.spans is None:
        raise InputError("the split does not say which spans decide its labels: use a task that does, such as clinic.")


def _encode_part(
    part: Split, tokenizer: PreTrainedTokenizerBase, max_length: int, *, spans: bool, offsets: bool, words: bool
) -> Encoded:
    try:
        found = tokenizer(
            *([texts[place] for texts in part.texts] for place in range(len(part.texts[0]))),
            truncation="longest_first",
            max_length=max_length,
            padding=False,
            return_attention_mask=False,
        )
    except BaseException as error:
        if not is_panic(error):
            raise
        raise InputError(
            f"the tokenizer of {tokenizer.name_or_path} failed on these texts ({error}): its tokenizer.json is "
            "damaged; restore it, or save the model again."
        ) from error
    encodings: list[Encoding] = found.encodings or []
    starts = np.cumsum([0, *(len(ids) for ids in found["input_ids"])], dtype=np.int64)
    types = found.get("token_type_ids")
    return Encoded(
        ids=np.fromiter(chain.from_iterable(found["input_ids"]), np.int32, starts[-1]),
        starts=starts,
        types=None if types is None else np.fromiter(chain.from_iterable(types), np.int8, starts[-1]),
        labels=None,
        truncated=sum(bool(encoding.overflowing) for encoding in encodings),
        deciding=list(map(_deciding, encodings, part.spans or ())) if spans else None,
        offsets=_offsets(encodings) if offsets else None,
        sources=np.concatenate([_sources(encoding) for encoding in encodings]) if offsets else None,
        words=np.concatenate([_words(encoding) for encoding in encodings]) if words else None,
    )


def _words(encoding: Encoding) -> NDArray[np.int32]:
    """[T] the word of each token in its text, -1 for special tokens."""
    return np.fromiter((-1 if number is None else number for number in encoding.word_ids), np.int32)


def _offsets(encodings: Sequence[Encoding]) -> NDArray[np.int32]:
    """[N,2] first character of every token and the one after its last."""
    flat = chain.from_iterable(chain.from_iterable(encoding.offsets for encoding in encodings))
    return np.fromiter(flat, np.int32).reshape(-1, 2)


def _sources(encoding: Encoding) -> NDArray[np.int8]:
    """[T] the text of each token, -1 for special tokens."""
    return np.fromiter((-1 if number is None else number for number in encoding.sequence_ids), np.int8)


def _deciding(encoding: Encoding, spans: Spans) -> NDArray[np.bool_]:
    """[T] which tokens share a character with a span."""
    offsets = np.asarray(encoding.offsets)  # [T,2]
    sentences = _sources(encoding)  # [T]
    chosen = np.zeros(len(sentences), dtype=bool)
    for sentence, start, end in spans:
        overlap = np.minimum(offsets[:, 1], end) - np.maximum(offsets[:, 0], start)
        chosen |= (sentences == sentence) & (overlap > 0)
    return chosen


def _joined(parts: Sequence[Encoded], split: Split) -> Encoded:
    lengths = np.concatenate([part.lengths for part in parts])
    types = [part.types for part in parts if part.types is not None]
    deciding = [tokens for part in parts for tokens in part.deciding or ()]
    offsets = [part.offsets for part in parts if part.offsets is not None]
    sources = [part.sources for part in parts if part.sources is not None]
    words = [part.words for part in parts if part.words is not None]
    return Encoded(
        ids=np.concatenate([part.ids for part in parts]),
        starts=np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
        types=np.concatenate(types) if types else None,
        labels=split.labels if split.labelled else None,
        truncated=sum(part.truncated for part in parts),
        deciding=deciding if parts[0].deciding is not None else None,
        offsets=np.concatenate(offsets) if offsets else None,
        sources=np.concatenate(sources) if sources else None,
        words=np.concatenate(words) if words else None,
    )
