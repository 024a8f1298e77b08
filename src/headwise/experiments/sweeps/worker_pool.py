"""The worker pool: trains the runs of a sweep in processes of this machine, or on a Ray cluster.

This module imports no torch: a worker process sets its number of threads and its GPU before it does.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headwise.errors import InputError, StateError, choices

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from headwise.experiments.sweeps.jobs import Job, JobResult

ENGINES = ("local", "ray")
# How often a run is started again after its process died.
RETRIES = 2
# Seconds until a run that another process trains is looked at again.
LOOK_AGAIN = 1.0
# Seconds between two looks at requests to stop.
TICK = 0.2
# Seconds between two reports of a run's progress.
PROGRESS_EVERY = 0.5
# Seconds for busy processes to end when the pool is closed.
CLOSING = 10.0


class Workers(Protocol):
    """Processes that train runs, for the time of a with block."""

    name: str
    threads: int

    def __enter__(self) -> Any:
        """Connect or prepare; processes start with the first jobs."""

    def __exit__(self, *error: object) -> None:
        """End all processes."""

    def room(self) -> int:
        """How many runs can be trained at a time."""

    def submit(self, job: Job) -> None:
        """Start a run."""

    def collect(self, progress: Callable[[str, str], None]) -> list[tuple[str, JobResult | str]]:
        """Wait a moment; the keys of the runs that ended, each with its result or why its process died."""

    def stop(self, *, at_once: bool) -> None:
        """Stop after the running step, or at once."""


def choose_engine(name: str, *, workers: int | None = None, threads: int = 1, address: str | None = None) -> Workers:
    """Workers by the name of their engine; an engine that cannot be used is refused now.

    Args:
        name: local or ray.
        workers: runs at a time; for local one per core if not given, for ray as many as the cluster has room for.
        threads: of each run. More change the last bits, so results are compared at the same number.
        address: of a Ray cluster; a small one is started on this machine if not given.
    """
    if name == "local":
        if address is not None:
            raise InputError(f"address {address} is for engine=ray: add that, or leave address=... out.")
        affinity = getattr(os, "sched_getaffinity", None)
        cores = len(affinity(0)) if affinity else os.cpu_count() or 1
        return LocalWorkers(workers or max(1, cores // threads), threads)
    if name == "ray":
        from headwise.experiments.sweeps.ray_workers import RayWorkers

        return RayWorkers(address, workers, threads)
    raise InputError(f"unknown engine {name!r}: {choices(name, ENGINES)}.")


def run_jobs(
    jobs: Sequence[Job],
    workers: Workers,
    *,
    over: Callable[[JobResult], None],
    progress: Callable[[str, str], None] = lambda key, text: None,
    stops: Callable[[], int] = lambda: 0,
) -> None:
    """Train all runs; a run whose process dies is started again, but not for ever.

    Args:
        jobs: the runs, each with a different key.
        workers: the processes.
        over: called with the result of each run.
        progress: called with the key of a run and a few words.
        stops: how often a stop was requested: once means after the running step, twice at once.
    """
    from headwise.experiments.sweeps.jobs import BUSY, INTERRUPTED, JobResult, fail_job

    waiting, running = deque(jobs), dict[str, Any]()
    busy: deque[tuple[float, Job]] = deque()  # trained by another process, and when to look again
    deaths: Counter[str] = Counter()
    stopped = 0
    with workers:
        while running or not stopped and (waiting or busy):
            while busy and busy[0][0] <= time.monotonic():
                waiting.append(busy.popleft()[1])
            while waiting and not stopped and len(running) < workers.room():
                job = waiting.popleft()
                running[job.key] = job
                workers.submit(job)
            for key, result in workers.collect(progress):
                job = running.pop(key)
                if isinstance(result, JobResult):
                    if result.state == BUSY:
                        busy.append((time.monotonic() + LOOK_AGAIN, job))
                    else:
                        over(result)
                    continue
                deaths[key] += 1
                if stopped:
                    over(JobResult(key, INTERRUPTED))
                elif deaths[key] <= RETRIES:
                    waiting.appendleft(job)  # runs that have started are finished first
                else:
                    error = f"the process of this run died {deaths[key]} times, last: {result}."
                    over(fail_job(job, StateError(error)))
            if stops() > stopped:
                stopped = stops()
                workers.stop(at_once=stopped > 1)


# -- processes of this machine -----------------------------------------------------------------------------------------


class LocalWorkers:
    """Processes of this machine."""

    name = "local"

    def __init__(self, count: int, threads: int = 1) -> None:
        """`count` processes of so many threads each."""
        self.threads, self._count = threads, count
        self._processes: list[_WorkerProcess] = []

    def __enter__(self) -> LocalWorkers:
        """Nothing starts before the first job."""
        return self

    def __exit__(self, *error: object) -> None:
        """End all processes, by force those that do not end."""
        if any(process.future is not None for process in self._processes):
            self.stop(at_once=False)
            wait([process.future for process in self._processes if process.future is not None], CLOSING)
            self.stop(at_once=True)
        for process in self._processes:
            process.close()
        self._processes.clear()

    def room(self) -> int:
        """The number of processes."""
        return self._count

    def submit(self, job: Job) -> None:
        """Give a run to an idle process, or to a new one."""
        process = next((each for each in self._processes if each.future is None), None)
        if process is None:
            process = _WorkerProcess(len(self._processes), self.threads)
            self._processes.append(process)
        process.submit(job)

    def collect(self, progress: Callable[[str, str], None]) -> list[tuple[str, JobResult | str]]:
        """Wait a moment; the runs that ended."""
        running = {process.future: process for process in self._processes if process.future is not None}
        if not running:
            time.sleep(TICK)  # other processes train all runs
            return []
        done, _ = wait(running, TICK, FIRST_COMPLETED)
        ended: list[tuple[str, JobResult | str]] = []
        for future, process in running.items():
            for text in process.texts():
                progress(process.key, text)
            if future not in done:
                continue
            process.future = None
            try:
                ended.append((process.key, future.result()))
            except BrokenProcessPool:
                ended.append((process.key, process.exit_reason()))
                self._processes.remove(process)
                process.close()
        return ended

    def stop(self, *, at_once: bool) -> None:
        """Signal all processes."""
        for process in self._processes:
            process.signal(signal.SIGKILL if at_once else signal.SIGTERM)


class _WorkerProcess:
    """A process pool of one process: if it dies, it takes no other run along."""

    def __init__(self, number: int, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._log = tempfile.NamedTemporaryFile()  # the standard error of the process
        self._messages, self._sender = context.Pipe(duplex=False)
        environment = {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": str(threads)}
        environment |= {"MKL_NUM_THREADS": str(threads)} | _gpu(number)
        self._executor = ProcessPoolExecutor(
            1, context, initializer=_start_worker, initargs=(self._sender, self._log.name, environment)
        )
        self._pid: int | None = None
        self.future: Future[JobResult] | None = None
        self.key = ""

    def submit(self, job: Job) -> None:
        self.key, self.future = job.key, self._executor.submit(_run_in_worker, job)
        self._sender.close()  # the process has its copy now: the end of the messages is the end of the process

    def texts(self) -> Iterator[str]:
        """The progress that it has sent."""
        with suppress(EOFError, OSError):
            while self._messages.poll():
                message = self._messages.recv()
                if isinstance(message, int):
                    self._pid = message
                else:
                    yield message

    def signal(self, number: int) -> None:
        """Send a signal; a process that is still starting is waited for."""
        with suppress(EOFError, OSError):
            while self._pid is None:
                self._pid = self._messages.recv()  # its first message
            os.kill(self._pid, number)

    def exit_reason(self) -> str:
        """The last line that it wrote to standard error, if any."""
        lines = Path(self._log.name).read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1][:200].rstrip(".") if lines else "it was killed, or ran out of memory"

    def close(self) -> None:
        self._executor.shutdown()
        self._messages.close()
        self._log.close()


def _gpu(number: int) -> dict[str, str]:
    """Of several GPUs, one for each process in turn (not run: there was none to try it on)."""
    import torch

    devices = torch.cuda.device_count()
    return {} if devices < 2 else {"CUDA_VISIBLE_DEVICES": str(number % devices)}


_training = threading.Lock()  # held by a worker process while it trains
_send: Callable[[Any], None] = print  # where a worker process sends its progress


def _start_worker(sender: Connection, log: str, environment: dict[str, str]) -> None:
    """In a new worker process: be quiet, stop on SIGTERM, and end when the parent process dies."""
    global _send
    _send = sender.send
    os.environ |= environment
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C is for the parent process, which then says when to stop
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # training has a handler of its own, which saves
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for path, descriptor in ((os.devnull, 1), (log, 2)):
        file = os.open(path, os.O_WRONLY)
        os.dup2(file, descriptor)
        os.close(file)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _send(os.getpid())
    from headwise.training.encoders import quiet_libraries

    quiet_libraries()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        with _training:  # which saves its step first
            os._exit(1)


def _run_in_worker(job: Job) -> JobResult:
    from headwise.experiments.sweeps.jobs import run_job

    with _training:
        return replace(run_job(job, _SendProgress()), content=None)


class _SendProgress:
    """A listener that sends progress to the parent process now and then."""

    def __init__(self) -> None:
        self._what, self._total, self._last = "", 0, 0.0

    def start(self, what: str, total: int, done: int = 0) -> None:
        self._what, self._total, self._last = what, total, 0.0
        self.advance(done)

    def advance(self, done: int, note: str = "") -> None:
        if time.monotonic() - self._last >= PROGRESS_EVERY:
            self._last = time.monotonic()
            with suppress(OSError):  # the parent process has died
                _send(f"{self._what} {done}/{self._total}")

    def log(self, message: str) -> None:
        """Messages of many runs at once are left out."""

    def end(self) -> None:
        """Nothing to end."""
