"""Where the tokens of somebody else's data set stand in their texts: tokenise again, and compare.

Shapes: T tokens of an example as it is, U tokens of it uncut.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import InputError
from headwise.tasks import Encoded, Split, encode

UNCUT = 2**30  # tokens; the tokenizer wants to be told a length


def as_texts(texts: Iterable[str | Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """One or two texts for each example, whichever way they were given."""
    found = tuple((each,) if isinstance(each, str) else tuple(each) for each in texts)
    for example, each in enumerate(found):
        if not 1 <= len(each) <= 2 or len(each) != len(found[0]) or not all(isinstance(text, str) for text in each):
            raise InputError(
                f"texts: example {example} is {each!r:.80}; expected one text, or two, and as many for all examples."
            )
    return found


def tokens_of(data: Any, texts: Sequence[tuple[str, ...]], tokenizer: Any) -> Encoded:
    """The tokens that the examples of a data set have, with their offsets.

    Args:
        data: an indexable data set of dicts with input_ids, and attention_mask if they are padded.
        texts: what the input_ids were made of; they may have been cut, at any length and in either text.
        tokenizer: what made them.
    """
    if len(data) != len(texts):
        raise InputError(f"{len(data)} examples, but {len(texts)} texts: expected as many; give each example its own.")
    uncut = encode(Split(tuple(texts), (None,) * len(texts)), tokenizer, UNCUT, offsets=True)
    if uncut.offsets is None or uncut.sources is None:  # never: they were asked for
        raise InputError("the tokenizer gives no offsets: load a fast tokenizer.")
    kept = []
    for example in range(len(texts)):
        begin, end = uncut.starts[example], uncut.starts[example + 1]
        places = _kept(_ids(data[example]), uncut.ids[begin:end], uncut.sources[begin:end], tokenizer)
        if places is None:
            raise InputError(
                f"example {example}: its input_ids are not what {type(tokenizer).__name__} makes of "
                f"{texts[example]!r:.80}; give the texts in the order of the data set, and the tokenizer that made it."
            )
        kept.append(begin + places)
    order = np.concatenate(kept)
    return replace(
        uncut,
        ids=uncut.ids[order],
        starts=np.cumsum([0, *map(len, kept)], dtype=np.int64),
        types=None,
        offsets=uncut.offsets[order],
        sources=uncut.sources[order],
    )


def _ids(item: Any) -> NDArray[np.int64]:
    """[T] the tokens of an example, without padding."""
    ids = np.asarray(item["input_ids"], np.int64)
    return ids[np.asarray(item["attention_mask"]) != 0] if "attention_mask" in item else ids


def _kept(
    ids: NDArray[np.int64], uncut: NDArray[np.int32], sources: NDArray[np.int8], tokenizer: Any
) -> NDArray[np.int64] | None:
    """[T] which of the uncut tokens [U] an example still has; None if it does not come from them."""
    if len(ids) == len(uncut):
        return np.arange(len(ids)) if np.array_equal(ids, uncut) else None
    first, second = (np.flatnonzero(sources == number) for number in (0, 1))
    room = len(ids) - (len(uncut) - len(first) - len(second))  # for words: special tokens are never cut
    for size in _sizes_of_first(ids, uncut, first, second, room):
        if not (0 <= size <= len(first) and 0 <= room - size <= len(second)):
            continue
        lost = np.concatenate([_cut(first, size, tokenizer), _cut(second, room - size, tokenizer)])
        places = np.delete(np.arange(len(uncut)), lost)
        if np.array_equal(uncut[places], ids):
            return places
    return None


def _sizes_of_first(
    ids: NDArray[np.int64], uncut: NDArray[np.int32], first: NDArray[Any], second: NDArray[Any], room: int
) -> list[int]:
    """How many tokens may be left of the first text: up to where the token that follows it uncut stands now."""
    if not len(first):
        return [0]
    if not len(second):
        return [room]
    begin = int(first[0])
    return np.flatnonzero(ids[begin:] == uncut[first[-1] + 1]).tolist()


def _cut(places: NDArray[Any], size: int, tokenizer: Any) -> NDArray[Any]:
    """The places of a text that are lost when `size` are left."""
    return places[: len(places) - size] if tokenizer.truncation_side == "left" else places[size:]
