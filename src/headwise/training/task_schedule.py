"""Which task each update belongs to, and which of its examples: a function of seed and epoch alone.

With B_t updates per pass over task t and B their sum, an epoch is B updates.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence

import numpy
from numpy.typing import NDArray
from torch.utils.data import Sampler

from headwise.errors import InputError, choices
from headwise.training.batches import LengthBuckets

SAMPLINGS = ("proportional", "square_root", "annealed")


def exponent(sampling: str, epoch: int, epochs: int) -> float:
    """The power of B_t that a task's probability goes by.

    annealed: 1 - 0.8 e / (E - 1) for epoch e from 0, so from 1 down to 0.2; 1 if there is one epoch only, where the
    authors' code divides by zero.
    """
    if sampling == "square_root":
        return 0.5
    if sampling == "annealed":
        return 1.0 - 0.8 * min(epoch, epochs - 1) / (epochs - 1) if epochs > 1 else 1.0
    return 1.0


def tasks_of_epoch(updates: Sequence[int], sampling: str, epoch: int, epochs: int, seed: int) -> NDArray[numpy.int64]:
    """[B] the number of the task of each update.

    proportional: each task exactly B_t times, shuffled. Else B independent draws with probabilities that go by
    B_t ** exponent.
    """
    if sampling not in SAMPLINGS:
        raise InputError(f"sampling is {sampling!r}: {choices(sampling, SAMPLINGS)}.")
    random = numpy.random.default_rng([seed, epoch, 11])
    counts = numpy.asarray(updates)
    if sampling == "proportional":
        shuffled: NDArray[numpy.int64] = random.permutation(numpy.repeat(numpy.arange(len(counts)), counts))
        return shuffled
    weights = counts ** exponent(sampling, epoch, epochs)
    drawn: NDArray[numpy.int64] = random.choice(len(counts), size=counts.sum(), p=weights / weights.sum())
    return drawn


class TaskBatches(Sampler[list[int]]):
    """Batches of one task each, out of data sets that lie one behind the other.

    Every task goes through its own examples without replacement, pass after pass, in batches of similar length; where
    an epoch ends in the middle of a pass, the next one goes on from there. All micro-batches of an update belong to one
    task. The authors' code draws every batch from a new shuffle, that is, with replacement.
    """

    def __init__(
        self,
        lengths: Mapping[str, Sequence[int]],
        *,
        batch: int,
        accumulation: int,
        sampling: str,
        epochs: int,
        seed: int,
        by_length: bool = True,
    ) -> None:
        """`lengths` are those of each task's examples, in the order in which the data sets lie."""
        self.batch_size = batch
        self.drop_last = False  # accelerate asks for these two
        self._accumulation, self._sampling, self._epochs, self._seed = accumulation, sampling, epochs, seed
        self._epoch = 0
        size = batch * accumulation
        # By the name, so that a task's order does not depend on the company it keeps.
        self._passes = [
            _Passes(LengthBuckets(each, size, _seed_of(seed, name), by_length=by_length))
            for name, each in lengths.items()
        ]
        self._offsets = numpy.cumsum([0, *(len(each) for each in lengths.values())])

    @property
    def updates(self) -> list[int]:
        """B_t of each task."""
        return [len(passes.buckets) for passes in self._passes]

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of this epoch."""
        self._epoch = epoch

    def __len__(self) -> int:
        """Micro-batches per epoch."""
        return sum(self.updates) * self._accumulation

    def __iter__(self) -> Iterator[list[int]]:
        """The micro-batches of the epoch."""
        reached = numpy.zeros(len(self._passes), dtype=int)
        for epoch in range(self._epoch):
            reached += numpy.bincount(self._tasks(epoch), minlength=len(reached))
        for task in self._tasks(self._epoch):
            examples = self._passes[task].at(int(reached[task]))
            reached[task] += 1
            for part in parted(examples, self._accumulation):
                yield [int(self._offsets[task]) + example for example in part]

    def _tasks(self, epoch: int) -> NDArray[numpy.int64]:
        return tasks_of_epoch(self.updates, self._sampling, epoch, self._epochs, self._seed)


class _Passes:
    """The updates of one task, counted through all its passes."""

    def __init__(self, buckets: LengthBuckets) -> None:
        self.buckets = buckets
        self._number = -1
        self._batches: list[list[int]] = []

    def at(self, place: int) -> list[int]:
        number, within = divmod(place, len(self.buckets))
        if number != self._number:
            self.buckets.set_epoch(number)
            self._number, self._batches = number, list(self.buckets)
        return self._batches[within]


def parted(examples: list[int], parts: int) -> list[list[int]]:
    """An update's examples as micro-batches of about the same size; where there are too few, all are in each."""
    if len(examples) < parts:
        return [examples] * parts
    return [part.tolist() for part in numpy.array_split(numpy.asarray(examples), parts)]


def _seed_of(seed: int, name: str) -> int:
    return int(numpy.random.SeedSequence([seed, zlib.crc32(name.encode())]).generate_state(1)[0])
