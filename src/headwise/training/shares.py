"""Batches that several processes share: each does its part, and together they do what one would with the whole.

Everything that a process makes of its part is a mean over the examples in it, and data-parallel training takes the mean
over the processes. So where the parts differ in size, what each one finds counts by its examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.utils.data import Sampler

SHARE = "headwise_share"


@dataclass(frozen=True)
class Share:
    """What one process does of a batch."""

    places: list[int]
    """Where its items stand in the data set; of a process that got none, a stand-in that counts nothing."""
    of_places: list[int]
    """Those of the whole batch."""
    items: int
    """Items of its own; a claim with all its pairs is one item."""
    examples: int
    """Examples of its own, that is, rows of its batch."""
    of_examples: int
    """Examples of the whole batch."""
    processes: int

    @property
    def weight(self) -> float:
        """How much it counts in the mean over processes: 1 where all have as many examples."""
        return self.processes * self.examples / self.of_examples

    @property
    def item_weight(self) -> float:
        """How much more than `weight` a mean over items counts: 1 where an item is an example."""
        return self.beside(self.items, len(self.of_places))

    def beside(self, mine: int, of: int) -> float:
        """How much more than `weight` a mean counts, if this process has `mine` of the `of` things that it is over."""
        return mine * self.of_examples / (of * self.examples) if self.examples and of else 1.0


class Shares(Sampler[Any]):
    """Of every batch of another sampler, the part of one process; an item in turn for each, so that lengths are alike.

    A batch of fewer items than processes leaves some without any. They take its first one as a stand-in, since all
    processes must take the same steps.
    """

    def __init__(self, batches: Any, rank: int, processes: int, sizes: Sequence[int] | None = None) -> None:
        """`sizes` are the examples of each item, if an item is more than one."""
        self.batches = batches
        self._rank, self._processes, self._sizes = rank, processes, sizes

    def __len__(self) -> int:
        """Batches per epoch."""
        return len(self.batches)

    def __iter__(self) -> Iterator[Share]:
        """A share of each batch of the epoch."""
        for batch in self.batches:
            mine = batch[self._rank :: self._processes]
            yield Share(
                mine or batch[:1],
                of_places=batch,
                items=len(mine),
                examples=self._examples(mine),
                of_examples=self._examples(batch),
                processes=self._processes,
            )

    def _examples(self, places: list[int]) -> int:
        return len(places) if self._sizes is None else sum(int(self._sizes[place]) for place in places)


@dataclass(frozen=True)
class SharedData:
    """A data set that is asked for shares; the share goes along with its items."""

    data: Any

    def __len__(self) -> int:
        """How many items there are."""
        return len(self.data)

    def __getitems__(self, share: Share) -> tuple[Share, list[Any]]:
        """What torch's DataLoader asks for when it has a batch."""
        return share, [self.data[place] for place in share.places]


@dataclass(frozen=True)
class SharedCollator:
    """Makes a batch as another collator does, and notes in it which share it is."""

    collate: Callable[[list[Any]], dict[str, Any]]

    def __call__(self, fetched: tuple[Share, list[Any]]) -> dict[str, Any]:
        """The batch of one process."""
        share, items = fetched
        return {**self.collate(items), SHARE: share}


@contextmanager
def weighed_gradients(model: nn.Module, weight: float) -> Iterator[None]:
    """Multiply every gradient that is computed in the block.

    The gradients and not the loss, so that what guides measure of theirs to find an `auto` weight is weighed as well.
    """
    trained = [] if weight == 1.0 else [each for each in model.parameters() if each.requires_grad]
    hooks = [each.register_hook(lambda gradient: _times(gradient, weight)) for each in trained]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _times(gradient: Tensor, weight: float) -> Tensor:
    return gradient * weight
