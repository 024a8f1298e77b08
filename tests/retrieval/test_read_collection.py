"""Finding out the layout, and judgements of documents that are not there."""

import zipfile

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

from headwise.data.text_files import lines
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


def test_a_claim_whose_only_answer_is_unknown_goes_even_if_it_has_other_judgements(tmp_path):
    rows = [("c1", "d9", 1), ("c1", "d1", 0), ("7", "2", 1)]
    lay_out(tmp_path, {**BEIR, "qrels/test.tsv": table(QRELS_HEADER, *rows)})
    kept = check_documents(read_collection(tmp_path), {"d1", "2"}, drop_unknown=True)
    assert kept.qrels["test"] == {"7": {"2": 1}}


def test_a_split_of_unknown_documents_only(tmp_path):
    collection = read_collection(lay_out(tmp_path, BEIR))
    message = refusal(check_documents, collection, {"2"}, drop_unknown=True)
    assert "train.tsv: no claim has an answer in the corpus" in message


@pytest.mark.parametrize("layout", ["scifact", "cross-genre"])
def test_the_line_is_found_in_other_layouts_too(tmp_path, layout):
    collection = read_collection(lay_out(tmp_path, ALL[layout]))
    message = refusal(check_documents, collection, {"10", "11"} if layout == "scifact" else {"11"})
    path, line, document = {
        "scifact": ("claims_validation.csv", 2, "12"),
        "cross-genre": ("train_data.csv", 2, "10"),
    }[layout]
    assert f"{tmp_path / path} line {line}: document '{document}'" in message


def test_what_can_be_wrong_with_a_zip(tmp_path):
    broken = write(tmp_path / "broken.zip", "no zip")
    assert "broken.zip is not a whole zip file" in refusal(read_collection, broken)
    archive = pack(tmp_path / "own.zip", {"a.txt": "one\ntwo\n", "bad.txt": "x" * 9999})
    assert list(lines(archive / "a.txt", "utf-8")) == ["one\n", "two\n"]
    assert f"{archive} holds no b.txt" in refusal(list, lines(archive / "b.txt", "utf-8"))
    data = bytearray(archive.read_bytes())
    with zipfile.ZipFile(archive) as opened:
        info = opened.getinfo("bad.txt")
    data[info.header_offset + 30 + len("bad.txt") + 2] ^= 0xFF
    archive.write_bytes(data)
    assert "zip" in refusal(list, lines(archive / "bad.txt", "utf-8"))


def test_bad_bytes_in_a_zip_are_placed_exactly(tmp_path):
    with zipfile.ZipFile(tmp_path / "own.zip", "w") as opened:
        opened.writestr("queries.jsonl", QUERIES.encode() + b"\xff")
        opened.writestr("corpus.jsonl", BEIR["corpus.jsonl"])
    assert "queries.jsonl line 4, byte" in refusal(read_collection, tmp_path)
