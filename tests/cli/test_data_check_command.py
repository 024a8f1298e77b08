"""`headwise data check`: what is wrong with files, told before anything is trained on them."""

import json

import pytest
from tiny_runs import SIGNS, assert_one_sentence, rows, write_data, write_table

HEADER = ["sentence1", "sentence2", "label"]


@pytest.fixture
def folder(tmp_path):
    """Pairs of three classes, of which test repeats one of train, with another label."""
    write_data(tmp_path, sizes=(90, 45, 60))
    train = (tmp_path / "train.tsv").read_text().splitlines()
    first, second, label = train[4].split("\t")
    other = next(name for name in SIGNS if name != label)
    with (tmp_path / "test.tsv").open("a") as file:
        file.write(f"{first.upper()}\t{second}\t{other}\n")
    return tmp_path


def paths(folder, *names):
    return [folder / f"{name}.tsv" for name in names or ("train", "validation", "test")]


def test_all_of_it_as_json(headwise, folder):
    code, out, err = headwise("data", "check", *paths(folder), "--json")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    assert answer["task"] == "pairs"
    assert [(file["name"], file["rows"]) for file in answer["files"]] == [
        ("train", 90),
        ("validation", 45),
        ("test", 61),
    ]
    assert answer["files"][0]["labels"]["counts"] == dict.fromkeys(sorted(SIGNS), 30)
    leak = next(leak for leak in answer["leaks"] if (leak["first"], leak["second"]) == ("train", "test"))
    assert (leak["exact"]["count"], leak["exact"]["same_label"]) == (1, 0.0)
    (match,) = leak["exact"]["examples"]
    assert match["first"] == {"file": "train", "unit": "line", "number": 5}
    assert match["second"] == {"file": "test", "unit": "line", "number": 62}
    second = next(each for each in answer["baselines"]["results"] if each["name"] == "second_text")
    assert second["scores"]["accuracy"]["low"] > 0.8  # every text has the word that decides
    kinds = [finding["kind"] for finding in answer["findings"]]
    assert "leak" in kinds
    assert kinds.count("partial_input") == 2


def test_tables_for_people(headwise, folder):
    code, out, err = headwise("data", "check", *paths(folder))
    assert (code, err) == (0, "")
    lines = out.splitlines()
    cells = [line.split() for line in lines]
    assert lines[0].rstrip() == "read as pairs: sentence1 and sentence2"
    assert ["agree", "30", "(33.3%)", "15", "(33.3%)", "20", "(32.8%)"] in cells
    assert ["test", "train", "exact", "1", "1.6%", "0.0%", "line", "62", "and", "5"] in cells
    assert any(line.startswith("baselines: from train to test") for line in lines)
    assert any(row[:3] == ["most", "frequent", "class"] for row in cells)
    assert "note: the baselines learn from 90 examples of train and are scored on 61 of test" in lines
    assert "- test: also in train: 1 example (1.6%), 0.0% of them with the same label" in lines
    (warning,) = (line for line in lines if line.startswith("- sentence2 alone gives"))
    assert warning.endswith("a model may look good without reading sentence1")
    assert not any("[" in line for line in lines)  # no markup is left


def test_markup_in_names_and_labels_is_shown_as_it_is(headwise, tmp_path):
    table = [["[red]", "[b]"], ["one text", "[/x]"], ["another text", "[y]"]]
    path = write_table(tmp_path / "[bold].tsv", table)
    code, out, _ = headwise("data", "check", path, "--texts", "[red]", "--label", "[b]")
    assert code == 0
    for name in ("[red]", "[bold]", "[/x]", "[y]"):
        assert name in out


def test_strict_turns_findings_into_an_exit_code(headwise, folder, tmp_path):
    assert headwise("data", "check", *paths(folder), "--strict")[0] == 1
    code, out, _ = headwise("data", "check", *paths(folder), "--strict", "--json")
    assert code == 1
    assert json.loads(out)["findings"]
    clean = write_table(tmp_path / "clean.tsv", [HEADER, ["a", "b", "x"], ["c", "d", "y"]])
    code, out, _ = headwise("data", "check", clean, "--strict")
    assert code == 0
    assert out.splitlines()[-1] == "no findings"


def test_numbers_have_a_range_and_correlations(headwise, tmp_path):
    write_data(tmp_path, "pairs-regression", sizes=(60, 30, 30))
    code, out, _ = headwise("data", "check", *paths(tmp_path))
    assert code == 0
    assert "read as pairs-regression" in out
    assert "note: the labels are numbers; with --task pairs they are classes" in out
    titles = next(line for line in out.splitlines() if "pearson" in line)
    assert titles.split() == ["baseline", "pearson", "spearman", "rmse"]
    assert "standard deviation" in out


