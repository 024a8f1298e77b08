"""Reading files to check them: what they are for, which columns count, what is counted rather than refused."""

import json
import math

import numpy as np
import pytest

from headwise.errors import InputError
from headwise.experiments.data_check import CheckSettings, Choice, check_files
from headwise.experiments.data_check.balance import PERCENTS, summary
from headwise.experiments.data_check.data_files import given_files

HEADER = ("sentence1", "sentence2", "label")
ROWS = [("a cat", "a dog", "x"), ("the old man", "a man", "y"), ("A  cat", "a dog", "y"), ("one", "two", "x")]


def write(path, rows, header=HEADER, delimiter="\t"):
    path.write_text("".join(delimiter.join(map(str, row)) + "\n" for row in [header, *rows]), encoding="utf-8")
    return path


# -- roles -------------------------------------------------------------------------------------------------------------

NAMED = [
    (["a/train_100k.tsv", "b/SICK_trial.txt", "SICK_test_annotated.txt"], ["train", "validation", "test"]),
    (["test.tsv", "dev_matched.tsv", "train.tsv"], ["train", "validation", "test"]),
    (["pairs_valid.csv", "val.csv", "development.jsonl"], ["validation", "validation 2", "validation 3"]),
    (["one.tsv", "two.tsv"], ["train", "test"]),
    (["one.tsv", "two.tsv", "three.tsv"], ["train", "test", "two"]),
    (["one.tsv", "test.tsv"], ["train", "test"]),
    (["train.tsv", "one.tsv"], ["train", "test"]),
    (["one.tsv"], ["one"]),
    (["a/one.tsv", "train=test.tsv", "test=train.tsv", "dev=x=y.tsv"], ["train", "validation", "test", "one"]),
    (["other=train.tsv", "attest.tsv", "latest.tsv"], ["train", "test", "train 2"]),
]


@pytest.mark.parametrize(("given", "names"), NAMED)
def test_names_say_what_files_are_for(given, names):
    assert [file.name for file in given_files(given)] == names


def test_what_was_said_outright_is_cut_off_the_path():
    files = given_files(["train=a/test.tsv", "test=b=c.tsv"])
    assert [(file.role, str(file.path)) for file in files] == [("train", "a/test.tsv"), ("test", "b=c.tsv")]


def test_a_file_whose_name_looks_like_a_role_is_that_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train=x.tsv").touch()
    (file,) = given_files(["train=x.tsv"])
    assert str(file.path) == "train=x.tsv"


def test_the_same_file_twice_is_refused_however_it_is_written(tmp_path):
    with pytest.raises(InputError, match="is given twice"):
        given_files([str(tmp_path / "a.tsv"), str(tmp_path / "b" / ".." / "a.tsv")])
    with pytest.raises(InputError, match="no file to check"):
        given_files([])


# -- formats and columns -----------------------------------------------------------------------------------------------


def as_parquet(path, rows, header):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))
    parquet.write_table(pyarrow.table(columns), path)


def as_json_lines(path, rows, header):
    path.write_text("".join(json.dumps(dict(zip(header, row, strict=True))) + "\n" for row in rows), encoding="utf-8")


WRITERS = {
    "tsv": write,
    "csv": lambda path, rows, header: write(path, rows, header, ","),
    "jsonl": as_json_lines,
    "parquet": as_parquet,
}


@pytest.mark.parametrize("ending", WRITERS)
def test_every_format_tells_the_same(ending, tmp_path):
    path = tmp_path / f"train.{ending}"
    WRITERS[ending](path, ROWS, HEADER)
    report = check_files([path])
    (file,) = report.files
    assert (report.task, report.texts, report.classes) == ("pairs", ("sentence1", "sentence2"), ("x", "y"))
    assert (file.rows, file.labels.counts, file.labels.imbalance) == (4, {"x": 2, "y": 2}, 1.0)
    (places,) = file.duplicates.contradicting.examples
    first = 1 if ending in ("jsonl", "parquet") else 2  # below the header
    assert [place.number for place in places] == [first, first + 2]
    assert places[0].unit == ("row" if ending == "parquet" else "line")
    assert file.words["sentence1"].longest == 3
    assert file.words["together"].percentiles == {5: 2, 25: 2, 50: 4, 75: 4, 95: 5, 99: 5}


def test_sentences_and_own_columns_and_none(tmp_path):
    single = write(tmp_path / "s.tsv", [("a b", "x"), ("c", "y")], ("sentence", "label"))
    assert check_files([single]).texts == ("sentence",)
    own = write(tmp_path / "o.tsv", [("a b", "x", "1"), ("c", "y", "2")], ("claim", "verdict", "number"))
    report = check_files([own], Choice(texts=("claim",), label="verdict"))
    assert (report.task, report.classes) == ("sentences", ("x", "y"))
    bare = tmp_path / "b.csv"
    bare.write_text("1,a b,c d\n0,e,f\n")
    report = check_files([bare], Choice(texts=("p", "q"), label="l", columns=("l", "p", "q")))
    assert (report.files[0].rows, report.classes) == (2, ("0", "1"))


