"""Reading files as they come."""

import gzip
import logging
import subprocess
import sys

import pytest
from tasks.files import json_lines, table, write, write_layout

from headwise.data import build_task

HEADER = ("sentence1", "sentence2", "label")


def pairs(path, **options):
    return build_task("pairs", {"files": {"train": str(path)}, **options})


def test_importing_tasks_loads_nothing_heavy():
    heavy = ["torch", "transformers", "datasets", "sklearn", "scipy", "yaml", "pyarrow"]
    code = (
        f"import sys, headwise.data as t; list(t.TASKS); sys.exit(str([n for n in {heavy} if n in sys.modules] or ''))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


@pytest.mark.parametrize(
    "name", ["own.tsv", "own.txt", "own.csv", "own.jsonl", "own.tsv.gz", "own.csv.gz", "own.jsonl.gz"]
)
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_formats_and_byte_order_marks(tmp_path, name, mark):
    rows = [HEADER, ("é", "b", "x"), ("c", "d", "y")]
    if "jsonl" in name:
        content = json_lines(*(dict(zip(HEADER, row, strict=True)) for row in rows[1:]))
    else:
        content = table(*rows, delimiter="," if "csv" in name else "\t")
    data = (mark + content).encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    split = pairs(path).read("train", None)
    assert split.texts == (("é", "b"), ("c", "d"))
    assert split.labels == (0, 1)


def test_parquet(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {"sentence1": ["a", "c"], "sentence2": ["b", "d"], "label": [0, 1]}
    parquet.write_table(arrow.table(columns), tmp_path / "own.parquet")
    split = pairs(tmp_path / "own.parquet").read("train", None)
    assert split.texts == (("a", "b"), ("c", "d"))
    assert split.labels == (0, 1)


def test_tabs_alone_separate_a_tsv(tmp_path):
    path = write(tmp_path / "own.tsv", table(HEADER, ('"quoted', "it's 5\u2028 o\rclock", "x"), ("c", 'd"', "y")))
    assert pairs(path).read("train", None).texts == (('"quoted', "it's 5\u2028 o\rclock"), ("c", 'd"'))


def test_quotes_in_a_csv_are_taken_off_and_lines_within_them_kept(tmp_path):
    path = write(tmp_path / "own.csv", 'sentence1,sentence2,label\r\n"a, ""b""\nc",d,x\r\ne,f,y\r\n')
    assert pairs(path).read("train", None).texts == (('a, "b"\nc', "d"), ("e", "f"))


def test_another_encoding(tmp_path):
    path = write(tmp_path / "own.tsv", table(HEADER, ("é", "b", "x"), ("c", "d", "y")), "latin-1")
    assert pairs(path, encoding="latin-1").read("train", None).texts[0] == ("é", "b")


def test_without_a_header_and_without_a_last_line_feed(tmp_path):
    path = write(tmp_path / "own.csv", "1,a,b,0\n2,c,d,1")
    task = pairs(path, columns=["doctor", "one", "two", "label"], texts=["one", "two"])
    assert task.read("train", None).texts == (("a", "b"), ("c", "d"))


def test_blank_lines_are_passed_over(tmp_path):
    path = write(tmp_path / "own.tsv", "sentence1\tsentence2\tlabel\n\na\tb\tx\n\r\nc\td\ty\n\n")
    assert len(pairs(path).read("train", None)) == 2


def test_classes_are_found_in_train_and_used_for_all_splits(tmp_path):
    write(tmp_path / "train.tsv", table(HEADER, ("a", "b", 10), ("c", "d", 9), ("e", "f", 10)))
    write(tmp_path / "dev.tsv", table(HEADER, ("a", "b", 10)))
    task = build_task("pairs", {})
    assert task.labels == ()
    assert task.read("validation", tmp_path).labels == (1,)  # reads train for the classes
    assert task.labels == ("9", "10")
    assert build_task("pairs", {}).labels == ()


def test_a_label_in_other_letters_is_the_same_unless_both_are_there(tmp_path):
    path = write(tmp_path / "own.tsv", table(HEADER, ("a", "b", "Yes"), ("c", "d", "NO"), ("e", "f", "yes")))
    assert pairs(path, labels=["no", "yes"]).read("train", None).labels == (1, 0, 1)
    assert pairs(path, labels=["no", "yes", "Yes"]).read("train", None).labels == (2, 0, 1)


def test_json_labels_of_any_type(tmp_path):
    values = [True, 1, 2.0, "b "]
    records = [{"sentence1": "a", "sentence2": "b", "label": value} for value in values]
    path = write(tmp_path / "own.jsonl", json_lines(*records))
    task = pairs(path, labels=["true", 1, 2, "b"])
    assert task.read("train", None).labels == (0, 1, 2, 3)


@pytest.mark.parametrize(("rule", "expected"), [("drop", (0, 1)), ("keep", (0, None, 1))])
def test_rows_without_a_label(tmp_path, rule, expected):
    path = write(tmp_path / "own.tsv", table(HEADER, ("a", "b", "x"), ("e", "f", "?"), ("c", "d", "y")))
    task = pairs(path, unlabelled={"values": ["?"], "rule": rule})
    split = task.read("train", None)
    assert split.labels == expected
    assert split.labelled is (rule == "drop")


def test_a_dropped_row_may_be_empty_and_is_counted_in_the_log(tmp_path, caplog):
    path = write(tmp_path / "own.tsv", table(HEADER, ("a", "b", "x"), ("", "", "-"), ("c", "d", "y")))
    with caplog.at_level(logging.INFO):
        assert len(pairs(path, unlabelled={"values": ["-"], "rule": "drop"}).read("train", None)) == 2
    assert "dropped 1" in caplog.text


def test_for_prediction_every_row_is_kept(tmp_path):
    task = build_task("snli", {})
    rows = (("sentence1", "sentence2", "gold_label"), ("a", "b", "-"), ("c", "d", "neutral"))
    path = write(tmp_path / "own.tsv", table(*rows))
    assert task.read_file(path, labelled=False).labels == (None, None)
    assert task.read_file(path, labelled=True).labels == (1,)
    bare = write(tmp_path / "bare.tsv", table(("sentence2", "sentence1"), ("b", "a")))
    assert task.read_file(bare, labelled=False).texts == (("a", "b"),)


def test_for_prediction_a_file_without_header_may_lack_the_label(tmp_path):
    path = write(tmp_path / "own.tsv", table(("a", "b"), ("c", "d")))
    assert build_task("scitail", {}).read_file(path, labelled=False).texts == (("a", "b"), ("c", "d"))


def test_for_prediction_classes_need_not_be_known(tmp_path):
    path = write(tmp_path / "own.tsv", table(HEADER, ("a", "b", "x")))
    assert build_task("pairs", {}).read_file(path, labelled=False).labels == (None,)


def test_sick_has_classes_and_numbers(tmp_path):
    write_layout("sick", tmp_path)
    assert build_task("sick", {}).read("test", tmp_path).labels == (1, 2)
    assert build_task("sick-r", {}).read("test", tmp_path).labels == (4.5, 3.0)
