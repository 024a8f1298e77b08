"""The files of Cross-genre-IR."""

import hashlib
import json

import pytest
from retrieval.small_collections import CORPUS, CROSS_GENRE, PAIRS, lay_out, pack, refusal, table, write

from headwise.retrieval.collections import Document
from headwise.retrieval.formats import read_collection


def made_id(text):
    return "c" + hashlib.sha256(text.encode()).hexdigest()[:12]


SLEEP, TEA, YES, COFFEE = map(made_id, ["sleep helps", "tea helps", 'he said "yes" twice', "coffee helps"])
DOCUMENTS = [
    Document("10", "", "Sleep. It helps a lot."),
    Document("11", "", "Tea. It is wet and warm."),
    Document("12", "", "Coffee. Maybe."),
]


@pytest.mark.parametrize("packed", [False, True])
def test_claims_answers_and_documents(tmp_path, packed):
    if packed:
        pack(tmp_path / "IR.zip", {f"IR/{name}": content for name, content in CROSS_GENRE.items()})
    else:
        lay_out(tmp_path, CROSS_GENRE)
    collection = read_collection(tmp_path)
    assert collection.layout == "cross-genre"
    assert collection.claims == {
        SLEEP: "sleep helps",
        TEA: "tea helps",
        YES: 'he said "yes" twice',
        COFFEE: "coffee helps",
    }
    assert list(collection.documents()) == list(collection.documents()) == DOCUMENTS
    assert collection.qrels == {"train": {SLEEP: {"10": 1}}, "dev": {YES: {"11": 1}, COFFEE: {"12": 1, "11": 1}}}
    assert collection.qrels_files["train"].name == "train_data.csv"
    assert collection.qrels_files["dev"].name == "dev_data_claim_pmid_dict.json"
    assert len(collection.notes) == 1
    assert "train_data.csv: 1 of 2 claims have no relevant document" in collection.notes[0]


def test_what_the_json_calls_an_answer_is_no_negative(tmp_path):
    rows = [("a", "gold", 1, 0), ("a", "entails", 2, 1), ("a", "neither", 3, 0), ("b", "gold of a", 1, 0)]
    write(tmp_path / "train.csv", table(PAIRS, *rows, delimiter=","))
    write(tmp_path / "train.json", json.dumps({"a": [1], "b": [9]}))
    collection = read_collection(tmp_path)
    assert [pair.relevant for pair in collection.given["train"]()] == [True, True, False, False]
    assert collection.qrels == {"train": {made_id("a"): {"1": 1}, made_id("b"): {"9": 1}}}


def test_claims_without_an_answer_are_members_of_their_split(tmp_path):
    answers = json.dumps({"in the json only": [11], "without an answer": []})
    collection = read_collection(lay_out(tmp_path, CROSS_GENRE, dev_data_claim_pmid_dict__json=answers))
    assert collection.members["train"] == (SLEEP, TEA)
    assert set(collection.members["dev"]) == {made_id("in the json only"), made_id("without an answer"), YES, COFFEE}
    assert list(collection.qrels["dev"]) == [made_id("in the json only")]


