"""Worker processes: the only module that uses joblib."""

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

from headwise.errors import StateError
from headwise.patterns.base import Texts

# Fewer examples than this are done before the first worker has started.
SMALL = 200
# A part is what a kill may cost: not much work, but enough to be worth a file. A pass over a corpus leaves no files.
LEAST, MOST, MOST_OF_CORPUS = 25, 250, 2000
# Into so many parts at least, if they are large enough: several for each worker, so that none waits long for the last.
PARTS = 64
# Seconds after which an idle worker ends; until then the next data set can use it.
IDLE = 30

Item = TypeVar("Item")
Result = TypeVar("Result")


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cut(total: int, most: int = MOST) -> list[range]:
    """The numbers below the total as ranges of at most so many; the same for any number of workers."""
    size = min(most, max(LEAST, -(-total // PARTS)))
    return [range(start, min(start + size, total)) for start in range(0, total, size)]


@dataclass(frozen=True)
class Processes:
    """Applies a function to parts of the examples, in several processes if that is worth it: a `Spread`."""

    workers: int

    def __call__(self, function: Callable[[Sequence[Texts]], Any], examples: Sequence[Texts]) -> Iterator[Any]:
        """One result for each part, in order."""
        workers = self.workers if len(examples) >= SMALL else 1
        parts = [examples[part.start : part.stop] for part in cut(len(examples), MOST_OF_CORPUS)]
        return apply(function, parts, workers=workers)


def apply(
    function: Callable[[Item], Result], items: Sequence[Item], *, workers: int, ordered: bool = True
) -> Generator[Result, None, None]:
    """The results of a function, as soon as they are ready (or in order). Its errors are raised unchanged.

    Close the generator if you leave it early; the work in progress is then abandoned.
    """
    workers = min(workers, len(items))
    if workers <= 1:
        yield from map(function, items)
        return
    import cloudpickle  # type: ignore[import-untyped]
    from joblib import Parallel, delayed, parallel_config  # type: ignore[import-untyped]

    buffers: list[Any] = []
    try:
        body = cloudpickle.dumps(function, protocol=5, buffer_callback=buffers.append)
    except Exception as error:
        raise StateError(
            f"{function!r:.100} cannot be sent to other processes ({error}): make it picklable, or use workers=1."
        ) from error
    # Pickled once, not again for every part. As arrays, since joblib puts large ones into a file that all workers map:
    # the large arrays inside the function are kept apart from the rest, and the workers share them.
    arrays = [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]
    packed = uuid.uuid4().hex, np.frombuffer(body, np.uint8), arrays
    # One thread in each worker, or the workers' threads would compete for the cores.
    with parallel_config(backend="loky", inner_max_num_threads=1):
        parallel = Parallel(
            n_jobs=workers,
            return_as="generator" if ordered else "generator_unordered",
            batch_size=1,
            idle_worker_timeout=IDLE,
            initializer=_begin_worker,
        )
    results = parallel(delayed(_call)(packed, item) for item in items)
    try:
        for result in results:  # noqa: UP028 - `yield from` would close them before we do
            yield result
    except BrokenProcessPool as error:
        raise StateError(
            f"one of {workers} worker processes ended without a result, perhaps for lack of memory: finished parts are "
            "kept; use fewer processes with workers=1."
        ) from error
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about cancelled tasks, which is what we want
            results.close()


def end_workers() -> None:
    """End idle workers, and free what they hold."""
    executor: Any = sys.modules.get("joblib.externals.loky.reusable_executor")
    if getattr(executor, "_executor", None) is not None:
        executor.get_reusable_executor().shutdown(wait=True)


def _begin_worker() -> None:
    """Ignore Ctrl-C in a worker, since the parent ends it.

    And a worker that has loaded a parser or WordNet has no memory leak, for which loky would end it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    executor = sys.modules.get("joblib.externals.loky.process_executor")
    if hasattr(executor, "_MAX_MEMORY_LEAK_SIZE"):
        setattr(executor, "_MAX_MEMORY_LEAK_SIZE", float("inf"))  # noqa: B010 - mypy does not know the module


# In a worker: the function that it received last.
_unpacked: dict[str, Callable[..., Any]] = {}


def _call(packed: tuple[str, NDArray[np.uint8], list[NDArray[np.uint8]]], item: Any) -> Any:
    import cloudpickle

    token, body, arrays = packed
    if token not in _unpacked:
        _unpacked.clear()
        _unpacked[token] = cloudpickle.loads(body, buffers=arrays)
    return _unpacked[token](item)
