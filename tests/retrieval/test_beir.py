"""The layout of BEIR."""

import gzip
import json

import pytest
from retrieval.small_collections import (
    BEIR,
    CORPUS,
    QRELS_HEADER,
    QUERIES,
    json_lines,
    lay_out,
    pack,
    refusal,
    table,
    write,
)

from headwise.retrieval.collections import Document
from headwise.retrieval.formats import read_collection

DOCUMENTS = [
    Document("d1", "Sleep", "Sleep helps."),
    Document("2", "", "Tea does not."),
    Document("d3", "", "Only a title"),
]


def test_documents_claims_and_judgements(tmp_path):
    collection = read_collection(lay_out(tmp_path / "own", BEIR))
    assert (collection.name, collection.layout) == ("own", "beir")
    assert list(collection.documents()) == DOCUMENTS
    assert list(collection.claims.items()) == [
        ("c1", "sleep is good"),
        ("7", "tea is good"),
        ("c3", "nobody judged this"),
    ]
    assert collection.qrels == {"train": {"c1": {"d1": 1, "2": 0}}, "test": {"7": {"2": 2}}}
    assert list(collection.qrels) == ["train", "test"]
    assert collection.qrels_files["test"] == tmp_path / "own/qrels/test.tsv"
    assert collection.files == (tmp_path / "own/corpus.jsonl",)
    assert list(collection.notes) == []


def test_documents_are_read_as_they_are_asked_for(tmp_path):
    lay_out(tmp_path, BEIR, corpus__jsonl=CORPUS + "no JSON\n")
    documents = read_collection(tmp_path).documents()
    assert [next(documents) for _ in DOCUMENTS] == DOCUMENTS
    message = refusal(next, documents)
    assert f"{tmp_path / 'corpus.jsonl'} line 4: expected a JSON object, got invalid JSON" in message


def test_gzipped_files(tmp_path):
    for name, content in BEIR.items():
        write(tmp_path / f"{name}.gz", "").write_bytes(gzip.compress(content.encode()))
    collection = read_collection(tmp_path)
    assert list(collection.documents()) == DOCUMENTS
    assert list(collection.qrels) == ["train", "test"]
    assert collection.files == (tmp_path / "corpus.jsonl.gz",)


@pytest.mark.parametrize("inside", ["", "scifact/"])
def test_a_zip_in_the_folder_or_named_itself(tmp_path, inside):
    files = {inside + name: content for name, content in BEIR.items()}
    archive = pack(tmp_path / "own.zip", {**files, "__MACOSX/._corpus.jsonl": "x"})
    for place in (tmp_path, archive):
        collection = read_collection(place)
        assert list(collection.documents()) == list(collection.documents()) == DOCUMENTS
        assert list(collection.qrels) == ["train", "test"]
        assert collection.files == (archive,)
    assert collection.name == "own"


