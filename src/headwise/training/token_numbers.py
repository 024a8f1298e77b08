"""Whether a model has an embedding for every token that its tokenizer gives."""

from __future__ import annotations

from typing import Any

import numpy
from numpy.typing import ArrayLike

from headwise.errors import InputError


def check_vocabulary(tokenizer: Any, model: Any) -> None:
    """Refuse a tokenizer with a token for which the model has no embedding, also one that it puts around texts."""
    around: list[int] = tokenizer("a", "a")["input_ids"]
    check_tokens([*tokenizer.get_vocab().values(), *around], tokenizer, model)


def check_tokens(numbers: ArrayLike, tokenizer: Any, model: Any) -> None:
    """Refuse numbers of tokens for which the model has no embedding: it would fail in the middle of a batch."""
    rows, last = model.get_input_embeddings().num_embeddings, int(numpy.max(numbers, initial=0))
    if last >= rows:
        raise InputError(
            f"the tokenizer of {tokenizer.name_or_path} gives tokens up to number {last}, and the model has embeddings "
            f"for {rows}: one of its files was changed; restore it, or save the model again."
        )
