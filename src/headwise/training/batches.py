"""Which examples go together into a batch: those of about the same length, in an order that a seed decides."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Sampler

from headwise.errors import InputError, choices

# The examples of several tasks as one data set, and batches that know their task.


Collate = Callable[[list[Any]], dict[str, Tensor]]


class JointData:
    """Encoded data sets one behind the other; an item is the name of its task and the example."""

    def __init__(self, parts: Mapping[str, Any]) -> None:
        """`parts` are the data sets by the names of their tasks."""
        self.parts = dict(parts)
        self._names = tuple(parts)
        self._starts = numpy.cumsum([0, *(len(part) for part in parts.values())])

    def __len__(self) -> int:
        """How many examples all tasks have."""
        return int(self._starts[-1])

    def __getitem__(self, index: int) -> tuple[str, Any]:
        """The task's name and the example."""
        place = range(len(self))[index]
        number = int(numpy.searchsorted(self._starts, place, side="right")) - 1
        name = self._names[number]
        return name, self.parts[name][place - int(self._starts[number])]


class JointCollator:
    """Makes a batch by the collator of its task and adds the task's name, which the model asks for."""

    def __init__(self, collators: Mapping[str, Collate]) -> None:
        """One for each task."""
        self.collators = dict(collators)

    def __call__(self, items: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        """All items belong to one task."""
        task = items[0][0]
        return {"task": task, **self.collators[task]([example for _, example in items])}


# Batches per window: examples are sorted by length within a window of this many batches and shuffled beyond it, so that
# little padding is needed and the company of an example still changes from epoch to epoch.
WINDOW = 50


class LengthBuckets(Sampler[list[int]]):
    """Batches of examples of similar length; every example once per epoch.

    The order is a function of (seed, epoch) and of nothing else, so an interrupted epoch can be walked again. Two runs
    with the same seed see the same batches, whatever else they do with random numbers.
    """

    def __init__(self, lengths: Sequence[int], batch: int, seed: int, *, by_length: bool = True) -> None:
        """`by_length=False` shuffles all examples alike."""
        self.batch_size = batch
        self.drop_last = False  # accelerate asks for these two
        self._lengths = numpy.asarray(lengths)
        self._seed = seed
        self._epoch = 0
        self._by_length = by_length

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of this epoch."""
        self._epoch = epoch

    def __len__(self) -> int:
        """Batches per epoch."""
        return -(-len(self._lengths) // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        """The batches of the epoch."""
        random = numpy.random.default_rng([self._seed, self._epoch])
        order = random.permutation(len(self._lengths))
        if self._by_length:
            order = self._sorted_in_windows(order)
        starts = numpy.arange(0, len(order), self.batch_size)
        if self._by_length:
            # A short batch stays the last: in several processes accelerate would lose others behind it.
            random.shuffle(starts[: len(order) // self.batch_size])
        for start in starts:
            yield order[start : start + self.batch_size].tolist()

    def _sorted_in_windows(self, order: numpy.ndarray) -> numpy.ndarray:
        size = WINDOW * self.batch_size
        windows = [order[start : start + size] for start in range(0, max(len(order), 1), size)]
        return numpy.concatenate([window[numpy.argsort(self._lengths[window], kind="stable")] for window in windows])


# Which task each update belongs to, and which of its examples: a function of seed and epoch alone.


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
