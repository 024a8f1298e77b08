"""A Ray cluster as the worker pool of a sweep."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, redirect_stdout, suppress
from typing import Any
from urllib.parse import urlsplit

from headwise.errors import InputError
from headwise.experiments.sweeps.jobs import FINISHED, Job, JobResult, run_job
from headwise.experiments.sweeps.result_folder import ResultFolder
from headwise.experiments.sweeps.worker_pool import TICK, Progress
from headwise.training import Silence
from headwise.training.encoders import quiet_libraries

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

    def stop(self, *, at_once: bool) -> None:
        """Let every run finish its step and save; or end it."""
        for reference in self._running:
            self._ray.cancel(reference, force=at_once)  # without force: as Ctrl-C in the process of the run


def _run_on_cluster(job: Job) -> JobResult:
    """In a process of the cluster: train a run."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    quiet_libraries()
    return run_job(job, Silence())


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
