"""Papers of people's own files: tables, folders of text files, and data sets of ir_datasets."""

import gzip
import re

import pytest
from retrieval.small_collections import BEIR, SCIFACT, json_lines, lay_out, refusal, write

from headwise.errors import HeadwiseWarning
from headwise.retrieval.collections import Document, choose_claims
from headwise.retrieval.corpus import open_corpus
from headwise.retrieval.formats import read_collection
from headwise.retrieval.papers import Columns
from headwise.retrieval.trec import read_qrels, write_qrels, write_topics

ROWS = (("7", "Sleep", "It helps, much."), ("9", "", "Tea; no."))
PAPERS = [Document("7", "Sleep", "It helps, much."), Document("9", "", "Tea; no.")]


def in_format(path, names=("id", "title", "text"), rows=ROWS):
    """The rows as a table in the format of the path."""
    if path.name.endswith(".parquet"):
        import pyarrow
        import pyarrow.parquet

        columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
    elif path.name.endswith(".jsonl"):
        write(path, json_lines(*(dict(zip(names, row, strict=True)) for row in rows)))
    else:
        mark = "\t" if path.name.endswith(".tsv") else ";" if "semi" in path.name else ","
        quoted = [[f'"{field}"' if mark in field else field for field in row] for row in (names, *rows)]
        content = "".join(mark.join(row) + "\n" for row in quoted)
        path.write_bytes(gzip.compress(content.encode()) if path.name.endswith(".gz") else content.encode())
    return path


@pytest.mark.parametrize("name", ["p.csv", "semi.csv", "p.tsv", "p.csv.gz", "p.jsonl", "p.parquet"])
def test_a_table_of_papers_in_every_format(tmp_path, name):
    assert list(read_collection(in_format(tmp_path / name)).documents()) == PAPERS
    collection = read_collection(tmp_path)  # the only file of the folder
    assert list(collection.documents()) == PAPERS
    assert "has papers but no claims" in refusal(choose_claims, collection, None)


def test_columns_of_other_names(tmp_path):
    path = in_format(tmp_path / "p.csv", ("PMID", "Heading", "Summary"))
    columns = Columns(title="Heading", text="Summary")
    assert list(read_collection(path, columns=columns).documents()) == PAPERS  # PMID is a usual name
    assert "has no column named text or abstract or body or content or contents, but 'PMID'" in refusal(
        read_collection, path
    )
    message = refusal(read_collection, path, columns=Columns(text="Sumary"))
    assert f"{path} has no column 'Sumary', which text=Sumary names: did you mean 'Summary'? known: Heading" in message
    message = refusal(read_collection, lay_out(tmp_path / "beir", BEIR), columns=columns)
    assert "is in the layout beir, and columns are chosen of a table" in message


def test_the_columns_decide_whether_an_index_can_be_used_again(tmp_path):
    path = in_format(tmp_path / "p.csv", rows=ROWS[:1])
    corpora = [
        open_corpus(read_collection(path, columns=columns), tmp_path / "cache")
        for columns in (None, Columns(text="title"))
    ]
    assert [corpus.document(0).text for corpus in corpora] == ["It helps, much.", "Sleep"]


def test_without_ids_papers_are_named_by_their_lines(tmp_path):
    path = write(tmp_path / "p.csv", 'text\n"Two\nlines."\nSleep.\n')
    assert [(each.id, each.text) for each in read_collection(path).documents()] == [
        ("2", "Two\nlines."),
        ("4", "Sleep."),
    ]


def test_a_folder_of_text_files(tmp_path):
    lay_out(tmp_path, {"On sleep.txt": "Sleep helps.\n", "tea.txt": "Tea.", "README.md": "x"})
    papers = [Document("On_sleep", "", "Sleep helps."), Document("tea", "", "Tea.")]
    assert list(read_collection(tmp_path).documents()) == papers
    write(tmp_path / "On_sleep.txt", "Again.")
    message = refusal(lambda: list(read_collection(tmp_path).documents()))
    assert "On sleep.txt and" in message
    assert "are both papers with the id 'On_sleep': rename one of them" in message


