"""Which tokens are text: those that may be hidden, labelled and pooled.

Not: padding, and what the tokenizer puts around texts ([CLS], [SEP], <s>, </s>, also the second </s> of RoBERTa's
pairs). But: unknown words and mask tokens, which stand for text, though tokenizers call them special.

Shapes: B examples, T tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise.errors import InputError

FRAMES = ("cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id", "pad_token_id")


@dataclass(frozen=True)
class TextTokens:
    """The ids of a tokenizer that are not text, and the one that hides text."""

    frame_ids: tuple[int, ...]
    mask_id: int

    @classmethod
    def of(cls, tokenizer: Any) -> TextTokens:
        """Ask a tokenizer."""
        mask = getattr(tokenizer, "mask_token_id", None)
        if mask is None:
            raise InputError(
                f"SSA hides tokens behind a mask token, and {type(tokenizer).__name__} has none: use an encoder that "
                "was pretrained with one, or set tokenizer.mask_token."
            )
        found = {getattr(tokenizer, name, None) for name in FRAMES}
        return cls(tuple(sorted({int(each) for each in found if each is not None} - {int(mask)})), int(mask))

    def eligible(self, ids: Tensor, attention_mask: Tensor | None, special: Tensor | None = None) -> Tensor:
        """[B,T] True at tokens of the text; `special` is the tokenizer's special_tokens_mask, if there is one."""
        if special is None:
            frame = torch.isin(ids, torch.tensor(self.frame_ids, device=ids.device, dtype=ids.dtype))
        else:
            frame = special != 0
        text = ~frame
        return text if attention_mask is None or attention_mask.dim() != 2 else text & (attention_mask != 0)

    def segments(self, ids: NDArray[Any]) -> list[NDArray[numpy.int64]]:
        """For each text of an example without padding the places of its tokens, ascending; empty texts are left out."""
        places = numpy.flatnonzero(~numpy.isin(ids, self.frame_ids))
        cuts = numpy.flatnonzero(numpy.diff(places) > 1) + 1
        return [part for part in numpy.split(places, cuts) if len(part)]
