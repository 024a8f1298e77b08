"""The dense index: against all cosines, in folders that are found, grown, resumed after a kill, or built elsewhere."""

import os
import signal
import subprocess
import sys
import time

import numpy
import pytest
from retrieval.small_collections import CORPUS, QUERIES, lay_out, refusal
from retrieval.test_index import Recorder, papers_of
from training.tiny_encoder import save_encoder

from headwise.errors import HeadwiseWarning
from headwise.retrieval import dense_index
from headwise.retrieval.collections import Document
from headwise.retrieval.dense_index import nearest, open_dense_index
from headwise.retrieval.embedder import Embedder
from headwise.retrieval.formats import read_collection


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("encoder"))


class Counting(Embedder):
    """An embedder that counts the texts that it reads."""

    embedded = 0

    def embed(self, texts, **options):
        self.embedded += len(texts)
        return super().embed(texts, **options)


@pytest.fixture
def embedder(folder):
    return Counting.load(folder)


def texts_of(count, seed=0):
    chance = numpy.random.default_rng(seed)
    return [" ".join(f"word{each}" for each in chance.integers(0, 50, chance.integers(2, 12))) for _ in range(count)]


@pytest.fixture
def opened(embedder, tmp_path):
    def open_texts(texts, **options):
        papers = papers_of([Document(f"d{place}", "", text) for place, text in enumerate(texts)])
        return open_dense_index(papers, embedder, cache=tmp_path / "cache", **options)

    return open_texts


def reference(vectors, queries, top):
    """All cosines, sorted; ties by position."""
    cosines = queries @ vectors.astype(numpy.float32).T
    return [sorted(((-score, place) for place, score in enumerate(row)))[:top] for row in cosines.tolist()]


# -- the search --------------------------------------------------------------------------------------------------------


def test_blocks_find_what_sorting_all_cosines_finds(monkeypatch):
    monkeypatch.setattr(dense_index, "BLOCK", 7)
    # Small whole numbers: exact in any order of addition, and with many ties.
    chance = numpy.random.default_rng(3)
    vectors = chance.integers(-2, 3, (50, 4)).astype(numpy.float16)
    queries = chance.integers(-2, 3, (9, 4)).astype(numpy.float32)
    for top in (1, 5, 50, 70):
        expected = [[(place, -score) for score, place in row] for row in reference(vectors, queries, top)]
        assert nearest(vectors, queries, top) == expected


def test_search_candidates_and_cosines_agree(opened, embedder, monkeypatch):
    monkeypatch.setattr(dense_index, "QUERIES", 2)
    index, claims, progress = opened(texts_of(40)), texts_of(5, seed=1), Recorder()
    results = index.search(claims, 6, progress=progress)
    assert progress.done == [2, 4, 5]
    queries = embedder.embed(claims, queries=True)
    for row, expected in zip(results, reference(index.vectors, queries, 6), strict=True):
        assert [score for _, score in row] == pytest.approx([-score for score, _ in expected], abs=1e-6)
    embedder.embedded = 0
    cosines = index.cosines(claims, [[place for place, _ in row] for row in results])
    assert embedder.embedded == 0  # the vectors of the same claims are kept
    for row, values in zip(results, cosines, strict=True):
        assert values == pytest.approx([score for _, score in row], abs=1e-6)
    run = index.candidates(dict(zip("abcde", claims, strict=True)), 6)
    assert list(run["b"]) == [f"d{place}" for place, _ in results[1]]
    for row, expected in zip(index.search(queries, 6), results, strict=True):
        assert [score for _, score in row] == pytest.approx([score for _, score in expected], abs=1e-6)


def test_the_graph_finds_nearly_what_exact_search_finds_and_its_recall_is_logged(opened, tmp_path):
    texts, claims, progress = texts_of(400), texts_of(8, seed=1), Recorder()
    exact = opened(texts)
    index = opened(texts, approximate=True, progress=progress)
    assert exact.graph is None
    assert 0.9 < index.graph.recall <= 1
    (line,) = progress.lines
    assert line.startswith(f"approximate search: {index.graph.recall:.1%} of the 100 nearest documents are found")
    shared = 0
    for one, other in zip(exact.search(claims, 10), index.search(claims, 10), strict=True):
        assert [score for _, score in other] == sorted([score for _, score in other], reverse=True)
        known = dict(one)
        for place, score in other:
            if place in known:
                assert score == pytest.approx(known[place], abs=1e-6)
                shared += 1
    assert shared > 70
    assert len(index.search(claims[:1], 3)[0]) == 3
    (path,) = (tmp_path / "cache" / "retrieval").glob("graph-*/graph.usearch")
    written = path.stat().st_mtime_ns
    assert opened(texts, approximate=True).graph.recall == index.graph.recall
    assert path.stat().st_mtime_ns == written


# -- building ----------------------------------------------------------------------------------------------------------


