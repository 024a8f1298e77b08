"""The training set as flat arrays: which tokens are text, which ones a probe hides, and the label of each.

Shapes: N examples, T tokens of all examples together, P probes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy
from numpy.typing import NDArray

from headwise.errors import InputError
from headwise.ssa.model import TextTokens
from headwise.ssa.rules import UNLABELLED, Flags, Values
from headwise.ssa.sampling import Indices


@dataclass(frozen=True, eq=False)
class Examples:
    """A training set, read once; nothing here is ever written to."""

    data: Any
    ids: NDArray[Any]
    """[T] token ids."""
    starts: Indices
    """[N+1] where each example begins, and the end of the last."""
    text: Flags
    """[T] which tokens are text."""
    gold: NDArray[numpy.float64]
    """[N] the labels of the task."""
    words: Indices | None
    """[T] the word of each token, -1 for none; only if whole words are hidden."""

    def __len__(self) -> int:
        """How many examples there are."""
        return len(self.starts) - 1

    def part(self, example: int) -> slice:
        """Where the tokens of an example are."""
        return slice(int(self.starts[example]), int(self.starts[example + 1]))

    def segments(self, example: int) -> list[Indices]:
        """For each text of an example, a run of text tokens, the positions of its tokens in the example."""
        begins, ends, first = self._runs
        start, runs = self.starts[example], slice(first[example], first[example + 1])
        return [numpy.arange(begin, end) for begin, end in zip(begins[runs] - start, ends[runs] - start, strict=True)]

    @cached_property
    def _runs(self) -> tuple[Indices, Indices, Indices]:
        """Where runs of text begin and end, and [N+1] the first run of each example; computed for all at once."""
        first = numpy.zeros(len(self.text) + 1, bool)
        first[self.starts] = True
        last_of_run = self.text & (first[1:] | ~numpy.append(self.text[1:], False))
        first_of_run = self.text & (first[:-1] | ~numpy.append(False, self.text[:-1]))
        begins = numpy.flatnonzero(first_of_run)
        return begins, numpy.flatnonzero(last_of_run) + 1, numpy.searchsorted(begins, self.starts)


def read_examples(data: Any, tokens: TextTokens, *, whole_words: bool) -> Examples:
    """Read a data set: `data[i]` has input_ids without padding, labels, and word_ids for `whole_words`."""
    if not len(data):
        raise InputError("SSA has nothing to label: give a training set with at least one example.")
    flat = all(getattr(data, name, None) is not None for name in ("ids", "starts", "labels"))
    items: list[tuple[NDArray[Any], Any, Any]] = []  # ids, label, words
    if whole_words or not flat:
        rows = (data[index] for index in range(len(data)))
        items = [(numpy.asarray(row["input_ids"]), row.get("labels"), row.get("word_ids")) for row in rows]
    if flat:
        ids, starts, labels = numpy.asarray(data.ids), numpy.asarray(data.starts, numpy.int64), data.labels
    else:
        ids = numpy.concatenate([item[0] for item in items])
        starts = numpy.cumsum([0, *(len(item[0]) for item in items)], dtype=numpy.int64)
        labels = [item[1] for item in items]
    text = ~numpy.isin(ids, tokens.special_ids)
    before = numpy.concatenate([[0], numpy.cumsum(text)])
    empty = numpy.flatnonzero(before[starts[1:]] == before[starts[:-1]])
    if len(empty):
        raise InputError(
            f"example {empty[0]} (from 0) of the training set has no token of text, so SSA has nothing to hide in it "
            f"({len(empty)} of {len(starts) - 1} are like that): remove it."
        )
    gold = numpy.array([numpy.nan if label is None else float(label) for label in labels])
    missing = numpy.flatnonzero(~numpy.isfinite(gold))
    if len(missing):
        raise InputError(
            f"SSA checks whether the model is right, and example {missing[0]} (from 0) of the training set has no "
            "label: give every example one, or remove it."
        )
    words = _words([item[2] for item in items], starts) if whole_words else None
    return Examples(data, ids, starts, text, gold, words)


def _words(rows: Sequence[Any], starts: Indices) -> Indices:
    for index, (row, length) in enumerate(zip(rows, numpy.diff(starts).tolist(), strict=True)):
        if row is None or len(row) != length:
            got = "none" if row is None else len(row)
            raise InputError(
                f"ssa.whole_words needs the word_ids of each token, and example {index} (from 0) has {got} for "
                f"{length} tokens: add them to the data, or set whole_words: false."
            )
    return numpy.array([-1 if word is None else int(word) for row in rows for word in row], numpy.int64)


@dataclass(frozen=True, eq=False)
class Probes:
    """Examples and the tokens that are hidden in them, as plain arrays that processes can send to each other."""

    examples: Indices
    """[P] the example of each probe."""
    hidden: Indices
    """Positions of the hidden tokens in their example, one probe after the other."""
    starts: Indices
    """[P+1] where the positions of each probe begin, and the end of the last."""

    @classmethod
    def of(cls, examples: Sequence[int] | Indices, hidden: Sequence[Indices] | None = None) -> Probes:
        """Probes from their examples and hidden positions; without the second nothing is hidden."""
        sets = [numpy.zeros(0, numpy.int64)] * len(examples) if hidden is None else hidden
        starts = numpy.cumsum([0, *map(len, sets)], dtype=numpy.int64)
        flat = numpy.concatenate([numpy.zeros(0, numpy.int64), *sets])
        return cls(numpy.asarray(examples, numpy.int64), flat, starts)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.examples)


class ProbeDataset:
    """A data set of probes: the examples without their labels, hidden tokens replaced in a copy."""

    def __init__(self, examples: Examples, probes: Probes, mask_id: int) -> None:
        """`mask_id` replaces hidden tokens."""
        self.examples = probes.examples
        """[P] the example of the training set behind each item."""
        self.lengths: Indices = numpy.diff(examples.starts)[probes.examples]
        """[P] tokens of each item."""
        self._source, self._probes, self._mask_id = examples, probes, mask_id

    def __len__(self) -> int:
        """How many items there are."""
        return len(self._probes)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """An item of the training set with its hidden tokens replaced and without labels."""
        index = range(len(self))[index]  # a negative one counts from the end, one beyond it raises
        example = int(self.examples[index])
        item = dict(self._source.data[example])
        item.pop("labels", None)
        ids = self._source.ids[self._source.part(example)].copy()
        ids[self._probes.hidden[self._probes.starts[index] : self._probes.starts[index + 1]]] = self._mask_id
        item["input_ids"] = ids
        return item


@dataclass(frozen=True)
class TokenLabels:
    """Labels of all tokens, one example after the other; NaN where there is none."""

    values: Values
    """[T]"""
    starts: Indices
    """[N+1] where each example begins, and the end of the last."""

    @classmethod
    def build(cls, examples: Examples, probed: Values, labelled: Flags, background: float) -> TokenLabels:
        """Labels from probes, and a background label where there are none.

        Args:
            examples: the training set.
            probed: [T] labels of the tokens that accepted probes hid, NaN at others.
            labelled: [N] the examples whose probes count.
            background: the label of all other text tokens.
        """
        use = numpy.repeat(labelled, numpy.diff(examples.starts)) & ~numpy.isnan(probed)  # [T]
        values = numpy.where(examples.text, numpy.where(use, probed, background), UNLABELLED)
        return cls(values.astype(numpy.float32), examples.starts)

    def __len__(self) -> int:
        """How many examples there are."""
        return len(self.starts) - 1

    def of(self, index: int) -> Values:
        """The labels of an example's tokens."""
        index = range(len(self))[index]  # a negative one counts from the end, one beyond it raises
        return self.values[self.starts[index] : self.starts[index + 1]]

    def shuffled(self, labelled: Flags, text: Flags, key: tuple[int, ...]) -> TokenLabels:
        """A control: the labels of all labelled examples, permuted over the epoch, then among the text of each example.

        As many tokens of every example have a label as before, and the labels of the epoch are the same, so base rate
        and amount stay. Neither the tokens nor the examples have anything to do with them: that the prediction of an
        example changed easily is lost as well, which shuffling within it would keep, since one probe gives all its
        tokens the same label. Generators are keyed by (*key, ...), so the order of work does not matter.
        """
        values = self.values.copy()
        inside = numpy.repeat(labelled, numpy.diff(self.starts)) & ~numpy.isnan(values)  # [T]
        values[inside] = numpy.random.default_rng([*key, 0]).permutation(values[inside])
        for example in numpy.flatnonzero(labelled).tolist():
            begin, end = self.starts[example], self.starts[example + 1]
            tokens = begin + numpy.flatnonzero(text[begin:end])
            values[tokens] = numpy.random.default_rng([*key, 1, example]).permutation(values[tokens])
        return TokenLabels(values, self.starts)

    def statistics(self) -> dict[str, float]:
        """How many tokens have a label, and its mean."""
        known = self.values[~numpy.isnan(self.values)]
        # Summed as float64: a long row of ones stops growing in float32.
        base_rate = float(known.mean(dtype=numpy.float64)) if len(known) else 0.0
        return {"base_rate": base_rate, "labelled_tokens": float(len(known))}
