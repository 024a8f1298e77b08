"""The training set as the labeller needs it: flat ids, which of them are text, and gold labels; read once.

Shapes: N examples, T tokens of all of them together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy
from numpy.typing import NDArray

from headwise.errors import InputError
from headwise.ssa.judge import Flags
from headwise.ssa.text_tokens import TextTokens


@dataclass(frozen=True, eq=False)
class Examples:
    """A data set, and what is asked of it often; nothing here is ever written to."""

    data: Any
    ids: NDArray[Any]
    """[T] token ids."""
    starts: NDArray[numpy.int64]
    """[N+1] where each example begins, and the end of the last."""
    text: Flags
    """[T] which tokens are text."""
    gold: NDArray[Any]
    """[N] the labels of the task."""
    words: NDArray[numpy.int64] | None
    """[T] the word of each token, -1 for none; only if words are hidden whole."""

    def __len__(self) -> int:
        """How many examples there are."""
        return len(self.starts) - 1

    def part(self, example: int) -> slice:
        """Where the tokens of an example are."""
        return slice(int(self.starts[example]), int(self.starts[example + 1]))

    def segments(self, example: int) -> list[NDArray[numpy.int64]]:
        """For each text of an example the places of its tokens, as `TextTokens.segments` finds them."""
        begins, ends, first = self._runs
        start, runs = self.starts[example], slice(first[example], first[example + 1])
        return [numpy.arange(begin, end) for begin, end in zip(begins[runs] - start, ends[runs] - start, strict=True)]

    @cached_property
    def _runs(self) -> tuple[NDArray[numpy.int64], NDArray[numpy.int64], NDArray[numpy.int64]]:
        """Where runs of text begin and end, and [N+1] the first run of each example; found for all at once."""
        first = numpy.zeros(len(self.text) + 1, bool)
        first[self.starts] = True
        last_of_run = self.text & (first[1:] | ~numpy.append(self.text[1:], False))
        first_of_run = self.text & (first[:-1] | ~numpy.append(False, self.text[:-1]))
        begins = numpy.flatnonzero(first_of_run)
        return begins, numpy.flatnonzero(last_of_run) + 1, numpy.searchsorted(begins, self.starts)


def read_examples(data: Any, tokens: TextTokens, *, whole_words: bool) -> Examples:
    """Read a data set: `data[i]` has input_ids without padding and labels; word_ids too if words are hidden whole."""
    if not len(data):
        raise InputError("SSA has nothing to label: give a training set with at least one example.")
    flat = all(getattr(data, name, None) is not None for name in ("ids", "starts", "labels"))
    items = [] if flat and not whole_words else [_needed(data[index]) for index in range(len(data))]
    ids, starts = (numpy.asarray(data.ids), numpy.asarray(data.starts, numpy.int64)) if flat else _joined(items)
    text = ~numpy.isin(ids, tokens.frame_ids)
    _check_text(text, starts)
    gold = _gold(data.labels if flat else [labels for _, labels, _ in items])
    words = _words([word_ids for _, _, word_ids in items], starts) if whole_words else None
    return Examples(data, ids, starts, text, gold, words)


def _needed(item: Mapping[str, Any]) -> tuple[NDArray[Any], Any, Any]:
    return numpy.asarray(item["input_ids"]), item.get("labels"), item.get("word_ids")


def _joined(items: Sequence[tuple[NDArray[Any], Any, Any]]) -> tuple[NDArray[Any], NDArray[numpy.int64]]:
    rows = [ids for ids, _, _ in items]
    return numpy.concatenate(rows), numpy.cumsum([0, *map(len, rows)], dtype=numpy.int64)


def _check_text(text: Flags, starts: NDArray[numpy.int64]) -> None:
    before = numpy.concatenate([[0], numpy.cumsum(text)])
    bare = numpy.flatnonzero(before[starts[1:]] == before[starts[:-1]])
    if len(bare):
        raise InputError(
            f"example {bare[0]} (from 0) of the training set has no token of text, so SSA has nothing to hide in it "
            f"({len(bare)} of {len(starts) - 1} are like that): remove it."
        )


def _gold(labels: Sequence[Any]) -> NDArray[numpy.float64]:
    gold = numpy.array([numpy.nan if label is None else float(label) for label in labels])
    missing = numpy.flatnonzero(~numpy.isfinite(gold))
    if len(missing):
        raise InputError(
            f"SSA asks whether the model is right, and example {missing[0]} (from 0) of the training set has no label: "
            "give every example one, or remove it."
        )
    return gold


def _words(rows: Sequence[Any], starts: NDArray[numpy.int64]) -> NDArray[numpy.int64]:
    for index, (row, length) in enumerate(zip(rows, numpy.diff(starts).tolist(), strict=True)):
        if row is None or len(row) != length:
            got = "none" if row is None else len(row)
            raise InputError(
                f"ssa.whole_words needs the word_ids of each token, and example {index} (from 0) has {got} for "
                f"{length} tokens: add them to the data, or set whole_words: false."
            )
    return numpy.array([-1 if word is None else int(word) for row in rows for word in row], numpy.int64)
