"""Collections in the layouts of BEIR, SciFact and Cross-genre-IR."""

import gzip
import hashlib
import json
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from retrieval.small_collections import (
    ALLENAI,
    BEIR,
    CLAIMS,
    CORPUS,
    CROSS_GENRE,
    PAIRS,
    QRELS_HEADER,
    QUERIES,
    SCIFACT,
    json_lines,
    lay_out,
    pack,
    refusal,
    table,
    write,
)

from headwise.data.text_files import lines
from headwise.retrieval.collections import Document, check_documents
from headwise.retrieval.formats import LAYOUTS, printed_array, read_collection

ALL = {
    "beir": BEIR,
    "scifact": SCIFACT,
    "cross-genre": CROSS_GENRE,
    "table": {"corpus.csv": "title,text\nSleep,It helps.\n"},
    "text": {"c.txt": "Sleep helps.", "d.txt": "Tea does not."},
}


def refused_with(folder, files, words, *, documents=False):
    """Check that a collection of these files, or its documents, are refused with these words."""
    lay_out(folder, files)
    call = (lambda: list(read_collection(folder).documents())) if documents else (lambda: read_collection(folder))
    message = refusal(call)
    assert words in message
    return message


# -- finding the layout ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_is_found_or_named(tmp_path, layout):
    lay_out(tmp_path, ALL[layout], README__txt="x")
    assert read_collection(tmp_path).layout == read_collection(tmp_path, layout).layout == layout
    other = lay_out(tmp_path / "other", ALL["beir" if layout != "beir" else "scifact"])
    message = refusal(read_collection, other, layout)
    assert f"{other} holds no collection, but c" in message
    assert f": {layout} needs " in message
    assert message.count("needs") == 1


def test_folders_without_a_collection_are_refused(tmp_path):
    for number, files in enumerate(({"corpus.jsonl": CORPUS}, {"train.csv": "a,b\n"})):
        message = refusal(read_collection, lay_out(tmp_path / str(number), files, x__txt=""))
        assert all(f"{layout} needs" in message for layout in LAYOUTS)
        assert ", ".join([*files, "x.txt"]) in message
    (tmp_path / "empty").mkdir()
    assert "holds no collection, but no files" in refusal(read_collection, tmp_path / "empty")
    assert "gone does not exist" in refusal(read_collection, tmp_path / "gone")
    assert "is a file: expected a folder" in refusal(read_collection, write(tmp_path / "own.txt", "a"))
    lay_out(tmp_path / "two", {**ALLENAI, "queries.jsonl": QUERIES})
    assert "as in beir and in scifact: say which, as layout" in refusal(read_collection, tmp_path / "two")
    assert "unknown layout 'bier': did you mean 'beir'?" in refusal(read_collection, tmp_path, "bier")
    assert "unknown gold 'cites'" in refusal(read_collection, tmp_path, gold="cites")
    assert "gold: cited is for SciFact" in refusal(read_collection, lay_out(tmp_path / "b", BEIR), gold="cited")


def test_zips_beside_files_and_damaged_zips(tmp_path):
    pack(tmp_path / "two/a.zip", SCIFACT)
    pack(tmp_path / "two/b.zip", SCIFACT)
    assert "a.zip, b.zip" in refusal(read_collection, tmp_path / "two")
    pack(tmp_path / "one/a.zip", SCIFACT)
    assert read_collection(tmp_path / "one").layout == "scifact"
    assert read_collection(lay_out(tmp_path / "one", BEIR)).layout == "beir"
    assert "broken.zip is not a whole zip file" in refusal(read_collection, write(tmp_path / "broken.zip", "no zip"))
    archive = pack(tmp_path / "own.zip", {"a.txt": "one\ntwo\n", "bad.txt": "x" * 9999})
    assert list(lines(archive / "a.txt", "utf-8")) == ["one\n", "two\n"]
    assert f"{archive} holds no b.txt" in refusal(list, lines(archive / "b.txt", "utf-8"))
    data = bytearray(archive.read_bytes())
    with zipfile.ZipFile(archive) as opened:
        info = opened.getinfo("bad.txt")
    data[info.header_offset + 30 + len("bad.txt") + 2] ^= 0xFF
    archive.write_bytes(data)
    assert "zip" in refusal(list, lines(archive / "bad.txt", "utf-8"))
    with zipfile.ZipFile(tmp_path / "bytes.zip", "w") as opened:
        opened.writestr("queries.jsonl", QUERIES.encode() + b"\xff")
        opened.writestr("corpus.jsonl", CORPUS)
    assert "queries.jsonl line 4, byte" in refusal(read_collection, tmp_path / "bytes.zip")


