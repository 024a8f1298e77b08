"""`headwise mark`: the server takes requests of its own page only, and the command saves, resumes and refuses."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading

import pytest
from tiny_runs import assert_one_sentence

from headwise.cli.loopback_server import serve
from headwise.cli.mark_server import LARGEST_BODY, Marker
from headwise.data.marking import LONGEST, Marking, read_rows

TWEETS = "text,label\nso good,positive\nso bad,negative\nwell,neutral\n"


@pytest.fixture
def tweets(tmp_path):
    path = tmp_path / "tweets.csv"
    path.write_text(TWEETS)
    return path


@pytest.fixture
def marking(tweets, tmp_path):
    return Marking(read_rows(tweets), tmp_path / "tweets.marks.jsonl")


@pytest.fixture
def address(marking):
    with serve(Marker(marking, '<tweets> & "more".csv')) as url:
        yield url


def ask(address, path="", content=None, headers=None, method=None):
    """Status, headers and content of an answer."""
    host, _, rest = address.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(host, timeout=60)
    body = content if content is None or isinstance(content, str) else json.dumps(content)
    given = {"Content-Type": "application/json"} | (headers or {})
    connection.request(method or ("GET" if body is None else "POST"), f"/{rest}{path}", body, given)
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read()
    connection.close()
    return found


def test_the_page_runs_its_own_script_only(address):
    status, headers, content = ask(address)
    page = content.decode()
    assert status == 200
    assert (headers["Cache-Control"], headers["X-Frame-Options"]) == ("no-store", "DENY")
    assert "Access-Control-Allow-Origin" not in headers
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "script-src 'sha256-" in policy
    assert "unsafe" not in policy
    assert policy.endswith("connect-src 'self'; base-uri 'none'; form-action 'none'")
    assert not re.search(r"""(src|href)="(?!data:)|https?://|url\(|\son[a-z]+=|\sstyle=""", page)
    assert "&lt;tweets&gt; &amp; &quot;more&quot;.csv" in page


def test_saving_by_requests(address, marking):
    status, _, content = ask(address, "example", {})
    assert (status, json.loads(content)["number"]) == (200, 0)
    assert json.loads(ask(address, "save", {"number": 0, "words": [[0, 1, 1]]})[2])["label"] == "negative"
    assert json.loads(ask(address, "save", {"number": 1, "skip": True})[2])["number"] == 2
    assert json.loads(ask(address, "example", {})[2])["number"] == 2
    assert json.loads(ask(address, "example", {"number": 0})[2])["words"] == [[0, 1, 1]]
    assert [json.loads(line)["marks"] for line in marking.output.read_text().splitlines()] == [[[3, 7]], []]


