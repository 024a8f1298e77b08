"""`headwise explore`: the live page, for one person on this machine, beside clients that are idle, slow or many."""

import base64
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import zlib
from contextlib import ExitStack

import numpy as np
import pytest
from tiny_runs import assert_one_sentence

from headwise.cli import explore_server, loopback_server
from headwise.cli.explore_server import LONGEST, Explorer
from headwise.cli.loopback_server import CONNECTIONS, serve
from headwise.data import Split
from headwise.experiments.analysis.analysis_files import to_bytes
from headwise.experiments.analysis.example_views import view_examples
from headwise.experiments.apply import load_run
from headwise.reports.report_page import build_page
from headwise.reports.report_runs import gather_runs

TEXTS = ["the cat surely sees a dog", "a dog never likes it"]
CROWD = 50


@pytest.fixture(scope="module")
def explorer(two_runs):
    runs = gather_runs(two_runs / "guided", two_runs / "plain")
    return Explorer(build_page(runs), {run.id: load_run(run.folder) for run in runs})


@pytest.fixture(scope="module")
def address(explorer):
    with serve(explorer) as url:
        yield url


def ask(address, path="", body=None, headers=None, method=None):
    """Status, headers and content of an answer."""
    host, _, rest = address.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(host, timeout=60)
    given = {"Content-Type": "application/json"} | (headers or {})
    connection.request(method or ("GET" if body is None else "POST"), f"/{rest}{path}", body, given)
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read()
    connection.close()
    return found


def question(*texts):
    return json.dumps({"texts": list(texts)})


def test_the_page_names_the_address_for_questions(address):
    status, headers, content = ask(address)
    assert status == 200
    page = content.decode()
    assert "connect-src 'self'" in page
    assert f'"url":"/{address.split("/")[3]}/look"' in page
    assert headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in headers


def test_both_models_answer_a_pair_as_they_do_elsewhere(address, two_runs):
    status, _, content = ask(address, "look", question(*TEXTS))
    assert status == 200
    found = json.loads(content)
    example = found["example"]
    for name, model in (("plain", "m0"), ("guided", "m1")):
        (view,) = view_examples(load_run(two_runs / name), Split((tuple(TEXTS),), (None,)), [""], [None])
        assert example["tokens"] == list(view.tokens)
        assert example["answers"][model]["prediction"] == view.prediction
        array = zlib.decompress(base64.b64decode(found["arrays"][example["maps"][model]["array"]]), -15)
        tokens, heads = len(view.tokens), view.maps.values.shape[0] * view.maps.values.shape[1]
        assert np.array_equal(
            np.frombuffer(array, np.uint8).reshape(heads, tokens, tokens), view.maps.values.reshape(heads, tokens, -1)
        )
        mean = zlib.decompress(base64.b64decode(found["arrays"][example["means"][model]]), -15)
        assert mean == to_bytes(view.mean_map).tobytes()


def test_heads_can_be_switched_off(address):
    whole, without = (
        json.loads(ask(address, "look", json.dumps({"texts": TEXTS, "off": off}))[2])["example"]
        for off in ([], [[0, 0], [1, 1], [0, 0]])
    )
    assert without["title"].endswith(" without 0.0, 1.1")
    assert (whole["off"], without["off"]) == ([], [[0, 0], [1, 1]])
    assert all(whole["answers"][model] != without["answers"][model] for model in ("m0", "m1"))


def test_bad_questions_get_one_sentence(address):
    for body, expected, part in (
        (question("one only"), 400, "pairs has 2"),
        (question("a", "  "), 400, "empty"),
        (question("a", "b" * (LONGEST + 1)), 400, f"at most {LONGEST}"),
        ("no json", 400, "expected"),
        ('{"texts": [1, 2]}', 400, "expected"),
        ('{"texts": ["a", "b"], "off": [[0, "1"]]}', 400, "expected"),
        ('{"texts": ["a", "b"], "off": [[0, 99]]}', 400, "head 99 of layer 0: the model has heads 0 to 3"),
        ("[" * 50_000, 400, "expected"),
        (json.dumps({"texts": ["a", "\ud800"]}), 400, "lone surrogate"),
        (question("a", "\u200b"), 400, "nothing that the model can read"),
        (question("x" * explore_server.LARGEST_BODY, "b"), 413, "characters at most"),
    ):
        status, _, content = ask(address, "look", body)
        assert status == expected
        assert part in json.loads(content)["error"]