def test_a_task_reads_as_it_does_for_training(tmp_path):
    rows = [(1, "a", "b", 4.5, "NEUTRAL"), (2, "c", "d", 3, "ENTAILMENT"), (3, "e", "f", 1.5, "neutral")]
    path = write(
        tmp_path / "SICK_train.txt",
        rows,
        ("pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment"),
    )
    report = check_files([path], Choice(task="sick"))
    assert report.files[0].labels.counts == {"entailment": 1, "neutral": 2, "contradiction": 0}
    numbers = check_files([path], Choice(task="sick-r")).files[0].labels
    assert (numbers.low, numbers.high, numbers.mean) == (1.5, 4.5, 3.0)
    assert numbers.deviation == pytest.approx(1.5)


def test_rows_that_training_would_drop_or_refuse_are_counted(tmp_path):
    path = tmp_path / "train.tsv"
    path.write_text(
        "pairID\tgold_label\tsentence1\tsentence2\n"
        "1\tneutral\ta\tb\n"
        "2\t-\tc\td\n"  # no agreement: no label
        "3\tneutral\t \td\n"  # no text
        "4\tentailment\tcut\n"
        "5\tNaN\te\tf\n"
        "6\tcontradiction\tg\th\n",
    )
    (file,) = check_files([path], Choice(task="snli")).files
    assert (file.rows, file.labels.missing, file.empty) == (4, 2, (4,))
    (problem,) = file.broken
    assert "line 5: expected 4 fields, got 3" in problem


def test_rows_of_other_languages_are_nobodys_mistake(tmp_path):
    rows = [("de", "neutral", "a", "b"), ("fr", "neutral", "", ""), ("de", "entailment", "c", "d")]
    path = write(tmp_path / "xnli.dev.tsv", rows, ("language", "gold_label", "sentence1", "sentence2"))
    (file,) = check_files([path], Choice(task="xnli-de")).files
    assert (file.rows, file.empty, file.role) == (2, (), "validation")


def test_a_file_without_labels_is_shown_without_them(tmp_path):
    train = write(tmp_path / "train.tsv", ROWS)
    test = write(tmp_path / "test.tsv", [row[:2] for row in ROWS[:2]], HEADER[:2])
    report = check_files([train, test], Choice(label="label"))
    assert report.files[1].labels is None
    assert len(report.notes) == 1  # about baselines
    assert report.leaks[0].exact.count == 2
    assert report.leaks[0].exact.same_label is None
    only = check_files([test])
    assert only.baselines is None
    assert "no file has the column 'label', only 'sentence1', 'sentence2'" in only.notes[0]


def test_labels_that_are_not_whole_are_numbers(tmp_path):
    rows = [("a", "1.0"), ("b", "2.5"), ("c", "3")]
    path = write(tmp_path / "train.tsv", rows, ("sentence", "label"))
    report = check_files([path])
    assert report.task == "sentences-regression"
    assert "--task sentences" in report.notes[0]
    assert report.files[0].labels.high == 3.0
    assert check_files([path], Choice(task="sentences")).classes == ("1.0", "2.5", "3")
    whole = write(tmp_path / "whole.tsv", [("a", "1"), ("b", "2"), ("c", "10")], ("sentence", "label"))
    assert check_files([whole]).classes == ("1", "2", "10")


def test_classes_are_those_of_all_files(tmp_path):
    train, test = write(tmp_path / "train.tsv", ROWS), write(tmp_path / "test.tsv", [("p", "q", "z"), ("r", "s", "x")])
    report = check_files([train, test])
    assert report.classes == ("x", "y", "z")
    messages = [finding.message for finding in report.findings if finding.kind == "absent_classes"]
    assert messages == ["train: no example of 'z'", "test: no example of 'y'"]


# -- lengths -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 7, 100, 333])
def test_percentiles_are_lengths_that_occur(count):
    values = np.random.default_rng(count).integers(0, 50, size=count)
    found = summary(values)
    for percent in PERCENTS:
        # The smallest length that so many percent do not exceed.
        assert found.percentiles[percent] == sorted(values)[math.ceil(percent / 100 * count) - 1]
    assert found.longest == values.max()


def test_tokens_of_an_encoder_and_what_it_would_cut(tmp_path, encoder):
    # In the encoder's own words, so that words are tokens: [CLS] a [SEP] b [SEP].
    rows = [("the cat", "a dog", "x"), ("the cat sees a dog", "a cat", "y")]
    path = write(tmp_path / "train.tsv", rows)
    found = check_files([path], settings=CheckSettings(model=encoder, max_length=9))
    (file,) = found.files
    assert (file.tokens.lengths.percentiles[5], file.tokens.lengths.longest) == (7, 10)
    assert (file.tokens.limit, file.tokens.cut, file.tokens.share) == (9, 1, 0.5)
    assert "train: longer than 9 tokens, so it would be cut: 1 example (50.0%)" in [
        finding.message for finding in found.findings
    ]
    (fits,) = check_files([path], settings=CheckSettings(model=encoder, max_length=10)).files
    assert fits.tokens.cut == 0
    (free,) = check_files([path], settings=CheckSettings(model=encoder)).files
    assert (free.tokens.limit, free.tokens.cut) == (40, 0)  # as many as the encoder takes


# -- mistakes ----------------------------------------------------------------------------------------------------------


def test_settings_that_cannot_be():
    with pytest.raises(InputError, match="near: expected a number above 0"):
        CheckSettings(near=0.0)
    with pytest.raises(InputError, match="max_length 5 counts tokens of a model"):
        CheckSettings(max_length=5)
