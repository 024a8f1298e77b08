"""Run independent pieces of tensor work on several cores, on a quiet machine or a busy one.

There are two ways, and each is bad where the other is good:

- openmp: one piece after the other, torch splitting every operation over its threads. Best on quiet cores. On cores
  that other programs use too, each of the many short operations waits for a thread that is not running, and the whole
  takes several times as long.
- pool: whole pieces to threads that are single-threaded inside. A late thread delays one piece, not every operation;
  but torch's own idle threads spin for a while after each of its operations, and on quiet cores they are in the way.

So pieces run the first way as long as the process gets its cores, which is measured while they run, and the second
way for a while once it does not. The two may differ in the last bit. With torch.use_deterministic_algorithms(True) it
is always the pool, whose result depends neither on the load nor on the number of threads.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import TypeVar

import torch

Piece = TypeVar("Piece")

# Past this many threads one operation on one tile is too small to be split well.
MOST_OPENMP_THREADS = 4
# Past this many, handing out pieces becomes the bottleneck.
MOST_POOL_THREADS = 32


class Crowding:
    """Whether other programs take our cores, from the share of processor time that the process gets."""

    SHARE = 0.8
    """Below this share the cores are crowded."""
    WINDOW = 0.04
    """Seconds of work that are measured together: processor time of other threads is booked some milliseconds late."""
    GRACE = 8
    """First runs that are not measured: in them torch still prepares the loops, on one thread."""
    PATIENCE = (32, 2048)
    """Runs for which crowding is assumed at first, and at most; doubled each time that it is measured again."""

    def __init__(self) -> None:
        """Begin with quiet cores."""
        self._runs, self._assumed_for, self._patience = 0, 0, self.PATIENCE[0]
        self._wall = self._processor = 0.0

    def assumed(self) -> bool:
        """Whether to treat the cores as crowded in the coming run."""
        self._runs += 1
        self._assumed_for = max(0, self._assumed_for - 1)
        return self._assumed_for > 0

    def measured(self, wall: float, processor: float, threads: int) -> bool:
        """Add the times of work on `threads` cores; returns whether it is clear by now that it lacked them."""
        if self._runs <= self.GRACE:
            return False
        self._wall += wall
        self._processor += processor / threads
        if self._wall < self.WINDOW:
            return False
        crowded = self._processor < self.SHARE * self._wall
        self._wall = self._processor = 0.0
        if crowded:
            self._assumed_for = self._patience
            self._patience = min(2 * self._patience, self.PATIENCE[1])
        else:
            self._patience = self.PATIENCE[0]
        return crowded


_crowding = Crowding()


def run_pieces(pieces: Sequence[Piece], work: Callable[[Piece], None]) -> None:
    """Call `work` on every piece. Pieces must not depend on each other: the order is not defined."""
    threads = torch.get_num_threads()
    if threads == 1:
        for piece in pieces:
            work(piece)
    elif threads > MOST_OPENMP_THREADS or torch.are_deterministic_algorithms_enabled() or _crowding.assumed():
        _run_in_pool(pieces, work, threads)
    else:  # by openmp until the cores turn out to be crowded
        wall, processor = time.perf_counter(), time.process_time()
        for done, piece in enumerate(pieces, 1):
            work(piece)
            elapsed = time.perf_counter() - wall
            if elapsed > _crowding.WINDOW or done == len(pieces):
                if _crowding.measured(elapsed, time.process_time() - processor, threads):
                    _run_in_pool(pieces[done:], work, threads)
                    return
                wall, processor = time.perf_counter(), time.process_time()


@contextmanager
def alone_if_crowded() -> Iterator[None]:
    """Run the torch operations of the block, which should be short, on this thread alone while the cores are crowded.

    With torch.use_deterministic_algorithms(True) nothing changes, so that the load has no influence on any bit.
    """
    threads = torch.get_num_threads()
    if threads == 1 or torch.are_deterministic_algorithms_enabled():
        yield
    elif _crowding.assumed():
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
    else:
        # Of this thread only: on quiet cores it always runs, since it computes, or spins until the others are ready.
        wall, processor = time.perf_counter(), time.thread_time()
        yield
        _crowding.measured(time.perf_counter() - wall, time.thread_time() - processor, 1)


def _run_in_pool(pieces: Sequence[Piece], work: Callable[[Piece], None], threads: int) -> None:
    threads = min(threads, len(pieces), MOST_POOL_THREADS)
    if threads == 0:
        return
    remaining = iter(pieces)
    lock = threading.Lock()
    inference = torch.is_inference_mode_enabled()

    def drain() -> None:
        # Both modes belong to a thread. This one starts with gradients on, and could not write to tensors that the
        # caller created in inference mode.
        with torch.inference_mode(inference), torch.no_grad():
            while True:
                with lock:
                    piece = next(remaining, None)
                if piece is None:
                    return
                work(piece)

    pool = _pool(threads, os.getpid())
    tasks: list[Future[None]] = [pool.submit(drain) for _ in range(threads)]
    for task in tasks:
        task.result()


@lru_cache(maxsize=4)
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """The threads, started on first use and again after a fork (`process`)."""
    count = torch.get_num_threads()
    ready = threading.Barrier(threads + 1)

    def become_single_threaded() -> None:
        torch.get_num_threads()  # settles this thread's lazy initialisation, which would undo the next line
        torch.set_num_threads(1)
        ready.wait()

    pool = ThreadPoolExecutor(threads, thread_name_prefix="headwise", initializer=become_single_threaded)
    for _ in range(threads):
        pool.submit(int)  # any task: the pool starts a thread for it
    ready.wait()
    # set_num_threads(1) above also set the default for new threads: restore the value of the process.
    torch.set_num_threads(count)
    return pool