def test_without_judgements_there_is_no_split_but_a_note(tmp_path):
    collection = read_collection(lay_out(tmp_path, {"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES}))
    assert collection.qrels == {}
    assert len(collection.claims) == 3
    assert "not trained on or scored" in collection.notes[0]


def test_claims_that_nothing_answers_are_left_out_with_a_note(tmp_path):
    lay_out(tmp_path, {**BEIR, "qrels/test.tsv": table(QRELS_HEADER, (7, 2, 0), ("c1", 2, 1), ("c3", 2, -1))})
    collection = read_collection(tmp_path)
    assert collection.qrels["test"] == {"c1": {"2": 1}}
    assert "test.tsv: 2 of 3 claims have no relevant document" in collection.notes[0]
    assert collection.members == {"train": ("c1",), "test": ("7", "c1", "c3")}


@pytest.mark.parametrize(("ending", "packed"), [(".txt", False), (".trec", True)])
def test_judgements_of_trec_by_any_of_their_names(tmp_path, ending, packed):
    content = b"7 0 2 1\nc1 0 d1 0\n"
    path = write(tmp_path / f"qrels/dev{ending}{'.gz' if packed else ''}", "")
    path.write_bytes(gzip.compress(content) if packed else content)
    collection = read_collection(lay_out(tmp_path, BEIR))
    assert list(collection.qrels) == ["train", "dev", "test"]
    assert collection.qrels["dev"] == {"7": {"2": 1}}
    assert collection.qrels_files["dev"] == path


def test_two_files_of_judgements_for_a_split(tmp_path):
    lay_out(tmp_path, {**BEIR, "qrels/test.trec": "7 0 2 1\n"})
    message = refusal(read_collection, tmp_path)
    assert f"{tmp_path / 'qrels/test.trec'} and {tmp_path / 'qrels/test.tsv'} are both of the split 'test'" in message


def test_a_readme_beside_the_judgements_is_passed_over_with_a_note(tmp_path):
    collection = read_collection(lay_out(tmp_path, {**BEIR, "qrels/README.txt": "Read me.\n"}))
    assert list(collection.qrels) == ["train", "test"]
    assert "README.txt: ignored" in collection.notes[0]


CLAIM_TROUBLE = {
    "twice": (QUERIES + json_lines({"_id": "7", "text": "a"}), "line 4: claim id '7' was on line 2 before"),
    "empty": (QUERIES + json_lines({"_id": "c4", "text": " "}), "line 4: the claim is empty"),
    "no text": (json_lines({"_id": "c4", "claim": "a"}), "line 1: expected the key 'text', got '_id', 'claim'"),
    "nothing": ("\n", "is empty"),
}


@pytest.mark.parametrize("case", CLAIM_TROUBLE)
def test_bad_claims(tmp_path, case):
    content, words = CLAIM_TROUBLE[case]
    lay_out(tmp_path, BEIR, queries__jsonl=content)
    assert f"{tmp_path / 'queries.jsonl'} {words}" in refusal(read_collection, tmp_path)


DOCUMENT_TROUBLE = {
    "twice": ({"_id": "2", "text": "a"}, "document id '2' was on line 2 before"),
    "empty": ({"_id": "d4", "title": " ", "text": "\n"}, "document 'd4' is empty"),
    "no text": ({"_id": "d4", "title": "a"}, "expected the key 'text'"),
    "a list as text": ({"_id": "d4", "text": ["a"]}, "expected text as 'text', got ['a']"),
}


@pytest.mark.parametrize("case", DOCUMENT_TROUBLE)
def test_bad_documents(tmp_path, case):
    record, words = DOCUMENT_TROUBLE[case]
    lay_out(tmp_path, BEIR, corpus__jsonl=CORPUS + json_lines(record))
    collection = read_collection(tmp_path)
    for _ in range(2):
        assert f"{tmp_path / 'corpus.jsonl'} line 4: {words}" in refusal(list, collection.documents())


def test_judgements_of_unknown_claims(tmp_path):
    lay_out(tmp_path, {**BEIR, "qrels/test.tsv": table(QRELS_HEADER, (7, 2, 1), ("c8", 2, 1), ("c9", 2, 1))})
    message = refusal(read_collection, tmp_path)
    assert f"{tmp_path / 'qrels/test.tsv'} line 3: claim 'c8' is not in {tmp_path / 'queries.jsonl'}" in message
    assert "nor are 1 more" in message


def test_a_split_without_answers(tmp_path):
    lay_out(tmp_path, {**BEIR, "qrels/test.tsv": table(QRELS_HEADER, (7, 2, 0))})
    assert "test.tsv has no judgement above 0" in refusal(read_collection, tmp_path)


def test_ids_are_kept_to_the_letter(tmp_path):
    # Unlike PMIDs, ids of BEIR are any text: 1.0 and 1 are two documents.
    corpus = "".join(json.dumps({"_id": id, "text": "a"}) + "\n" for id in ("1.0", 1, "1e0"))
    collection = read_collection(lay_out(tmp_path, BEIR, corpus__jsonl=corpus))
    assert [document.id for document in collection.documents()] == ["1.0", "1", "1e0"]


def test_half_of_an_emoji_is_replaced_in_texts_and_refused_in_ids(tmp_path):
    broken = '{"_id": "d1", "title": "a \\ud83d", "text": "b \\ud83d\\ude00 c \\ude00"}\n'
    lay_out(
        tmp_path / "texts", BEIR, corpus__jsonl=broken, queries__jsonl=QUERIES.replace("sleep is", "sleep \\ud83d is")
    )
    collection = read_collection(tmp_path / "texts")
    assert list(collection.documents()) == [Document("d1", "a \ufffd", "b \U0001f600 c \ufffd")]
    assert collection.claims["c1"] == "sleep \ufffd is good"
    lay_out(tmp_path / "ids", BEIR, corpus__jsonl='{"_id": "\\ud83d", "text": "b"}\n')
    assert "corpus.jsonl line 1: expected an id" in refusal(list, read_collection(tmp_path / "ids").documents())
