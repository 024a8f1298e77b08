"""Reading files as they come, and refusing bad ones in one sentence with the file, the line and the fix."""

import gzip
import json
import logging
import sys

import pytest
from data.files import json_lines, table, write, write_layout

from headwise.data import build_task
from headwise.errors import InputError

HEADER = ("sentence1", "sentence2", "label")
GOOD = table(HEADER, ("a", "b", "x"), ("c", "d", "y"))


def pairs(path, **options):
    return build_task("pairs", {"files": {"train": str(path)}, **options})


def refusal(path, name="pairs", **options):
    with pytest.raises(InputError) as caught:
        build_task(name, {"files": {"train": str(path)}, **options}).read("train", None)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    assert message.endswith(".")
    return message


# -- formats -----------------------------------------------------------------------------------------------------------


def test_formats_compression_and_byte_order_marks(tmp_path):
    rows = [HEADER, ("é", "b", "x"), ("c", "d", "y")]
    for name, content in [
        ("own.tsv", table(*rows)),
        ("own.csv.gz", "\ufeff" + table(*rows, delimiter=",")),
        ("own.jsonl.gz", "\ufeff" + json_lines(*(dict(zip(HEADER, row, strict=True)) for row in rows[1:]))),
    ]:
        data = content.encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
        split = pairs(tmp_path / name).read("train", None)
        assert (split.texts, split.labels) == ((("é", "b"), ("c", "d")), (0, 1))


def test_parquet(tmp_path, monkeypatch):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {"sentence1": ["a", "c"], "sentence2": ["b", "d"], "label": [0, 1]}
    parquet.write_table(arrow.table(columns), tmp_path / "own.parquet")
    split = pairs(tmp_path / "own.parquet").read("train", None)
    assert (split.texts, split.labels) == ((("a", "b"), ("c", "d")), (0, 1))
    assert "not a Parquet file" in refusal(write(tmp_path / "bad.parquet", "PAR1"))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert "headwise[parquet]" in refusal(tmp_path / "own.parquet")


def test_tabs_alone_separate_a_tsv_and_quotation_marks_protect_a_csv(tmp_path):
    path = write(tmp_path / "own.tsv", table(HEADER, ('"quoted', "it's 5\u2028 o\rclock", "x"), ("c", 'd"', "y")))
    assert pairs(path).read("train", None).texts == (('"quoted', "it's 5\u2028 o\rclock"), ("c", 'd"'))
    path = write(tmp_path / "own.csv", 'sentence1,sentence2,label\r\n"a, ""b""\nc",d,x\r\ne,f,y\r\n')
    assert pairs(path).read("train", None).texts == (('a, "b"\nc', "d"), ("e", "f"))


def test_another_encoding_no_header_no_last_line_feed_and_blank_lines(tmp_path):
    path = write(tmp_path / "own.tsv", table(HEADER, ("é", "b", "x"), ("c", "d", "y")), "latin-1")
    assert pairs(path, encoding="latin-1").read("train", None).texts[0] == ("é", "b")
    path = write(tmp_path / "own.csv", "1,a,b,0\n2,c,d,1")
    task = pairs(path, columns=["number", "one", "two", "label"], texts=["one", "two"])
    assert task.read("train", None).texts == (("a", "b"), ("c", "d"))
    path = write(tmp_path / "blank.tsv", "sentence1\tsentence2\tlabel\n\na\tb\tx\n\r\nc\td\ty\n\n")
    assert len(pairs(path).read("train", None)) == 2


# -- labels ------------------------------------------------------------------------------------------------------------


def test_classes_are_found_in_train_and_used_for_all_splits(tmp_path):
    write(tmp_path / "train.tsv", table(HEADER, ("a", "b", 10), ("c", "d", 9), ("e", "f", 10)))
    write(tmp_path / "dev.tsv", table(HEADER, ("a", "b", 10)))
    task = build_task("pairs", {})
    assert task.labels == ()
    assert task.read("validation", tmp_path).labels == (1,)  # reads train for the classes
    assert task.labels == ("9", "10")
    assert build_task("pairs", {}).labels == ()
    with pytest.raises(InputError, match="read train first"):
        build_task("pairs", {}).read_file(tmp_path / "dev.tsv", labelled=True)