def test_one_file_without_a_header_is_cross_validated(headwise, tmp_path):
    table = [[label, first, second] for first, second, label in rows(60, 0)[1:]]
    path = write_table(tmp_path / "own.csv", table, ",")
    words = ("data", "check", path, "--columns", "verdict,claim,paper", "--texts", "claim, paper", "--label", "verdict")
    code, out, _ = headwise(*words)
    assert code == 0
    assert "read as pairs: claim and paper" in out
    assert "baselines: 5 folds of own" in out
    assert "paper alone" in out
    answers = [json.loads(headwise(*words, "--json", "--seed", seed)[1]) for seed in (0, 0, 1)]
    assert answers[0] == answers[1]
    assert answers[0]["baselines"] != answers[2]["baselines"]


def test_tokens_of_a_model(headwise, folder, encoder):
    words = ("data", "check", *paths(folder, "test"), "--model", encoder, "--max-length", 12)
    code, out, _ = headwise(*words)
    assert code == 0
    assert "at 12" in out
    assert "longer than 12 tokens, so it would be cut" in out


def test_one_class_is_a_finding(headwise, tmp_path):
    path = write_table(tmp_path / "train.tsv", [HEADER, *[[f"a {n}", "b", "x"] for n in range(20)]])
    code, out, err = headwise("data", "check", path)
    assert (code, err) == (0, "")
    assert "- train: all labels are 'x', so there is nothing to tell apart" in out
    assert "note: no baselines: all labels of train are the same" in out


def test_what_stands_between_is_told_and_counted(headwise, tmp_path):
    path = write_table(
        tmp_path / "t.tsv", [HEADER, ["a", "b", "x"], ["", "b", "x"], ["cut"], ["c", "d", ""], ["e", "f", "y"]]
    )
    code, out, _ = headwise("data", "check", path)
    assert code == 0
    assert "- t: rows without a text: 1; first: 3" in out
    assert "- t: rows that cannot be read: 1; first: " in out
    assert "- t: no label: 1 example (33.3%)" in out


def test_progress_of_many_rows_goes_to_stderr(headwise, folder, monkeypatch):
    monkeypatch.setattr("headwise.experiments.data_check.check.LONG", 10)
    code, out, err = headwise("data", "check", *paths(folder), "--json")
    assert code == 0
    json.loads(out)
    assert "near-duplicates of test in train: 0/90" in err
    assert "baseline: bag of words" in err


BAD = [
    (["none.tsv"], ("none.tsv does not exist",)),
    (["."], ("is a directory",)),
    (["empty.tsv"], ("empty.tsv is empty",)),
    (["header.tsv"], ("header.tsv has no examples",)),
    (["odd.tsv"], ("odd.tsv has the columns 'q', 'a', 'kind'", "--texts A,B --label C")),
    (["odd.tsv", "--texts", "q,b"], ("no column 'b'", "'q', 'a', 'kind'")),
    (["odd.tsv", "--texts", "q,a", "--label", "sort"], ("no column 'sort'", "--label")),
    (["odd.tsv", "--texts", "q,a,kind"], ("expected one column or two, got 3",)),
    (["train.tsv", "test.tsv", "./train.tsv"], ("train.tsv is given twice",)),
    (["train.tsv", "--task", "snil"], ("unknown task 'snil'", "did you mean 'snli'")),
    (["train.tsv", "--task", "clinic"], ("--task clinic reads no files",)),
    (["train.tsv", "--task", "retrieval"], ("--task retrieval reads no files",)),
    (["train.tsv", "--task", "sentences", "--texts", "sentence1,sentence2"], ("takes 1 of them", "pairs")),
    (["train.tsv", "--task", "rte"], ("unknown label 'agree'", "train.tsv line 2")),
    (["train.tsv", "--task", "pairs-regression"], ("expected a finite number as the label, got 'agree'",)),
    (["train.doc"], ("train.doc", "the format")),
    (["train.tsv", "--max-length", "9"], ("max_length 9", "name one")),
    (["train.tsv", "--model", "./nowhere"], ("./nowhere", "there is no such folder")),
    (["latin.tsv"], ("latin.tsv line 2", "expected utf-8")),
]


@pytest.mark.parametrize(("words", "parts"), BAD)
def test_bad_input_ends_in_one_sentence(headwise, folder, monkeypatch, words, parts):
    monkeypatch.chdir(folder)
    (folder / "empty.tsv").touch()
    write_table(folder / "header.tsv", [HEADER])
    write_table(folder / "odd.tsv", [["q", "a", "kind"], ["x", "y", "z"]])
    (folder / "train.doc").touch()
    (folder / "latin.tsv").write_bytes(b"sentence\tlabel\ncaf\xe9\tx\n")
    assert_one_sentence(headwise("data", "check", *words), *parts)


def test_a_limit_that_the_model_cannot_take_is_refused(headwise, folder, encoder):
    result = headwise("data", "check", *paths(folder, "test"), "--model", encoder, "--max-length", 1000)
    assert_one_sentence(result, "takes at most 40 tokens")


def test_help(headwise):
    assert "check" in headwise("data", "--help")[1]
    code, out, _ = headwise("data", "check", "--help")
    assert code == 0
    for option in (
        "--task",
        "--texts",
        "--label",
        "--columns",
        "--model",
        "--max-length",
        "--seed",
        "--strict",
        "--json",
    ):
        assert option in out
