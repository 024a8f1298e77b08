"""`headwise search` in people's own files, its page, and TREC files and measures of `headwise retrieve` and `score`."""

import json

import pytest
from retrieval.small_collections import BEIR, lay_out, write
from tiny_runs import assert_done, assert_one_sentence, json_of

from headwise.retrieval.trec import read_qrels

PAPERS = "pmid;heading;summary\n7;Sleep;It helps; much.\n9;Tea;A trial of <b>tea</b>. It helped nobody.\n"


@pytest.fixture
def command(headwise, tmp_path):
    return lambda *words: headwise(*words, "--cache", tmp_path / "cache")


def test_a_table_with_columns_of_any_name_is_searched(command, tmp_path):
    table = write(tmp_path / "papers.csv", PAPERS.replace("It helps; much.", '"It helps; much."'))
    words = ["search", "a trial of tea", "--collection", table, "--stage", "bm25", "--json"]
    found = json_of(command(*words, "--title", "heading", "--text", "summary", "--explain"))
    assert [paper["id"] for paper in found["papers"]][:1] == ["9"]
    assert found["papers"][0]["title"] == "Tea"
    carrying = found["explain"]["passages"][found["explain"]["carrying"]]
    assert carrying["text"] == "A trial of <b>tea</b>."
    wrong = "has no column 'sumary', which --text sumary names: did you mean 'summary'?"
    assert_one_sentence(command(*words, "--text", "sumary"), wrong)
    assert_one_sentence(command(*words), "name the column of the texts as --text COLUMN")


def test_text_files_are_searched_and_explained_on_a_page(command, tmp_path):
    lay_out(tmp_path / "texts", {"on sleep.txt": "Sleep <i>helps</i>. It does.", "tea.txt": "Tea."})
    page = tmp_path / "page.html"
    words = ["search", "does sleep help", "--collection", tmp_path / "texts", "--stage", "bm25", "--top", 2]
    out, _ = assert_done(command(*words, "--explain-html", page))
    assert "on_sleep" in out
    assert f"saved in {page}" in out
    assert "carries" not in out  # only on the page
    html = page.read_text(encoding="utf-8")
    assert "&lt;i&gt;<b>helps</b>&lt;/i&gt;" in html
    assert_one_sentence(command(*words, "--explain-html", page), "--overwrite")
    assert_done(command(*words, "--explain-html", page, "--overwrite"))
    assert_one_sentence(command(*words, "--explain-html", tmp_path / "p"), "expected a name that ends in .html")


def test_measures_are_chosen_and_claims_are_written_in_trec_form(command, headwise, tmp_path):
    folder = lay_out(tmp_path / "beir", BEIR)
    run, qrels, topics = tmp_path / "run.trec", tmp_path / "a.qrels", tmp_path / "topics.tsv"
    words = ["retrieve", folder, "--stage", "bm25", "--output", run, "--measures", "RR AP(rel=2) P@5", "--json"]
    found = json_of(command(*words, "--save-qrels", qrels, "--save-topics", topics))
    assert found["measures"]["strict"] == {"RR": 1.0, "AP(rel=2)": 1.0, "P@5": 0.2}
    assert read_qrels(qrels) == {"7": {"2": 2}}
    assert topics.read_text(encoding="utf-8") == "7\ttea is good\n"
    assert_one_sentence(command(*words[:4], "--save-qrels", qrels), "--save-qrels", "--overwrite")
    out, _ = assert_done(headwise("score", run, "--qrels", qrels, "--measures", "nDCG@5, R@20"))
    assert out.splitlines()[0].split() == ["run", "claims", "nDCG@5", "R@20"]
    per_claim = tmp_path / "claims.json"
    assert_done(headwise("score", run, "--qrels", qrels, "--measures", "RR", "--per-query", per_claim))
    assert json.loads(per_claim.read_text(encoding="utf-8"))["measures"] == ["RR"]
    wrong = headwise("score", run, "--qrels", qrels, "--measures", "nDGC@5")
    assert_one_sentence(wrong, "unknown measure 'nDGC@5': did you mean 'nDCG@5'?")