def test_strangers_are_refused(address):
    root = address.rsplit("/", 2)[0] + "/"
    assert ask(root, "")[0] == 404
    assert ask(root, "wrong-word/look", question(*TEXTS))[0] == 404
    assert ask(address, "", headers={"Host": "evil.example"})[0] == 403
    assert ask(address, "look", question(*TEXTS), headers={"Host": "evil.example:80"})[0] == 403
    assert ask(address, "look", question(*TEXTS), headers={"Content-Type": "text/plain"})[0] == 415
    assert ask(address, "look", question(*TEXTS), headers={"Content-Length": "many"})[0] == 411
    assert ask(address, "look", question(*TEXTS), headers={"Content-Length": "9" * 5000})[0] == 413
    assert ask(address, "../../etc/passwd")[0] == 404
    host = "/".join(address.split("/")[:3])
    assert ask(address, "look", question(*TEXTS), headers={"Origin": "http://evil.example"})[0] == 403
    assert ask(address, "look", question(*TEXTS), headers={"Origin": "null"})[0] == 403
    assert ask(address, "look", question(*TEXTS), headers={"Origin": host.replace("http:", "https:")})[0] == 403
    assert ask(address, "look", question(*TEXTS), headers={"Origin": host})[0] == 200


def test_an_unexpected_body_is_not_the_next_question(address):
    host, port = address.split("/")[2].split(":")
    with socket.create_connection((host, int(port)), timeout=10) as raw:
        path = "/" + address.split("/", 3)[3]
        hidden = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"
        head = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: {len(hidden)}\r\n\r\n"
        raw.sendall((head + hidden).encode())
        answer = b"".join(iter(lambda: raw.recv(65536), b""))
    assert answer.count(b"HTTP/1.1 200") == 1


def test_the_command_serves_until_ctrl_c(two_runs):
    words = [sys.executable, "-m", "headwise", "explore", str(two_runs / "guided"), "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            url = json.loads(process.stdout.readline())["url"]
            assert ask(url)[0] == 200
            answer = json.loads(ask(url, "look", question(*TEXTS))[2])
            assert set(answer["example"]["answers"]) == {"m0"}
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
            assert "Traceback" not in process.stderr.read()
        finally:
            process.kill()  # else a server that does not stop would hold the tests


def test_a_port_that_is_taken(headwise, two_runs, address):
    port = address.split(":")[2].split("/")[0]
    assert_one_sentence(headwise("explore", two_runs / "plain", "--port", port), f"--port {port}", "choose another")


# -- idle, slow and many clients: real sockets, few of them, for a short time ------------------------------------------


def parts(address):
    _, _, host, rest = address.split("/", 3)
    name, port = host.split(":")
    return (name, int(port)), f"/{rest}"


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


@pytest.mark.parametrize("kind", ["idle", "half a body"])
def test_a_good_client_is_answered_beside_a_crowd(address, explorer, kind):
    half = head(address, "POST", "Content-Type: application/json\r\nContent-Length: 50\r\n\r\n{")
    before = threading.active_count()
    with ExitStack() as stack:  # many connections, each of which sends something and then waits
        opened = []
        for _ in range(CROWD):
            opened.append(stack.enter_context(socket.create_connection(parts(address)[0], timeout=20)))
            opened[-1].sendall(b"" if kind == "idle" else half)
        for _ in range(2):
            start = time.monotonic()
            assert ask(address)[2] == explorer.html
            status, _, content = ask(address, "look", question(*TEXTS))
            assert (status, set(json.loads(content)["example"]["answers"])) == (200, {"m0", "m1"})
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


def test_a_request_that_drips_is_closed_in_time(address, monkeypatch):
    monkeypatch.setattr(loopback_server, "REQUEST_SECONDS", 1.0)
    place, _ = parts(address)
    with socket.create_connection(place, timeout=20) as raw:
        raw.sendall(head(address, "POST", "Content-Type: application/json\r\nContent-Length: 5000\r\n\r\n"))
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


def test_an_idle_connection_is_closed_and_a_busy_one_is_not(address, monkeypatch):
    monkeypatch.setattr(loopback_server, "IDLE_SECONDS", 1.0)
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
            time.sleep(0.4)
        connection.close()
        assert is_closed(idle, 5)


def test_a_client_that_does_not_take_its_answer_is_left(explorer, monkeypatch):
    monkeypatch.setattr(loopback_server._Handler, "timeout", 1.0)
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


def test_connections_that_are_being_answered_are_never_closed():
    pairs = [socket.socketpair() for _ in range(CONNECTIONS + 1)]
    server = loopback_server._Server(("127.0.0.1", 0), loopback_server._Handler)
    try:
        for ours, _ in pairs[:-1]:
            assert server.admit(ours)
            assert server.allow(ours, None)
        assert not server.admit(pairs[-1][0])
        assert server.allow(pairs[3][0], 10)
        assert server.admit(pairs[-1][0])
        assert pairs[3][1].recv(1) == b""  # closed, as the only one that waited
        assert not server.allow(pairs[3][0], None)
        server.shutdown_request(pairs[0][0])
        assert server.admit(pairs[3][0])
    finally:
        server.server_close()
        for pair in pairs:
            for each in pair:
                each.close()
