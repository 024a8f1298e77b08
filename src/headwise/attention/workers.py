"""Run independent pieces of tensor work on several cores without OpenMP's barriers.

A layer's attention is cut into a few hundred short tensor operations. If each of them is an OpenMP region, each ends in
a barrier, and on cores that other programs also use every barrier waits for a thread that is not running: measured two
to three times slower than one long kernel. So the pieces are handed out one by one to threads that are single-threaded
inside; a late thread then delays one piece, not all of them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

import torch

Piece = TypeVar("Piece")

# Past this many threads the interpreter lock, held for a few microseconds per operation, becomes the bottleneck.
MOST_WORKERS = 32


def run_pieces(pieces: Sequence[Piece], work: Callable[[Piece], None]) -> None:
    """Call `work` on every piece, in parallel where torch may use more than one thread.

    Pieces must not depend on each other: the order is not defined.
    """
    threads = min(torch.get_num_threads(), len(pieces), MOST_WORKERS)
    if threads <= 1:
        for piece in pieces:
            work(piece)
        return

    remaining = iter(pieces)
    lock = threading.Lock()

    def drain() -> None:
        with torch.no_grad():  # grad mode belongs to a thread; this one starts with it on
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


@lru_cache(maxsize=1)
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """The threads, made on first use and again after a fork (`process`) or a change of torch's thread count."""
    wanted = torch.get_num_threads()
    ready = threading.Barrier(threads + 1)

    def become_single_threaded() -> None:
        torch.get_num_threads()  # settles this thread's lazy initialisation, which would undo the next line
        torch.set_num_threads(1)
        ready.wait()

    pool = ThreadPoolExecutor(threads, thread_name_prefix="headwise", initializer=become_single_threaded)
    for _ in range(threads):
        pool.submit(_nothing)
    ready.wait()
    # set_num_threads(1) above also set the default for threads yet to come: give the process its own value back.
    torch.set_num_threads(wanted)
    return pool


def _nothing() -> None:
    """A task whose only purpose is to make the pool start a thread."""
