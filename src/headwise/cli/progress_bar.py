"""Progress on standard error: a bar on a terminal, plain lines elsewhere."""

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
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from headwise.errors import Stopped

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

    def log(self, message: str) -> None:
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
        self.log(f"{what}: {done}/{total}")

    def advance(self, done: int, note: str = "") -> None:
        """So much of it is done."""
        now = time.monotonic()
        if now - self._last >= EVERY or done == self._total:
            self._last = now
            self.log(f"{self._what}: {done}/{self._total} {note}".rstrip())

    def log(self, message: str) -> None:
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


# Ctrl-C: what it says in every command, and as a request where a running step can be finished first.


INTERRUPTED = 130
NOTHING = "nothing was written"


def sentence(stop: BaseException | None = None) -> str:
    """What to say after Ctrl-C; a `Stopped` says what was kept."""
    kept = str(stop) if isinstance(stop, Stopped) else ""
    return f"headwise: stopped; {kept or NOTHING}"


@contextmanager
def keeping(kept: Callable[[], str]) -> Iterator[None]:
    """Say what was kept, if somebody presses Ctrl-C within the block and nobody has said it."""
    try:
        yield
    except Stopped:
        raise
    except KeyboardInterrupt:
        raise Stopped(kept()) from None


def kept_in(folder: Path) -> str:
    """Of a command that finds again what it has finished."""
    return f"what is finished in {folder} is kept, and the same command resumes" if folder.exists() else NOTHING


class Interrupts:
    """Notes Ctrl-C: a library that is being imported may turn the KeyboardInterrupt into another error."""

    def __init__(self) -> None:
        """Nobody has pressed it yet."""
        self.seen = False

    @contextmanager
    def noted(self) -> Iterator[Interrupts]:
        """For the time of the block, unless signals are ignored, or belong to somebody else."""
        usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if not usual or threading.current_thread() is not threading.main_thread():
            yield self
            return
        signal.signal(signal.SIGINT, self._note)
        try:
            yield self
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _note(self, number: int, frame: Any) -> None:
        self.seen = True
        signal.default_int_handler(number, frame)


class Stops:
    """How often somebody asked to stop: the first time to finish the running step, then not to wait for that."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        """`tell` shows a line."""
        self._tell, self._count = tell, 0

    def count(self) -> int:
        """So often."""
        return self._count

    @contextmanager
    def listening(self) -> Iterator[Stops]:
        """Take the signals for the time of the block."""
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in before:
            signal.signal(number, self._ask)
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _ask(self, number: int, frame: Any) -> None:
        self._count += 1
        if self._count == 1:
            self._tell("stopping after the running step; once more to stop at once")