def test_bad_requests_get_one_sentence_and_save_nothing(address, marking):
    for path, content, expected, part in (
        ("save", "no json", 400, "expected"),
        ("save", "[]", 400, "expected"),
        ("save", "[" * 50_000, 400, "expected"),
        ("save", {}, 400, "expected"),
        ("save", {"number": True, "words": []}, 400, "expected"),
        ("save", {"number": 0, "words": [[0, 1]]}, 400, "expected"),
        ("save", {"number": 0, "words": [[0, 1, "1"]]}, 400, "expected"),
        ("save", {"number": 0, "words": [], "skip": 1}, 400, "expected"),
        ("save", {"number": 0, "words": [[0, 1, 2]]}, 400, "outside the text"),
        ("save", {"number": 1, "words": []}, 400, "no example 1"),
        ("example", {"number": 1}, 400, "no example 1"),
        ("example", {"number": "0"}, 400, "expected"),
        ("save", json.dumps({"number": 0}) + LARGEST_BODY * " ", 413, "too large"),
    ):
        status, _, answer = ask(address, path, content)
        assert (status, part in json.loads(answer)["error"]) == (expected, True), content
    assert not marking.output.exists()
    most = [[sentence, 2 * n, 2 * n] for sentence in (0, 1) for n in range(LONGEST // 4)]
    assert len(json.dumps({"number": 10**9, "words": most, "skip": False})) <= LARGEST_BODY


def test_strangers_are_refused(address, marking):
    root, host = address.rsplit("/", 2)[0] + "/", "/".join(address.split("/")[:3])
    save = {"number": 0, "words": []}
    evil = "http://evil.example"
    for where, path, content, headers, expected in (
        (root, "", None, {}, 404),
        (root, "wrong-word/save", save, {}, 404),
        (root, "save", save, {}, 404),
        (address, "other", save, {}, 404),
        (address, "", save, {}, 404),
        (address, "save", None, {}, 404),
        (address, "../../etc/passwd", None, {}, 404),
        (address, "", None, {"Host": "evil.example"}, 403),
        (address, "save", save, {"Host": "evil.example:80"}, 403),
        (address, "save", save, {"Origin": evil}, 403),
        (address, "save", save, {"Origin": "null"}, 403),
        (address, "save", save, {"Origin": host.replace("http:", "https:")}, 403),
        (address, "save", save, {"Content-Type": "text/plain"}, 415),
        (address, "save", save, {"Content-Length": "many"}, 411),
        (address, "save", save, {"Content-Length": "9" * 5000}, 413),
    ):
        assert ask(where, path, content, headers)[0] == expected, (path, headers)
    for method in ("PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"):
        assert ask(address, "save", save, method=method)[0] == 501
    assert not marking.output.exists()
    assert ask(address, "save", save, {"Origin": host})[0] == 200
    assert marking.output.exists()


def test_two_tabs_that_save_at_once_lose_nothing(address, marking):
    """Each writes the whole file: saving must not start from an old state."""
    ask(address, "save", {"number": 0, "words": []})
    ask(address, "save", {"number": 1, "words": []})
    words = {0: [[0, 0, 0]], 1: [[0, 1, 1]]}

    def again(number):
        for _ in range(20):
            assert ask(address, "save", {"number": number, "words": words[number]})[0] == 200

    threads = [threading.Thread(target=again, args=(number,)) for number in words]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [json.loads(line)["marks"] for line in marking.output.read_text().splitlines()] == [[[0, 2]], [[3, 6]]]


# -- the command -------------------------------------------------------------------------------------------------------


def start(folder, *more):
    """The process, and its address from stdout, or with --json from stderr."""
    words = [sys.executable, "-m", "headwise", "mark", "tweets.csv", "--no-browser", *more]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)
    lines = []
    for line in process.stderr if "--json" in more else process.stdout:
        lines.append(line)
        if found := re.search(r"http://\S+", line):
            return process, found[0], "".join(lines)
    raise AssertionError(process.communicate())


def stop(process):
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_the_command_saves_resumes_and_sums_up(headwise, tweets, tmp_path):
    output = tmp_path / "tweets.marks.jsonl"
    process, url, said = start(tmp_path)
    try:
        assert "tweets.csv: text: text; label: label" in said
        ask(url, "save", {"number": 0, "words": [[0, 1, 1]]})
        busy = headwise("mark", tweets, "--no-browser")
        assert_one_sentence(busy, f"{output} is in use by process {process.pid} (headwise mark")
        assert stop(process) == (
            0,
            "",
            "headwise: stopped; 1 of 3 examples are saved in tweets.marks.jsonl: 1 with marks, 0 without, 0 skipped\n",
        )
    finally:
        process.kill()  # else a server that does not stop would hold the tests
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tweets.csv", "tweets.marks.jsonl"]
    process, url, said = start(tmp_path, "--json")
    try:
        assert "1 of 3 examples are saved in tweets.marks.jsonl; the page resumes there" in said
        assert json.loads(ask(url, "example", {})[2])["number"] == 1
        ask(url, "save", {"number": 1, "skip": True})
        code, out, err = stop(process)
    finally:
        process.kill()
    counts = {"total": 3, "saved": 2, "marked": 1, "unmarked": 0, "skipped": 1}
    assert (code, json.loads(out)) == (0, {"output": "tweets.marks.jsonl", **counts})
    assert err.startswith("headwise: stopped; 2 of 3 examples")
    tweets.write_text(TWEETS.replace("bad", "sad"))
    assert_one_sentence(headwise("mark", tweets), f"{output} line 2 does not match", "--output")


def test_nothing_is_written_before_the_first_example_is_saved(tweets, tmp_path):
    process, url, _ = start(tmp_path, "--limit", "2", "--seed", "1", "-o", "new.jsonl")
    try:
        assert json.loads(ask(url, "example", {})[2])["total"] == 2
        assert stop(process) == (0, "", "headwise: stopped; nothing was written\n")
    finally:
        process.kill()
    assert os.listdir(tmp_path) == ["tweets.csv"]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["nobody.csv"], ("nobody.csv does not exist",)),
        (["tweets.csv", "--text", "tweet"], ("none named 'tweet'",)),
        (["tweets.csv", "--pair", "label"], ("--pair label", "--text NAME")),
        (["tweets.csv", "-o", "marks.csv"], ("--output marks.csv", "ends in .jsonl")),
        (["tweets.csv", "-o", "no/marks.jsonl"], ("there is no folder",)),
        (["old.jsonl", "-o", "old.jsonl"], ("--output old.jsonl is the file with the examples",)),
        (["tweets.csv", "-o", "old.jsonl"], ("old.jsonl line 1 does not match the examples of tweets.csv",)),
    ],
)
def test_bad_input_ends_in_one_sentence(headwise, tweets, tmp_path, monkeypatch, words, parts):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.jsonl").write_text('{"text": "precious"}\n')
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert_one_sentence(headwise("mark", *words, "--no-browser"), *parts)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_port_that_is_taken(headwise, tweets, address, tmp_path):
    port = address.split(":")[2].split("/")[0]
    other = tmp_path / "other.jsonl"
    assert_one_sentence(headwise("mark", tweets, "-o", other, "--port", port), f"--port {port}", "choose another")
