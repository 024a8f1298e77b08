"""SciFact, and arrays as numpy prints them."""

import numpy as np
import pytest
from retrieval.small_collections import ALLENAI, CLAIMS, SCIFACT, json_lines, lay_out, pack, refusal

from headwise.retrieval.collections import Document
from headwise.retrieval.formats import printed_array, read_collection

DOCUMENTS = [
    Document("10", "On sleep", "Sleep helps. It's so. Really."),
    Document("11", "On tea", "No."),
    Document("12", "On coffee", "Maybe."),
]
FORMS = {"csv": (SCIFACT, "validation"), "jsonl": (ALLENAI, "dev")}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("packed", [False, True])
def test_both_forms_give_the_same(tmp_path, form, packed):
    files, second = FORMS[form]
    if packed:
        pack(tmp_path / "scifact_csv.zip", files)
    else:
        lay_out(tmp_path, files)
    collection = read_collection(tmp_path)
    assert collection.layout == "scifact"
    assert list(collection.documents()) == list(collection.documents()) == DOCUMENTS
    assert list(collection.claims) == ["1", "2", "3", "4"]
    assert collection.claims["1"] == "Sleep, they say, helps."
    assert collection.qrels == {"train": {"1": {"10": 1, "11": 1}}, second: {"3": {"12": 1}}}
    assert list(collection.qrels_files) == ["train", second]
    assert collection.members == {"train": ("1", "2"), second: ("3",), "test": ("4",)}
    assert [note.split(": ")[1] for note in collection.notes] == [
        "1 of 2 claims have no evidence and are not judged",
        "1 of 1 claims have no evidence and are not judged",
    ]
    assert collection.files == (
        tmp_path / ("scifact_csv.zip" if packed else f"corpus{'_train' * (form == 'csv')}.{form}"),
    )


@pytest.mark.parametrize("form", FORMS)
def test_cited_documents_as_answers(tmp_path, form):
    files, second = FORMS[form]
    collection = read_collection(lay_out(tmp_path, files), gold="cited")
    assert collection.qrels == {"train": {"1": {"10": 1}, "2": {"11": 1, "12": 1}}, second: {"3": {"12": 1}}}
    assert len(collection.notes) == 1  # the test claims cite nothing


def test_a_document_labelled_as_no_evidence_is_none(tmp_path):
    lay_out(tmp_path / "csv", SCIFACT, claims_test__csv=CLAIMS + "4,Milk helps.,11,NEI,[],[]\n")
    record = {"id": 4, "claim": "Milk helps.", "evidence": {"11": [{"label": "NEI"}], "12": [{"label": "SUPPORT"}]}}
    lay_out(tmp_path / "json", ALLENAI, claims_test__jsonl=json_lines(record))
    assert "test" not in read_collection(tmp_path / "csv").qrels
    assert read_collection(tmp_path / "json").qrels["test"] == {"4": {"12": 1}}


# file, lines to add, what is said, from the line on
TROUBLE = {
    "another text": ("claims_train.csv", "2,Tea hurts.,,,[],[11]", "6: claim id '2' was on line 5"),
    "two splits": ("claims_validation.csv", "2,Tea helps.,,,[],[11]", "3: claim id '2' was on line 5 of"),
    "label": ("claims_train.csv", "5,a,10,SUPORT,[],[10]", "6: unknown label 'SUPORT'; did you mean 'SUPPORT'?"),
    "cited": ("claims_train.csv", "5,a,,,[],[10 x]", "6: expected cited_doc_ids such as [13734012 5152028], got"),
}


@pytest.mark.parametrize("case", TROUBLE)
def test_bad_claims(tmp_path, case):
    name, line, words = TROUBLE[case]
    lay_out(tmp_path, {**SCIFACT, name: SCIFACT[name] + line + "\n"})
    assert f"{tmp_path / name} line {words}" in refusal(read_collection, tmp_path)


JSON_TROUBLE = {
    "twice": ({"id": 1, "claim": "Sleep, they say, helps."}, "claim id '1' was on line 1"),
    "label": ({"id": 5, "claim": "a", "evidence": {"10": [{"label": "YES"}]}}, "unknown label 'YES'"),
    "hidden label": (
        {"id": 5, "claim": "a", "evidence": {"10": [{"label": "SUPPORT"}, {"label": "YES"}]}},
        "unknown label 'YES'",
    ),
    "evidence": ({"id": 5, "claim": "a", "evidence": [10]}, "expected evidence such as"),
    "cited": ({"id": 5, "claim": "a", "cited_doc_ids": 10}, "expected a list as 'cited_doc_ids', got 10"),
}


@pytest.mark.parametrize("case", JSON_TROUBLE)
def test_bad_json_claims(tmp_path, case):
    record, words = JSON_TROUBLE[case]
    lay_out(tmp_path, ALLENAI, claims_train__jsonl=ALLENAI["claims_train.jsonl"] + json_lines(record))
    assert f"claims_train.jsonl line 3: {words}" in refusal(read_collection, tmp_path)


DOCUMENT_TROUBLE = {
    "twice": ("10,a,['b'],False", "document id '10' was on line 2 before"),
    "empty": ("13, ,['  '],False", "document '13' is empty"),
    "no array": ("13,a,text,False", "expected abstract such as ['One sentence.' 'Another.'], got no brackets"),
    "cut": ("13,a,['b' ... 'c'],False", "numpy cut short with '...'"),
}


@pytest.mark.parametrize("case", DOCUMENT_TROUBLE)
def test_bad_documents(tmp_path, case):
    line, words = DOCUMENT_TROUBLE[case]
    lay_out(tmp_path, SCIFACT, corpus_train__csv=SCIFACT["corpus_train.csv"] + line + "\n")
    message = refusal(list, read_collection(tmp_path).documents())
    assert f"{tmp_path / 'corpus_train.csv'} line 6: " in message  # the first document takes two lines
    assert words in message


SENTENCES = [
    "plain",
    "it's",
    'a "word"',
    "both ' and \"",
    "back\\slash \\n",
    "end   \n",
    "é \u200b \x96 \U0001f600",
    "",
]


@pytest.mark.parametrize("kind", [object, str])
def test_what_numpy_prints_is_read_back(kind):
    generator = np.random.default_rng(5)
    for size in (0, 1, 2, 7, 300):
        chosen = [SENTENCES[place] for place in generator.integers(len(SENTENCES), size=size)]
        assert printed_array(str(np.array(chosen, dtype=kind))) == chosen
        assert printed_array(str(chosen)) == chosen
        numbers = generator.integers(10**8, size=size)
        assert printed_array(str(numbers)) == printed_array(str(numbers.tolist())) == [str(each) for each in numbers]


@pytest.mark.parametrize(
    "text",
    ["", "['a'", "['a''b']", "['a' b]", r"['\q']", r"['\U00110000']", "[['a']]", "['a',,'b']", "[1.5]", "[-5]", "[5x]"]
    + [str(np.array(["a"] * 1001)), str(np.arange(1001))],
)
def test_what_is_no_printed_array_of_printed_array(text):
    with pytest.raises(ValueError, match="."):
        printed_array(text)