def test_labels_in_other_letters_and_of_any_type(tmp_path):
    path = write(tmp_path / "own.tsv", table(HEADER, ("a", "b", "Yes"), ("c", "d", "NO"), ("e", "f", "yes")))
    assert pairs(path, labels=["no", "yes"]).read("train", None).labels == (1, 0, 1)
    assert pairs(path, labels=["no", "yes", "Yes"]).read("train", None).labels == (2, 0, 1)
    records = [{"sentence1": "a", "sentence2": "b", "label": value} for value in (True, 1, 2.0, "b ")]
    path = write(tmp_path / "own.jsonl", json_lines(*records))
    assert pairs(path, labels=["true", 1, 2, "b"]).read("train", None).labels == (0, 1, 2, 3)


def test_rows_without_a_label_are_kept_or_dropped_and_counted(tmp_path, caplog):
    path = write(tmp_path / "own.tsv", table(HEADER, ("a", "b", "x"), ("e", "f", "?"), ("c", "d", "y")))
    assert pairs(path, unlabelled={"values": ["?"], "rule": "keep"}).read("train", None).labels == (0, None, 1)
    empty = write(tmp_path / "empty.tsv", table(HEADER, ("a", "b", "x"), ("", "", "?"), ("c", "d", "y")))
    with caplog.at_level(logging.INFO):
        assert pairs(empty, unlabelled={"values": ["?"], "rule": "drop"}).read("train", None).labels == (0, 1)
    assert "dropped 1" in caplog.text
    broken = write(tmp_path / "broken.tsv", GOOD + "e\n\tf\tx\n")
    assert len(pairs(broken, broken_rows="drop").read("train", None)) == 2
    only = write(tmp_path / "only.tsv", table(HEADER, ("a", "b", "")))
    assert "no examples but 1 dropped" in refusal(only, unlabelled={"rule": "drop"})


def test_for_prediction_every_row_is_kept_and_no_label_is_needed(tmp_path):
    task = build_task("snli", {})
    rows = (("sentence1", "sentence2", "gold_label"), ("a", "b", "-"), ("c", "d", "neutral"))
    path = write(tmp_path / "own.tsv", table(*rows))
    assert task.read_file(path, labelled=False).labels == (None, None)
    assert task.read_file(path, labelled=True).labels == (1,)
    bare = write(tmp_path / "bare.tsv", table(("sentence2", "sentence1"), ("b", "a")))
    assert task.read_file(bare, labelled=False).texts == (("a", "b"),)
    no_header = write(tmp_path / "own.tsv", table(("a", "b"), ("c", "d")))
    assert build_task("scitail", {}).read_file(no_header, labelled=False).texts == (("a", "b"), ("c", "d"))
    unknown = write(tmp_path / "own.tsv", table(HEADER, ("a", "b", "x")))
    assert build_task("pairs", {}).read_file(unknown, labelled=False).labels == (None,)
    write_layout("sick", tmp_path)
    assert build_task("sick", {}).read("test", tmp_path).labels == (1, 2)
    assert build_task("sick-r", {}).read("test", tmp_path).labels == (4.5, 3.0)


# -- bad files ---------------------------------------------------------------------------------------------------------

