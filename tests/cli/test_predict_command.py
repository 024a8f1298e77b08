"""`headwise predict`: rows in, rows out."""

import csv
import errno
import io
import json

import numpy
import pytest
from tiny_runs import assert_done, assert_one_sentence, json_of, rows, write_table

from headwise.experiments.apply import load_run


def read(path):
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    with path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ","))


def test_every_row_in_its_place(headwise, finished, tmp_path):
    table = [row[:2] for row in rows(70, 9)]  # more than one batch, of all lengths
    source, found = write_table(tmp_path / "in.tsv", table), {}
    for suffix, batch in {".tsv": (), ".csv": ("--batch", 7), ".jsonl": ("--batch", 1)}.items():
        target = tmp_path / f"out{suffix}"
        out, _ = assert_done(headwise("predict", finished, "--input", source, "--output", target, "--json", *batch))
        assert json.loads(out) == {"output": str(target), "rows": 70}
        found[suffix] = read(target)
    names = ["agree", "deny", "open"]
    # One by one, as nothing can change places then.
    loaded = load_run(finished)
    single = ([["sentence1", "sentence2"], row] for row in table[1:])
    splits = (loaded.task.read_file(write_table(tmp_path / "one.tsv", each), labelled=False) for each in single)
    alone = numpy.concatenate([loaded.logits(split, 1, None) for split in splits])
    expected = numpy.exp(alone) / numpy.exp(alone).sum(1, keepdims=True)
    for rows_found in found.values():
        probabilities = numpy.array([[float(row[f"probability_{name}"]) for name in names] for row in rows_found])
        assert probabilities.sum(1) == pytest.approx(1.0, abs=3e-6)
        assert [row["prediction"] for row in rows_found] == [names[place] for place in probabilities.argmax(1)]
        assert probabilities == pytest.approx(expected, abs=1e-5)


def test_files_with_labels_and_other_forms(headwise, finished, tmp_path):
    labelled = write_table(tmp_path / "a.csv", [["label", "sentence2", "sentence1"], ["deny", "the cat", "a dog"]], ",")
    objects = tmp_path / "b.jsonl"
    objects.write_text(json.dumps({"sentence1": "a dog", "sentence2": "the cat", "more": 1}) + "\n")
    for source in (labelled, objects):
        target = tmp_path / f"{source.name}.tsv"
        assert headwise("predict", finished, "--input", source, "--output", target)[0] == 0
    (first,), (second,) = read(tmp_path / "a.csv.tsv"), read(tmp_path / "b.jsonl.tsv")
    assert list(first)[:4] == ["label", "sentence2", "sentence1", "prediction"]  # all columns of the input, then ours
    assert (first.pop("label"), second.pop("more")) == ("deny", "1")
    assert first == second


def test_files_without_a_header(headwise, finished, tmp_path):
    plain = write_table(tmp_path / "a.tsv", [["sentence1", "sentence2"], ["a dog runs", "the cat is here"]])
    expected = json_of(headwise("predict", finished, "--input", plain, "--json"))["rows"]
    bare = write_table(tmp_path / "bare.tsv", [["a dog runs", "the cat is here"]])
    assert json_of(headwise("predict", finished, "--input", bare, "--json"))["rows"] == expected
    more = write_table(tmp_path / "more.tsv", [["7", "a dog runs", "the cat is here"]])
    words = ("predict", finished, "--input", more, "--columns")
    (row,) = json_of(headwise(*words, "id,sentence1,sentence2", "--json"))["rows"]
    assert row == {"id": "7", **expected[0]}
    assert_one_sentence(headwise(*words, "id,sentence1"), "3 columns", "id")


def test_rows_without_a_text_are_left_out(headwise, finished, tmp_path, caplog):
    table = [["id", "sentence1", "sentence2"], ["1", "a dog", "the cat"], ["2", "", "the cat"], ["3", "a cat", "a dog"]]
    source = write_table(tmp_path / "a.tsv", table)
    assert_done(headwise("predict", finished, "--input", source, "--output", tmp_path / "out.csv"))
    assert [row["id"] for row in read(tmp_path / "out.csv")] == ["1", "3"]
    assert "rows without a text, which are left out: 1" in caplog.text


def test_a_text_gets_the_answer_of_its_row(headwise, finished, tmp_path, monkeypatch):
    plain = write_table(tmp_path / "a.tsv", [["sentence1", "sentence2"], ["a dog runs", "the cat is here"]])
    (expected,) = json_of(headwise("predict", finished, "--input", plain, "--json"))["rows"]
    words = ("predict", finished, "--text", "a dog runs", "--pair", "the cat is here")
    answer = json_of(headwise(*words, "--json"))
    assert {name: answer[name] for name in expected if name.startswith("p")} == {
        name: value for name, value in expected.items() if name.startswith("p")
    }
    out, _ = assert_done(headwise(*words))
    assert f"prediction: {expected['prediction']}" in out
    monkeypatch.setattr("sys.stdin", io.StringIO("a dog runs\tthe cat is here\n\n"))
    out, _ = assert_done(headwise("predict", finished, "--input", "-"))
    assert out.splitlines()[1].split("\t")[0] == expected["prediction"]
    assert_one_sentence(headwise("predict", finished, "--text", "a dog runs"), "add --pair")
    assert_one_sentence(headwise("predict", finished), "--text", "--input")
    assert_one_sentence(headwise("predict", finished, "--text", "a", "--input", plain), "--text", "--input")


def test_a_word_counts_as_much_as_the_answer_changes_without_it(headwise, finished):
    texts = ("a dog runs", "the cat")
    whole = json_of(headwise("predict", finished, "--text", texts[0], "--pair", texts[1], "--explain", "--json"))
    assert [each["word"] for each in whole["words"]] == ["a", "dog", "runs", "the", "cat"]
    assert sum(each["attention"] for each in whole["words"]) == pytest.approx(1, abs=1e-5)
    without = json_of(headwise("predict", finished, "--text", "a runs", "--pair", texts[1], "--json"))
    name = f"probability_{whole['prediction']}"
    assert whole["words"][1]["drop"] == pytest.approx(numpy.log(whole[name] / without[name]), abs=1e-4)
    out, _ = assert_done(headwise("predict", finished, "--text", texts[0], "--pair", texts[1], "--explain"))
    assert ["dog", f"{whole['words'][1]['drop']:+.4f}"] == next(
        line.split()[:2] for line in out.splitlines() if line.split()[:1] == ["dog"]
    )


def test_an_existing_file_is_replaced_with_overwrite(headwise, finished, tmp_path):
    source, target = write_table(tmp_path / "in.tsv", rows(3, 9)), tmp_path / "out.csv"
    target.write_text("precious")
    out, _ = assert_done(headwise("predict", finished, "--input", source, "--output", target, "--overwrite"))
    assert len(read(target)) == 3
    assert "3 predictions" in out


def test_a_full_disk_leaves_the_old_file(headwise, finished, tmp_path, monkeypatch):
    source, target = write_table(tmp_path / "in.tsv", rows(3, 9)), tmp_path / "out.csv"
    target.write_text("precious")

    def full(number):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    code, out, err = headwise("predict", finished, "--input", source, "--output", target, "--overwrite")
    assert (code, out, target.read_text()) == (2, "", "precious")
    assert err.splitlines()[-1] == f"headwise: {target} could not be written: No space left on device."
    assert sorted(path.name for path in tmp_path.glob("*out*")) == ["out.csv"]
