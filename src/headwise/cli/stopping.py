"""Ctrl-C: what it says in every command, and as a request where a running step can be finished first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwise.errors import Stopped

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
