"""Encoded examples to padded batches of tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import InputError
from headwise.tasks.checks import one_of

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

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
