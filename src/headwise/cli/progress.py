"""Progress on standard error: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

# Seconds between two plain lines.
EVERY = 10.0


class Bar:
    """A bar for people."""

    def __init__(self) -> None:
        """Write to standard error."""
        self._console = Console(stderr=True)
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def start(self, what: str, total: int, done: int = 0) -> None:
        """A stretch of work begins."""
        self.end()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, TextColumn("{task.fields[note]}"), console=self._console, transient=True)
        self._progress.start()
        self._task = self._progress.add_task(what, total=total, completed=done, note="")

    def advance(self, done: int, note: str = "") -> None:
        """So much of it is done."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done, note=note)

    def tell(self, message: str) -> None:
        """A line worth reading."""
        self._console.print(message, highlight=False, markup=False)

    def end(self) -> None:
        """The stretch of work is over."""
        if self._progress is not None:
            self._progress.stop()
        self._progress = None


class Lines:
    """Plain lines for logs, now and then."""

    def __init__(self) -> None:
        """Write to standard error."""
        self._what, self._total, self._last = "", 0, 0.0

    def start(self, what: str, total: int, done: int = 0) -> None:
        """A stretch of work begins."""
        self._what, self._total, self._last = what, total, time.monotonic()
        self.tell(f"{what}: {done}/{total}")

    def advance(self, done: int, note: str = "") -> None:
        """So much of it is done."""
        now = time.monotonic()
        if now - self._last >= EVERY or done == self._total:
            self._last = now
            self.tell(f"{self._what}: {done}/{self._total} {note}".rstrip())

    def tell(self, message: str) -> None:
        """A line worth reading."""
        sys.stderr.write(message + "\n")
        sys.stderr.flush()

    def end(self) -> None:
        """The stretch of work is over."""


@contextmanager
def progress() -> Iterator[Bar | Lines]:
    """What suits standard error; whatever happens, a terminal is left as it was."""
    shown = Bar() if sys.stderr.isatty() else Lines()
    try:
        yield shown
    finally:
        shown.end()
