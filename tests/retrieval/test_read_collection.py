"""Finding out the layout, and judgements of documents that are not there."""

import pytest
from retrieval.small_collections import (
    ALLENAI,
    BEIR,
    CROSS_GENRE,
    QRELS_HEADER,
    QUERIES,
    SCIFACT,
    lay_out,
    pack,
    refusal,
    table,
    write,
)

from headwise.retrieval.collections import check_documents
from headwise.retrieval.formats import LAYOUTS, read_collection

ALL = {"beir": BEIR, "scifact": SCIFACT, "cross-genre": CROSS_GENRE}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_is_found_or_may_be_named(tmp_path, layout):
    lay_out(tmp_path, ALL[layout], README__txt="x")
    assert read_collection(tmp_path).layout == read_collection(tmp_path, layout).layout == layout


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_that_does_not_fit_says_what_it_needs(tmp_path, layout):
    other = lay_out(tmp_path, ALL["beir" if layout != "beir" else "scifact"])
    message = refusal(read_collection, other, layout)
    assert f"{other} holds no collection, but c" in message
    assert f": {layout} needs " in message
    assert message.count("needs") == 1


@pytest.mark.parametrize("files", [{}, {"corpus.jsonl": BEIR["corpus.jsonl"]}, {"train.csv": "a,b\n"}])
def test_without_any_layout_the_needs_of_each_are_told(tmp_path, files):
    message = refusal(read_collection, lay_out(tmp_path, files))
    assert all(f"{layout} needs" in message for layout in LAYOUTS)
    assert ("no files" if not files else next(iter(files))) in message


def test_files_of_two_layouts(tmp_path):
    lay_out(tmp_path, {**ALLENAI, "queries.jsonl": QUERIES})
    assert "as in beir and in scifact: say which, as layout" in refusal(read_collection, tmp_path)
    assert read_collection(tmp_path, "scifact").layout == "scifact"


def test_files_win_over_a_zip_and_two_zips_are_none(tmp_path):
    pack(tmp_path / "two/a.zip", SCIFACT)
    pack(tmp_path / "two/b.zip", SCIFACT)
    assert "a.zip, b.zip" in refusal(read_collection, tmp_path / "two")
    pack(tmp_path / "one/a.zip", SCIFACT)
    assert read_collection(tmp_path / "one").layout == "scifact"
    assert read_collection(lay_out(tmp_path / "one", BEIR)).layout == "beir"


def test_a_folder_that_is_not_there_and_one_that_is_a_file(tmp_path):
    assert "gone does not exist" in refusal(read_collection, tmp_path / "gone")
    assert "is a file: expected a folder" in refusal(read_collection, write(tmp_path / "own.txt", "a"))


def test_unknown_words(tmp_path):
    assert "unknown layout 'bier': did you mean 'beir'?" in refusal(read_collection, tmp_path, "bier")
    assert "unknown gold 'cites'" in refusal(read_collection, tmp_path, gold="cites")
    assert "gold: cited is for SciFact" in refusal(read_collection, lay_out(tmp_path, BEIR), gold="cited")


def test_judgements_of_unknown_documents(tmp_path):
    rows = [("c1", "d1", 1), ("c3", "d8", 1), ("c1", "d8", 0), ("7", "d9", 1)]
    lay_out(tmp_path, {**BEIR, "qrels/test.tsv": table(QRELS_HEADER, *rows)})
    collection = read_collection(tmp_path)
    message = refusal(check_documents, collection, {"d1", "2"})
    assert f"{tmp_path / 'qrels/test.tsv'} line 4: document 'd8', judged for claim 'c1', is not in" in message
    assert "2 more judgements" in message
    assert "drop_unknown=True" in message
    kept = check_documents(collection, {"d1", "2"}, drop_unknown=True)
    assert kept.qrels == {"train": {"c1": {"d1": 1, "2": 0}}, "test": {"c1": {"d1": 1}}}
    assert kept.claims == collection.claims
    assert kept.members == {"train": ("c1",), "test": ("c1", "c3", "7")}
    (note,) = kept.notes
    assert "test.tsv: 3 judgements of documents that are not in the corpus are left out, and with them 2 claims" in note


@pytest.mark.parametrize("layout", ["scifact", "cross-genre"])
def test_the_line_is_found_in_other_layouts_too(tmp_path, layout):
    collection = read_collection(lay_out(tmp_path, ALL[layout]))
    message = refusal(check_documents, collection, {"10", "11"} if layout == "scifact" else {"11"})
    path, line, document = {
        "scifact": ("claims_validation.csv", 2, "12"),
        "cross-genre": ("train_data.csv", 2, "10"),
    }[layout]
    assert f"{tmp_path / path} line {line}: document '{document}'" in message
