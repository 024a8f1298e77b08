"""The files of Cross-genre-IR."""

import hashlib
import json

import pytest
from tasks.files import table, write
from tasks.retrieval.small_collections import CORPUS, CROSS_GENRE, PAIRS, lay_out, pack, refusal

from headwise.retrieval.collections import Document, GivenPair
from headwise.retrieval.retrieval_task import read_collection


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
    assert collection.places["train"].name == "train_data.csv"
    assert collection.places["dev"].name == "dev_data_claim_pmid_dict.json"
    assert len(collection.notes) == 1
    assert "train_data.csv: 1 claims without any paper" in collection.notes[0]


def test_every_row_is_a_given_pair_of_its_split(tmp_path):
    collection = read_collection(lay_out(tmp_path, CROSS_GENRE))
    assert list(collection.given["train"]()) == [
        GivenPair(SLEEP, "10", "Sleep. It helps a lot.", True),
        GivenPair(SLEEP, "10", "It helps.", True),
        GivenPair(SLEEP, "11", "Tea. It is wet.", False),
        GivenPair(TEA, "10", "Sleep. It helps.", False),
    ]
    assert list(collection.given["dev"]()) == list(collection.given["dev"]())
    assert [pair.relevant for pair in collection.given["dev"]()] == [True, True]


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
    "contest-train.csv": "train",
    "developer_test.csv": "test",
    "My_Trainset.csv": "train",
    "dev2.csv": "dev",
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


@pytest.mark.parametrize("content", ['{"lr": 0.1, "betas": [0, 1], "name": "x"}', "[1]", '{"a": 5}', "5"])
@pytest.mark.parametrize("name", ["training_args.json", "dev_config.json"])
def test_json_of_something_else_is_passed_over_with_a_note(tmp_path, content, name):
    collection = read_collection(lay_out(tmp_path / "more", {**CROSS_GENRE, name: content}))
    plain = read_collection(lay_out(tmp_path / "plain", CROSS_GENRE))
    assert collection.qrels == plain.qrels
    assert collection.notes[0] == f"{tmp_path / 'more' / name}: passed over, since it maps no claims to lists of PMIDs"
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


def test_dev_and_validation_are_one_split_named_as_its_table(tmp_path):
    files = dict(CROSS_GENRE)
    files["my_Validation.tsv"] = files.pop("dev_data.tsv")
    assert list(read_collection(lay_out(tmp_path, files)).qrels) == ["train", "validation"]


def test_white_space_in_claims_makes_no_difference_but_words_do(tmp_path):
    rows = [("a  b", "x", 1, 1), (" a b ", "y", 2, 1), ("a B", "z", 3, 1)]
    collection = read_collection(write(tmp_path / "train.tsv", table(PAIRS, *rows)).parent)
    assert collection.claims == {made_id("a b"): "a b", made_id("a B"): "a B"}
    assert collection.qrels == {"train": {made_id("a b"): {"1": 1, "2": 1}, made_id("a B"): {"3": 1}}}


@pytest.mark.parametrize("value", [17, "17", "17.0", " 17 "])
def test_numbers_of_papers_may_be_numbers_or_text(tmp_path, value):
    write(tmp_path / "train.tsv", table(PAIRS, ("a", "x", value, 1)))
    write(tmp_path / "train.json", json.dumps({"a": [value]}))
    collection = read_collection(tmp_path)
    assert [document.id for document in collection.documents()] == ["17"]
    assert collection.qrels == {"train": {made_id("a"): {"17": 1}}}


def test_answers_of_one_claim_written_in_two_ways_are_put_together(tmp_path):
    write(tmp_path / "train.tsv", table(PAIRS, ("a b", "x", 1, 1)))
    write(tmp_path / "train.json", json.dumps({"a b": [1], "a  b\n": [2]}))
    assert read_collection(tmp_path).qrels == {"train": {made_id("a b"): {"1": 1, "2": 1}}}


def test_quotation_marks_that_are_part_of_a_tsv_field_stay(tmp_path):
    rows = [('"yes" or "no"', "x", 1, 1), ('"', "y", 2, 1)]
    collection = read_collection(write(tmp_path / "train.tsv", table(PAIRS, *rows)).parent)
    assert list(collection.claims.values()) == ['"yes" or "no"', '"']


# a further line of train_data.csv, which then is line 6
TROUBLE = {
    "entails": ("a,b,1,maybe", "expected 1, 0, true or false as Entails, got 'maybe'"),
    "no claim": (" ,b,1,1", "the claim is empty"),
    "no text": ("a, ,13,1", "document '13' is empty"),
    "no paper": ("a,b,,1", "expected an id, got ''"),
    "fields": ("a,b,1", "expected 4 fields, got 3"),
    "both": ("sleep helps,b,11,1", "PMID '11' both answers and does not answer the claim 'sleep helps'"),
}


@pytest.mark.parametrize("case", TROUBLE)
def test_bad_rows(tmp_path, case):
    line, words = TROUBLE[case]
    lay_out(tmp_path, CROSS_GENRE, train_data__csv=CROSS_GENRE["train_data.csv"] + line + "\n")
    assert f"{tmp_path / 'train_data.csv'} line 6: {words}" in refusal(read_collection, tmp_path)


def test_where_a_json_decides_rows_may_disagree(tmp_path):
    lay_out(tmp_path, CROSS_GENRE, dev_data__tsv=CROSS_GENRE["dev_data.tsv"] + "coffee helps\tx\t12\t1\n")
    assert len(list(read_collection(tmp_path).given["dev"]())) == 3


JSON_TROUBLE = {
    "invalid": ("{", "expected a JSON object, got invalid JSON"),
    "no list": ('{"a": 5, "b": [6]}', "expected a list of PMIDs for the claim 'a', got 5"),
    "no claim": ('{" ": [5]}', "expected a list of PMIDs for the claim ' '"),
    "no id": ('{"a": [null]}', "expected an id, got None"),
}


@pytest.mark.parametrize("case", JSON_TROUBLE)
def test_bad_answers(tmp_path, case):
    content, words = JSON_TROUBLE[case]
    lay_out(tmp_path, CROSS_GENRE, dev_data_claim_pmid_dict__json=content)
    message = refusal(read_collection, tmp_path)
    assert str(tmp_path / "dev_data_claim_pmid_dict.json") in message
    assert words in message


def test_a_missing_column(tmp_path):
    write(tmp_path / "train.csv", "Hypothesis,Premise,PMID\na,b,1\n")
    assert "train.csv has no column 'Entails'" in refusal(read_collection, tmp_path)


@pytest.mark.parametrize("name", ["train.tsv", "other_dict_dev.json"])
def test_two_files_of_a_split(tmp_path, name):
    lay_out(tmp_path, {**CROSS_GENRE, name: table(PAIRS, ("a", "b", 1, 1))})
    message = refusal(read_collection, tmp_path)
    assert name in message
    assert "are both of the split" in message
