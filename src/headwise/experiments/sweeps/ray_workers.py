"""A Ray cluster as the worker pool of a sweep, and as what embeds a large collection."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, redirect_stdout, suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import torch

from headwise.errors import HeadwiseError, InputError, StateError
from headwise.experiments.sweeps.jobs import FINISHED, Job, JobResult, run_job
from headwise.experiments.sweeps.result_folder import ResultFolder
from headwise.experiments.sweeps.worker_pool import RETRIES, TICK, Progress
from headwise.training import Silence
from headwise.training.encoders import quiet_libraries

if TYPE_CHECKING:
    from headwise.retrieval.dense_index import Mapper
    from headwise.retrieval.embedder import Embedder, Vectors

# Seconds to wait for a connection, and for an answer that a Ray cluster would give at once.
CONNECT, ANSWER = 5.0, 10.0


class RayWorkers:
    """A Ray cluster that is running, or a small one that is started on this machine.

    Every machine of the cluster needs the same headwise, and data and models at the same paths. The folder of results
    should be shared: it holds checkpoints, so that the run of a machine that dies is resumed, and the locks. Results
    also come back through Ray and are written by this process in any case.
    """

    name = "ray"
    patience = 120.0

    def __init__(self, address: str | None, workers: int | None, threads: int = 1) -> None:
        """Check that Ray is installed and that the cluster answers, before any work; fails in seconds."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would report that it is used
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            import ray
        except ImportError:
            raise InputError("engine=ray needs Ray: install it by pip install 'headwise[ray]'.") from None
        self.threads, self._address, self._workers = threads, address, workers
        self._ray: Any = ray
        self._running: dict[Any, Job] = {}
        if address is not None and address != "auto":
            _check_address(address)

    def __enter__(self) -> RayWorkers:
        """Connect."""
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "address": self._address}
        if self._address is None:
            cores = self.threads * self._workers if self._workers else None
            options |= {"num_cpus": cores, "include_dashboard": False, "address": "local"}
        with ExitStack() as stack:
            # Ray writes about machines that come and go to standard output, which is for results.
            stack.enter_context(redirect_stdout(sys.stderr))
            try:
                self._ray.init(**options)
            except (ConnectionError, OSError, RuntimeError, ValueError) as error:
                raise _unreachable(self._address or "local", " ".join(str(error).split())[:200]) from error
            stack.callback(self._ray.shutdown)
            self._stack = stack.pop_all()
        gpus = 1 if self._ray.cluster_resources().get("GPU") else 0  # not run: there was none to try it on
        # `run_jobs` decides what starts again, so that a run that another process still trains does not start twice.
        self._remote = self._ray.remote(num_cpus=self.threads, num_gpus=gpus, max_retries=0)(_run_on_cluster)
        return self

    def __exit__(self, *error: object) -> None:
        """Disconnect."""
        self._stack.close()

    def room(self) -> int:
        """As many runs as the cluster has cores for at the moment: machines come and go."""
        room = max(1, int(self._ray.cluster_resources().get("CPU", 1)) // self.threads)
        return room if self._workers is None else min(room, self._workers)

    def submit(self, job: Job) -> None:
        """Queue a run."""
        self._running[self._remote.remote(job)] = job

    def collect(self, progress: Progress) -> list[tuple[str, JobResult | str]]:
        """Wait a moment; the keys of the runs that ended, each with its result or why its process died."""
        if not self._running:
            time.sleep(TICK)  # other processes train all runs
            return []
        ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=TICK)
        ended: list[tuple[str, JobResult | str]] = []
        for reference in ready:
            job = self._running.pop(reference)
            try:
                result: JobResult = self._ray.get(reference)
            except self._ray.exceptions.RayError as error:
                ended.append((job.key, f"{type(error).__name__}, {' '.join(str(error).split())[:200].rstrip('.')}"))
                continue
            if result.state == FINISHED and result.content is not None:
                ResultFolder(job.settings.output).save(result.key, result.content)
            ended.append((job.key, result))
        return ended

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        """Call a function for each item on the cluster: numbers of items with results, as they come.

        A call whose machine dies is repeated on another one. Items are taken when there is room.
        """
        remote = self._ray.remote(num_cpus=self.threads, max_retries=RETRIES)(_call)
        waiting, running, left = enumerate(items), dict[Any, int](), True
        while left or running:
            while left and len(running) < 2 * self.room():  # the next ones are there when a core becomes free
                entry = next(waiting, None)
                left = entry is not None
                if entry is not None:
                    running[remote.remote(function, entry[1])] = entry[0]
            for reference in self._ray.wait(list(running), num_returns=1, timeout=TICK)[0] if running else ():
                try:
                    result = self._ray.get(reference)
                except self._ray.exceptions.RayError as error:
                    if isinstance(cause := getattr(error, "cause", None), HeadwiseError):
                        raise cause from None
                    reason = " ".join(str(error).split())[:200].rstrip(".")
                    raise StateError(f"a part of the work failed on the Ray cluster: {reason}.") from error
                yield running.pop(reference), result

    def stop(self, *, at_once: bool) -> None:
        """Let every run finish its step and save; or end it."""
        for reference in self._running:
            self._ray.cancel(reference, force=at_once)  # without force: as Ctrl-C in the process of the run


