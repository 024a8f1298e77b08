"""Runs made by a real Ray cluster of two nodes, one of which is killed while it works."""

import json
import socket
import time

import pytest
from small_sweeps import LONG, checkpoints, differences, finished_counts, keys_at_work, start, wait_until, write_sweep
from tiny_runs import assert_one_sentence

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'headwise[ray]'")
cluster_utils = pytest.importorskip("ray.cluster_utils")

# Ray leaves sockets to the garbage collector, here and there.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def cluster(monkeypatch):
    """Two nodes of one core each: real ones, with processes of their own."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    made = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield made
    made.shutdown()


@pytest.mark.slow
def test_a_node_dies_and_every_run_is_still_made_once(tmp_path, encoder, pairs, cluster, undisturbed):
    node = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    path, out = write_sweep(tmp_path / "s.yaml", encoder, **LONG), tmp_path / "out"
    sweep = start(
        "sweep", path, "--data", pairs, "--output", out, "--engine", "ray", "--address", cluster.address, "--json"
    )
    (raylet,) = node.all_processes["raylet"]

    def has_something_to_lose():
        keys = keys_at_work(out, raylet.process.pid).values()
        return any(key in str(path) for key in keys for path in checkpoints(out))

    wait_until(has_something_to_lose, 240, process=sweep)
    cluster.remove_node(node, allow_graceful=False)
    stdout, stderr = sweep.communicate(timeout=300)
    assert sweep.returncode == 0, stderr
    told = json.loads(stdout)
    assert (told["finished"] + told["present"], told["failed"]) == (told["runs"], 0)
    assert told["runs"] == len(finished_counts(out))
    assert set(finished_counts(out).values()) == {1}
    assert differences(out, undisturbed) == []  # the same bytes as without Ray


@pytest.fixture
def deaf():
    """A port where something listens that is no Ray cluster."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def closed():
    """A port where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_unreachable_address_is_told_in_seconds(headwise, tmp_path, encoder, pairs, closed, scheme):
    words = ("sweep", write_sweep(tmp_path / "s.yaml", encoder), "--data", pairs, "--output", tmp_path / "out")
    begin = time.monotonic()
    result = headwise(*words, "--engine", "ray", "--address", scheme + closed)
    assert time.monotonic() - begin < 30
    assert_one_sentence(result, f"address {scheme}{closed}: no Ray cluster can be reached there", "refused")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_an_address_that_is_no_cluster_is_told_in_seconds(headwise, tmp_path, encoder, pairs, deaf):
    words = ("sweep", write_sweep(tmp_path / "s.yaml", encoder), "--data", pairs, "--output", tmp_path / "out")
    begin = time.monotonic()
    result = headwise(*words, "--engine", "ray", "--address", deaf)
    assert time.monotonic() - begin < 60
    assert_one_sentence(result, f"address {deaf}: no Ray cluster can be reached there", "does not answer as Ray")


@pytest.mark.parametrize("address", ["host:port", ":"])
def test_a_strange_address_is_told(headwise, tmp_path, encoder, pairs, address):
    words = ("sweep", write_sweep(tmp_path / "s.yaml", encoder), "--data", pairs, "--output", tmp_path / "out")
    result = headwise(*words, "--engine", "ray", "--address", address)
    assert_one_sentence(result, f"address {address}: expected HOST:PORT")
