"""Work in several processes: the only door to joblib."""

from __future__ import annotations

import os
import signal
import sys
import uuid
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from headwise.errors import InputError, StateError
from headwise.patterns.knowledge import Texts

# Fewer examples than this are done before the first worker has started.
SMALL = 200
# A part is what a kill may cost: not much work, but enough to be worth a file. A pass over a corpus leaves no files.
LEAST, MOST, MOST_OF_CORPUS = 25, 250, 2000
# Seconds after which a worker without work ends; until then the next data set finds it ready.
IDLE = 30

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def checked_workers(workers: int | None) -> int:
    """The number of processes asked for; by default as many as there are cores that this process may use."""
    if workers is None:
        return cores()
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise InputError(f"workers={workers!r}: expected a whole number of 1 or more, or None for all cores.")
    return workers


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cut(start: int, stop: int, workers: int, most: int = MOST) -> list[range]:
    """The numbers from start to stop as ranges: some for each worker, so that none waits long for the last."""
    size = min(most, max(LEAST, -(-(stop - start) // (8 * workers))))
    return [range(first, min(first + size, stop)) for first in range(start, stop, size)]


@dataclass(frozen=True)
class Processes:
    """Applies a function to parts of the examples, in several processes if that is worth it: a `Spread`."""

    workers: int

    def __call__(self, function: Callable[[Sequence[Texts]], Any], examples: Sequence[Texts]) -> Iterator[Any]:
        """One answer for each part, in order."""
        workers = self.workers if len(examples) >= SMALL else 1
        parts = [examples[part.start : part.stop] for part in cut(0, len(examples), workers, MOST_OF_CORPUS)]
        return apply(function, parts, workers=workers)


def apply(
    function: Callable[[Item], Answer], items: Sequence[Item], *, workers: int, ordered: bool = True
) -> Generator[Answer, None, None]:
    """The answers of a function, as soon as they are there (in order, if asked). Its errors come out as they are.

    Close the generator if you leave it early; what is still running is then given up.
    """
    if min(workers, len(items)) <= 1:
        yield from map(function, items)
        return
    answers = _elsewhere(_pack(function), items, workers, ordered)
    try:
        for answer in answers:  # noqa: UP028 - `yield from` would close them before we do
            yield answer
    except BrokenProcessPool as error:
        raise StateError(
            f"one of {workers} worker processes ended without an answer, perhaps for want of memory: "
            "what is done is kept; go on with fewer, by `headwise knowledge build RECIPE --workers 1` or workers=1."
        ) from error
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that tasks are cancelled: just so
            answers.close()


def _elsewhere(packed: _Packed, items: Sequence[Item], workers: int, ordered: bool) -> Generator[Any, None, None]:
    from joblib import Parallel, delayed, parallel_config  # type: ignore[import-untyped]

    # One thread in each worker, or the workers' threads would fight for the cores.
    with parallel_config(backend="loky", inner_max_num_threads=1):
        parallel = Parallel(
            n_jobs=min(workers, len(items)),
            return_as="generator" if ordered else "generator_unordered",
            batch_size=1,
            idle_worker_timeout=IDLE,
            initializer=_begin_worker,
        )
    return parallel(delayed(_call)(packed, item) for item in items)  # type: ignore[no-any-return]


def end_workers() -> None:
    """Let the workers go, with all that they hold; without any this does nothing."""
    executor: Any = sys.modules.get("joblib.externals.loky.reusable_executor")
    if getattr(executor, "_executor", None) is not None:
        executor.get_reusable_executor().shutdown(wait=True)


def _begin_worker() -> None:
    """Ctrl-C reaches workers as well, which need not tell about it: the parent ends them.

    And a worker that has loaded a parser or WordNet has not lost memory, which loky would end it for.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    executor = sys.modules.get("joblib.externals.loky.process_executor")
    if hasattr(executor, "_MAX_MEMORY_LEAK_SIZE"):
        setattr(executor, "_MAX_MEMORY_LEAK_SIZE", float("inf"))  # noqa: B010 - mypy does not know the module


@dataclass(frozen=True, eq=False)
class _Packed:
    """A function turned into bytes once, not again for every part.

    As arrays, since joblib puts large ones into a file that all workers map; so the large arrays inside the function
    are kept apart from the rest, and no worker has a copy of its own.
    """

    token: str
    body: NDArray[np.uint8]
    arrays: list[NDArray[np.uint8]]


def _pack(function: Callable[..., Any]) -> _Packed:
    import cloudpickle  # type: ignore[import-untyped]

    buffers: list[Any] = []
    try:
        body = cloudpickle.dumps(function, protocol=5, buffer_callback=buffers.append)
    except Exception as error:
        raise StateError(
            f"{function!r:.100} cannot be sent to other processes ({error}): make it picklable, or use workers=1."
        ) from error
    arrays = [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]
    return _Packed(uuid.uuid4().hex, np.frombuffer(body, np.uint8), arrays)


# In a worker: the function that it was last sent.
_unpacked: dict[str, Callable[..., Any]] = {}


def _call(packed: _Packed, item: Any) -> Any:
    import cloudpickle

    if packed.token not in _unpacked:
        _unpacked.clear()
        _unpacked[packed.token] = cloudpickle.loads(packed.body, buffers=packed.arrays)
    return _unpacked[packed.token](item)