# -- judgements of unknown documents -----------------------------------------------------------------------------------


def test_judgements_of_unknown_documents_are_refused_or_dropped(tmp_path):
    rows = [("c1", "d1", 1), ("c3", "d8", 1), ("c3", "d1", 0), ("c1", "d8", 0), ("7", "d9", 1)]
    collection = read_collection(lay_out(tmp_path, {**BEIR, "qrels/test.tsv": table(QRELS_HEADER, *rows)}))
    message = refusal(check_documents, collection, {"d1", "2"})
    assert f"{tmp_path / 'qrels/test.tsv'} line 5: document 'd8', judged for claim 'c1', is not in" in message
    assert "2 more judgements" in message
    assert "drop_unknown=True" in message
    dropping = replace(collection, drop_unknown=True)
    kept = check_documents(dropping, {"d1", "2"})
    assert kept.qrels == {"train": {"c1": {"d1": 1, "2": 0}}, "test": {"c1": {"d1": 1}}}
    assert kept.claims == collection.claims
    assert kept.members == {"train": ("c1",), "test": ("c1", "c3", "7")}
    (note,) = kept.notes
    assert "test.tsv: 3 judgements of documents that are not in the corpus are left out, and with them 2 claims" in note
    message = refusal(check_documents, dropping, {"2"})
    assert "train.tsv: no claim has an answer in the corpus" in message
    for layout, known, where in (
        ("scifact", {"10", "11"}, "claims_validation.csv line 2: document '12'"),
        ("cross-genre", {"11"}, "train_data.csv line 2: document '10'"),
    ):
        folder = lay_out(tmp_path / layout, ALL[layout])
        assert f"{folder}/{where}" in refusal(check_documents, read_collection(folder), known)


# -- BEIR --------------------------------------------------------------------------------------------------------------

BEIR_DOCUMENTS = [
    Document("d1", "Sleep", "Sleep helps."),
    Document("2", "", "Tea does not."),
    Document("d3", "", "Only a title"),
]


def test_beir(tmp_path):
    collection = read_collection(lay_out(tmp_path / "own", BEIR))
    assert (collection.name, collection.layout) == ("own", "beir")
    assert list(collection.documents()) == BEIR_DOCUMENTS
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


def test_beir_gzipped_and_zipped(tmp_path):
    for name, content in BEIR.items():
        write(tmp_path / f"gz/{name}.gz", "").write_bytes(gzip.compress(content.encode()))
    archives = []
    for inside in ("", "scifact/"):
        files = {inside + name: content for name, content in BEIR.items()}
        archives.append(pack(tmp_path / f"zip{len(inside)}/own.zip", {**files, "__MACOSX/._corpus.jsonl": "x"}))
    sources = {tmp_path / "gz": tmp_path / "gz/corpus.jsonl.gz"}
    for archive in archives:
        sources |= {archive: archive, archive.parent: archive}
    for source, file in sources.items():
        collection = read_collection(source)
        assert list(collection.documents()) == list(collection.documents()) == BEIR_DOCUMENTS
        assert list(collection.qrels) == ["train", "test"]
        assert collection.files == (file,)
        assert source != file or collection.name == "own"


