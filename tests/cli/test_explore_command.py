"""`headwise explore`: the live page, for one person on this machine, with limits."""

import base64
import http.client
import json
import signal
import socket
import subprocess
import sys
import time
import zlib

import numpy as np
import pytest

from headwise.cli import explore_server
from headwise.cli.explore_server import LONGEST, Explorer, serve
from headwise.experiments.analysis.analysis_files import to_bytes
from headwise.experiments.apply import load_run
from headwise.reports.report_page import build_page
from headwise.reports.report_runs import gather_runs

TEXTS = ["the cat surely sees a dog", "a dog never likes it"]


@pytest.fixture(scope="module")
def address(two_runs):
    runs = gather_runs(two_runs / "guided", two_runs / "plain")
    explorer = Explorer(build_page(runs), {run.id: load_run(run.folder) for run in runs})
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


def test_the_page_is_there_and_tells_where_to_ask(address):
    status, headers, content = ask(address)
    assert status == 200
    page = content.decode()
    assert "connect-src 'self'" in page
    assert f'"url":"/{address.split("/")[3]}/look"' in page
    assert headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in headers


def test_both_models_answer_a_pair_as_they_do_elsewhere(address, two_runs):
    from headwise.data import Split
    from headwise.experiments.analysis.example_views import view_examples

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


@pytest.mark.parametrize(
    ("body", "status", "part"),
    [
        (question("one only"), 400, "pairs has 2"),
        (question("a", "  "), 400, "empty"),
        (question("a", "b" * (LONGEST + 1)), 400, f"at most {LONGEST}"),
        ("no json", 400, "expected"),
        ('{"texts": [1, 2]}', 400, "expected"),
        ("[]", 400, "expected"),
        ('{"texts": ["a", "b"], "off": [[0, "1"]]}', 400, "expected"),
        ('{"texts": ["a", "b"], "off": {"0": 1}}', 400, "expected"),
        ('{"texts": ["a", "b"], "off": [[0, 99]]}', 400, "head 99 of layer 0: the model has heads 0 to 3"),
        ("[" * 50_000, 400, "expected"),
        (json.dumps({"texts": ["a", "\ud800"]}), 400, "lone surrogate"),
        (question("a", "\u200b"), 400, "nothing that the model can read"),
        (question("x" * explore_server.LARGEST_BODY, "b"), 413, "characters at most"),
    ],
)
def test_bad_questions_get_one_sentence(address, body, status, part):
    found, _, content = ask(address, "look", body)
    assert found == status
    assert part in json.loads(content)["error"]


def test_strangers_are_refused(address):
    root = address.rsplit("/", 2)[0] + "/"
    assert ask(root, "")[0] == 404
    assert ask(root, "wrong-word/")[0] == 404
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


def test_a_body_that_nobody_asked_for_is_not_the_next_question(address):
    host, port = address.split("/")[2].split(":")
    with socket.create_connection((host, int(port)), timeout=10) as raw:
        path = "/" + address.split("/", 3)[3]
        hidden = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"
        head = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: {len(hidden)}\r\n\r\n"
        raw.sendall((head + hidden).encode())
        answer = b"".join(iter(lambda: raw.recv(65536), b""))
    assert answer.count(b"HTTP/1.1 200") == 1


@pytest.mark.slow
def test_many_connections_are_sent_away_and_room_is_given_back(address):
    host, port = address.split("/")[2].split(":")
    crowd = [socket.create_connection((host, int(port)), timeout=10) for _ in range(40)]
    for each in crowd:
        each.close()
    deadline = time.monotonic() + 20
    while True:
        try:
            assert ask(address)[0] == 200
            break
        except (http.client.HTTPException, OSError):
            assert time.monotonic() < deadline
            time.sleep(0.1)


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


def test_a_port_that_is_taken_is_told(headwise, two_runs, address):
    from tiny_runs import assert_one_sentence

    port = address.split(":")[2].split("/")[0]
    assert_one_sentence(headwise("explore", two_runs / "plain", "--port", port), f"--port {port}", "choose another")
