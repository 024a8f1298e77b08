"""Several processes that train one model together: who is here, what all agree on, and how they part.

With one process every function is as if there were no others.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
from accelerate import PartialState  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.utils.data import Sampler

from headwise.errors import HeadwiseError, InputError

Answer = TypeVar("Answer")

# The others wait while the first one scores and writes, be it for hours; a process that dies is noticed at once.
PATIENCE = timedelta(days=7)
# Seconds in which processes that fail for the same reason come to tell of it, or that are done come to leave.
MOMENT = timedelta(seconds=10)
# What gloo and NCCL say of a process that is gone.
GONE = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "remote process exited")


@dataclass
class _Company:
    """What this process knows of the others beside what torch knows."""

    group: Any = None
    """For words between processes, apart from the gradients; None for the only group that there is."""
    teller: int | None = None
    """The process that tells of an error that all know of."""


_COMPANY = _Company()


class LostProcess(HeadwiseError):
    """Another process of the run has ended before its time."""


class ToldElsewhere(HeadwiseError):
    """Another process tells why all must end."""


# -- who is here -------------------------------------------------------------------------------------------------------


def launched() -> int:
    """How many processes a launcher says that it has started."""
    return int(os.environ.get("WORLD_SIZE") or "1")


def count() -> int:
    """How many processes train together."""
    return torch.distributed.get_world_size() if _together() else 1


def rank() -> int:
    """The number of this process, from 0."""
    return torch.distributed.get_rank() if _together() else 0


def first() -> bool:
    """Whether this is the process that writes and speaks."""
    return rank() == 0


def _together() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def begin() -> None:
    """Meet the other processes that a launcher has started, if it has."""
    if _together():
        return
    if launched() == 1:
        _check_alone()
        return
    missing = [name for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    if missing:
        raise InputError(
            f"WORLD_SIZE is {launched()}, but {', '.join(missing)} is not set: start several processes with accelerate "
            "launch or torchrun, or unset WORLD_SIZE (docs/training.md)."
        )
    for name in ("FSDP", "DEEPSPEED", "MEGATRON_LM"):
        if _says_yes(f"ACCELERATE_USE_{name}"):
            raise InputError(
                f"accelerate is set to {name}, which cuts the model into pieces: headwise train gives every process "
                "the whole model; choose plain data-parallel training (docs/training.md)."
            )
    PartialState(cpu=_says_yes("ACCELERATE_USE_CPU") or not torch.accelerator.is_available())
    _COMPANY.group = torch.distributed.new_group(backend="gloo", timeout=PATIENCE)


def _check_alone() -> None:
    """Refuse to train alone where more was asked for: without a GPU, accelerate (1.15) starts one process of several.

    It tells the address where they could have met to several only.
    """
    if "WORLD_SIZE" not in os.environ and {"ACCELERATE_MIXED_PRECISION", "MASTER_ADDR", "MASTER_PORT"} <= set(
        os.environ
    ):
        raise InputError(
            "accelerate was asked for several processes and has started this one alone, as it does on processors: add "
            "--multi_gpu and leave --cpu out, or use torchrun --nproc_per_node N (docs/training.md)."
        )


def _says_yes(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("1", "true", "yes", "on")


# -- what all agree on -------------------------------------------------------------------------------------------------


def wait() -> None:
    """Go on only when all processes are here."""
    if _together():
        torch.distributed.barrier(group=_COMPANY.group)


def from_first(answer: Callable[[], Answer]) -> Answer:
    """What the first process finds; the others wait for it and do nothing."""
    if count() == 1:
        return answer()
    found: list[Any] = [answer() if first() else None]
    torch.distributed.broadcast_object_list(found, src=0, group=_COMPANY.group)
    told: Answer = found[0]
    return told


def gathered(mine: Any) -> list[Any]:
    """What each process gives, in their order."""
    if count() == 1:
        return [mine]
    parts: list[Any] = [None] * count()
    torch.distributed.all_gather_object(parts, mine, group=_COMPANY.group)
    return parts


def summed(numbers: Sequence[float]) -> list[float]:
    """The sum of each number over all processes."""
    if count() == 1:
        return list(numbers)
    values = torch.tensor(list(numbers), dtype=torch.float64)
    if torch.distributed.get_backend(_COMPANY.group) == "nccl":
        values = values.to("cuda")
    torch.distributed.all_reduce(values, group=_COMPANY.group)
    found: list[float] = values.tolist()
    return found


@contextmanager
def agreeing() -> Iterator[None]:
    """Go on behind the block only if no process has failed in it; else all end, and one of them tells why."""
    error: Exception | None = None
    try:
        yield
    except Exception as raised:
        error = raised
    if count() > 1:
        failed = [number for number, bad in enumerate(gathered(error is not None)) if bad]
        if failed:
            _COMPANY.teller = failed[0]
        if failed and error is None:
            raise ToldElsewhere(f"process {failed[0]} could not go on: it tells why.")
    if error is not None:
        raise error


# -- how they part -----------------------------------------------------------------------------------------------------


@contextmanager
def in_company() -> Iterator[None]:
    """Say in words that another process is gone."""
    try:
        yield
    except RuntimeError as error:
        if count() == 1 or not any(words in str(error) for words in GONE):
            raise
        raise LostProcess(
            "another process of this run has ended: it or its launcher tells why; start all of them again, with "
            "--resume if there is a checkpoint."
        ) from error


def tells(error: Exception) -> bool:
    """Whether this process is the one to tell of an error that ends it: what all have met is told once."""
    if count() == 1:
        return True
    if _COMPANY.teller is not None:
        return rank() == _COMPANY.teller
    if isinstance(error, LostProcess):
        return first()
    return first() if _all_come() else True


def leave(code: int) -> None:
    """End this process, if there are others, and give them a moment to come to their end as well.

    At once, since tidying up may never end: torch 2.13 destroys a group of processes with Python's lock in hand, while
    gloo's thread waits for that lock to let go of its last work.
    """
    if count() == 1:
        return
    if code in (0, 130) or _COMPANY.teller is not None:
        _all_come()
    with suppress(Exception):
        atexit._run_exitfuncs()  # reporters and pools of workers close there
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _all_come() -> bool:
    """Whether all processes come here within a moment."""
    try:
        torch.distributed.monitored_barrier(_COMPANY.group, timeout=MOMENT)
    except RuntimeError:
        return False
    return True


# Batches that several processes share: each does its part, and together they do what one would with the whole.


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