JSON_ROW = json.dumps({"sentence1": "a", "sentence2": "b", "label": "x"}) + "\n"
# file, content, words that must occur
BAD = [
    ("own.tsv", table(("sentence1", "other", "label"), ("a", "b", "x")), ["'sentence2'", "'other'", "texts"]),
    ("own.tsv", table(("sentence1", "sentence2"), ("a", "b")), ["'label'", "'sentence1'", "'sentence2'"]),
    ("own.tsv", GOOD + "\n" + "e\tf\tx\ty\n", ["line 5", "expected 3 fields", "got 4"]),
    ("own.tsv", GOOD + "e\t\tx\n", ["line 4", "'sentence2' is empty"]),
    ("own.tsv", GOOD + "e\tf\t\n", ["line 4", "expected a label", "unlabelled.rule"]),
    ("own.tsv", table(HEADER, ("a", "b", "NaN"), ("c", "d", "x")), ["line 2", "the label is NaN"]),
    ("own.tsv", table(HEADER), ["no examples"]),
    ("own.tsv", "", ["is empty"]),
    ("own.tsv", table(HEADER, ("a", "b", "x"), ("c", "d", "x")), ["only the class 'x'", "two classes"]),
    ("own.tsv", table((*HEADER, "label"), ("a", "b", "x", "y")), ["2 columns named 'label'"]),
    # the line of a row is where it begins
    ("own.csv", 'sentence1,sentence2,label\n"a\nb\nc",d,x\n"e\nf",g\n', ["line 5: expected 3 fields, got 2"]),
    ("own.csv", 'sentence1,sentence2,label\na,b,x\n"c,d,y\ne,f,x\n', ["line 3: ", "quoting: none"]),
    ("own.jsonl", JSON_ROW + '{"sentence1": "a"\n', ["line 2", "invalid JSON"]),
    ("own.jsonl", JSON_ROW + "[1, 2]\n", ["line 2", "expected a JSON object, got a list"]),
    ("own.jsonl", JSON_ROW + '{"sentence1": "a"}\n', ["line 2", "key 'sentence2'", "got 'sentence1'"]),
    ("own.jsonl", JSON_ROW + JSON_ROW.replace('"b"', "null"), ["line 2", "expected text", "None"]),
    ("own.jsonl", JSON_ROW + "[" * 100_000 + "\n", ["line 2", "invalid JSON"]),
    ("own.jsonl", '{"sentence1": "a"}\n', ["no column 'sentence2'"]),
    ("own.jsonl", "\n", ["is empty"]),
    ("own.dat", GOOD, ["set format to tsv"]),
]


def test_bad_files(tmp_path):
    for name, content, words in BAD:
        message = refusal(write(tmp_path / name, content))
        assert all(word in message for word in words), message[:500]


def test_labels_that_are_not_what_was_promised(tmp_path):
    path = write(tmp_path / "own.csv", 'sentence1,sentence2,label\n"a\nb",d,x\nc,d,z\n')
    message = refusal(path, labels=["x", "yes"])
    assert all(word in message for word in ["line 4: unknown label 'z'", "known: x, yes"]), message
    for value in ("inf", "1,5"):
        path = write(tmp_path / "own.tsv", table(HEADER, ("a", "b", 1), ("c", "d", value)))
        assert f"line 3: expected a finite number as the label, got {value!r}" in refusal(path, "pairs-regression")
    path = write(tmp_path / "own.jsonl", JSON_ROW.replace('"x"', "NaN"))
    assert "line 1: expected a finite number" in refusal(path, "pairs-regression")
    path = write(tmp_path / "own.tsv", table(("gj04", 1, "a")))
    assert "line 1: expected 4 fields, got 3" in refusal(path, "cola")


def test_what_is_no_file_or_a_broken_one(tmp_path):
    (tmp_path / "own.tsv").mkdir()
    assert "is a directory" in refusal(tmp_path / "own.tsv")
    with pytest.raises(InputError, match="gone.tsv does not exist"):
        build_task("rte", {}).read_file(tmp_path / "gone.tsv", labelled=False)
    for data in (b"no gzip", gzip.compress(GOOD.encode(), mtime=0)[:-12]):
        (tmp_path / "own.tsv.gz").write_bytes(data)
        assert "gzip" in refusal(tmp_path / "own.tsv.gz")


