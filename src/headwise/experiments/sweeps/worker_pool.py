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
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from multiprocessing import connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from headwise.errors import InputError, StateError, choices

if TYPE_CHECKING:
    from headwise.experiments.sweeps.jobs import Job, JobResult
    from headwise.experiments.sweeps.ray_workers import RayWorkers

ENGINES = ("local", "ray")
# How often a run is started again after its process died.
RETRIES = 2
# Seconds between two looks at requests to stop.
TICK = 0.2
# Seconds for busy processes to end when the pool is closed.
CLOSING = 10.0

# Called with the key of a run and a few words about how far it is.
Progress = Callable[[str, str], None]
Workers: TypeAlias = "LocalWorkers | RayWorkers"


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
    progress: Progress = lambda key, text: None,
    stops: Callable[[], int] = lambda: 0,
) -> None:
    """Train all runs; a run whose process dies is started again, but not for ever.

    Args:
        jobs: the runs, each with a different key.
        workers: the processes.
        over: called with the result of each run that ended.
        progress: called with the key of a run and a few words.
        stops: how often a stop was requested: once means after the running step, twice at once.
    """
    from headwise.experiments.sweeps.jobs import BUSY, fail_job

    waiting, running = deque(jobs), dict[str, Any]()
    deaths: Counter[str] = Counter()
    stopped, give_up = 0, inf
    with workers:
        while running or not stopped and waiting:
            while waiting and not stopped and len(running) < workers.room():
                job = waiting.popleft()
                running[job.key] = job
                workers.submit(job)
            for key, result in workers.collect(progress):
                job = running.pop(key)
                if isinstance(result, str):
                    deaths[key] += 1
                    if stopped or deaths[key] <= RETRIES:
                        waiting.appendleft(job)  # runs that have started are finished first
                        continue
                    error = f"the process of this run died {deaths[key]} times, last: {result}."
                    result = fail_job(job, StateError(error))
                if result.state == BUSY:
                    waiting.append(job)  # another process trains it: look again when all others have started
                else:
                    over(result)
            if stops() > stopped:
                stopped, give_up = stops(), time.monotonic() + workers.patience
                workers.stop(at_once=False)
            if stopped > 1 or time.monotonic() > give_up:
                workers.stop(at_once=True)
                return


# -- processes of this machine -----------------------------------------------------------------------------------------


class LocalWorkers:
    """Processes of this machine, each of which trains one run after the other."""

    name = "local"
    patience = inf
    """Seconds for runs to finish their step after a request to stop."""

    def __init__(self, count: int, threads: int = 1) -> None:
        """`count` processes of so many threads each."""
        self.threads, self._count = threads, count
        self._processes: list[_WorkerProcess] = []

    def __enter__(self) -> LocalWorkers:
        """Nothing starts before the first job."""
        return self

    def __exit__(self, *error: object) -> None:
        """End all processes, by force those that do not end."""
        self.stop(at_once=False)
        for each in self._processes:
            each.pipe.close()  # an idle process ends
        end = time.monotonic() + CLOSING
        for each in self._processes:
            each.process.join(max(0.0, end - time.monotonic()))
            each.close()
        self._processes.clear()

    def room(self) -> int:
        """The number of processes."""
        return self._count

    def submit(self, job: Job) -> None:
        """Give a run to an idle process, or to a new one."""
        process = next((each for each in self._processes if not each.key), None)
        if process is None:
            process = _WorkerProcess(len(self._processes), self.threads)
            self._processes.append(process)
        process.key = job.key
        with suppress(OSError):  # it has just died, which `collect` finds out
            process.pipe.send(job)

    def collect(self, progress: Progress) -> list[tuple[str, JobResult | str]]:
        """Wait a moment; the keys of the runs that ended, each with its result or why its process died."""
        busy: dict[Any, _WorkerProcess] = {each.pipe: each for each in self._processes if each.key}
        if not busy:
            time.sleep(TICK)  # other processes train all runs
        ended: list[tuple[str, JobResult | str]] = []
        for pipe in connection.wait(list(busy), TICK):
            process = busy[pipe]
            try:
                message = process.pipe.recv()
            except (EOFError, OSError):
                ended.append((process.key, process.exit_reason()))
                self._processes.remove(process)
                process.close()
                continue
            if isinstance(message, Exception):
                raise message
            if isinstance(message, str):
                progress(process.key, message)
            else:
                ended.append((process.key, message))
                process.key = ""
        return ended

    def stop(self, *, at_once: bool) -> None:
        """Signal all processes that train."""
        for each in self._processes:
            if each.key and at_once:
                each.process.kill()
            elif each.key:
                each.process.terminate()


class _WorkerProcess:
    """A process, and a pipe that takes jobs there and progress and results back."""

    def __init__(self, number: int, threads: int) -> None:
        import torch

        environment = {"TOKENIZERS_PARALLELISM": "false"}
        environment |= {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        if (devices := torch.cuda.device_count()) > 1:  # not run: there was none to try it on
            environment["CUDA_VISIBLE_DEVICES"] = str(number % devices)
        context = multiprocessing.get_context("spawn")
        self.key = ""  # of the run that it trains
        self._log = tempfile.NamedTemporaryFile()  # its standard error
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, self._log.name, environment))
        self.process.start()
        theirs.close()  # the process has its copy now: its end is the end of its messages

    def exit_reason(self) -> str:
        """The last line that it wrote to standard error, if any."""
        self.process.join(CLOSING)
        lines = Path(self._log.name).read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1][:200].rstrip(".") if lines else "it was killed, or ran out of memory"

    def close(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()
        self._log.close()


def _work(pipe: connection.Connection, log: str, environment: dict[str, str]) -> None:
    """In a worker process: be quiet, train what comes, stop on SIGTERM, and end when the parent process dies."""
    os.environ |= environment
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C is for the parent process, which then says when to stop
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # training has its own handler, which saves
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for path, descriptor in ((os.devnull, 1), (log, 2)):
        file = os.open(path, os.O_WRONLY)
        os.dup2(file, descriptor)
        os.close(file)
    training = threading.Lock()

    def end_with_parent() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os.kill(os.getpid(), signal.SIGTERM)
            with training:  # which saves its step first
                os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    from headwise.experiments.sweeps.jobs import SendProgress, run_job
    from headwise.training.encoders import quiet_libraries

    quiet_libraries()
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        with training:
            try:
                answer: JobResult | Exception = replace(run_job(job, SendProgress(pipe.send)), content=None)
            except Exception as error:  # of the folder of results: it stops the sweep
                answer = error
        pipe.send(answer)
