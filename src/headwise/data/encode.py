"""Texts to token ids, once for all epochs, and token ids to padded batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headwise.data.examples import Label, Spans, Split
from headwise.data.options import one_of
from headwise.data.task import KINDS
from headwise.errors import InputError, is_panic

if TYPE_CHECKING:
    from tokenizers import Encoding
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

BATCH = 1000  # texts per call of the tokenizer: enough to keep it busy, few enough to bound memory

# The label of tokens that count for no loss.
IGNORED = -100

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
    marks: bool = False
    """Whether batches carry the marked tokens of their examples, as rationale_mask, for guides that read marks."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot work."""
        one_of(self.kind, (*KINDS, "ranking"), "kind")
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
        defaults = {"side": tokenizer.padding_side, "pad_type_id": tokenizer.pad_token_type_id}
        return cls(tokenizer.pad_token_id, kind, **{**defaults, **settings})

    def __call__(self, items: Sequence[Item]) -> dict[str, Tensor]:
        """A batch: input_ids, attention_mask, and token_type_ids, labels and marks if the examples have them."""
        import torch

        if not items:
            raise InputError("an empty batch: give at least one example.")
        lengths = np.array([len(item["input_ids"]) for item in items])[:, None]
        longest, limit = int(lengths.max()), self.max_length
        if limit is not None and longest > limit:
            raise InputError(
                f"an example of {longest} tokens: expected at most max_length {limit}; encode it with that."
            )
        width = -(-longest // self.multiple_of) * self.multiple_of
        if limit is not None:
            width = limit if self.padding == "fixed" else min(width, limit)
        columns = np.arange(width)[None, :]
        real = columns < lengths if self.side == "right" else columns >= width - lengths  # [B,T] where tokens go
        arrays: dict[str, NDArray[Any]] = {}
        padded = {"input_ids": self.pad_id, "token_type_ids": self.pad_type_id}
        for name, padding in (padded | ({"rationale_mask": 0} if self.marks else {})).items():
            if name in items[0]:
                arrays[name] = np.full(real.shape, padding, np.int64)
                arrays[name][real] = np.concatenate([item[name] for item in items])  # a mask is filled row by row
        arrays["attention_mask"] = real.astype(np.int64)
        if "labels" in items[0] and self.kind == "token_labels":
            arrays["labels"] = np.full(real.shape, IGNORED, np.int64)
            arrays["labels"][real] = np.concatenate([item["labels"] for item in items])
        elif "labels" in items[0]:
            dtype = np.int64 if self.kind == "classification" else np.float32
            labels = np.array([item["labels"] for item in items], dtype)
            # One logit each: transformers' binary cross-entropy wants labels of the logits' shape. A re-ranker that
            # learns what its first stage misses has two numbers for each pair.
            arrays["labels"] = labels.reshape(len(items), -1) if self.kind == "ranking" else labels
        return {name: torch.from_numpy(array) for name, array in arrays.items()}


@dataclass(frozen=True, eq=False)
class Encoded:
    """Encoded examples: one flat row of ids, and where each example begins in it. Works as a torch data set."""

    ids: NDArray[np.int32]
    starts: NDArray[np.int64]
    """One more than there are examples."""
    types: NDArray[np.int8] | None
    """Token types, if the tokenizer makes them."""
    labels: tuple[Label, ...] | None
    """None unless every example has one. Of words it is the class of each word."""
    truncated: int
    """How many examples lost tokens."""
    deciding: list[NDArray[np.bool_]] | None = None
    """For each example the tokens that decide its label, if requested."""
    offsets: NDArray[np.int32] | None = None
    """[N,2] for each token its first character and the one after its last, if requested."""
    sources: NDArray[np.int8] | None = None
    """[N] for each token the number of its text, -1 for special tokens; there when the offsets are."""
    words: NDArray[np.int32] | None = None
    """[N] for each token the number of its word in its text, -1 for special tokens, if requested."""
    firsts: list[NDArray[np.int32]] | None = None
    """For each example the position of the first token of each word, -1 if the word was cut off; if requested."""

    @property
    def flat_labels(self) -> NDArray[np.float64]:
        """All labels in a row."""
        rows = [np.atleast_1d(np.asarray(label, np.float64)) for label in self.labels or ()]
        return np.concatenate(rows) if rows else np.empty(0)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How many tokens each example has."""
        return np.diff(self.starts)

    def __len__(self) -> int:
        """How many examples there are."""
        return len(self.starts) - 1

    def __getitem__(self, index: int) -> dict[str, Any]:
        """An example: input_ids, token_type_ids, labels, word_ids and rationale_mask, as far as there are any."""
        index = range(len(self))[index]  # negative ones count from the end, and those beyond it raise
        part = slice(self.starts[index], self.starts[index + 1])
        item: dict[str, Any] = {"input_ids": self.ids[part]}
        if self.types is not None:
            item["token_type_ids"] = self.types[part]
        if self.labels is not None:
            item["labels"] = self.labels[index] if self.firsts is None else self._token_labels(index)
        if self.words is not None:
            item["word_ids"] = self.words[part]
        if self.deciding is not None:
            item["rationale_mask"] = self.deciding[index]
        return item

    def _token_labels(self, index: int) -> NDArray[np.int64]:
        """[T] the label of a word at its first token, and nowhere else."""
        labels, firsts = np.asarray((self.labels or ())[index]), (self.firsts or [])[index]
        tokens = np.full(int(self.lengths[index]), IGNORED, np.int64)
        tokens[firsts[firsts >= 0]] = labels[firsts >= 0]
        return tokens


class RationaleCollator:
    """Any collator, for examples that also have a `rationale_mask`: a list with 1 at marked tokens.

        collate = hw.data.RationaleCollator(DataCollatorWithPadding(tokenizer))
        Trainer(model=model, data_collator=collate, args=TrainingArguments(..., remove_unused_columns=False), ...)

    A guided model does not pass the mask on; `hw.Rationale` reads it.
    """

    def __init__(self, collate: Callable[[list[dict[str, Any]]], Mapping[str, Any]]) -> None:
        """Wrap a collator that pads everything else and makes an attention_mask."""
        self._collate = collate

    def __call__(self, features: Sequence[Item]) -> dict[str, Any]:
        """The batch of the wrapped collator, with `rationale_mask` [B,T]."""
        import torch

        rest = [{name: value for name, value in each.items() if name != "rationale_mask"} for each in features]
        batch = dict(self._collate(rest))
        if "attention_mask" not in batch:
            raise InputError(
                "RationaleCollator needs an attention_mask in the batch: give it a collator such as "
                "DataCollatorWithPadding(tokenizer)."
            )
        real = batch["attention_mask"] != 0  # [B,T]
        masks = [
            torch.as_tensor(each.get("rationale_mask", [0] * int(real[n].sum()))) for n, each in enumerate(features)
        ]
        for number, mask in enumerate(masks):
            if len(mask) != int(real[number].sum()):
                raise InputError(
                    f"rationale_mask of example {number} of the batch has {len(mask)} values for "
                    f"{int(real[number].sum())} tokens: make it by headwise.data.rationale_mask."
                )
        marked = torch.zeros(real.shape, dtype=torch.int64)
        marked[real] = torch.cat(masks).to(torch.int64)
        return {**batch, "rationale_mask": marked}


def rationale_mask(tokens: Any, spans: Sequence[Sequence[Sequence[int]]]) -> list[list[int]]:
    """1 at each token that shares a character with a marked span: for a column of a data set.

        tokens = tokenizer(texts, truncation=True)
        tokens["rationale_mask"] = hw.data.rationale_mask(tokens, spans)

    Args:
        tokens: what a fast tokenizer returned for a list of texts, or of pairs.
        spans: for each text the marked characters as (start, end); of pairs (sentence, start, end), sentence 0 or 1.
            An empty list for a text without marks.

    Returns:
        A list per text, as long as its input_ids.
    """
    encodings = getattr(tokens, "encodings", None)
    if not encodings or len(encodings) != len(spans):
        count = "none of a fast tokenizer" if not encodings else len(encodings)
        raise InputError(
            f"rationale_mask got spans of {len(spans)} texts and {count} tokenized texts: expected what a fast "
            "tokenizer returns for a list of as many texts."
        )
    full = [tuple((each[0] if len(each) == 3 else 0, each[-2], each[-1]) for each in of_text) for of_text in spans]
    return [_deciding(encoding, each).astype(int).tolist() for encoding, each in zip(encodings, full, strict=True)]


def encode(
    split: Split,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    *,
    spans: bool = False,
    offsets: bool = False,
    words: bool = False,
    firsts: bool = False,
) -> Encoded:
    """Tokenise a split with special tokens and without padding.

    Args:
        split: the examples.
        tokenizer: a fast tokenizer.
        max_length: the longest example in tokens; the longer text of a pair is cut first.
        spans: whether to find the tokens of the split's spans.
        offsets: whether to keep where in its text each token is.
        words: whether to keep which word each token belongs to.
        firsts: whether to keep where each word begins; words have one blank between them.

    Returns:
        The encoded examples, in the same order.
    """
    if offsets and not tokenizer.is_fast:
        raise InputError(
            f"{type(tokenizer).__name__} has no word ids, so the word of a token is not known: load a fast "
            "tokenizer (a model folder needs its tokenizer.json)."
        )
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
    arrays: dict[str, list[NDArray[Any]]] = {"ids": [], "types": [], "offsets": [], "sources": [], "words": []}
    lengths: list[int] = []
    deciding: list[NDArray[np.bool_]] = []
    begins: list[NDArray[np.int32]] = []
    truncated = 0
    for begin in range(0, len(split), BATCH):
        part = split.subset(range(begin, min(begin + BATCH, len(split))))
        tokens = _tokenise(part, tokenizer, max_length)
        encodings: list[Encoding] = tokens.encodings or []
        lengths += map(len, tokens["input_ids"])
        truncated += sum(bool(encoding.overflowing) for encoding in encodings)
        arrays["ids"].append(np.fromiter(chain.from_iterable(tokens["input_ids"]), np.int32))
        if "token_type_ids" in tokens:
            arrays["types"].append(np.fromiter(chain.from_iterable(tokens["token_type_ids"]), np.int8))
        if spans:
            deciding += map(_deciding, encodings, part.spans or ())
        if firsts:
            begins += (first_tokens(texts[0], each) for texts, each in zip(part.texts, encodings, strict=True))
        if offsets:
            flat = chain.from_iterable(chain.from_iterable(encoding.offsets for encoding in encodings))
            arrays["offsets"].append(np.fromiter(flat, np.int32).reshape(-1, 2))
            arrays["sources"] += [_numbers(encoding.sequence_ids, np.int8) for encoding in encodings]
        if words:
            arrays["words"] += [_numbers(encoding.word_ids, np.int32) for encoding in encodings]
    joined = {name: np.concatenate(parts) if parts else None for name, parts in arrays.items()}
    return Encoded(
        starts=np.cumsum([0, *lengths], dtype=np.int64),
        labels=split.labels if split.labelled else None,
        truncated=truncated,
        deciding=deciding if spans else None,
        firsts=begins if firsts else None,
        **joined,  # type: ignore[arg-type]
    )


def _tokenise(part: Split, tokenizer: PreTrainedTokenizerBase, max_length: int) -> Any:
    try:
        return tokenizer(
            *([texts[index] for texts in part.texts] for index in range(len(part.texts[0]))),
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


def _numbers(numbers: Iterable[int | None], dtype: type[np.integer[Any]]) -> NDArray[Any]:
    """[T] the numbers, -1 where there is none."""
    return np.fromiter((-1 if number is None else number for number in numbers), dtype)


def first_tokens(text: str, encoding: Encoding) -> NDArray[np.int32]:
    """[W] the position of the first token of each word of a text with single blanks, -1 where it has none.

    By characters: what tokenizers call a word is another thing, since most of them cut "U.S." into four.
    """
    word_at = np.cumsum(np.frombuffer(text.encode("utf-32-le"), np.uint32) == ord(" "))  # [characters]
    firsts = np.full(text.count(" ") + 1, -1, np.int32)
    for position, (start, end) in enumerate(encoding.offsets):
        while start < end and text[start] == " ":  # some tokens begin with the blank before the word
            start += 1
        if start < end and firsts[word_at[start]] < 0:
            firsts[word_at[start]] = position
    return firsts


def _deciding(encoding: Encoding, spans: Spans) -> NDArray[np.bool_]:
    """[T] which tokens share a character with a span."""
    offsets = np.asarray(encoding.offsets)  # [T,2]
    sentences = _numbers(encoding.sequence_ids, np.int8)  # [T]
    tokens = np.zeros(len(sentences), dtype=bool)
    for sentence, start, end in spans:
        overlap = np.minimum(offsets[:, 1], end) - np.maximum(offsets[:, 0], start)
        tokens |= (sentences == sentence) & (overlap > 0)
    return tokens