def test_bad_bytes_are_located_exactly(tmp_path):
    start = table(HEADER, *[("a", "é", "x")] * 5000).encode()
    path = tmp_path / "own.tsv.gz"
    path.write_bytes(gzip.compress(start + "c\td\u00e9\ty\n".encode("latin-1")))
    message = refusal(path)
    assert f"line 5002, byte {len(start) + 3}:" in message
    assert "0xe9" in message
    assert "pass its own encoding, for example encoding: latin-1" in message
    (tmp_path / "own.tsv").write_bytes(b"\xef\xbb\xbfab\n\xff")  # after a byte order mark
    assert "line 2, byte 6:" in refusal(tmp_path / "own.tsv")


# -- labels and columns as people write them ---------------------------------------------------------------------------


def sentences(tmp_path, *labels, **options):
    path = write(tmp_path / "own.tsv", table(("sentence", "label"), *((f"text {each}", each) for each in labels)))
    return build_task("sentences", {"files": {"train": str(path)}, **options})


def test_labels_that_differ_only_by_case_blanks_or_the_point_of_a_whole_number_are_one_class(tmp_path, caplog):
    task = sentences(tmp_path, "yes", "Yes ", "not  sure", "no", "YES", "Not sure", "no", "yes")
    assert task.read("train", None).labels == (2, 2, 0, 1, 2, 0, 1, 2)
    assert task.labels == ("Not sure", "no", "yes")
    assert any("labels are read as one: 'YES' (1), 'Yes' (1), 'yes' (2) as 'yes'" in line for line in caplog.messages)
    kept = sentences(tmp_path, "yes", "Yes", labels=["yes", "Yes"])
    assert kept.read("train", None).labels == (0, 1)
    caplog.clear()
    floats = sentences(tmp_path, "1.0", "0.0", "1", "0.0")  # as pandas writes a column of whole numbers with a gap
    assert floats.read("train", None).labels == (1, 0, 1, 0)
    assert floats.labels == ("0", "1")
    assert "labels are read as one: '1' (1), '1.0' (1) as '1'; '0.0' (2) as '0'; list" in " ".join(caplog.messages)
    assert sentences(tmp_path, "1.0", "0.0", labels=[0, 1]).read("train", None).labels == (1, 0)
    mapped = sentences(tmp_path, "Good", "bad", label_names={"good": "1", "bad": "0"})
    assert mapped.read("train", None).labels == (1, 0)
    assert mapped.labels == ("0", "1")


def test_scores_are_no_classes(tmp_path):
    with pytest.raises(InputError, match=r"line 3: expected a class as the label, got the number 0.37: for scores use"):
        sentences(tmp_path, "1", "0.37", "0").read("train", None)
    assert sentences(tmp_path, "1", "0.37", labels=["0.37", 1]).read("train", None).labels == (1, 0)
    assert sentences(tmp_path, "1.0", "v1.1").read("train", None).labels == (0, 1)


def test_a_class_with_one_example_and_a_column_that_is_no_label_are_logged(tmp_path, caplog):
    sentences(tmp_path, "x", "y", "x", "z").read("train", None)
    assert "line 3: only one example of 'y', 'z', so none can be held out" in caplog.text
    caplog.clear()
    sentences(tmp_path, *(f"label {number}" for number in range(60))).read("train", None)
    assert "60 different labels in 60 examples: check that label names the right column" in caplog.text


def test_a_column_that_is_not_there_or_holds_numbers(tmp_path, caplog):
    path = write(tmp_path / "own.csv", "Sentence,Label,id\na,x,1\nb,y,2\n")
    task = build_task("sentences", {"files": {"train": str(path)}})
    with pytest.raises(InputError, match=r"has no column 'sentence', only .*: did you mean 'Sentence'\? name the"):
        task.read("train", None)
    numbers = build_task("sentences", {"files": {"train": str(path)}, "texts": ["id"], "label": "Label"})
    assert len(numbers.read("train", None)) == 2
    assert "own.csv: column 'id' holds numbers, and is read as text: check texts" in caplog.text
