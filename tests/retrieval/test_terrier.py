"""The transformer of PyTerrier, with the real package."""

import pytest
from retrieval.small_collections import refusal

from headwise.retrieval.collections import Collection, Document
from headwise.retrieval.search import Searcher

pytest.importorskip("pyterrier")

PAPERS = [Document("d1", "Sleep", "Sleep helps."), Document("d2", "", "Tea, no sleep."), Document("d3", "", "Coffee.")]


@pytest.fixture(scope="module")
def searcher(tmp_path_factory):
    collection = Collection("small", "beir", (), lambda: iter(PAPERS))
    return Searcher(collection, stage="bm25", cache=tmp_path_factory.mktemp("cache"))


def test_topics_become_ranked_papers(searcher):
    import pandas
    import pyterrier

    topics = pandas.DataFrame({"qid": ["1", "2", "3"], "query": ["sleep", "coffee", "unknown"], "more": [5, 6, 7]})
    found = searcher.as_pyterrier()(topics)
    assert list(found.columns) == ["qid", "query", "more", "docno", "score", "rank"]
    expected = [
        ("1", "sleep", 5, paper.id, paper.score, paper.rank - 1)
        for paper in searcher.search("sleep").papers
        if paper.score
    ]
    assert [row for row in found.itertuples(index=False, name=None) if row[0] == "1"] == expected
    assert [row[3] for row in expected] == ["d1", "d2"]
    assert list(found[found.qid == "2"].docno) == ["d3"]
    assert "3" not in set(found.qid)  # no paper shares a word
    assert len(searcher.as_pyterrier(top=1)(topics)) == 2
    qrels = pandas.DataFrame({"qid": ["1", "2"], "docno": ["d2", "d3"], "label": [1, 1]})
    table = pyterrier.Experiment([searcher.as_pyterrier() % 5], topics[:2], qrels, ["recip_rank"], names=["ours"])
    assert table.recip_rank.tolist() == [0.75]


def test_bad_topics_are_refused(searcher):
    import pandas

    transformer = searcher.as_pyterrier()
    assert repr(transformer) == "Headwise(BM25)"
    message = refusal(transformer.transform, pandas.DataFrame({"qid": ["1"], "text": ["sleep"]}))
    assert "topics have the columns qid, text: expected qid and query" in message
    given = pandas.DataFrame({"qid": ["1"], "query": ["sleep"], "docno": ["d1"]})
    assert "and no docno" in refusal(transformer.transform, given)
    assert "top 101: expected 1 to 100" in refusal(searcher.as_pyterrier, 101)
