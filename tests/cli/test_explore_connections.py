"""`headwise explore` beside clients that are idle, slow or many: real sockets, few of them, for a short time."""

import http.client
import json
import socket
import threading
import time
from contextlib import ExitStack, contextmanager

import pytest

from headwise.cli import explore_server
from headwise.cli import explore_server as explore_connections
from headwise.cli.explore_server import CONNECTIONS, Connections, Explorer, serve
from headwise.experiments.apply import load_run
from headwise.reports.report_page import build_page
from headwise.reports.report_runs import gather_runs

TEXTS = ["the cat surely sees a dog", "a dog never likes it"]
CROWD = 50


@pytest.fixture(scope="module")
def explorer(two_runs):
    runs = gather_runs(two_runs / "guided", None)
    return Explorer(build_page(runs), {run.id: load_run(run.folder) for run in runs})


@pytest.fixture
def address(explorer):
    with serve(explorer) as url:
        yield url


def parts(address):
    _, _, host, rest = address.split("/", 3)
    name, port = host.split(":")
    return (name, int(port)), f"/{rest}"


@contextmanager
def crowd(address, *first):
    """Many connections, each of which sends something and then waits."""
    place, _ = parts(address)
    with ExitStack() as stack:
        opened = []
        for _ in range(CROWD):
            opened.append(stack.enter_context(socket.create_connection(place, timeout=20)))
            for each in first:
                opened[-1].sendall(each)
        yield opened


def page_and_question(address):
    """A browser's two requests on one connection."""
    (name, port), path = parts(address)
    connection = http.client.HTTPConnection(name, port, timeout=20)
    connection.request("GET", path)
    answer = connection.getresponse()
    page = answer.read()
    connection.request("POST", f"{path}look", json.dumps({"texts": TEXTS}), {"Content-Type": "application/json"})
    said = connection.getresponse()
    found = answer.status, page, said.status, json.loads(said.read())
    connection.close()
    return found


def is_closed(raw, within):
    """Whether the other side closes a connection; an answer that comes before is read."""
    raw.settimeout(within)
    try:
        while raw.recv(65536):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


def head(address, method="GET", more=""):
    (name, port), path = parts(address)
    end = "look" if method == "POST" else ""
    return f"{method} {path}{end} HTTP/1.1\r\nHost: {name}:{port}\r\n{more}".encode()


@pytest.mark.parametrize("kind", ["idle", "half a head", "half a body"])
def test_a_good_client_is_answered_beside_a_crowd(address, explorer, kind):
    first = {
        "idle": [],
        "half a head": [head(address)],
        "half a body": [head(address, "POST", "Content-Type: application/json\r\nContent-Length: 50\r\n\r\n{")],
    }[kind]
    before = threading.active_count()
    with crowd(address, *first) as opened:
        for _ in range(3):
            start = time.monotonic()
            status, page, asked, answer = page_and_question(address)
            assert (status, asked) == (200, 200)
            assert page == explorer.html
            assert set(answer["example"]["answers"]) == {"m0"}
            assert time.monotonic() - start < 10
        assert is_closed(opened[0], 5)  # it had waited longest
        deadline = time.monotonic() + 5
        while threading.active_count() > before + CONNECTIONS and time.monotonic() < deadline:
            time.sleep(0.05)  # threads of closed connections are ending
        assert threading.active_count() <= before + CONNECTIONS
        last = opened[-1]
        if kind == "idle":  # those that came last were not closed for the good client
            last.sendall(head(address, more="Connection: close\r\n\r\n"))
            assert last.recv(20).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("body", [False, True])
def test_a_request_that_drips_is_closed_in_time(address, monkeypatch, body):
    monkeypatch.setattr(explore_server, "REQUEST_SECONDS", 1.0)
    place, _ = parts(address)
    with socket.create_connection(place, timeout=20) as raw:
        more = "Content-Type: application/json\r\nContent-Length: 5000\r\n\r\n" if body else ""
        raw.sendall(head(address, "POST" if body else "GET", more))
        start = time.monotonic()
        raw.settimeout(0.2)
        closed = False
        while not closed and time.monotonic() - start < 10:
            try:
                raw.sendall(b"x")  # within any time-out between two bytes
                closed = raw.recv(65536) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                closed = True
        assert closed
        assert 0.9 < time.monotonic() - start < 5


def test_an_idle_connection_is_closed_and_one_that_asks_again_is_not(address, monkeypatch):
    monkeypatch.setattr(explore_connections, "IDLE_SECONDS", 1.5)
    monkeypatch.setattr(explore_server, "IDLE_SECONDS", 1.5)
    place, _ = parts(address)
    (name, port), path = parts(address)
    with socket.create_connection(place, timeout=20) as idle:
        connection = http.client.HTTPConnection(name, port, timeout=20)
        connection.connect()
        local = connection.sock.getsockname()
        for _ in range(4):
            connection.request("GET", path)
            assert connection.getresponse().read()
            assert connection.sock.getsockname() == local  # still the same connection
            time.sleep(0.6)
        connection.close()
        assert is_closed(idle, 5)


def test_a_client_that_does_not_take_its_answer_is_left(explorer, monkeypatch):
    monkeypatch.setattr(explore_server._Handler, "timeout", 1.0)
    monkeypatch.setattr(explorer, "html", b"x" * 30_000_000)
    before = threading.active_count()
    with serve(explorer) as address, socket.create_connection(parts(address)[0], timeout=20) as raw:
        raw.sendall(head(address, more="\r\n"))
        deadline = time.monotonic() + 2
        while threading.active_count() < before + 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert threading.active_count() == before + 2  # the server and the one connection
        deadline = time.monotonic() + 6
        while threading.active_count() > before + 1 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert threading.active_count() == before + 1


def test_those_that_are_being_answered_are_never_closed():
    pairs = [socket.socketpair() for _ in range(CONNECTIONS + 1)]
    connections = Connections()
    try:
        for ours, _ in pairs[:-1]:
            assert connections.admit(ours)
            assert connections.answer(ours)
        assert not connections.admit(pairs[-1][0])
        assert connections.wait(pairs[3][0], 10)
        assert connections.admit(pairs[-1][0])
        assert pairs[3][1].recv(1) == b""  # closed, as the only one that waited
        assert not connections.answer(pairs[3][0])
        for ours, _ in pairs:
            connections.remove(ours)
        assert connections.admit(pairs[0][0])
    finally:
        for pair in pairs:
            for each in pair:
                each.close()
