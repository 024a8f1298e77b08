"""Somebody's Trainer and data set, as the labeller wants them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import IterableDataset

from headwise.attention import encoder_of
from headwise.data import Encoded, Split, encode
from headwise.errors import InputError, StateError
from headwise.ssa.dataset import TokenLabels
from headwise.ssa.model import IGNORED

# Where the tokens of somebody else's data set stand in their texts: tokenise again, and compare.


UNCUT = 2**30  # tokens; the tokenizer needs a length


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


# Labels of tokens on their way into batches.


Item = dict[str, Any]


class WithTokenLabels:
    """A data set whose examples carry `ssa_labels`, one number for each token; the labels change between epochs."""

    def __init__(self, data: Any) -> None:
        """Wrap a data set."""
        self.data = data
        self.labels: TokenLabels | None = None

    @property
    def lengths(self) -> Any:
        """Tokens of each example."""
        return self.data.lengths

    def __len__(self) -> int:
        """How many examples there are."""
        return len(self.data)

    def __getitem__(self, index: int) -> Item:
        """An example with the labels of its tokens; without the words that only the labeller needs."""
        item = dict(self.data[index])
        item.pop("word_ids", None)
        if self.labels is not None:
            item["ssa_labels"] = self.labels.of(index)
        return item


@dataclass(frozen=True)
class TokenLabelCollator:
    """Adds `ssa_labels` [B,T] to what another collator makes, -100 where a token has none."""

    collate: Callable[[list[Any]], Any]

    def __call__(self, items: Sequence[Item]) -> dict[str, Any]:
        """A batch; examples without token labels give one without them."""
        labels = [item["ssa_labels"] for item in items if "ssa_labels" in item]
        rest = [{name: value for name, value in item.items() if name != "ssa_labels"} for item in items]
        batch = dict(self.collate(rest))
        if labels:
            batch["ssa_labels"] = _padded(labels, batch)
        return batch


def _padded(labels: Sequence[Any], batch: dict[str, Any]) -> Tensor:
    shape = batch["input_ids"].shape
    padded = numpy.full(shape, IGNORED, numpy.float32)
    mask = batch.get("attention_mask")
    for row, values in enumerate(labels):
        if len(values) > shape[1]:
            raise InputError(
                f"an example with {len(values)} token labels came into a batch of {shape[1]} tokens: cut texts when "
                "tokenising, not in the collator."
            )
        # On the left only if this row begins with padding; examples may also come padded already.
        left = mask is not None and len(values) < shape[1] and int(mask[row, 0]) == 0
        place = slice(shape[1] - len(values), None) if left else slice(0, len(values))
        padded[row, place] = numpy.nan_to_num(values, nan=IGNORED)
    return torch.from_numpy(padded)


# What data sets call the label of an example.
LABELS = ("labels", "label", "label_ids")


class Probeable:
    """Somebody's data set as the labeller wants it: what the model knows, word_ids, and labels by that name."""

    def __init__(self, data: Any, columns: set[str] | None) -> None:
        """Wrap it; without `columns` all entries stay, but for knowledge, which only guides need."""
        self._data, self._columns = data, columns

    def __len__(self) -> int:
        """How many examples there are."""
        return len(self._data)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """An example."""
        item = dict(self._data[index])
        for name in LABELS:
            if name in item:
                item["labels"] = item.pop(name)
        item.pop("knowledge", None)
        if self._columns is None:
            return item
        return {name: value for name, value in item.items() if name in self._columns or name == "word_ids"}


@dataclass(frozen=True)
class WithoutWords:
    """A collator that is not shown the words of tokens, which only the labeller needs."""

    collate: Callable[[list[Any]], dict[str, torch.Tensor]]

    def __call__(self, items: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """A batch."""
        return self.collate([{name: value for name, value in item.items() if name != "word_ids"} for item in items])


def check_dataset(data: Any) -> None:
    """Refuse a training set that cannot be labelled."""
    if isinstance(data, WithTokenLabels):
        raise StateError("this training set has token labels already: wrap it once.")
    indexable = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    if not indexable or isinstance(data, IterableDataset):
        raise InputError("SSA labels the training set by number: give one with a length, not a stream.")


def columns_of(model: nn.Module) -> set[str]:
    """The entries of examples that a Trainer with remove_unused_columns leaves in."""
    return {*inspect.signature(encoder_of(model).forward).parameters, *LABELS}


def kind_of(config: Any) -> str:
    """What kind of answer a classifier gives, by its config."""
    problem = config.problem_type
    if config.num_labels == 1:
        return "ranking" if problem == "multi_label_classification" else "regression"
    if problem not in (None, "single_label_classification"):
        raise InputError(
            f"SSA asks whether one answer is right, and a model of {config.num_labels} labels with problem_type "
            f"{problem} gives several: expected one class or one number per example."
        )
    return "classification"