def test_beir_judgements_in_other_forms(tmp_path):
    bare = read_collection(lay_out(tmp_path / "bare", {"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES}))
    assert (bare.qrels, len(bare.claims)) == ({}, 3)
    assert "not trained on or scored" in bare.notes[0]
    write(tmp_path / "qrels/dev.trec.gz", "").write_bytes(gzip.compress(b"7 0 2 1\nc1 0 d1 0\n"))
    rows = table(QRELS_HEADER, (7, 2, 0), ("c1", 2, 1), ("c3", 2, -1))
    other = {"qrels/train.tsv": None, "qrels/train.txt": "c1 0 d1 1\n", "qrels/README.txt": "Read me.\n"}
    collection = read_collection(lay_out(tmp_path, {**BEIR, **other, "qrels/test.tsv": rows}))
    assert collection.qrels == {"train": {"c1": {"d1": 1}}, "dev": {"7": {"2": 1}}, "test": {"c1": {"2": 1}}}
    assert collection.members["test"] == ("7", "c1", "c3")
    assert "README.txt: ignored" in collection.notes[0]
    assert "test.tsv: 2 of 3 claims have no relevant document" in collection.notes[2]


def test_bad_beir_claims_and_judgements(tmp_path):
    cases = {
        "line 4: claim id '7' was on line 2 before": QUERIES + json_lines({"_id": "7", "text": "a"}),
        "line 4: the claim is empty": QUERIES + json_lines({"_id": "c4", "text": " "}),
        "line 1: expected the key 'text', got '_id', 'claim'": json_lines({"_id": "c4", "claim": "a"}),
        "is empty": "\n",
    }
    for words, content in cases.items():
        refused_with(tmp_path, {**BEIR, "queries.jsonl": content}, f"{tmp_path / 'queries.jsonl'} {words}")
    test = "qrels/test.tsv"
    rows = table(QRELS_HEADER, (7, 2, 1), ("c8", 2, 1), ("c9", 2, 1))
    words = f"{tmp_path / test} line 3: claim 'c8' is not in {tmp_path / 'queries.jsonl'}, nor are 1 more"
    refused_with(tmp_path, {**BEIR, test: rows}, words)
    refused_with(tmp_path, {**BEIR, test: table(QRELS_HEADER, (7, 2, 0))}, "test.tsv has no judgement above 0")
    words = f"{tmp_path / 'qrels/test.trec'} and {tmp_path / test} are both of the split 'test'"
    refused_with(tmp_path, {**BEIR, "qrels/test.trec": "7 0 2 1\n"}, words)


def test_bad_beir_documents_are_refused_when_they_are_reached(tmp_path):
    cases = {
        "document id '2' was on line 2 before": json_lines({"_id": "2", "text": "a"}),
        "the id 'd 4' has white space": json_lines({"_id": "d 4", "text": "a"}),
        "expected the key 'text'": json_lines({"_id": "d4", "title": "a"}),
        "expected text as 'text', got ['a']": json_lines({"_id": "d4", "text": ["a"]}),
        "expected an id": '{"_id": "\\ud83d", "text": "b"}\n',
        "expected a JSON object, got invalid JSON": "no JSON\n",
    }
    for words, line in cases.items():
        documents = read_collection(lay_out(tmp_path, BEIR, corpus__jsonl=CORPUS + line)).documents()
        assert [next(documents) for _ in BEIR_DOCUMENTS] == BEIR_DOCUMENTS
        assert f"{tmp_path / 'corpus.jsonl'} line 4: {words}" in refusal(next, documents)


def test_beir_ids_and_texts_to_the_letter(tmp_path):
    # Unlike PMIDs, ids of BEIR are any text: 1.0 and 1 are two documents. Half of an emoji is replaced in texts.
    corpus = json_lines(*({"_id": id, "text": "a"} for id in ("1.0", 1, "1e0")))
    corpus += '{"_id": "d1", "title": "a \\ud83d", "text": "b \\ud83d\\ude00 c \\ude00"}\n'
    queries = QUERIES.replace("sleep is", "sleep \\ud83d is")
    collection = read_collection(lay_out(tmp_path, BEIR, corpus__jsonl=corpus, queries__jsonl=queries))
    *plain, last = collection.documents()
    assert [document.id for document in plain] == ["1.0", "1", "1e0"]
    assert last == Document("d1", "a \ufffd", "b \U0001f600 c \ufffd")
    assert collection.claims["c1"] == "sleep \ufffd is good"


# -- SciFact -----------------------------------------------------------------------------------------------------------

FORMS = {"csv": (SCIFACT, "validation", "corpus_train.csv"), "jsonl": (ALLENAI, "dev", "corpus.jsonl")}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("packed", [False, True])
def test_both_forms_of_scifact_give_the_same(tmp_path, form, packed):
    files, second, corpus = FORMS[form]
    if packed:
        pack(tmp_path / "scifact.zip", files)
    else:
        lay_out(tmp_path, files)
    collection = read_collection(tmp_path)
    assert collection.layout == "scifact"
    documents = [
        Document("10", "On sleep", "Sleep helps. It's so. Really."),
        Document("11", "On tea", "No."),
        Document("12", "On coffee", "Maybe."),
    ]
    assert list(collection.documents()) == list(collection.documents()) == documents
    assert list(collection.claims) == ["1", "2", "3", "4"]
    assert collection.claims["1"] == "Sleep, they say, helps."
    assert collection.qrels == {"train": {"1": {"10": 1, "11": 1}}, second: {"3": {"12": 1}}}
    assert list(collection.qrels_files) == ["train", second]
    assert collection.members == {"train": ("1", "2"), second: ("3",), "test": ("4",)}
    assert [note.split(": ")[1] for note in collection.notes] == [
        "1 of 2 claims have no evidence and are not judged",
        "1 of 1 claims have no evidence and are not judged",
    ]
    whole = {document.id: document.whole for document in documents}
    spans = collection.evidence()
    evidence = {pair: [whole[pair[1]][start:end] for start, end in spans[pair]] for pair in spans}
    # Sentence 3 of paper 10 and sentence 1 of paper 11 are not there.
    assert evidence == {("1", "10"): ["Sleep helps.", "Really."], ("1", "11"): [], ("3", "12"): ["Maybe."]}
    assert collection.files == (tmp_path / ("scifact.zip" if packed else corpus),)
    cited = read_collection(tmp_path, gold="cited")
    assert cited.qrels == {"train": {"1": {"10": 1}, "2": {"11": 1, "12": 1}}, second: {"3": {"12": 1}}}
    assert len(cited.notes) == 1  # the test claims cite nothing


def test_a_document_labelled_as_no_evidence_is_none(tmp_path):
    lay_out(tmp_path / "csv", SCIFACT, claims_test__csv=CLAIMS + "4,Milk helps.,11,NEI,[],[]\n")
    record = {"id": 4, "claim": "Milk helps.", "evidence": {"11": [{"label": "NEI"}], "12": [{"label": "SUPPORT"}]}}
    lay_out(tmp_path / "json", ALLENAI, claims_test__jsonl=json_lines(record))
    assert "test" not in read_collection(tmp_path / "csv").qrels
    assert read_collection(tmp_path / "json").qrels["test"] == {"4": {"12": 1}}


def test_bad_scifact(tmp_path):
    train, other, corpus = "claims_train.csv", "claims_validation.csv", "corpus_train.csv"
    for name, line, words in (
        (train, "2,Tea hurts.,,,[],[11]", "line 6: claim id '2' was on line 5"),
        (other, "2,Tea helps.,,,[],[11]", "line 3: claim id '2' was on line 5 of"),
        (train, "5,a,10,SUPORT,[],[10]", "line 6: unknown label 'SUPORT'; did you mean 'SUPPORT'?"),
        (train, "5,a,,,[],[10 x]", "line 6: expected cited_doc_ids such as [13734012 5152028], got"),
        # The first document takes two lines.
        (corpus, "10,a,['b'],False", "line 6: document id '10' was on line 2 before"),
        (corpus, "13,a,text,False", "line 6: expected abstract such as ['One sentence.' 'Another.'], got no brackets"),
        (corpus, "13,a,['b' ... 'c'],False", "an array that numpy cut short with '...'"),
    ):
        files = {**SCIFACT, name: SCIFACT[name] + line + "\n"}
        message = refused_with(tmp_path / "csv", files, words, documents=name == corpus)
        assert str(tmp_path / "csv" / name) in message
    for record, words in (
        ({"id": 1, "claim": "Sleep, they say, helps."}, "claim id '1' was on line 1"),
        ({"id": 5, "claim": "a", "evidence": {"10": [{"label": "SUPPORT"}, {"label": "YES"}]}}, "unknown label 'YES'"),
        ({"id": 5, "claim": "a", "evidence": [10]}, "expected evidence such as"),
        ({"id": 5, "claim": "a", "cited_doc_ids": 10}, "expected a list as 'cited_doc_ids', got 10"),
    ):
        files = {**ALLENAI, "claims_train.jsonl": ALLENAI["claims_train.jsonl"] + json_lines(record)}
        refused_with(tmp_path / "json", files, f"claims_train.jsonl line 3: {words}")


@pytest.mark.parametrize("kind", [object, str])
def test_arrays_as_numpy_prints_them(kind):
    sentences = [
        "plain",
        "it's",
        'a "word"',
        "both ' and \"",
        "back\\slash \\n",
        "end   \n",
        "é \u200b \x96 \U0001f600",
        "",
    ]
    generator = np.random.default_rng(5)
    for size in (0, 1, 2, 7, 300):
        array = [sentences[place] for place in generator.integers(len(sentences), size=size)]
        assert printed_array(str(np.array(array, dtype=kind))) == printed_array(str(array)) == array
        numbers = generator.integers(10**8, size=size)
        assert printed_array(str(numbers)) == printed_array(str(numbers.tolist())) == [str(each) for each in numbers]


def test_other_text_is_no_printed_array():
    bad = ["", "['a'", "['a''b']", "['a' b]", r"['\q']", r"['\U00110000']", "[['a']]", "['a',,'b']", "[1.5]", "[-5]"]
    for text in [*bad, "[5x]", str(np.array(["a"] * 1001)), str(np.arange(1001))]:
        with pytest.raises(ValueError, match="."):
            printed_array(text)


# -- Cross-genre-IR ----------------------------------------------------------------------------------------------------


def made_id(text):
    return "c" + hashlib.sha256(text.encode()).hexdigest()[:12]


SLEEP, TEA, YES, COFFEE = map(made_id, ["sleep helps", "tea helps", 'he said "yes" twice', "coffee helps"])
ONE_ROW = table(PAIRS, ("a", "x", 1, 1), delimiter=",")


@pytest.mark.parametrize("packed", [False, True])
def test_cross_genre(tmp_path, packed):
    if packed:
        pack(tmp_path / "IR.zip", {f"IR/{name}": content for name, content in CROSS_GENRE.items()})
    else:
        lay_out(tmp_path, CROSS_GENRE)
    collection = read_collection(tmp_path)
    assert collection.layout == "cross-genre"
    texts = {SLEEP: "sleep helps", TEA: "tea helps", YES: 'he said "yes" twice', COFFEE: "coffee helps"}
    assert collection.claims == texts
    documents = [
        Document("10", "", "Sleep. It helps a lot."),
        Document("11", "", "Tea. It is wet and warm."),
        Document("12", "", "Coffee. Maybe."),
    ]
    assert list(collection.documents()) == list(collection.documents()) == documents
    assert collection.qrels == {"train": {SLEEP: {"10": 1}}, "dev": {YES: {"11": 1}, COFFEE: {"12": 1, "11": 1}}}
    assert collection.members["train"] == (SLEEP, TEA)
    assert collection.qrels_files["train"].name == "train_data.csv"
    assert collection.qrels_files["dev"].name == "dev_data_claim_pmid_dict.json"
    (note,) = collection.notes
    assert "train_data.csv: 1 of 2 claims have no relevant document" in note


def test_cross_genre_answers_in_json(tmp_path):
    # What the JSON calls an answer is no negative, and a claim without one is a member of its split.
    rows = [("a", "gold", 1, 0), ("a", "entails", 2, 1), ("a", "neither", 3, 0), ("b", "gold of a", 1, 0)]
    write(tmp_path / "train.csv", table(PAIRS, *rows, delimiter=","))
    write(tmp_path / "train.json", json.dumps({"a": [1.0], "b": ["9.0"], "without": []}))
    write(tmp_path / "training_args.json", '{"lr": 0.1, "betas": [0, 1], "name": "x"}')
    collection = read_collection(tmp_path)
    assert [pair.relevant for pair in collection.given["train"]()] == [True, True, False, False]
    assert collection.qrels == {"train": {made_id("a"): {"1": 1}, made_id("b"): {"9": 1}}}
    assert set(collection.members["train"]) == {made_id("a"), made_id("b"), made_id("without")}
    assert collection.notes[0].endswith("training_args.json: ignored, since it maps no claims to lists of PMIDs")


def test_cross_genre_documents_are_the_longest_texts_or_a_corpus(tmp_path):
    rows = [("a", "short", 1, 1), ("a", "right one", "1.0", 1), ("b", "wrong one", 1, 1)]
    write(tmp_path / "train.csv", table(PAIRS, *rows, delimiter=","))
    write(tmp_path / "test.csv", table(PAIRS, ("c", "later one", 1, 1), ("c", "x", 2, 0), delimiter=","))
    assert list(read_collection(tmp_path).documents()) == [Document("1", "", "right one"), Document("2", "", "x")]
    write(tmp_path / "corpus.jsonl", CORPUS)
    write(tmp_path / "dev.json", json.dumps({"new claim": [2]}))  # answers may come without a table
    collection = read_collection(tmp_path)
    assert [document.id for document in collection.documents()] == ["d1", "2", "d3"]
    assert collection.files == (tmp_path / "corpus.jsonl",)
    assert collection.qrels["dev"] == {made_id("new claim"): {"2": 1}}
    assert list(collection.given) == ["train", "test"]


def test_the_split_of_a_table_is_a_word_of_its_name(tmp_path):
    for name, split in {
        "latest_train.csv": "train",
        "developer_test.csv": "test",
        "My_Trainset.csv": "train",
        "validation.data.csv": "validation",
    }.items():
        assert list(read_collection(lay_out(tmp_path / name, {name: ONE_ROW})).qrels) == [split]
    refused_with(tmp_path / "none", {"latest.csv": ONE_ROW}, "latest.csv has no column named text or abstract")
    words = "train_and_dev.csv is named after the splits 'train' and 'dev': rename it"
    refused_with(tmp_path / "both", {"train_and_dev.csv": ONE_ROW}, words)
    for name in ("train.tsv", "other_dict_dev.json"):
        files = {**CROSS_GENRE, name: table(PAIRS, ("a", "b", 1, 1))}
        assert name in refused_with(tmp_path / f"two {name}", files, "are both of the split")


def test_bad_cross_genre(tmp_path):
    for line, words in (
        ("a,b,1,maybe", "expected 1, 0, true or false as Entails, got 'maybe'"),
        ("a, ,13,1", "document '13' is empty"),
        ("sleep helps,b,11,1", "PMID '11' both answers and does not answer the claim 'sleep helps'"),
    ):
        files = {**CROSS_GENRE, "train_data.csv": CROSS_GENRE["train_data.csv"] + line + "\n"}
        refused_with(tmp_path, files, f"{tmp_path / 'train_data.csv'} line 6: {words}")
    name = "dev_data_claim_pmid_dict.json"
    for content, words in (
        ("{", "expected a JSON object, got invalid JSON"),
        ('{"a": 5, "b": [6]}', "expected a list of PMIDs for the claim 'a', got 5"),
        ('{"a": [null]}', "expected an id, got None"),
    ):
        assert str(tmp_path / name) in refused_with(tmp_path, {**CROSS_GENRE, name: content}, words)
    message = refused_with(tmp_path / "column", {"train.csv": "Hypothesis,Premise\na,b\n"}, "has no column 'PMID'")
    assert "expected 'Hypothesis', 'Premise', 'PMID', 'Entails', got 'Hypothesis', 'Premise'" in message
