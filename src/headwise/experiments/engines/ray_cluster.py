"""Runs made by a Ray cluster: one that is running somewhere, or a small one that is started on this machine.

Every machine of the cluster needs the same headwise, the data and the models at the same paths. The folder of the
results should be shared, too: checkpoints lie in it, so that a run whose machine dies goes on instead of beginning
again, and its locks tell that machine's last breath from the work of another. Results themselves come back through Ray
and are kept by this process in any case.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from headwise.errors import InputError
from headwise.experiments.engines.engine import Board
from headwise.experiments.sweeps.perform import FINISHED, Assignment, Report, perform
from headwise.experiments.sweeps.sweep_folder import ResultFolder
from headwise.training import Silence
from headwise.training.encoders import quiet_libraries

# Seconds to wait for a connection, and for an answer that a Ray cluster would give at once.
CONNECT, ANSWER = 5.0, 10.0
# Seconds between two looks at requests to stop, and for how long stopped runs may take to save.
TICK, GOODBYE = 0.5, 120.0
CLIENT = "ray://"


@dataclass(frozen=True)
class RayEngine:
    """A Ray cluster."""

    address: str | None
    workers: int | None
    threads: int = 1
    name: str = "ray"

    @classmethod
    def reach(cls, address: str | None, workers: int | None, threads: int) -> RayEngine:
        """Check that Ray is installed and that the cluster answers, before any work; fails in seconds."""
        _library()
        if address is not None and address != "auto":
            _check_address(address)
        return cls(address, workers, threads)

    def run(self, board: Board) -> None:
        """Make all runs of a board."""
        # Ray tells of machines that come and go on standard output, which is the result's.
        with redirect_stdout(sys.stderr), self._connected() as ray:
            _Cluster(ray, board, self).run()

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        ray = _library()
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if self.address is None:
            cores = self.threads * self.workers if self.workers else None
            options |= {"num_cpus": cores, "include_dashboard": False, "address": "local"}
        else:
            options["address"] = self.address
        try:
            ray.init(**options)
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            raise InputError(_unreachable(self.address or "local", " ".join(str(error).split())[:200])) from error
        try:
            yield ray
        finally:
            ray.shutdown()


class _Cluster:
    """The runs that the cluster is at."""

    def __init__(self, ray: Any, board: Board, engine: RayEngine) -> None:
        self._ray, self._board, self._engine = ray, board, engine
        gpus = 1 if ray.cluster_resources().get("GPU") else 0  # not run: there was none to try it on
        # The board decides what is begun again, so that a run that somebody is still at is not begun twice.
        self._remote = ray.remote(num_cpus=engine.threads, num_gpus=gpus, max_retries=0)(perform_remotely)
        self._running: dict[Any, Assignment] = {}

    def run(self) -> None:
        """Until nothing is left, or nobody wants more."""
        while not self._board.over:
            self._submit()
            if self._running:
                self._collect()
            else:
                time.sleep(TICK)  # all runs are somebody else's
            if self._board.monitor.stops():
                self._stop()

    def _submit(self) -> None:
        while len(self._running) < self._room() and (assignment := self._board.take()) is not None:
            self._running[self._remote.remote(assignment.as_data())] = assignment

    def _room(self) -> int:
        """As many runs as the cluster has cores for just now: machines come and go."""
        cores = int(self._ray.cluster_resources().get("CPU", 1))
        room = max(1, cores // self._engine.threads)
        return room if self._engine.workers is None else min(room, self._engine.workers)

    def _collect(self) -> None:
        ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=TICK)
        for reference in ready:
            assignment = self._running.pop(reference)
            try:
                report = Report(**self._ray.get(reference))
            except self._ray.exceptions.RayError as error:
                reason = " ".join(str(error).split())[:200].rstrip(".")
                self._board.lost(assignment.key, f"{type(error).__name__}, {reason}")
                continue
            if report.state == FINISHED and report.content is not None:
                ResultFolder(Path(assignment.folder)).keep(report.key, report.content)
            self._board.report(report)

    def _stop(self) -> None:
        """Let every run finish its step and save; a second request is not to be waited for."""
        self._board.stopping = True
        for reference in self._running:
            self._ray.cancel(reference, force=False)  # as Ctrl-C in the process that makes the run
        end = time.monotonic() + GOODBYE
        while self._running and time.monotonic() < end and self._board.monitor.stops() < 2:
            self._collect()
        for reference, assignment in list(self._running.items()):
            self._ray.cancel(reference, force=True)
            self._board.lost(assignment.key, "stopped")
        self._running.clear()


def perform_remotely(assignment: dict[str, Any]) -> dict[str, Any]:
    """In a process of the cluster: make a run and report, as plain data."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    quiet_libraries()
    return asdict(perform(Assignment(**assignment), Silence()))


def _library() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would tell others that it is used
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise InputError("--engine ray needs Ray: install it by pip install 'headwise[ray]'.") from None
    return ray


def _check_address(address: str) -> None:
    """Refuse an address where nobody answers, or somebody who is no Ray cluster."""
    parts = urlsplit(address if "//" in address else f"//{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or port is None:
        raise InputError(f"--address {address}: expected HOST:PORT, ray://HOST:PORT, or auto.")
    try:
        socket.create_connection((host, port), timeout=CONNECT).close()
    except OSError as error:
        raise InputError(_unreachable(address, str(error.strerror or error))) from error
    if not address.startswith(CLIENT) and not _answers(host, port):
        raise InputError(_unreachable(address, "something listens there, but it does not answer as Ray"))


def _answers(host: str, port: int) -> bool:
    """Whether a Ray cluster is there; asked in a process of its own, as Ray would go on asking for minutes.

    One that asks for a token, which only `ray.init` brings, has answered as well.
    """
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", f"{host}:{port}"]
    try:
        answer = subprocess.run(command, capture_output=True, timeout=ANSWER, check=False)
    except subprocess.TimeoutExpired:
        return False
    return answer.returncode == 0 or b"AuthenticationError" in answer.stderr


def _unreachable(address: str, reason: str) -> str:
    return (
        f"--address {address}: no Ray cluster can be reached there ({reason}): check the address that `ray start` "
        "printed, or leave --address out for a cluster on this machine."
    )
