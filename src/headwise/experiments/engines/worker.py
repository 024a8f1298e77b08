"""A process that makes runs, one after the other: `python -m headwise.experiments.engines.worker FILE_DESCRIPTOR`.

Assignments come as lines of JSON on standard input, reports go as lines of JSON to the file descriptor. The end of
standard input means that nobody wants more runs, or that whoever did has died: the running one then stops after its
step and can go on later.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
from dataclasses import asdict
from typing import Any, TextIO

from headwise.experiments.sweeps.perform import Assignment, perform
from headwise.training.quiet import quiet_libraries

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
