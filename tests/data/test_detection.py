"""Files as people have them: delimiters, encodings, endings, headers, and what is no text at all."""

import csv
import gzip
import io
import zipfile

import pytest
from data.files import table, write
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.data import build_task
from headwise.data.dialects import Dialect
from headwise.data.readers import detect_table
from headwise.errors import InputError

HEADER = ("sentence", "label")
ROWS = (("tab or comma, or; neither", "x"), ("a|b", "y"), ('say "no"\nat once', "x"))


def task(path, **options):
    return build_task("sentences", {"files": {"train": str(path)}, **options})


def refusal(path, **options):
    with pytest.raises(InputError) as caught:
        task(path, **options).read("train", None)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def quoted(rows, delimiter):
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows(rows)
    return text.getvalue()


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".txt"])
def test_delimiters_are_detected_whatever_the_file_is_called(tmp_path, ending):
    for delimiter in ",;\t|":
        path = write(tmp_path / f"own{ord(delimiter)}{ending}", quoted((HEADER, *ROWS), delimiter))
        assert task(path).read("train", None).texts == tuple((text,) for text, _ in ROWS), delimiter


# No line ends: in a TSV that quotes nothing, they would end a row.
cells = st.text(
    st.characters(exclude_characters="\r\n\v\f\x1c\x1d\x1e\x85\u2028\u2029", exclude_categories=["C"]), max_size=20
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(cells, min_size=3, max_size=3), min_size=1, max_size=6), st.sampled_from(",;\t|"))
def test_what_the_csv_module_writes_is_read(tmp_path_factory, rows, delimiter):
    names = ["id", "text", "label"]
    path = tmp_path_factory.mktemp("own") / "own.csv"
    write(path, quoted([names, *rows], delimiter))
    assert detect_table(path).columns == ("id", "text", "label")


def test_a_file_with_one_column_and_texts_with_signs_of_other_delimiters(tmp_path):
    sentences = "I came, I saw; I left\nNo, never\nOh, well\n"
    assert detect_table(write(tmp_path / "own.txt", sentences)).dialect.delimiter == "\t"
    path = write(tmp_path / "own.csv", "sentence\n" + "one; two; three\n" * 3)
    assert detect_table(path).columns == ("sentence",)
    path = write(tmp_path / "own.tsv", table(HEADER, ("a, b", "x"), ("c, d", "y"), ("e, f", "y")))
    assert detect_table(path).dialect.delimiter == "\t"
    path = write(tmp_path / "tabs.tsv", 'sentence\tlabel\n"a\tb"\tx\nc\ty\n')
    assert task(path).read("train", None).texts == (("a\tb",), ("c",))


def test_a_delimiter_that_is_given_counts(tmp_path):
    path = write(tmp_path / "own.csv", "sentence~label\na;b~x\nc;d~y\n")
    assert task(path, delimiter="~").read("train", None).texts == (("a;b",), ("c;d",))
    path = write(tmp_path / "own.txt", "sentence\tlabel\na,b\tx\nc,d\ty\n")
    assert task(path, delimiter="tab").read("train", None).texts == (("a,b",), ("c,d",))
    for delimiter in (";;", "", "a", 3):
        with pytest.raises(InputError, match="delimiter: expected one sign"):
            task(path, delimiter=delimiter)


@pytest.mark.parametrize(
    ("encoding", "reported"),
    [
        ("utf-8", ""),
        ("utf-8-sig", ""),
        ("utf-16", "UTF-16"),
        ("utf-16-le", "UTF-16-LE"),
        ("utf-16-be", "UTF-16-BE"),
        ("latin-1", "latin-1 (cp1252)"),
        ("cp1252", "latin-1 (cp1252)"),
    ],
)
def test_encodings_are_detected_and_reported_once(tmp_path, caplog, encoding, reported):
    text = "„Grüße“ – 5 €" if encoding not in ("latin-1",) else "Grüße, déjà vu"
    path = tmp_path / "own.csv"
    path.write_bytes(quoted((HEADER, (text, "x"), ("b", "y")), ";").encode(encoding))
    assert task(path).read("train", None).texts == ((text,), ("b",))
    task(path).read("train", None)
    (line,) = (line for line in caplog.messages if "delimiter" in line)
    assert line == f"{path}: ; as delimiter" + (f", {reported}" if reported else "")
    jsonl = tmp_path / "own.jsonl"
    jsonl.write_bytes(f'{{"sentence": "{text}", "label": 1}}\n{{"sentence": "b", "label": 0}}\n'.encode(encoding))
    assert task(jsonl).read("train", None).texts == ((text,), ("b",))


