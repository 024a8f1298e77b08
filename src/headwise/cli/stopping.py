"""Ctrl-C and SIGTERM as requests: the first asks to finish the running step, the second not to wait for that."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

INTERRUPTED = 130


class Stops:
    """How often somebody asked to stop."""

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
