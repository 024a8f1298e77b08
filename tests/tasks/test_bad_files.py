"""Bad files: one sentence each, with the file, the line and the way out."""

import gzip
import sys

import pytest
from tasks.files import json_lines, table, write

from headwise.data import build_task
from headwise.errors import InputError

HEADER = ("sentence1", "sentence2", "label")
GOOD = table(HEADER, ("a", "b", "x"), ("c", "d", "y"))


def refusal(path, name="pairs", **options):
    with pytest.raises(InputError) as caught:
        build_task(name, {"files": {"train": str(path)}, **options}).read("train", None)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    assert message.endswith(".")
    return message


# content, words that must occur; the file is own.tsv
TABLES = {
    "missing column": (table(("sentence1", "other", "label"), ("a", "b", "x")), ["'sentence2'", "'other'", "texts"]),
    "missing label": (table(("sentence1", "sentence2"), ("a", "b")), ["'label'", "'sentence1'", "'sentence2'"]),
    "ragged": (GOOD + "e\tf\n", ["line 4", "expected 3 fields", "got 2"]),
    "too many": (GOOD + "\n" + "e\tf\tx\ty\n", ["line 5", "expected 3 fields", "got 4"]),
    "empty text": (GOOD + " \tf\tx\n", ["line 4", "'sentence1' is empty"]),
    "empty second text": (GOOD + "e\t\tx\n", ["line 4", "'sentence2' is empty"]),
    "no label": (GOOD + "e\tf\t\n", ["line 4", "expected a label", "unlabelled.rule"]),
    "no rows": (table(HEADER), ["no examples"]),
    "no lines": ("", ["is empty"]),
    "one class": (table(HEADER, ("a", "b", "x"), ("c", "d", "x")), ["only the class 'x'", "two classes"]),
    "twice": (table(("sentence1", "sentence2", "label", "label"), ("a", "b", "x", "y")), ["2 columns named 'label'"]),
}


@pytest.mark.parametrize("case", TABLES)
def test_bad_tables(tmp_path, case):
    content, words = TABLES[case]
    message = refusal(write(tmp_path / "own.tsv", content))
    assert all(word in message for word in words), message


def test_an_unknown_label(tmp_path):
    path = write(tmp_path / "own.tsv", GOOD)
    message = refusal(path, labels=["x", "yes"])
    assert all(word in message for word in ["line 3", "unknown label 'y'", "known: x, yes"]), message


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "high", "1,5"])
def test_a_number_that_is_none(tmp_path, value):
    path = write(tmp_path / "own.tsv", table(HEADER, ("a", "b", 1), ("c", "d", value)))
    message = refusal(path, "pairs-regression")
    assert "line 3" in message
    assert repr(value) in message


def test_json_nan_is_no_number(tmp_path):
    path = write(tmp_path / "own.jsonl", '{"sentence1": "a", "sentence2": "b", "label": NaN}\n')
    assert "line 1: expected a finite number" in refusal(path, "pairs-regression")


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("lines", [1, 5000])
def test_bad_bytes_are_placed_exactly(tmp_path, lines, compressed):
    start = table(HEADER, *[("a", "é", "x")] * lines).encode()
    data = start + "c\td\u00e9\ty\n".encode("latin-1")
    path = tmp_path / ("own.tsv.gz" if compressed else "own.tsv")
    path.write_bytes(gzip.compress(data) if compressed else data)
    message = refusal(path)
    assert f"line {lines + 2}, byte {len(start) + 3}:" in message
    assert "0xe9" in message
    assert "save the file as utf-8, or, in the task of a recipe, pass its own encoding" in message
    assert "encoding: latin-1" in message


def test_bad_bytes_after_a_mark(tmp_path):
    path = tmp_path / "own.tsv"
    path.write_bytes(b"\xef\xbb\xbfab\n\xff")
    assert "line 2, byte 6:" in refusal(path)


def test_the_line_of_a_csv_row_is_where_it_begins(tmp_path):
    path = write(tmp_path / "own.csv", 'sentence1,sentence2,label\n"a\nb\nc",d,x\n"e\nf",g\n')
    message = refusal(path)
    assert "line 5: expected 3 fields, got 2" in message


