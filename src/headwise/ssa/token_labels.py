"""Labels of all tokens of a data set, as one flat row.

Shapes: N examples, T tokens of all of them together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise.errors import InputError
from headwise.ssa.rules import IGNORED, Flags, Rule, Values

# Which tokens are text: those that may be hidden, labelled and pooled.


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


# The training set as the labeller needs it: flat ids, which of them are text, and gold labels; read once.


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


@dataclass(frozen=True)
class TokenLabels:
    """Labels of all tokens, one example after the other; NaN where there is none."""

    values: Values
    """[T]"""
    starts: NDArray[numpy.int64]
    """[N+1] where each example begins, and the end of the last."""

    def __len__(self) -> int:
        """How many examples there are."""
        return len(self.starts) - 1

    def of(self, index: int) -> Values:
        """The labels of an example's tokens."""
        place = range(len(self))[index]  # negative ones count from the end, and those beyond it raise
        return self.values[self.starts[place] : self.starts[place + 1]]


def assembled(found: Values, kept: Flags, text: Flags, starts: NDArray[numpy.int64], rule: Rule) -> TokenLabels:
    """What probes found, with what a rule says where they found nothing.

    Args:
        found: [T] labels of the tokens that accepted probes hid, NaN at others.
        kept: [N] which examples count as labelled.
        text: [T] which tokens are text.
        starts: [N+1] where examples begin.
        rule: says what other tokens get.
    """
    labelled = numpy.repeat(kept, numpy.diff(starts))  # [T]
    inside = numpy.where(numpy.isnan(found), rule.rest, found)
    values = numpy.where(text, numpy.where(labelled, inside, rule.unprobed), IGNORED)
    return TokenLabels(values.astype(numpy.float32), starts)


def shuffled(labels: TokenLabels, kept: Flags, text: Flags, key: tuple[int, ...]) -> TokenLabels:
    """A control: the labels of all kept examples, dealt anew, and thrown among the text tokens of each.

    As many tokens of every example have a label as before, and the labels of the epoch are the same, so base rate and
    amount stay. Neither the tokens nor the examples have anything to do with them: that an example was easily upset is
    lost as well, which shuffling within it would keep, since one probe gives all its tokens the same label. Generators
    are keyed by (*key, ...), so the order of work does not matter.
    """
    values = labels.values.copy()
    inside = numpy.repeat(kept, numpy.diff(labels.starts)) & ~numpy.isnan(values)  # [T]
    values[inside] = numpy.random.default_rng([*key, 0]).permutation(values[inside])
    for example in numpy.flatnonzero(kept).tolist():
        begin, end = labels.starts[example], labels.starts[example + 1]
        places = begin + numpy.flatnonzero(text[begin:end])
        values[places] = numpy.random.default_rng([*key, 1, example]).permutation(values[places])
    return TokenLabels(values, labels.starts)


def summary(labels: TokenLabels) -> dict[str, Any]:
    """How many tokens have a label, and its mean."""
    known = labels.values[~numpy.isnan(labels.values)]
    # Summed as float64: a long row of ones stops growing in float32.
    base_rate = float(known.mean(dtype=numpy.float64)) if len(known) else 0.0
    return {"base_rate": base_rate, "labelled_tokens": float(len(known))}
