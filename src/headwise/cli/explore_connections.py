"""The open connections of the explorer's server: how many there may be, and how long each may wait.

A connection takes a thread. One that sends nothing, or a byte now and then, would hold its thread for ever: it is
closed after a while, or as soon as somebody else needs the place.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from socket import SHUT_RDWR, socket

CONNECTIONS = 32
"""Open at once; a browser opens about six."""
IDLE_SECONDS = 30.0
"""From the start, or from the last answer, to the first byte of a request."""
REQUEST_SECONDS = 10.0
"""From the first byte of a request to its last."""
ANSWER_SECONDS = 30.0
"""For the client to take an answer; not for the models to find it."""


class Connections:
    """Each waits for a request until some time, or is being answered."""

    def __init__(self) -> None:
        """None yet."""
        self._lock = threading.Lock()
        # Until when it may wait, None while it is being answered; those that wait are in the order of their waiting.
        self._open: dict[socket, float | None] = {}

    def admit(self, connection: socket) -> bool:
        """Take one more, in place of the one that has waited longest if there are too many; False if none waits."""
        with self._lock:
            if len(self._open) >= CONNECTIONS:
                longest = next((each for each, until in self._open.items() if until is not None), None)
                if longest is None:
                    return False
                self._close(longest)
            self._open[connection] = time.monotonic() + IDLE_SECONDS
            return True

    def wait(self, connection: socket, seconds: float) -> bool:
        """Give it so long from now on; False if it was closed."""
        return self._set(connection, time.monotonic() + seconds)

    def answer(self, connection: socket) -> bool:
        """Its request is here: it is not closed until it waits again; False if it was closed before."""
        return self._set(connection, None)

    def remove(self, connection: socket) -> None:
        """It has ended."""
        with self._lock:
            self._open.pop(connection, None)

    def close_late(self) -> None:
        """Close those that have waited too long."""
        now = time.monotonic()
        with self._lock:
            for connection in [each for each, until in self._open.items() if until is not None and until < now]:
                self._close(connection)

    def _set(self, connection: socket, until: float | None) -> bool:
        with self._lock:
            if connection not in self._open:
                return False
            del self._open[connection]  # to come last
            self._open[connection] = until
            return True

    def _close(self, connection: socket) -> None:
        """Wake its thread, which then ends."""
        del self._open[connection]
        with suppress(OSError):
            connection.shutdown(SHUT_RDWR)
