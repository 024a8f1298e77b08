"""Several processes that train one model: rank, world size, what all agree on, and how they end.

With one process every function acts as if there were no others.
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
from torch.utils.data import Sampler

from headwise.errors import HeadwiseError, InputError

Answer = TypeVar("Answer")

# The others wait while the first one scores and writes, possibly for hours; a process that dies is noticed at once.
TIMEOUT = timedelta(days=7)
# Within this time processes that fail for the same reason report it, and those that are done exit.
EXIT_TIMEOUT = timedelta(seconds=10)
# What gloo and NCCL say of a process that is gone.
GONE = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "remote process exited")


@dataclass
class _State:
    """What this process knows of the others beside what torch knows."""

    group: Any = None
    """For objects sent between processes, apart from the gradients; None for the default group."""
    reporter: int | None = None
    """The rank that reports an error that all know of."""


_STATE = _State()


class LostProcess(HeadwiseError):
    """Another process of the run has ended too early."""


class FailedElsewhere(HeadwiseError):
    """Another process failed, and reports why."""


# -- rank and world size -----------------------------------------------------------------------------------------------


def launched() -> int:
    """How many processes a launcher says that it has started."""
    return int(os.environ.get("WORLD_SIZE") or "1")


def count() -> int:
    """The world size: how many processes train together."""
    return torch.distributed.get_world_size() if _initialized() else 1


def rank() -> int:
    """The number of this process, from 0."""
    return torch.distributed.get_rank() if _initialized() else 0


def first() -> bool:
    """Whether this is the process that writes and logs."""
    return rank() == 0


def _initialized() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def initialize() -> None:
    """Connect to the other processes that a launcher has started, if it has."""
    if _initialized():
        return
    if launched() == 1:
        # Without a GPU, accelerate (1.15) starts one process where several were asked for, and sets the address where
        # they could have met.
        asked = {"ACCELERATE_MIXED_PRECISION", "MASTER_ADDR", "MASTER_PORT"} <= set(os.environ)
        if "WORLD_SIZE" not in os.environ and asked:
            raise InputError(
                "accelerate was asked for several processes and has started this one alone, as it does on CPUs: add "
                "--multi_gpu and leave --cpu out, or use torchrun --nproc_per_node N (docs/training.md)."
            )
        return
    missing = [name for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    if missing:
        raise InputError(
            f"WORLD_SIZE is {launched()}, but {', '.join(missing)} is not set: start several processes with accelerate "
            "launch or torchrun, or unset WORLD_SIZE (docs/training.md)."
        )
    for name in ("FSDP", "DEEPSPEED", "MEGATRON_LM"):
        if _is_set(f"ACCELERATE_USE_{name}"):
            raise InputError(
                f"accelerate is set to {name}, which cuts the model into pieces: headwise train gives every process "
                "the whole model; choose plain data-parallel training (docs/training.md)."
            )
    PartialState(cpu=_is_set("ACCELERATE_USE_CPU") or not torch.accelerator.is_available())
    _STATE.group = torch.distributed.new_group(backend="gloo", timeout=TIMEOUT)


def _is_set(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("1", "true", "yes", "on")


# -- what all agree on -------------------------------------------------------------------------------------------------


def barrier() -> None:
    """Wait until all processes are here."""
    if _initialized():
        torch.distributed.barrier(group=_STATE.group)


def from_first(compute: Callable[[], Answer]) -> Answer:
    """What the first process computes; the others wait for it."""
    if count() == 1:
        return compute()
    values: list[Any] = [compute() if first() else None]
    torch.distributed.broadcast_object_list(values, src=0, group=_STATE.group)
    value: Answer = values[0]
    return value


def gather(mine: Any) -> list[Any]:
    """The objects of all processes, by rank."""
    if count() == 1:
        return [mine]
    parts: list[Any] = [None] * count()
    torch.distributed.all_gather_object(parts, mine, group=_STATE.group)
    return parts


def all_sum(numbers: Sequence[float]) -> list[float]:
    """The sum of each number over all processes."""
    if count() == 1:
        return list(numbers)
    values = torch.tensor(list(numbers), dtype=torch.float64)
    if torch.distributed.get_backend(_STATE.group) == "nccl":
        values = values.to("cuda")
    torch.distributed.all_reduce(values, group=_STATE.group)
    sums: list[float] = values.tolist()
    return sums


@contextmanager
def all_or_none() -> Iterator[None]:
    """Continue after the block only if no process has failed in it; else all end, and one of them reports why."""
    error: Exception | None = None
    try:
        yield
    except Exception as raised:
        error = raised
    if count() > 1:
        failed = [number for number, bad in enumerate(gather(error is not None)) if bad]
        if failed:
            _STATE.reporter = failed[0]
        if failed and error is None:
            raise FailedElsewhere(f"process {failed[0]} failed, and reports why.")
    if error is not None:
        raise error


class PartOfBatches(Sampler[list[int]]):
    """The part of one process in every batch of another sampler, taken in turns, so that lengths are alike.

    A batch of fewer examples than processes leaves some without any: they repeat its first one, since all processes
    must take the same steps.
    """

    def __init__(self, batches: Any, rank: int, processes: int) -> None:
        """`batches` yields the batches of all processes together."""
        self.batches = batches
        self._rank, self._processes = rank, processes

    def __len__(self) -> int:
        """Batches per epoch."""
        return len(self.batches)

    def __iter__(self) -> Iterator[list[int]]:
        """The part of each batch of the epoch."""
        for batch in self.batches:
            yield batch[self._rank :: self._processes] or batch[:1]


# -- how they end ------------------------------------------------------------------------------------------------------


@contextmanager
def lost_process_errors() -> Iterator[None]:
    """Say in one sentence that another process is gone."""
    try:
        yield
    except RuntimeError as error:
        if count() == 1 or not any(words in str(error) for words in GONE):
            raise
        raise LostProcess(
            "another process of this run has ended: its output or the launcher's says why; start all of them again, "
            "with resume=True if there is a checkpoint."
        ) from error


def reports(error: Exception) -> bool:
    """Whether this process reports an error that ends it: an error of all processes is reported once."""
    if count() == 1:
        return True
    if _STATE.reporter is not None:
        return rank() == _STATE.reporter
    if isinstance(error, LostProcess):
        return first()
    return first() if _all_arrive() else True


def exit_together(code: int) -> None:
    """End this process, if there are others, and give them a moment to end as well.

    At once, since a clean shutdown may never end: torch 2.13 destroys a group of processes while it holds Python's
    lock, and gloo's thread waits for that lock to release its last work.
    """
    if count() == 1:
        return
    if code in (0, 130) or _STATE.reporter is not None:
        _all_arrive()
    with suppress(Exception):
        atexit._run_exitfuncs()  # reporters and worker pools close there
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _all_arrive() -> bool:
    """Whether all processes come here within a moment."""
    try:
        torch.distributed.monitored_barrier(_STATE.group, timeout=EXIT_TIMEOUT)
    except RuntimeError:
        return False
    return True