def test_a_label_after_quoted_line_feeds(tmp_path):
    path = write(tmp_path / "own.csv", 'sentence1,sentence2,label\n"a\nb",d,x\nc,d,z\n')
    assert "line 4: unknown label 'z'" in refusal(path, labels=["x", "y"])


def test_a_quotation_mark_that_is_never_closed(tmp_path):
    path = write(tmp_path / "own.csv", 'sentence1,sentence2,label\na,b,x\n"c,d,y\ne,f,x\n')
    message = refusal(path)
    assert "line 3: " in message
    assert "quoting: none" in message


JSON = {
    "invalid": ('{"sentence1": "a"', ["line 2", "invalid JSON"]),
    "a list": ("[1, 2]", ["line 2", "expected a JSON object, got a list"]),
    "no key": ('{"sentence1": "a", "label": "x"}', ["line 2", "key 'sentence2'", "got 'sentence1', 'label'"]),
    "no text": ('{"sentence1": "a", "sentence2": null, "label": "x"}', ["line 2", "expected text", "None"]),
    "deep": ("[" * 100_000, ["line 2", "invalid JSON"]),
}


@pytest.mark.parametrize("case", JSON)
def test_bad_json(tmp_path, case):
    line, words = JSON[case]
    good = json_lines({"sentence1": "a", "sentence2": "b", "label": "x"})
    message = refusal(write(tmp_path / "own.jsonl", good + line + "\n"))
    assert all(word in message for word in words), message[:500]


def test_a_first_object_without_the_key(tmp_path):
    assert "no column 'sentence2'" in refusal(write(tmp_path / "own.jsonl", '{"sentence1": "a"}\n'))


def test_an_empty_json_file(tmp_path):
    assert "is empty" in refusal(write(tmp_path / "own.jsonl", "\n"))


def test_a_directory(tmp_path):
    (tmp_path / "own.tsv").mkdir()
    assert "is a directory" in refusal(tmp_path / "own.tsv")


def test_a_missing_file(tmp_path):
    with pytest.raises(InputError, match="gone.tsv does not exist"):
        build_task("rte", {}).read_file(tmp_path / "gone.tsv", labelled=False)


def test_an_unknown_ending(tmp_path):
    assert "set format to tsv" in refusal(write(tmp_path / "own.xlsx", GOOD))


@pytest.mark.parametrize("data", [b"no gzip", gzip.compress(GOOD.encode(), mtime=0)[:-12]])
def test_a_broken_gzip(tmp_path, data):
    path = tmp_path / "own.tsv.gz"
    path.write_bytes(data)
    assert "gzip" in refusal(path)


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert "headwise[parquet]" in refusal(write(tmp_path / "own.parquet", "PAR1"))


def test_a_broken_parquet_file(tmp_path):
    pytest.importorskip("pyarrow")
    assert "not a Parquet file" in refusal(write(tmp_path / "own.parquet", "PAR1"))


def test_only_dropped_rows(tmp_path):
    path = write(tmp_path / "own.tsv", table(HEADER, ("a", "b", "")))
    assert "no examples but 1 dropped" in refusal(path, unlabelled={"rule": "drop"})


def test_broken_rows_may_be_dropped(tmp_path):
    path = write(tmp_path / "own.tsv", GOOD + "e\n\tf\tx\n")
    split = build_task("pairs", {"files": {"train": str(path)}, "broken_rows": "drop"}).read("train", None)
    assert len(split) == 2


def test_labels_before_the_classes_are_known(tmp_path):
    path = write(tmp_path / "own.tsv", GOOD)
    with pytest.raises(InputError, match="read train first"):
        build_task("pairs", {}).read_file(path, labelled=True)


def test_a_file_without_header_in_another_shape(tmp_path):
    path = write(tmp_path / "own.tsv", table(("gj04", 1, "a")))
    assert "line 1: expected 4 fields, got 3" in refusal(path, "cola")
