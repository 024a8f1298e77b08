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

LOOPBACK = "127.0.0.1"
CONNECTIONS = 32
"""Open at once; a browser opens about six."""
IDLE_SECONDS = 30.0
"""From the start, or from the last answer, to the first byte of a request."""
REQUEST_SECONDS = 10.0
"""From the first byte of a request to its last."""
ANSWER_SECONDS = 30.0
"""For the client to take an answer; not for the models to compute it."""
LONGEST = 4000
"""Characters of a text."""
# A body holds two texts, each character up to twelve bytes in JSON, the heads that are off, and the words around them.
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
        self._models, self._patterns = models, patterns or {}
        self._busy, self._questions = threading.Lock(), 0
        self._foremost = [model["role"] for model in page.payload["models"]].index(RUN)
        first = next(iter(models.values()))
        live = {"url": f"/{self.token}/look", "pair": first.task.sentences == 2, "longest_characters": LONGEST}
        self.html = Page({**page.payload, "live": live}, page.arrays).html(live=True).encode()

    def look(self, body: bytes) -> dict[str, Any]:
        """What the models do with typed texts; one request at a time."""
        texts, off = _question(body)
        without = ""
        if off:
            heads = ", ".join(f"{layer}.{head}" for layer, head in off)
            without = f" without {heads if len(off) <= FEW else f'{len(off)} heads'}"
        with self._busy:
            views = []
            for name, run in self._models.items():
                split = Split((check_texts(run, texts),), (None,))
                title, expected = f"typed {self._questions + 1}{without}", self._patterns.get(name)
                views += view_examples(run, split, [title], [None], expected=expected, silenced=off)
            self._questions += 1
            name = f"live{self._questions}"
        exact = len(views[0].tokens) <= WHOLE_TOKENS
        example, arrays = example_payload(list(self._models), views, name, exact=exact, foremost=self._foremost)
        example["off"] = [list(head) for head in off]
        return {"example": example, "arrays": {key: packed(content) for key, content in arrays.items()}}


def _question(body: bytes) -> tuple[list[str], list[tuple[int, int]]]:
    """The texts of a request, and the heads that are switched off."""
    try:
        content = parse_json(body)
        texts, off = content["texts"], content.get("off", [])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(EXPECTED) from None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts) or not isinstance(off, list):
        raise InputError(EXPECTED)
    for head in off:
        if not isinstance(head, list) or len(head) != 2 or not all(type(number) is int for number in head):
            raise InputError(EXPECTED)
    for text in texts:
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise InputError("a text holds half of a letter (a lone surrogate): write it again.")
        if len(text) > LONGEST:
            raise InputError(f"a text has {len(text)} characters: expected at most {LONGEST}; cut it.")
    return texts, sorted({(layer, head) for layer, head in off})


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
    """Each open connection waits for a request until a deadline, or is being answered."""

    daemon_threads = True
    request_queue_size = CONNECTIONS
    explorer: Explorer

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
        elif self._allowed("/"):
            self._send(HTTPStatus.OK, self.server.explorer.html, "text/html; charset=utf-8")

    def do_POST(self) -> None:
        """A question about a text."""
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
            # A connection that was closed meanwhile may have lost the end of its request.
            if not self.server.allow(self.connection, None) or len(body) < int(length):
                self.close_connection = True
                return
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
            self.close_connection = True  # the unexpected body must not be taken for the next question
        port, host = self.server.server_address[1], self.headers.get("Host", "")
        expected = f"/{self.server.explorer.token}{path}"
        if host not in (f"{LOOPBACK}:{port}", f"localhost:{port}"):
            self._refuse(HTTPStatus.FORBIDDEN, "this address is for this machine only.")
        elif self.headers.get("Origin", f"http://{host}") != f"http://{host}":
            self._refuse(HTTPStatus.FORBIDDEN, "this address is for its own page only.")
        elif not secrets.compare_digest(self.path.encode(), expected.encode()):
            self._refuse(HTTPStatus.NOT_FOUND, "there is nothing here: use the whole address that was printed.")
        else:
            return True
        return False

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
