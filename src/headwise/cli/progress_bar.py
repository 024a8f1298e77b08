"""Progress on standard error, and what Ctrl-C says and does."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from headwise.errors import Stopped

# Seconds between two plain lines.
EVERY = 10.0
INTERRUPTED = 130
NOTHING = "nothing was written"


class ProgressBar:
    """A bar on a terminal; elsewhere plain lines: at the start, every few seconds, and at the end."""

    def __init__(self) -> None:
        """Write to standard error."""
        self._console = Console(stderr=True) if sys.stderr.isatty() else None
        self._bar: Progress | None = None
        self._what, self._total, self._last = "", 0, 0.0

    def start(self, what: str, total: int, done: int = 0) -> None:
        """Begin a stretch of work."""
        self.end()
        self._what, self._total, self._last = what, total, time.monotonic()
        if self._console is None:
            self.log(f"{what}: {done}/{total}")
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, TextColumn("{task.fields[note]}"), console=self._console, transient=True)
        self._bar.start()
        self._bar.add_task(what, total=total, completed=done, note="")

    def advance(self, done: int, note: str = "") -> None:
        """Show how much is done."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done, note=note)
        elif self._console is None and (time.monotonic() - self._last >= EVERY or done == self._total):
            self._last = time.monotonic()
            self.log(f"{self._what}: {done}/{self._total} {note}".rstrip())

    def log(self, message: str) -> None:
        """Show a line."""
        if self._console is None:
            sys.stderr.write(message + "\n")
            sys.stderr.flush()
        else:
            self._console.print(message, highlight=False, markup=False)

    def end(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
        self._bar = None


@contextmanager
def progress() -> Iterator[ProgressBar]:
    """Show progress for the time of the block; whatever happens, a terminal is left as it was."""
    shown = ProgressBar()
    try:
        yield shown
    finally:
        shown.end()


def sentence(stop: BaseException | None = None) -> str:
    """What to say after Ctrl-C; a `Stopped` says what was kept."""
    kept = str(stop) if isinstance(stop, Stopped) else ""
    return f"headwise: stopped; {kept or NOTHING}"


@contextmanager
def keeping(kept: Callable[[], str]) -> Iterator[None]:
    """Say what was kept after Ctrl-C within the block, unless the code inside says it."""
    try:
        yield
    except Stopped:
        raise
    except KeyboardInterrupt:
        raise Stopped(kept()) from None


def kept_in(folder: Path) -> str:
    """What is kept by a command that finds its finished work again."""
    return f"what is finished in {folder} is kept, and the same command resumes" if folder.exists() else NOTHING


@contextmanager
def noted_interrupts() -> Iterator[list[int]]:
    """Note Ctrl-C within the block: a library that is being imported may turn KeyboardInterrupt into another error."""
    noted: list[int] = []

    def note(number: int, frame: Any) -> None:
        noted.append(number)
        signal.default_int_handler(number, frame)

    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not usual or threading.current_thread() is not threading.main_thread():  # signals belong to somebody else
        yield noted
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def stop_requests(log: Callable[[str], None]) -> Iterator[Callable[[], int]]:
    """Count SIGINT and SIGTERM: the first asks to finish the running step, the second to stop at once."""
    requests: list[int] = []

    def request(number: int, frame: Any) -> None:
        requests.append(number)
        if len(requests) == 1:
            log("stopping after the running step; once more to stop at once")

    before = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: len(requests)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