def test_an_accent_far_behind_the_first_lines_and_alphabets_that_are_not_western(tmp_path):
    rows = [("plain " * 40, "xy"[number % 2]) for number in range(6_000)]  # more than a chunk
    path = tmp_path / "own.csv.gz"
    path.write_bytes(gzip.compress(table(HEADER, *rows, ("déjà", "x"), delimiter=",").encode("latin-1")))
    assert task(path).read("train", None).texts[-1] == ("déjà",)
    path = tmp_path / "own.csv"
    path.write_bytes(table(HEADER, ("Это не латиница", "x"), ("да", "y"), delimiter=",").encode("cp1251"))
    assert "expected utf-8 text" in refusal(path)
    assert task(path, encoding="cp1251").read("train", None).texts[1] == ("да",)


def test_another_ending_than_the_recipe_says(tmp_path, caplog):
    write(tmp_path / "train.csv", quoted((HEADER, *ROWS), ","))
    (tmp_path / "dev.txt.gz").write_bytes(gzip.compress(quoted((HEADER, *ROWS), "\t").encode()))
    own = build_task("sentences", {"files": {"train": "train.tsv", "validation": "dev.csv"}})
    assert own.available(tmp_path) == ("train", "validation")
    assert len(own.read("train", tmp_path)) == len(own.read("validation", tmp_path)) == 3
    assert any("train.tsv does not exist: train.csv is read instead" in line for line in caplog.messages)
    write(tmp_path / "train.txt", "")
    with pytest.raises(InputError, match=r"train.tsv does not exist, and there are train.csv, train.txt: name one"):
        own.read("train", tmp_path)


def test_what_is_detected_can_be_asked(tmp_path):
    path = tmp_path / "own.csv"
    path.write_bytes(quoted((HEADER, *ROWS), ";").encode("utf-16"))
    found = detect_table(path)
    assert (found.columns, found.header) == (HEADER, True)
    assert str(found) == "own.csv: csv, ; as delimiter, UTF-16"
    bare = detect_table(write(tmp_path / "bare.tsv", "a good film\t1\na bad one\t0\n"))
    assert not bare.header
    assert str(bare) == "bare.tsv: tsv, tab as delimiter, UTF-8, no header"
    assert detect_table(write(tmp_path / "index.csv", ",text,label\n0,a,x\n")).header  # as pandas writes its index
    assert detect_table(path, Dialect(delimiter=",")).dialect.delimiter == ","


def test_a_file_without_a_header(tmp_path):
    path = write(tmp_path / "own.csv", "a good film,1\na bad one,0\n")
    message = refusal(path)
    assert "the first line looks like an example: if there is no header, list all columns in order" in message
    assert task(path, columns=["sentence", "label"]).read("train", None).labels == (1, 0)


def test_lines_with_another_delimiter(tmp_path):
    path = write(tmp_path / "own.csv", "sentence;label\na;x\nb;y\nc,x\nd;y\n")
    message = refusal(path)
    assert "line 4: expected 2 fields, got 1 (fields end with a semicolon); it is written with a comma" in message
    path = write(tmp_path / "own.csv", "sentence;label\na;x\nb;y\nc;d;x\nd;y\n")
    assert "line 4: expected 2 fields, got 3 (fields end with a semicolon); correct the line" in refusal(path)


def test_what_is_no_text(tmp_path):
    def packed(name):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("docProps/app.xml", "a" * 10_000)
            archive.writestr(name, "a")
        return buffer.getvalue()

    for data, words in [
        (packed("own.csv"), "a zip file"),
        (packed("xl/workbook.xml"), "an Excel file; name it .xlsx, or set format: xlsx"),
        (packed("word/document.xml"), "a Word file"),
        (b"%PDF-1.7\n%\xe2\xe3\n", "a PDF"),
        (b"\x89PNG\r\n\x1a\n\0\0", "a PNG image"),
        (b"PAR1\x15\x04", "a Parquet file"),
        (gzip.compress(b"sentence,label\n"), "a gzip file; add .gz to its name"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "old Excel"),
        (b"\n<!DOCTYPE html>\n<html>", "a web page"),
        (bytes(range(256)) * 10, "bytes that are no text"),
    ]:
        path = tmp_path / "own.csv"
        path.write_bytes(data)
        message = refusal(path)
        assert "is not a text file: expected text in lines, got" in message
        assert words in message