def test_only_new_texts_are_embedded_and_each_once(opened, embedder, monkeypatch):
    monkeypatch.setattr(dense_index, "PART", 8)
    texts, progress = texts_of(30), Recorder()
    first = opened(texts, progress=progress)
    assert (first.built, embedder.embedded) == (True, 30)
    assert progress.starts == [("embed", 30)]
    assert progress.done == sorted(progress.done)
    assert progress.done[-1] == 30
    assert not opened(texts).built
    new = texts_of(3, seed=9)
    grown = opened([new[0], *reversed(texts), new[1], new[2], new[1], texts[4]])
    assert embedder.embedded == 33
    assert (grown.vectors[1:31] == first.vectors[::-1]).all()
    assert (grown.vectors[32 + 1] == grown.vectors[31]).all()
    assert (grown.vectors[34] == first.vectors[4]).all()
    assert grown.vectors[31].astype(float) == pytest.approx(embedder.embed([new[1]])[0].astype(float), abs=1e-3)
    embedder.embedded = 0
    assert opened(texts, rebuild=True).built
    assert embedder.embedded == 30


BUILD = """
import sys
from pathlib import Path
from headwise.retrieval import dense_index
from headwise.retrieval.dense_index import open_dense_index
from headwise.retrieval.embedder import Embedder
from headwise.retrieval.formats import read_collection
dense_index.PART = 2
papers, encoder, cache = map(Path, sys.argv[1:])
class Slow(Embedder):
    def embed(self, texts, **options):
        if texts[0].startswith("word9"):
            import time
            time.sleep(600)
        return super().embed(texts, **options)
open_dense_index(read_collection(papers), Slow.load(encoder), cache=cache)
"""


@pytest.mark.slow
def test_a_build_that_was_killed_resumes(folder, embedder, tmp_path, monkeypatch):
    texts = [f"word{number} word1" for number in range(1, 15)]
    rows = "".join(f'{{"_id": "{number}", "text": "{text}"}}\n' for number, text in enumerate(texts))
    papers = lay_out(tmp_path / "papers", {"corpus.jsonl": rows, "queries.jsonl": QUERIES})
    cache = tmp_path / "cache"
    process = subprocess.Popen([sys.executable, "-c", BUILD, papers, folder, cache], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 240
    while len(list(cache.glob("retrieval/part-*[0-9a-f]/meta.json"))) < 4 and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert len(list(cache.glob("retrieval/part-*[0-9a-f]/meta.json"))) == 4
    assert not list(cache.glob("retrieval/dense-*[0-9a-f]/meta.json"))
    monkeypatch.setattr(dense_index, "PART", 2)
    progress = Recorder()
    index = open_dense_index(read_collection(papers), embedder, cache=cache, progress=progress)
    assert embedder.embedded == 6  # of 14: four parts of 2 were kept
    assert progress.done[0] > 8
    assert index.vectors.astype(float) == pytest.approx(embedder.embed(texts).astype(float), abs=1e-3)
    assert not list(cache.glob("retrieval/part-*"))
    assert not list(cache.glob("retrieval/*.draft"))


def test_a_mapper_may_answer_in_any_order(opened, embedder, monkeypatch, tmp_path):
    monkeypatch.setattr(dense_index, "PART", 4)

    def backwards(embedder, lists):
        yield from reversed([(number, embedder.embed(texts)) for number, texts in enumerate(lists)])

    texts = texts_of(11)
    assert (opened(texts, mapper=backwards).vectors == opened(texts, rebuild=True).vectors).all()


def test_what_is_damaged_is_built_again_with_a_warning(opened, tmp_path):
    texts = texts_of(12)
    expected = opened(texts).search(texts[:2], 3)
    (path,) = (tmp_path / "cache" / "retrieval").glob("dense-*/vectors.npy")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(HeadwiseWarning, match="is damaged and is built again"):
        assert opened(texts).search(texts[:2], 3) == expected


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_vectors_that_do_not_match_are_refused(opened, embedder):
    texts = texts_of(6)
    given = numpy.random.default_rng(0).normal(size=(6, embedder.dimension))
    index = opened(texts, vectors=given)
    assert embedder.embedded == 0
    assert numpy.linalg.norm(index.vectors.astype(float), axis=1) == pytest.approx(1, abs=1e-2)
    assert index.search(given[2:3], 1)[0][0][0] == 2
    assert opened(texts).vectors[0].tolist() != index.vectors[0].tolist()  # and are no others' vectors
    assert "5 vectors for 6 documents" in refusal(opened, texts, vectors=given[:5])
    assert "do not match the encoder" in refusal(opened, texts, vectors=given[:, 1:])
    for wrong in (given[:, 1:], given[0], given.astype(int)):
        assert "do not match the index of" in refusal(index.search, wrong, 3)
    for value in (numpy.nan, 0.0):
        assert "vector 0 has the length" in refusal(index.search, numpy.full((1, embedder.dimension), value), 3)
    assert "top 0: " in refusal(index.search, texts, 0)
    assert "expected one for each" in refusal(index.cosines, texts, [[0]])


def test_a_collection_that_changed_under_an_open_index_is_refused(embedder, tmp_path):
    papers = lay_out(tmp_path / "papers", {"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES})
    index = open_dense_index(read_collection(papers), embedder, cache=tmp_path / "cache")
    assert len(index.search(["word1"], 9)[0]) == 3
    (papers / "corpus.jsonl").write_text(CORPUS + '{"_id": "d4", "text": "word7"}\n')
    assert "corpus.jsonl was changed after the index was opened: open the index again" in refusal(
        index.search, ["word1"], 9
    )
    assert len(open_dense_index(read_collection(papers), embedder, cache=tmp_path / "cache").corpus) == 4
