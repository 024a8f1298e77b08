"""`headwise predict`: rows in, rows out."""

import csv
import errno
import json

import numpy
import pytest
from tiny_runs import rows, write_table

from headwise.experiments.apply import load_run


@pytest.fixture
def run(finished):
    return finished


def read(path):
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    with path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ","))


@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".jsonl"])
def test_every_row_in_its_place(headwise, run, tmp_path, suffix):
    table = [row[:2] for row in rows(70, 9)]  # more than one batch, of all lengths
    source, target = write_table(tmp_path / "in.tsv", table), tmp_path / f"out{suffix}"
    code, out, err = headwise("predict", run, "--input", source, "--output", target, "--json")
    assert code == 0, err
    assert json.loads(out) == {"output": str(target), "rows": 70}
    found = read(target)
    names = ["agree", "deny", "open"]
    probabilities = numpy.array([[float(row[f"probability_{name}"]) for name in names] for row in found])
    assert probabilities.sum(1) == pytest.approx(1.0, abs=3e-6)
    assert [row["prediction"] for row in found] == [names[place] for place in probabilities.argmax(1)]
    # One by one, as nothing can change places then.
    loaded = load_run(run)
    alone = numpy.concatenate(
        [loaded.logits(loaded.task.read_file(_single(tmp_path, row), labelled=False), 1, None) for row in table[1:]]
    )
    expected = numpy.exp(alone) / numpy.exp(alone).sum(1, keepdims=True)
    assert probabilities == pytest.approx(expected, abs=1e-5)


def _single(folder, row):
    return write_table(folder / "one.tsv", [["sentence1", "sentence2"], row])


def test_files_with_labels_and_other_forms(headwise, run, tmp_path):
    labelled = write_table(tmp_path / "a.csv", [["label", "sentence2", "sentence1"], ["deny", "the cat", "a dog"]], ",")
    objects = tmp_path / "b.jsonl"
    objects.write_text(json.dumps({"sentence1": "a dog", "sentence2": "the cat", "more": 1}) + "\n")
    for source in (labelled, objects):
        target = tmp_path / f"{source.name}.tsv"
        assert headwise("predict", run, "--input", source, "--output", target)[0] == 0
    assert read(tmp_path / "a.csv.tsv") == read(tmp_path / "b.jsonl.tsv")


def test_an_existing_file_is_refused_unless_told(headwise, run, tmp_path):
    source, target = write_table(tmp_path / "in.tsv", rows(3, 9)), tmp_path / "out.csv"
    target.write_text("precious")
    code, out, err = headwise("predict", run, "--input", source, "--output", target)
    assert (code, out, target.read_text()) == (2, "", "precious")
    assert "exists already" in err
    code, out, err = headwise("predict", run, "--input", source, "--output", target, "--overwrite")
    assert (code, len(read(target))) == (0, 3)
    assert "3 predictions" in out


def test_a_full_disk_leaves_the_old_file(headwise, run, tmp_path, monkeypatch):
    source, target = write_table(tmp_path / "in.tsv", rows(3, 9)), tmp_path / "out.csv"
    target.write_text("precious")

    def full(number):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    code, out, err = headwise("predict", run, "--input", source, "--output", target, "--overwrite")
    assert (code, out, target.read_text()) == (2, "", "precious")
    assert err.splitlines()[-1] == f"headwise: {target} could not be written: No space left on device."
    assert sorted(path.name for path in tmp_path.glob("*out*")) == ["out.csv"]


def test_the_batch_size_changes_no_prediction(headwise, run, tmp_path):
    source = write_table(tmp_path / "in.tsv", rows(20, 9))
    for batch in (1, 7):
        target = tmp_path / f"{batch}.jsonl"
        assert headwise("predict", run, "--input", source, "--output", target, "--batch", batch)[0] == 0
    one, seven = ([row["prediction"] for row in read(tmp_path / f"{batch}.jsonl")] for batch in (1, 7))
    assert one == seven
