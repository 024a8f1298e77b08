"""TREC's files: qrels and runs."""

import random

import numpy as np
import pytest
from retrieval.small_collections import refusal, write

from headwise.errors import DiskError
from headwise.retrieval.trec import check_run, read_qrels, read_run, run_lines, write_run

BEIR = "query-id\tcorpus-id\tscore\n"
RUN = "c2 Q0 d1 1 9.5 own\nc2 Q0 d2 2 9.5 own\nc1 Q0 d2 1 -0.5 own\n"


def test_qrels_in_both_forms(tmp_path):
    for content in (
        "c1 0 d1 2\nc1\t0\td2\t0\r\n\nc2  0 d1 -1\n",
        BEIR + "c1\td1\t2\nc1\td2\t0\r\n\nc2\td1\t-1\n",
        "\ufeff" + BEIR + "c1\td1\t2\nc1\td1\t2\nc1\td2\t0\nc2\td1\t-1",
    ):
        assert read_qrels(write(tmp_path / "qrels", content)) == {"c1": {"d1": 2, "d2": 0}, "c2": {"d1": -1}}


QRELS = {
    "another grade": (
        BEIR + "c1\td1\t1\nc1\td1\t0\n",
        "line 3: document 'd1' has the grade 0 for claim 'c1', and had 1",
    ),
    "no number": (BEIR + "c1\td1\thigh\n", "line 2: expected a whole number as grade, got 'high'"),
    "too few": (BEIR + "c1\td1\n", "line 2: expected 3 fields separated by tabs (query-id, corpus-id, score), got 2"),
    "no header": ("c1\td1\t1\n", "line 1: expected 4 fields (claim, 0, document, grade), or the header query-id"),
    "white space": (
        BEIR + "c 1\td1\t1\n",
        "line 2: the id 'c 1' has white space, which a TREC run cannot hold; rename",
    ),
    "nothing": ("", "has no judgements"),
}


def test_bad_qrels(tmp_path):
    for content, words in QRELS.values():
        path = write(tmp_path / "qrels", content)
        assert f"{path} {words}" in refusal(read_qrels, path)


def test_the_order_of_lines_changes_nothing_but_the_order_of_claims(tmp_path):
    generator = np.random.default_rng(3)
    run = {f"c{n}": {f"d{m}": float(s) for m, s in enumerate(-np.sort(-generator.normal(size=9)))} for n in range(4)}
    lines = list(run_lines(run, "own"))
    random.Random(4).shuffle(lines)
    shuffled = read_run(write(tmp_path / "own.run", "".join(lines)))
    assert list(shuffled) == list(dict.fromkeys(line.split()[0] for line in lines))
    assert {claim: list(found.items()) for claim, found in shuffled.items()} == {
        claim: list(found.items()) for claim, found in run.items()
    }


def test_scores_read_back_exactly_and_equal_ones_stay_in_order(tmp_path):
    scores = [1e300, 1 / 3, 0.1 + 0.2, float(np.float32(0.1)), 5e-324, 0.0, 0.0, -1e-17, -7.0]
    names = ["z", "b", "x", "a", "w", "t", "s", "r", "q"]
    run = {"c1": dict(zip(names, scores, strict=True)), "c0": {"é": 2.0}}
    write_run(tmp_path / "own.run", run, "own")
    back = read_run(tmp_path / "own.run")
    assert list(back) == ["c1", "c0"]
    assert list(back["c1"].items()) == list(run["c1"].items())
    assert back["c0"] == run["c0"]
    # Lines are written best first, with ranks from one; of equal ranks the higher score comes first.
    written = list(run_lines({"c1": {"low": np.float32(0.5), "high": 2, "also": np.float32(0.5)}}, "own"))
    assert written == ["c1 Q0 high 1 2.0 own\n", "c1 Q0 low 2 0.5 own\n", "c1 Q0 also 3 0.5 own\n"]
    equal_ranks = read_run(write(tmp_path / "own.run", "c1 Q0 d1 0 1 t\nc1 Q0 d2 0 2 t\n"))
    assert list(equal_ranks["c1"]) == ["d2", "d1"]


RUNS = {
    "fields": ("c1 Q0 d1 1 9.5\n", "line 1: expected 6 fields (claim, Q0, document, rank, score, tag), got 5"),
    "nan": (RUN + "c1 Q0 d9 2 nan own\n", "line 4: expected a finite number as score, got 'nan'"),
    "rank": (RUN + "c1 Q0 d9 1.5 -1 own\n", "line 4: expected a whole number as rank, got '1.5'"),
    "twice": (RUN + "c1 Q0 d2 2 -1 own\n", "line 4: document 'd2' was found for claim 'c1' before"),
    "out of order": (RUN + "c1 Q0 d9 2 0.5 own\n", "line 4: document 'd9' has rank 2 for claim 'c1' but the score 0.5"),
    "nothing": ("\n", "is empty"),
}


def test_bad_runs(tmp_path):
    for content, words in RUNS.values():
        path = write(tmp_path / "own.run", content)
        assert f"{path} {words}" in refusal(read_run, path)


def test_what_a_run_cannot_hold_leaves_no_file(tmp_path):
    path = write(tmp_path / "own.run", "before")
    for run, tag, words in (
        ({"claim 1": {"d": 1.0}}, "t", "claim id 'claim 1'"),
        ({"c": {"": 1.0}}, "t", "document id ''"),
        ({"c": {"d": 1.0}}, "my tag", "tag 'my tag'"),
        ({"c": {"d": float("nan")}}, "t", "has the score nan"),
    ):
        assert words in refusal(write_run, path, run, tag)
        assert path.read_text() == "before"
        assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(DiskError, match=r"gone/own\.run could not be written"):
        write_run(tmp_path / "gone/own.run", {"c": {"d": 1.0}}, "t")


def test_candidates_of_another_collection(tmp_path):
    path = write(tmp_path / "own.run", RUN)
    run = read_run(path)
    check_run(run, {"c1", "c2", "c3"}, {"d1", "d2"}, path)
    assert f"{path} line 3: claim 'c1' is not in the collection" in refusal(check_run, run, {"c2"}, {"d1", "d2"}, path)
    message = refusal(check_run, run, {"c1", "c2"}, {"d1"}, path)
    assert f"{path} line 2: document 'd2', found for claim 'c2', is not in the collection" in message
    assert "the candidates: claim 'c2' is not" in refusal(check_run, run, {"c1"}, {"d1", "d2"})
