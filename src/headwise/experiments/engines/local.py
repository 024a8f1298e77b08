"""Runs made by processes of this machine, each of them one after the other."""

from __future__ import annotations

import json
import os
import queue
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import IO, Any, TextIO

import torch

from headwise.experiments.engines.engine import Board
from headwise.experiments.sweeps.perform import Assignment, Report, perform
from headwise.training.encoders import quiet_libraries

# A process that makes runs, one after the other: `python -m headwise.experiments.engines.local FILE_DESCRIPTOR`.


# Seconds between two reports of how far a run is.
EVERY = 0.5


class Telling:
    """A listener that reports to the process that gave the assignment."""

    def __init__(self, channel: TextIO, key: str) -> None:
        """`channel` takes lines; `key` is the run's."""
        self._channel, self._key = channel, key
        self._what, self._total, self._last = "", 0, 0.0

    def start(self, what: str, total: int, done: int = 0) -> None:
        """A stretch of work begins."""
        self._what, self._total = what, total
        self._say(f"{what} {done}/{total}")

    def advance(self, done: int, note: str = "") -> None:
        """So much of it is done."""
        if time.monotonic() - self._last >= EVERY:
            self._say(f"{self._what} {done}/{self._total}")

    def tell(self, message: str) -> None:
        """Nobody has room for the lines of many runs at once."""

    def end(self) -> None:
        """The stretch of work is over."""

    def _say(self, text: str) -> None:
        self._last = time.monotonic()
        send(self._channel, {"key": self._key, "progress": text})


def send(channel: TextIO, message: dict[str, Any]) -> None:
    """One line; a reader that is gone is told by the end of standard input."""
    try:
        channel.write(json.dumps(message) + "\n")
        channel.flush()
    except BrokenPipeError:
        pass


def main() -> None:
    """Make runs until nobody wants more."""
    signal.signal(signal.SIGTERM, _stop)  # while a model is trained, training itself takes the signal
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    quiet_libraries()
    wanted: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_read, args=(wanted,), daemon=True).start()
    with os.fdopen(int(sys.argv[1]), "w", encoding="utf-8") as channel:
        try:
            while (line := wanted.get()) is not None:
                assignment = Assignment(**json.loads(line))
                report = perform(assignment, Telling(channel, assignment.key))
                send(channel, {"report": {**asdict(report), "content": None}})
        except KeyboardInterrupt:
            pass


def _stop(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def _read(wanted: queue.Queue[str | None]) -> None:
    """Assignments into the queue; at their end, stop what is running."""
    for line in sys.stdin:
        wanted.put(line)
    wanted.put(None)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()

WORKER = "headwise.experiments.engines.local"
# Seconds between two looks at the clock and at requests to stop.
TICK = 0.2
# Seconds that an idle process may take to end.
GOODBYE = 10.0


class Worker:
    """A process, and what it is at."""

    def __init__(self, number: int, threads: int) -> None:
        """Start it in a session of its own: Ctrl-C is for us, who then tell it when to stop."""
        ours, theirs = os.pipe()
        self._log: IO[bytes] = tempfile.TemporaryFile()
        environment = os.environ | {"TOKENIZERS_PARALLELISM": "false", **_threads(threads), **_device(number)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", WORKER, str(theirs)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            pass_fds=[theirs],
            env=environment,
            start_new_session=True,
        )
        os.close(theirs)
        self.channel = ours
        self.key: str | None = None
        self._rest = b""

    def give(self, assignment: Assignment) -> None:
        """Let it make a run; one that has died meanwhile is noticed by the end of its channel."""
        self.key = assignment.key
        with suppress(BrokenPipeError):
            self._input.write(json.dumps(assignment.as_data()).encode() + b"\n")
            self._input.flush()

    def messages(self) -> list[dict[str, Any]] | None:
        """What it has said; None once it has died."""
        part = os.read(self.channel, 1 << 16)
        if not part:
            return None
        *lines, self._rest = (self._rest + part).split(b"\n")
        return [json.loads(line) for line in lines]

    def epitaph(self) -> str:
        """Why it died, as far as it said."""
        code = self.process.wait()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"{how}{f' ({lines[-1][:200]})' if lines else ''}"

    def stop(self) -> None:
        """Ask it to stop after the running step."""
        with suppress(ProcessLookupError):
            self.process.terminate()

    def end(self) -> None:
        """Let it go, by force if it will not."""
        with suppress(BrokenPipeError):
            self._input.close()
        try:
            self.process.wait(GOODBYE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.channel)
        self._log.close()

    @property
    def _input(self) -> IO[bytes]:
        return self.process.stdin  # type: ignore[return-value]  # it is a pipe


@dataclass(frozen=True)
class LocalEngine:
    """Processes of this machine."""

    workers: int
    threads: int = 1
    name: str = "local"

    def run(self, board: Board) -> None:
        """Make all runs of a board."""
        crew = _Crew(board, self.threads)
        try:
            while not board.over:
                crew.grow(self.workers)
                crew.hear()
                crew.heed_stops()
        finally:
            crew.dismiss()


class _Crew:
    """The processes at work."""

    def __init__(self, board: Board, threads: int) -> None:
        self._board, self._threads = board, threads
        self._workers: list[Worker] = []
        self._selector = selectors.DefaultSelector()
        self._stops = 0

    def grow(self, most: int) -> None:
        """Give every idle process a run, and start processes as long as there are runs for them."""
        for worker in [each for each in self._workers if each.key is None]:
            assignment = self._board.take()
            if assignment is None:
                return
            worker.give(assignment)
        while len(self._workers) < most and (assignment := self._board.take()) is not None:
            worker = Worker(len(self._workers), self._threads)
            self._workers.append(worker)
            self._selector.register(worker.channel, selectors.EVENT_READ, worker)
            worker.give(assignment)

    def hear(self) -> None:
        """Listen to all processes for a moment."""
        if not self._workers:
            time.sleep(TICK)  # all runs are somebody else's
            return
        for found, _ in self._selector.select(TICK):
            worker: Worker = found.data
            messages = worker.messages()
            if messages is None:
                self._bury(worker)
                continue
            for message in messages:
                self._take_in(worker, message)

    def heed_stops(self) -> None:
        """Pass on a request to stop; the second one is not to be waited for."""
        stops = self._board.monitor.stops()
        if stops > self._stops == 0:
            self._board.stopping = True
            for worker in self._workers:
                worker.stop()
        if stops > 1:
            for worker in self._workers:
                worker.process.kill()
        self._stops = stops

    def dismiss(self) -> None:
        """End all processes."""
        for worker in self._workers:
            worker.end()
        self._selector.close()

    def _take_in(self, worker: Worker, message: dict[str, Any]) -> None:
        if "progress" in message:
            self._board.monitor.going_on(message["key"], message["progress"])
            return
        worker.key = None
        self._board.report(Report(**message["report"]))

    def _bury(self, worker: Worker) -> None:
        self._selector.unregister(worker.channel)
        self._workers.remove(worker)
        reason = worker.epitaph()
        worker.end()
        if worker.key is not None:
            self._board.lost(worker.key, reason)


def _threads(count: int) -> dict[str, str]:
    return {name: str(count) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}


def _device(number: int) -> dict[str, str]:
    """Of several GPUs, one for each process in turn (not run: there was none to try it on)."""
    devices = torch.cuda.device_count()
    return {} if devices < 2 else {"CUDA_VISIBLE_DEVICES": str(number % devices)}
