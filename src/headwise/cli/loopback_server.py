"""A server for one page and one person: on loopback only, behind a random token, with limits.

Limits: the size of a request, the time that it may take to arrive, and the connections that are open at once, so that
clients that are idle, slow or many block nobody.

Access: whoever knows the token in the address. Another page in the same browser cannot read our answers (they allow no
other origins) nor learn the token; a host name that was set up to point here is refused by the Host header.
"""

from __future__ import annotations

import json
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedReader
from socket import SHUT_RDWR, socket
from typing import Any

from headwise.errors import HeadwiseError, InputError

LOOPBACK = "127.0.0.1"
CONNECTIONS = 32
"""Open at once; a browser opens about six."""
IDLE_SECONDS = 30.0
"""From the start, or from the last answer, to the first byte of a request."""
REQUEST_SECONDS = 10.0
"""From the first byte of a request to its last."""
ANSWER_SECONDS = 30.0
"""For the client to take an answer; not for the time to compute it."""


class Site:
    """A page, what it may ask, and the token of its address."""

    html: bytes
    answers: Mapping[str, Callable[[bytes], Mapping[str, Any]]]
    """What answers the body of a POST request, by the name in its path."""
    largest_body: int
    """Bytes of a body."""
    too_large: str
    """One sentence about a larger one."""

    def __init__(self) -> None:
        """Choose the token."""
        self.token = secrets.token_urlsafe(24)


@contextmanager
def serve(site: Site, port: int = 0) -> Iterator[str]:
    """Serve in a thread for the time of the block; yields the address."""
    try:
        server = _Server((LOOPBACK, port), _Handler)
    except OSError as error:
        raise InputError(
            f"--port {port}: cannot listen there ({error.strerror or error}); choose another, or 0 for any."
        ) from error
    server.site = site
    thread = threading.Thread(target=server.serve_forever, name="headwise-server", daemon=True)
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{server.server_address[1]}/{site.token}/"
    finally:
        server.shutdown()
        server.server_close()


def run_until_interrupt() -> None:
    """Wait for Ctrl-C, which is the usual end of a server."""
    with suppress(KeyboardInterrupt):
        while True:
            time.sleep(0.5)  # not longer, so that Ctrl-C works on every system


class _Server(ThreadingHTTPServer):
    """Each open connection waits for a request until a deadline, or is being answered."""

    daemon_threads = True
    request_queue_size = CONNECTIONS
    site: Site

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._lock = threading.Lock()
        # Deadlines, None while a request is answered; those that wait are in the order of their waiting.
        self._deadlines: dict[socket, float | None] = {}

    def admit(self, connection: socket) -> bool:
        """Take one more, in place of the one that has waited longest if there are too many; False if none waits."""
        with self._lock:
            if len(self._deadlines) >= CONNECTIONS:
                longest = next((each for each, until in self._deadlines.items() if until is not None), None)
                if longest is None:
                    return False
                self._close(longest)
            self._deadlines[connection] = time.monotonic() + IDLE_SECONDS
            return True

    def allow(self, connection: socket, seconds: float | None) -> bool:
        """Let it wait so long from now on, or without end while it is answered; False if it was closed before."""
        with self._lock:
            if connection not in self._deadlines:
                return False
            del self._deadlines[connection]  # to come last
            self._deadlines[connection] = None if seconds is None else time.monotonic() + seconds
            return True

    def _close(self, connection: socket) -> None:
        """Wake its thread, which then ends."""
        del self._deadlines[connection]
        with suppress(OSError):
            connection.shutdown(SHUT_RDWR)

    def process_request(self, request: Any, client_address: Any) -> None:
        """One connection, in a thread; refused while all that are open are being answered."""
        if self.admit(request):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """The end of every connection."""
        with self._lock:
            self._deadlines.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Twice a second: close those that have waited too long."""
        now = time.monotonic()
        with self._lock:
            for each in [each for each, until in self._deadlines.items() if until is not None and until < now]:
                self._close(each)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A page that was closed before its answer came is nothing to report."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    rfile: BufferedReader
    server_version, sys_version = "headwise", ""
    timeout = ANSWER_SECONDS  # of one read, and of a whole answer
    protocol_version = "HTTP/1.1"

    def handle_one_request(self) -> None:
        """Wait for a request, then for the rest of it, then answer."""
        self.close_connection = True
        allow = self.server.allow
        try:
            started = allow(self.connection, IDLE_SECONDS) and self.rfile.peek(1)
        except TimeoutError:
            return
        if started and allow(self.connection, REQUEST_SECONDS):
            super().handle_one_request()

    def do_GET(self) -> None:
        """The page, and nothing else."""
        if not self.server.allow(self.connection, None):
            self.close_connection = True
        elif self._requested([""]) is not None:
            self._send(HTTPStatus.OK, self.server.site.html, "text/html; charset=utf-8")

    def do_POST(self) -> None:
        """One of the requests that the page may make."""
        site = self.server.site
        name = self._requested(site.answers)
        if name is None:
            return
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()) or "Transfer-Encoding" in self.headers:
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "the request has no Content-Length.")
        elif len(length) > 9 or int(length) > site.largest_body:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, site.too_large)
        elif self.headers.get_content_type() != "application/json":
            self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "expected a request in JSON.")
        else:
            body = self.rfile.read(int(length))
            # A connection that was closed meanwhile may have lost the end of its request.
            if not self.server.allow(self.connection, None) or len(body) < int(length):
                self.close_connection = True
                return
            try:
                answer = site.answers[name](body)
            except HeadwiseError as error:
                self._refuse(HTTPStatus.BAD_REQUEST, str(error))
            except Exception as error:  # a thread's traceback would help nobody at the page
                self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, f"unexpected {type(error).__name__}: {error}")
            else:
                self._send_json(HTTPStatus.OK, answer)

    def _requested(self, names: Iterable[str]) -> str | None:
        """Which of the names is requested; other hosts and pages, and requests without the token, are refused."""
        if self.command == "GET" and ("Content-Length" in self.headers or "Transfer-Encoding" in self.headers):
            self.close_connection = True  # the unexpected body must not be taken for the next question
        port, host = self.server.server_address[1], self.headers.get("Host", "")
        path, start = self.path.encode(), f"/{self.server.site.token}/"
        # In constant time, so that nobody finds the token letter by letter.
        found = [name for name in names if secrets.compare_digest(path, f"{start}{name}".encode())]
        if host not in (f"{LOOPBACK}:{port}", f"localhost:{port}"):
            self._refuse(HTTPStatus.FORBIDDEN, "this address is for this machine only.")
        elif self.headers.get("Origin", f"http://{host}") != f"http://{host}":
            self._refuse(HTTPStatus.FORBIDDEN, "this address is for its own page only.")
        elif not found:
            self._refuse(HTTPStatus.NOT_FOUND, "there is nothing here: use the whole address that was printed.")
        else:
            return found[0]
        return None

    def _refuse(self, status: HTTPStatus, sentence: str) -> None:
        self.close_connection = True
        self._send_json(status, {"error": sentence})

    def _send_json(self, status: HTTPStatus, content: Mapping[str, Any]) -> None:
        self._send(status, json.dumps(content, ensure_ascii=False).encode(), "application/json")

    def _send(self, status: HTTPStatus, content: bytes, kind: str) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(content)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "X-Frame-Options": "DENY",
        }
        for name, value in (headers | ({"Connection": "close"} if self.close_connection else {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: requests concern nobody but the user, and the token must not be in a log."""