def _call(function: Callable[[Any], Any], item: Any) -> Any:
    """In a process of the cluster."""
    return function(item)


def _run_on_cluster(job: Job) -> JobResult:
    """In a process of the cluster: train a run."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    quiet_libraries()
    return run_job(job, Silence())


# -- embedding a collection --------------------------------------------------------------------------------------------


def embed_on_cluster(workers: RayWorkers) -> Mapper:
    """A mapper for `open_dense_index`: parts of a collection are embedded by all machines of a cluster.

    Every machine needs the encoder at the same path; one with other weights or settings is refused.
    """

    def embed(embedder: Embedder, lists: Iterable[list[str]]) -> Iterator[tuple[int, Vectors]]:
        load, source = embedder.__reduce__()
        yield from workers.map(partial(_embed, load, source, embedder.key, workers.threads), lists)

    return embed


def _embed(load: Any, source: tuple[Any, ...], key: str, threads: int, texts: list[str]) -> Vectors:
    """In a process of the cluster: embed texts by an encoder that is loaded once."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    quiet_libraries()
    torch.set_num_threads(threads)
    embedder = _loaded.get(key)
    if embedder is None:
        embedder = _loaded[key] = load(*source)
    if embedder.key != key:
        raise InputError(
            f"machine {socket.gethostname()} of the cluster has another encoder at {source[0]}: copy the same files "
            "and install the same headwise there."
        )
    vectors: Vectors = embedder.embed(texts)
    return vectors


_loaded: dict[str, Any] = {}


def _check_address(address: str) -> None:
    """Refuse an address where nothing answers, or something that is no Ray cluster."""
    parts = urlsplit(address if "//" in address else f"//{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or port is None:
        raise InputError(f"address {address}: expected HOST:PORT, ray://HOST:PORT, or auto.")
    try:
        socket.create_connection((host, port), timeout=CONNECT).close()
    except OSError as error:
        raise _unreachable(address, str(error.strerror or error)) from error
    if address.startswith("ray://"):
        return
    # In another process, as Ray would try for minutes. A cluster that wants a token, which only `ray.init`
    # brings, has answered as well.
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", f"{host}:{port}"]
    with suppress(subprocess.TimeoutExpired):
        answer = subprocess.run(command, capture_output=True, timeout=ANSWER, check=False)
        if answer.returncode == 0 or b"AuthenticationError" in answer.stderr:
            return
    raise _unreachable(address, "something listens there, but it does not answer as Ray")


def _unreachable(address: str, reason: str) -> InputError:
    return InputError(
        f"address {address}: no Ray cluster can be reached there ({reason}): check the address that `ray start` "
        "printed, or leave address=... out for a cluster on this machine."
    )
