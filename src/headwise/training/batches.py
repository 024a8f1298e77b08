"""Which examples go together into a batch: those of about the same length, in an order that a seed decides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy
from torch.utils.data import Sampler

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
