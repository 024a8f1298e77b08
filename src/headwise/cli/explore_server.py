"""The server of `headwise explore`: one page for one person, on loopback only, behind a random token, with limits.

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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedReader
from socket import SHUT_RDWR, socket
from typing import Any

from headwise.data import Split
from headwise.errors import HeadwiseError, InputError
from headwise.experiments.analysis.example_views import ExpectedPattern, check_texts, view_examples
from headwise.experiments.apply import Loaded
from headwise.limits import parse_json
from headwise.reports.report_page import Page, packed
from headwise.reports.report_runs import RUN
from headwise.reports.report_views import example_payload

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


LOOPBACK = "127.0.0.1"
LONGEST = 4000
"""Characters of a text."""
# A body holds two texts, each character up to twelve bytes as JSON writes it, the heads that are off, and the words
# around them.
LARGEST_BODY = 2 * 12 * LONGEST + 20_000
# So many heads that are off are named in a title.
FEW = 4
EXPECTED = 'expected {"texts": ["...", "..."]}, and perhaps "off": [[layer, head], ...].'
# Whole maps up to here; longer texts get the largest weights of each row.
WHOLE_TOKENS = 128


class Explorer:
    """The page, the models, and the token of its address."""

    def __init__(
        self, page: Page, models: Mapping[str, Loaded], patterns: Mapping[str, ExpectedPattern | None] | None = None
    ) -> None:
        """Make the page live; `patterns` are those that the heads of each model were compared with."""
        self.token = secrets.token_urlsafe(24)
        self._models, self._busy, self._ended = models, threading.Lock(), threading.Event()
        self._patterns = patterns or {}
        self._foremost = [model["role"] for model in page.payload["models"]].index(RUN)
        self._asked = 0
        first = next(iter(models.values()))
        live = {"url": f"/{self.token}/look", "pair": first.task.sentences == 2, "longest_characters": LONGEST}
        self.html = Page({**page.payload, "live": live}, page.arrays).html(live=True).encode()

    def look(self, body: bytes) -> dict[str, Any]:
        """What the models do with typed texts; one request at a time."""
        texts, off = _question(body)
        with self._busy:
            views = []
            title = f"typed {self._asked + 1}{_without(off)}"
            for name, run in self._models.items():
                split = Split((check_texts(run, texts),), (None,))
                views += view_examples(run, split, [title], [None], expected=self._patterns.get(name), silenced=off)
            self._asked += 1
            name = f"live{self._asked}"
        exact = len(views[0].tokens) <= WHOLE_TOKENS
        example, arrays = example_payload(list(self._models), views, name, exact=exact, foremost=self._foremost)
        example["off"] = [list(head) for head in off]
        return {"example": example, "arrays": {key: packed(content) for key, content in arrays.items()}}

    def wait(self) -> None:
        """Wait until `end` is called."""
        while not self._ended.wait(0.5):  # in pieces, so that Ctrl-C works on every system
            pass

    def end(self) -> None:
        """Let `wait` return."""
        self._ended.set()


@contextmanager
def serve(explorer: Explorer, port: int = 0) -> Iterator[str]:
    """Serve in a thread for the time of the block; yields the address."""
    try:
        server = _Server((LOOPBACK, port), _Handler)
    except OSError as error:
        raise InputError(
            f"--port {port}: cannot listen there ({error.strerror or error}); choose another, or 0 for any."
        ) from error
    server.explorer = explorer
    thread = threading.Thread(target=server.serve_forever, name="headwise-explore", daemon=True)
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{server.server_address[1]}/{explorer.token}/"
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = CONNECTIONS
    explorer: Explorer

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.connections = Connections()

    def process_request(self, request: Any, client_address: Any) -> None:
        """One connection, in a thread; refused while all that are open are being answered."""
        if self.connections.admit(request):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """The end of every connection."""
        self.connections.remove(request)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Twice a second."""
        self.connections.close_late()

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
        try:
            started = self._wait(IDLE_SECONDS) and self.rfile.peek(1) and self._wait(REQUEST_SECONDS)
        except TimeoutError:
            return
        if started:
            super().handle_one_request()

    def _wait(self, seconds: float) -> bool:
        return self.server.connections.wait(self.connection, seconds)

    def _received(self) -> bool:
        """Whether the whole request is here; a connection that was closed meanwhile may have lost its end."""
        received = self.server.connections.answer(self.connection)
        self.close_connection = self.close_connection or not received
        return received

    def do_GET(self) -> None:
        """The page, and nothing else."""
        if not self._received() or not self._allowed("/"):
            return
        self._send(HTTPStatus.OK, self.server.explorer.html, "text/html; charset=utf-8")

    def do_POST(self) -> None:
        """A question."""
        if not self._allowed("/look"):
            return
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()) or "Transfer-Encoding" in self.headers:
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "the request has no Content-Length.")
        elif len(length) > 9 or int(length) > LARGEST_BODY:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a text may have {LONGEST} characters at most: cut it.")
        elif self.headers.get_content_type() != "application/json":
            self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "expected a question in JSON.")
        else:
            body = self.rfile.read(int(length))
            if self._received() and len(body) == int(length):
                self._answer(body)
            else:
                self.close_connection = True

    def _answer(self, body: bytes) -> None:
        try:
            answer = self.server.explorer.look(body)
        except HeadwiseError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
        except Exception as error:  # a thread's traceback would help nobody at the page
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, f"unexpected {type(error).__name__}: {error}")
        else:
            self._send_json(HTTPStatus.OK, answer)

    def _allowed(self, path: str) -> bool:
        """Refuse other names of this machine, and requests without the token, in constant time."""
        if self.command == "GET" and ("Content-Length" in self.headers or "Transfer-Encoding" in self.headers):
            self.close_connection = True  # a body that nobody asked for must not be taken for the next question
        port = self.server.server_address[1]
        host = self.headers.get("Host", "")
        expected = f"/{self.server.explorer.token}{path}"
        if host not in (f"{LOOPBACK}:{port}", f"localhost:{port}"):
            self._refuse(HTTPStatus.FORBIDDEN, "this address is for this machine only.")
            return False
        if self.headers.get("Origin", f"http://{host}") != f"http://{host}":
            self._refuse(HTTPStatus.FORBIDDEN, "this address is for its own page only.")
            return False
        if not secrets.compare_digest(self.path.encode(), expected.encode()):
            self._refuse(HTTPStatus.NOT_FOUND, "there is nothing here: use the whole address that was printed.")
            return False
        return True

    def _refuse(self, status: HTTPStatus, sentence: str) -> None:
        self.close_connection = True
        self._send_json(status, {"error": sentence})

    def _send_json(self, status: HTTPStatus, content: Mapping[str, Any]) -> None:
        self._send(status, json.dumps(content, ensure_ascii=False).encode(), "application/json")

    def _send(self, status: HTTPStatus, content: bytes, kind: str) -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(content))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("X-Frame-Options", "DENY"),
        ):
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are nobody's business but the user's, and the token must not be in a log."""


def _question(body: bytes) -> tuple[list[str], list[tuple[int, int]]]:
    """The texts of a request, and the heads that are switched off."""
    try:
        asked = parse_json(body)
        texts, off = asked["texts"], asked.get("off", [])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(EXPECTED) from None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InputError(EXPECTED)
    for text in texts:
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise InputError("a text holds half of a letter (a lone surrogate): write it anew.")
        if len(text) > LONGEST:
            raise InputError(f"a text has {len(text)} characters: expected at most {LONGEST}; cut it.")
    if not isinstance(off, list) or not all(_is_head(each) for each in off):
        raise InputError(EXPECTED)
    return texts, sorted({(layer, head) for layer, head in off})


def _without(off: list[tuple[int, int]]) -> str:
    """The heads by name if they are few."""
    if len(off) > FEW:
        return f" without {len(off)} heads"
    return f" without {', '.join(f'{layer}.{head}' for layer, head in off)}" if off else ""


def _is_head(each: Any) -> bool:
    return isinstance(each, list) and len(each) == 2 and all(type(number) is int for number in each)