def test_papers_without_text_are_counted_and_left_out(tmp_path):
    rows = (*ROWS, ("10", " ", ""), ("11", "", " "))
    for path, line in ((in_format(tmp_path / "p.csv", rows=rows), " on line 4"),):
        with pytest.warns(HeadwiseWarning) as caught:
            assert list(read_collection(path).documents()) == PAPERS
        words = f"{path}: 2 of 4 documents have neither title nor text and are left out; the first is '10'{line}."
        assert str(caught[0].message) == words
    empty = in_format(tmp_path / "e.csv", rows=rows[2:])
    message = refusal(lambda: list(read_collection(empty).documents()))
    assert "none of the 2 documents has a title or a text, the first is '10' on line 2; add it" in message
    folder = lay_out(
        tmp_path / "scifact", SCIFACT, corpus_train__csv=SCIFACT["corpus_train.csv"] + "13, ,['  '],False\n"
    )
    with pytest.warns(HeadwiseWarning, match="1 of 4 documents have neither title nor text .* '13' on line 6"):
        assert len(list(read_collection(folder).documents())) == 3
    folder = lay_out(tmp_path / "texts", {"a.txt": " ", "b.txt": "b"})
    with pytest.warns(HeadwiseWarning, match="1 of 2 documents .* the first is 'a'"):
        assert len(list(read_collection(folder).documents())) == 1


def test_ids_with_white_space_are_refused_when_they_are_read(tmp_path):
    path = in_format(tmp_path / "p.csv", rows=(*ROWS, ("a b", "x", "y")))
    message = refusal(lambda: list(read_collection(path).documents()))
    assert f"{path} line 4: the id 'a b' has white space, which a TREC run cannot hold; rename it, for" in message
    assert "'a_b'" in message
    queries = BEIR["queries.jsonl"] + json_lines({"_id": "c 9", "text": "x"})
    assert "queries.jsonl line 4: the id 'c 9' has white space" in refusal(
        read_collection, lay_out(tmp_path / "beir", BEIR, queries__jsonl=queries)
    )


def test_judgements_and_topics_in_trec_form(tmp_path):
    qrels = {"c1": {"d1": 1, "d2": 0}, "7": {"2": 2}}
    write_qrels(tmp_path / "a.qrels", qrels)
    assert read_qrels(tmp_path / "a.qrels") == qrels
    write_topics(tmp_path / "topics.tsv", {"c1": "sleep\tis\n good", "7": "tea"})
    assert (tmp_path / "topics.tsv").read_text() == "c1\tsleep is good\n7\ttea\n"
    assert "claim id 'a b'" in refusal(write_topics, tmp_path / "bad.tsv", {"a b": "x"})
    assert not (tmp_path / "bad.tsv").exists()


# -- ir_datasets -------------------------------------------------------------------------------------------------------


@pytest.fixture
def registered(tmp_path):
    """A data set that is registered here, from local files."""
    library = pytest.importorskip("ir_datasets")
    files = {
        "docs.tsv": "d1\tSleep helps.\nd2\tTea.\nd3\t \n",
        "queries.tsv": "q1\tsleep  is good\nq2\ttea\n",
        "qrels.txt": "q1 0 d1 2\nq1 0 d2 0\nq2 0 d2 1\ngone 0 d1 1\n",
    }
    lay_out(tmp_path, files)
    name = f"headwise-{re.sub(r'[^a-z0-9]', '', tmp_path.name.lower())}/small/test"
    library.registry.register(name, library.create_dataset(*(str(tmp_path / each) for each in files)))
    return name


@pytest.mark.parametrize("prefix", ["irds", "ir_datasets"])
def test_a_data_set_of_ir_datasets(registered, tmp_path, prefix):
    collection = read_collection(tmp_path.__class__(f"{prefix}:{registered}"))
    with pytest.warns(HeadwiseWarning, match=f"{registered}: 1 of 3 documents"):
        assert list(collection.documents()) == [Document("d1", "", "Sleep helps."), Document("d2", "", "Tea.")]
    claims = choose_claims(collection, None)
    assert (claims.split, claims.texts) == ("test", {"q1": "sleep is good", "q2": "tea"})
    assert claims.qrels == {"q1": {"d1": 2, "d2": 0}, "q2": {"d2": 1}}


def test_data_sets_that_are_not_there(tmp_path, monkeypatch):
    pytest.importorskip("ir_datasets")
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path / "home"))
    folder = tmp_path.__class__
    assert "no data set 'beir/scifacts': did you mean 'beir/scifact'?" in refusal(
        read_collection, folder("irds:beir/scifacts")
    )
    message = refusal(read_collection, folder("irds:beir/scifact/test"))
    assert "not in the cache of ir_datasets, and no network was allowed: pass download=True" in message