NAMES = {
    "latest_train.csv": "train",
    "developer_test.csv": "test",
    "My_Trainset.csv": "train",
    "validation.data.csv": "validation",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_split_is_a_word_of_the_name_or_its_beginning(tmp_path, name):
    write(tmp_path / name, table(PAIRS, ("a", "x", 1, 1), delimiter=","))
    assert list(read_collection(tmp_path).qrels) == [NAMES[name]]


def test_names_without_such_a_word_and_with_two(tmp_path):
    rows = table(PAIRS, ("a", "x", 1, 1), delimiter=",")
    write(tmp_path / "none" / "latest.csv", rows)
    assert "holds no collection, but latest.csv" in refusal(read_collection, tmp_path / "none")
    write(tmp_path / "two" / "train_and_dev.csv", rows)
    message = refusal(read_collection, tmp_path / "two")
    assert "train_and_dev.csv is named after the splits 'train' and 'dev': rename it" in message


@pytest.mark.parametrize("content", ['{"lr": 0.1, "betas": [0, 1], "name": "x"}', "[1]"])
def test_json_of_something_else_is_ignored_with_a_note(tmp_path, content):
    name = "training_args.json"
    collection = read_collection(lay_out(tmp_path / "more", {**CROSS_GENRE, name: content}))
    plain = read_collection(lay_out(tmp_path / "plain", CROSS_GENRE))
    assert collection.qrels == plain.qrels
    assert collection.notes[0] == f"{tmp_path / 'more' / name}: ignored, since it maps no claims to lists of PMIDs"
    assert len(collection.notes) == len(plain.notes) + 1


def test_the_first_of_equally_long_texts_is_the_document(tmp_path):
    rows = [("a", "short", 1, 1), ("a", "right one", 1, 1), ("b", "wrong one", 1, 1)]
    write(tmp_path / "train.csv", table(PAIRS, *rows, delimiter=","))
    write(tmp_path / "test.csv", table(PAIRS, ("c", "later one", 1, 1), ("c", "x", 2, 0), delimiter=","))
    assert list(read_collection(tmp_path).documents()) == [Document("1", "", "right one"), Document("2", "", "x")]


def test_a_corpus_gives_the_documents_and_answers_may_come_without_a_table(tmp_path):
    lay_out(tmp_path, CROSS_GENRE, corpus__jsonl=CORPUS, test__json=json.dumps({"new claim": [2]}))
    collection = read_collection(tmp_path)
    assert [document.id for document in collection.documents()] == ["d1", "2", "d3"]
    assert collection.files == (tmp_path / "corpus.jsonl",)
    assert collection.qrels["test"] == {made_id("new claim"): {"2": 1}}
    assert list(collection.given) == ["train", "dev"]


@pytest.mark.parametrize("value", [17, "17.0"])
def test_numbers_of_papers_may_be_numbers_or_text(tmp_path, value):
    write(tmp_path / "train.tsv", table(PAIRS, ("a", "x", value, 1)))
    write(tmp_path / "train.json", json.dumps({"a": [value]}))
    collection = read_collection(tmp_path)
    assert [document.id for document in collection.documents()] == ["17"]
    assert collection.qrels == {"train": {made_id("a"): {"17": 1}}}


# a further line of train_data.csv, which then is line 6
TROUBLE = {
    "entails": ("a,b,1,maybe", "expected 1, 0, true or false as Entails, got 'maybe'"),
    "no text": ("a, ,13,1", "document '13' is empty"),
    "both": ("sleep helps,b,11,1", "PMID '11' both answers and does not answer the claim 'sleep helps'"),
}


@pytest.mark.parametrize("case", TROUBLE)
def test_bad_rows(tmp_path, case):
    line, words = TROUBLE[case]
    lay_out(tmp_path, CROSS_GENRE, train_data__csv=CROSS_GENRE["train_data.csv"] + line + "\n")
    assert f"{tmp_path / 'train_data.csv'} line 6: {words}" in refusal(read_collection, tmp_path)


JSON_TROUBLE = {
    "invalid": ("{", "expected a JSON object, got invalid JSON"),
    "no list": ('{"a": 5, "b": [6]}', "expected a list of PMIDs for the claim 'a', got 5"),
    "no id": ('{"a": [null]}', "expected an id, got None"),
}


@pytest.mark.parametrize("case", JSON_TROUBLE)
def test_bad_answers(tmp_path, case):
    content, words = JSON_TROUBLE[case]
    lay_out(tmp_path, CROSS_GENRE, dev_data_claim_pmid_dict__json=content)
    message = refusal(read_collection, tmp_path)
    assert str(tmp_path / "dev_data_claim_pmid_dict.json") in message
    assert words in message


@pytest.mark.parametrize("name", ["train.tsv", "other_dict_dev.json"])
def test_two_files_of_a_split(tmp_path, name):
    lay_out(tmp_path, {**CROSS_GENRE, name: table(PAIRS, ("a", "b", 1, 1))})
    message = refusal(read_collection, tmp_path)
    assert name in message
    assert "are both of the split" in message
