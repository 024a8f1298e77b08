"""Texts to token ids, once for all epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headwise.data.examples import Label, Spans, Split
from headwise.data.options import one_of
from headwise.errors import InputError, is_panic

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

if TYPE_CHECKING:
    from tokenizers import Encoding
    from transformers import PreTrainedTokenizerBase


# Encoded examples to padded batches of tensors.


Item = Mapping[str, Any]


@dataclass(frozen=True)
class Collator:
    """Pads examples to the longest of the batch, or all to one length; keeps nothing between batches."""

    pad_id: int
    kind: str = "classification"
    padding: str = "dynamic"
    """Either dynamic, to the longest of the batch, or fixed, to max_length."""
    max_length: int | None = None
    side: str = "right"
    multiple_of: int = 1
    """Dynamic lengths are rounded up to a multiple of this, though never past max_length."""
    pad_type_id: int = 0

    def __post_init__(self) -> None:
        """Refuse settings that cannot work."""
        one_of(self.kind, ("classification", "regression", "ranking"), "kind")
        one_of(self.padding, ("dynamic", "fixed"), "padding")
        one_of(self.side, ("right", "left"), "side")
        if self.multiple_of < 1:
            raise InputError(f"multiple_of: expected 1 or more, got {self.multiple_of}; leave it out for none.")
        if self.padding == "fixed" and self.max_length is None:
            raise InputError("padding: fixed needs max_length; give it, or use dynamic.")

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, kind: str, **settings: Any) -> Collator:
        """A collator that pads as a tokenizer would."""
        if tokenizer.pad_token_id is None:
            raise InputError(f"{type(tokenizer).__name__} has no padding token: set tokenizer.pad_token.")
        own = {"side": tokenizer.padding_side, "pad_type_id": tokenizer.pad_token_type_id}
        return cls(tokenizer.pad_token_id, kind, **{**own, **settings})

    def __call__(self, items: Sequence[Item]) -> dict[str, Tensor]:
        """A batch: input_ids, attention_mask, and token_type_ids and labels if the examples have them."""
        import torch

        if not items:
            raise InputError("an empty batch: give at least one example.")
        real = self._real([len(item["input_ids"]) for item in items])
        arrays: dict[str, NDArray[Any]] = {
            "input_ids": _filled("input_ids", items, real, self.pad_id),
            "attention_mask": real.astype(np.int64),
        }
        if "token_type_ids" in items[0]:
            arrays["token_type_ids"] = _filled("token_type_ids", items, real, self.pad_type_id)
        if "labels" in items[0]:
            dtype = np.int64 if self.kind == "classification" else np.float32
            labels = np.array([item["labels"] for item in items], dtype)
            # One logit each: transformers' binary cross-entropy wants labels of the logits' shape.
            arrays["labels"] = labels[:, None] if self.kind == "ranking" else labels
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def _real(self, sizes: Sequence[int]) -> NDArray[np.bool_]:
        """[B,T] where tokens go."""
        lengths, width = np.array(sizes)[:, None], self._width(max(sizes))
        places = np.arange(width)[None, :]
        return places < lengths if self.side == "right" else places >= width - lengths

    def _width(self, longest: int) -> int:
        limit = self.max_length
        if limit is not None and longest > limit:
            raise InputError(
                f"an example of {longest} tokens: expected at most max_length {limit}; encode it with that."
            )
        if limit is not None and self.padding == "fixed":
            return limit
        width = -(-longest // self.multiple_of) * self.multiple_of
        return width if limit is None else min(width, limit)


def _filled(name: str, items: Sequence[Item], real: NDArray[np.bool_], padding: int) -> NDArray[np.int64]:
    """[B,T] all tokens of the batch poured in at once, since a mask is filled row by row."""
    batch = np.full(real.shape, padding, np.int64)
    batch[real] = np.concatenate([item[name] for item in items])
    return batch


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
