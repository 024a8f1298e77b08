"""Several processes that train one model: rank, world size, what all agree on, and how they end.

With one process every function acts as if there were no others.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, TypeVar

import torch
from accelerate import PartialState  # type: ignore[import-untyped]
from accelerate.utils import parse_flag_from_env  # type: ignore[import-untyped]

from headwise.errors import HeadwiseError, InputError

T = TypeVar("T")

# The others wait while the first one scores and writes, possibly for hours; a process that dies is noticed at once.
TIMEOUT = timedelta(days=7)
# Within this time processes that fail for the same reason report it, and those that are done exit.
EXIT_TIMEOUT = timedelta(seconds=10)
# What gloo and NCCL say of a process that is gone.
GONE = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "remote process exited")
# group: for objects sent between processes, apart from the gradients; None for the default group.
# reporter: the rank that reports an error that all know of.
_STATE = SimpleNamespace(group=None, reporter=None)


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
    together = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed.get_world_size() if together else 1


def first() -> bool:
    """Whether this is the process that writes and logs."""
    return count() == 1 or torch.distributed.get_rank() == 0


def initialize() -> None:
    """Connect to the other processes that a launcher has started, if it has."""
    if count() > 1:
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
        if parse_flag_from_env(f"ACCELERATE_USE_{name}"):
            raise InputError(
                f"accelerate is set to {name}, which cuts the model into pieces: headwise train gives every process "
                "the whole model; choose plain data-parallel training (docs/training.md)."
            )
    PartialState(cpu=parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.accelerator.is_available())
    _STATE.group = torch.distributed.new_group(backend="gloo", timeout=TIMEOUT)


# -- what all agree on -------------------------------------------------------------------------------------------------


def barrier() -> None:
    """Wait until all processes are here."""
    if count() > 1:
        torch.distributed.barrier(group=_STATE.group)


def gather(mine: T) -> list[T]:
    """What each process has, in the order of their ranks."""
    parts = [mine] * count()
    if len(parts) > 1:
        torch.distributed.all_gather_object(parts, mine, group=_STATE.group)
    return parts


def from_first(compute: Callable[[], T]) -> T:
    """What the first process computes; the others wait for it."""
    values: list[Any] = gather(compute() if first() else None)
    value: T = values[0]
    return value


def all_sum(numbers: Sequence[float]) -> list[float]:
    """The sum of each number over all processes."""
    return list(map(sum, zip(*gather(list(numbers)), strict=True)))


@contextmanager
def all_or_none() -> Iterator[None]:
    """Continue after the block only if no process has failed in it; else all end, and one of them reports why."""
    error: Exception | None = None
    try:
        yield
    except Exception as raised:
        error = raised
    failed = gather(error is not None)
    if any(failed) and count() > 1:
        _STATE.reporter = failed.index(True)
        if error is None:
            raise FailedElsewhere(f"process {_STATE.reporter} failed, and reports why.")
    if error is not None:
        raise error


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
        return bool(torch.distributed.get_rank() == _STATE.reporter)
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
