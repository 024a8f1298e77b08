"""Probes: examples with some tokens hidden, drawn so that neither batches nor processes change them.

Shapes: P probes, H hidden tokens of all of them together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import NDArray

from headwise.ssa.examples import Examples
from headwise.ssa.samplers import Sampler

Places = NDArray[numpy.int64]


@dataclass(frozen=True, eq=False)
class Probes:
    """Hidden sets, one after the other."""

    examples: Places
    """[P] the example of each probe."""
    hidden: Places
    """[H] places of the hidden tokens in their example."""
    starts: Places
    """[P+1] where the places of each probe begin, and the end of the last."""

    @classmethod
    def of(cls, examples: Sequence[int], hidden: Sequence[Places]) -> Probes:
        """Probes from their examples and sets."""
        starts = numpy.cumsum([0, *map(len, hidden)], dtype=numpy.int64)
        flat = numpy.concatenate(hidden) if hidden else numpy.zeros(0)
        return cls(numpy.array(examples, numpy.int64), flat.astype(numpy.int64), starts)

    @classmethod
    def nothing_hidden(cls, examples: Places) -> Probes:
        """The examples as they are."""
        return cls(examples, numpy.zeros(0, numpy.int64), numpy.zeros(len(examples) + 1, numpy.int64))

    def __len__(self) -> int:
        """How many there are."""
        return len(self.examples)


class View:
    """A data set of probes: the examples without their labels, hidden tokens replaced in a copy."""

    def __init__(self, examples: Examples, probes: Probes, mask_id: int) -> None:
        """`mask_id` stands for hidden tokens."""
        self.examples = probes.examples
        """[P] which example of the training set each item is made of."""
        self.lengths: Places = numpy.diff(examples.starts)[probes.examples]
        """[P] tokens of each item."""
        self._from, self._probes, self._mask_id = examples, probes, mask_id

    def __len__(self) -> int:
        """How many items there are."""
        return len(self._probes)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """An item of the training set with its hidden tokens replaced and without labels."""
        place = range(len(self))[index]  # negative ones count from the end, and those beyond it raise
        example = int(self.examples[place])
        item = dict(self._from.data[example])
        item.pop("labels", None)
        ids = self._from.ids[self._from.part(example)].copy()
        ids[self._probes.hidden[self._probes.starts[place] : self._probes.starts[place + 1]]] = self._mask_id
        item["input_ids"] = ids
        return item


class Drawer:
    """Draws hidden sets; never the same one twice for an example, and never an empty one."""

    def __init__(self, examples: Examples, sampler: Sampler, key: tuple[int, ...]) -> None:
        """`key` begins the key of every generator: (*key, example, turn, probe)."""
        self._examples, self._sampler, self._key = examples, sampler, key
        self._tried: dict[int, set[bytes]] = {}

    def draw(self, examples: Places, turn: int, count: int) -> Probes:
        """Up to `count` probes of each example, in pass number `turn`."""
        found = [(example, places) for example in examples.tolist() for places in self._of(example, turn, count)]
        return Probes.of([example for example, _ in found], [places for _, places in found])

    def forget(self, examples: Places) -> None:
        """These will not be asked for again."""
        for example in examples.tolist():
            self._tried.pop(example, None)

    def _of(self, example: int, turn: int, count: int) -> list[Places]:
        segments = self._examples.segments(example)
        words = None if self._examples.words is None else self._examples.words[self._examples.part(example)]
        tried = self._tried.setdefault(example, set())
        new = []
        for probe in range(count):
            random = numpy.random.default_rng([*self._key, example, turn, probe])
            places = self._sampler.hidden(segments, random, words)
            mark = places.tobytes()
            # An empty set hides nothing and would be accepted for it; a set tried before has had its answer.
            if len(places) and mark not in tried:
                tried.add(mark)
                new.append(places)
        return new
