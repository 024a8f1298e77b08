"""Runs trained by a real Ray cluster of two nodes, one of which is killed while it works."""

import json
import socket
import time

import pytest
from small_sweeps import LONG, checkpoints, differences, finished_counts, keys_at_work, start, wait_until, write_sweep
from tiny_runs import assert_one_sentence
from training.tiny_encoder import save_encoder

from headwise.experiments.sweeps.ray_workers import RayWorkers, embed_on_cluster
from headwise.retrieval import dense_index
from headwise.retrieval.collections import Collection, Document
from headwise.retrieval.dense_index import open_dense_index
from headwise.retrieval.embedder import Embedder

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'headwise[ray]'")
cluster_utils = pytest.importorskip("ray.cluster_utils")

# Ray leaves sockets to the garbage collector, here and there.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def cluster(monkeypatch):
    """Two nodes of one core each: real ones, with separate processes."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    made = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield made
    made.shutdown()


@pytest.mark.slow
def test_a_node_dies_and_every_run_is_still_trained_once(tmp_path, encoder, pairs, cluster, undisturbed):
    node = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    path, out = write_sweep(tmp_path / "s.yaml", encoder, **LONG), tmp_path / "out"
    sweep = start(
        "sweep", path, "--data", pairs, "--output", out, "--engine", "ray", "--address", cluster.address, "--json"
    )
    (raylet,) = node.all_processes["raylet"]

    def has_a_checkpoint():
        keys = keys_at_work(out, raylet.process.pid).values()
        return any(key in str(path) for key in keys for path in checkpoints(out))

    wait_until(has_a_checkpoint, 240, process=sweep)
    cluster.remove_node(node, allow_graceful=False)
    stdout, stderr = sweep.communicate(timeout=300)
    assert sweep.returncode == 0, stderr
    counts = json.loads(stdout)
    assert (counts["finished"] + counts["present"], counts["failed"]) == (counts["runs"], 0)
    assert counts["runs"] == len(finished_counts(out))
    assert set(finished_counts(out).values()) == {1}
    assert differences(out, undisturbed) == []  # the same results as without Ray


@pytest.mark.slow
def test_a_node_dies_and_every_vector_is_computed(tmp_path, cluster, monkeypatch):
    monkeypatch.setattr(dense_index, "PART", 3)
    monkeypatch.setattr("headwise.experiments.sweeps.ray_workers.ANSWER", 120.0)  # of a machine under load
    node = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    embedder = Embedder.load(save_encoder(tmp_path / "encoder"))
    documents = [Document(f"d{number}", "", f"word{number % 50} word{number // 50}") for number in range(60)]
    papers = Collection("papers", "beir", (), lambda: iter(documents))
    local = open_dense_index(papers, embedder, cache=tmp_path / "local")
    (raylet,) = node.all_processes["raylet"]
    killed = []

    def with_a_death(embedder, lists):
        """Kills a node as soon as the first vectors are there."""
        for part in embed_on_cluster(workers)(embedder, lists):
            if not killed:
                assert len(workers._ray.nodes()) == 2
                cluster.remove_node(node, allow_graceful=False)
                killed.append(raylet.process.poll())
            yield part

    with RayWorkers(cluster.address, None) as workers:
        remote = open_dense_index(papers, embedder, cache=tmp_path / "remote", mapper=with_a_death)
    assert killed != [None]  # it has ended
    assert remote.built
    assert remote.vectors.astype(float) == pytest.approx(local.vectors.astype(float), abs=1e-3)


def test_an_address_without_a_cluster_is_refused_in_seconds(headwise, tmp_path, encoder, pairs, monkeypatch):
    monkeypatch.setattr("headwise.experiments.sweeps.ray_workers.ANSWER", 1.0)
    words = ("sweep", write_sweep(tmp_path / "s.yaml", encoder), "--data", pairs, "--output", tmp_path / "out")
    with socket.socket() as closed, socket.create_server(("127.0.0.1", 0)) as deaf:
        closed.bind(("127.0.0.1", 0))
        nobody, other = (f"127.0.0.1:{each.getsockname()[1]}" for each in (closed, deaf))
        for address, parts in {
            f"ray://{nobody}": ["no Ray cluster can be reached there", "refused"],
            other: ["no Ray cluster can be reached there", "does not answer as Ray"],
            "host:port": ["expected HOST:PORT"],
        }.items():
            begin = time.monotonic()
            result = headwise(*words, "--engine", "ray", "--address", address)
            assert time.monotonic() - begin < 30
            assert_one_sentence(result, f"address {address}: ", *parts)
    assert not (tmp_path / "out").exists()
