"""`headwise data`: pairs of news, and what is wrong with files before anything is trained on them."""

import json
import os
import subprocess
import sys

import pytest
from tiny_runs import SIGNS, assert_done, assert_one_sentence, rows, write_data, write_table

HEADER = ["sentence1", "sentence2", "label"]

# -- ag-pair -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def news(tmp_path):
    path = tmp_path / "news.csv"
    path.write_text("".join(f'"{topic}","title {topic}.{n}","text {n}"\n' for n in range(40) for topic in "1234"))
    return path


def test_pairs_of_news(headwise, news, tmp_path):
    words = ("data", "ag-pair", "--news", news, "--out")
    code, out, err = headwise(*words, tmp_path / "pairs.tsv", "--json")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    assert (answer["rows"], answer["same"], answer["different"]) == (160, 80, 80)
    assert answer["topics"] == dict.fromkeys("1234", 40)
    assert answer["occurrences"] == {"2": 160}
    assert answer["output"] == str(tmp_path / "pairs.tsv")
    lines = (tmp_path / "pairs.tsv").read_text().splitlines()
    assert len(lines) == 161
    assert sum(line.startswith("same\t") for line in lines) == 80
    assert headwise(*words, tmp_path / "other.tsv", "--seed", 1, "--rounds", 1)[0] == 0
    assert len((tmp_path / "other.tsv").read_text().splitlines()) == 81
    out, _ = assert_done(headwise(*words, tmp_path / "theirs.tsv", "--slot-order", "reference"))
    assert "160 pairs: 80 same, 80 different" in out
    assert "every news occurs 2 times" in out
    # Of slot 1, in a round: 20, 12, 8 and 0 different against 10 same of each topic, so 20 + 12 + 10 + 10 of 80.
    assert "gives 65.0% of the labels, chance 50.0%" in out
    assert ["4", "40", "20", "20", "0", "40"] in [line.split() for line in out.splitlines()]


BAD_PAIRS = [
    ({"--out": "pairs.csv"}, ("pairs.csv", "ends in .tsv")),
    ({"--out": "no/pairs.tsv"}, ("there is no folder", "make it first")),
    ({"--out": "old.tsv"}, ("old.tsv exists already", "--overwrite")),
    ({"--news": "one.csv"}, ("only the topic '1'",)),
]


def test_bad_news_end_in_one_sentence_and_write_nothing(headwise, news, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.tsv").write_text("precious")
    (tmp_path / "one.csv").write_text("1,a,b\n" * 8)
    before = sorted(tmp_path.rglob("*"))
    for change, words in BAD_PAIRS:
        options = {"--news": "news.csv", "--out": "pairs.tsv", **change}
        assert_one_sentence(headwise("data", "ag-pair", *(word for item in options.items() for word in item)), *words)
        assert sorted(tmp_path.rglob("*")) == before
        assert (tmp_path / "old.tsv").read_text() == "precious"


# -- check -------------------------------------------------------------------------------------------------------------


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


MEASURED = """
import sys, time
sys.argv = ["headwise", "data", "check", *sys.argv[1:]]
import headwise.cli.main, headwise.data.checks
started = time.process_time()
print(started, file=sys.stderr)
try:
    headwise.cli.main.run()
finally:
    print("torch" in sys.modules, "transformers" in sys.modules, file=sys.stderr)
"""


def test_a_check_starts_quickly_and_does_not_load_torch(folder):
    words = [sys.executable, "-c", MEASURED, *map(str, paths(folder)), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert json.loads(done.stdout)["baselines"]["results"]
    seconds, torch, transformers = done.stderr.split()
    assert (torch, transformers) == ("False", "False")
    assert float(seconds) < 1.5


def test_all_of_it_as_json_with_progress(headwise, folder, tmp_path, monkeypatch):
    monkeypatch.setattr("headwise.data.checks.LONG", 10)
    code, out, err = headwise("data", "check", *paths(folder), "--json", "--strict")
    assert code == 1  # since there are findings
    assert "near-duplicates of test in train: 0/90" in err
    assert "baseline: bag of words" in err
    answer = json.loads(out)
    assert answer["task"] == "pairs"
    names = [(file["name"], file["rows"]) for file in answer["files"]]
    assert names == [("train", 90), ("validation", 45), ("test", 61)]
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
    clean = write_table(tmp_path / "clean.tsv", [HEADER, ["a", "b", "x"], ["c", "d", "y"]])
    out, _ = assert_done(headwise("data", "check", clean, "--strict"))
    assert out.splitlines()[-1] == "no findings"


def test_marks_are_named_as_in_a_recipe(headwise, tmp_path):
    header = ["sentence", "label", "first", "second"]
    lines = [["a good film", "x", "0 1 0", "0 1 1"], ["bad", "y", "", ""], ["so bad it hurts", "y", "0 1 0 0", ""]]
    path = write_table(tmp_path / "train.tsv", [header, *lines])
    words = ("data", "check", path, "--marks", "tokens=first,tokens=second,agreement=all")
    code, out, err = headwise(*words, "--json")
    assert (code, err) == (0, "")
    marks = json.loads(out)["files"][0]["marks"]
    assert (marks["examples"], marks["marks"], marks["tokens"]) == (2, 2, None)
    cells = [line.split() for line in assert_done(headwise(*words))[0].splitlines()]
    assert ["train", "2", "(66.7%)", "29.2%", "0", "2", "0", "0", "0", "0"] in cells
    assert "- train: no example is marked" in assert_done(headwise(*words[:3], "--marks", "stars"))[0]
    assert_one_sentence(headwise(*words[:3], "--marks", "stars,lexicon=a"), "both stars and lexicon")


def test_tables_for_people(headwise, folder, tmp_path):
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
    # Markup in names and labels is shown as it is.
    path = write_table(tmp_path / "[bold].tsv", [["[red]", "[b]"], ["one text", "[/x]"], ["another text", "[y]"]])
    out, _ = assert_done(headwise("data", "check", path, "--texts", "[red]", "--label", "[b]"))
    for name in ("[red]", "[bold]", "[/x]", "[y]"):
        assert name in out


def test_tables_of_numbers_and_of_tokens(headwise, tmp_path, encoder):
    write_data(tmp_path, "pairs-regression", sizes=(60, 30, 30))
    words = ("data", "check", *paths(tmp_path), "--model", encoder)
    out, _ = assert_done(headwise(*words, "--max-length", 12))
    assert "at 12" in out
    assert "longer than 12 tokens, so it would be cut" in out
    assert "read as pairs-regression" in out
    assert "note: the labels are numbers; with --task pairs they are classes" in out
    titles = next(line for line in out.splitlines() if "pearson" in line)
    assert titles.split() == ["baseline", "pearson", "spearman", "rmse"]
    assert "standard deviation" in out
    assert "at 40" in headwise(*words)[1]  # as many as the model takes
    assert_one_sentence(headwise(*words, "--max-length", 1000), "takes at most 40 tokens")


def test_an_encoder_adds_a_baseline_on_its_frozen_features(headwise, folder, encoder):
    words = ("data", "check", *paths(folder), "--encoder", encoder)
    out, err = assert_done(headwise(*words))
    assert any(line.split()[:5] == "logistic regression on frozen features".split() for line in out.splitlines())
    assert "tokens" not in out  # they are those of --model
    answers = [json.loads(headwise(*words, *more, "--json")[1]) for more in ((), ("--max-length", "8"))]
    found = [answer["baselines"]["results"][-1] for answer in answers]
    assert [each["name"] for each in found] == ["frozen_features"] * 2
    assert found[0]["scores"]["accuracy"]["value"] > 0.5  # three classes, and a word that decides
    assert found[0] != found[1]  # whose texts are cut
    alone = json.loads(headwise("data", "check", folder / "train.tsv", "--encoder", encoder, "--json")[1])["baselines"]
    assert alone["cross_validated"]
    assert [each["name"] for each in alone["results"]][-1] == "frozen_features"


def test_one_file_without_a_header_is_cross_validated(headwise, tmp_path):
    table = [[label, first, second] for first, second, label in rows(60, 0)[1:]]
    path = write_table(tmp_path / "own.csv", table, ",")
    words = ("data", "check", path, "--columns", "verdict,claim,paper", "--texts", "claim, paper", "--label", "verdict")
    out, _ = assert_done(headwise(*words))
    assert "read as pairs: claim and paper" in out
    assert "baselines: 5 folds of own" in out
    assert "paper alone" in out


def test_rows_that_cannot_be_used_are_reported_and_counted(headwise, tmp_path):
    path = write_table(
        tmp_path / "t.tsv", [HEADER, ["a", "b", "x"], ["", "b", "x"], ["cut"], ["c", "d", ""], ["e", "f", "x"]]
    )
    out, _ = assert_done(headwise("data", "check", path))
    assert "- t: rows without a text: 1; first: 3" in out
    assert "- t: rows that cannot be read: 1; first: " in out
    assert "- t: no label: 1 example (33.3%)" in out
    assert "- t: all labels are 'x', so there is nothing to learn" in out
    assert "note: no baselines: all labels of t are the same" in out


BAD_CHECKS = [
    (["odd.tsv"], ("odd.tsv has the columns 'q', 'a', 'kind'", "--texts A,B --label C")),
    (["odd.tsv", "--texts", "q,a", "--label", "sort"], ("no column 'sort'", "--label")),
    (["odd.tsv", "--texts", "q,a,kind"], ("--texts q,a,kind: expected one column or two, got 3",)),
    (["train.tsv", "--task", "snil"], ("unknown task 'snil'", "did you mean 'snli'")),
    (["train.tsv", "--task", "clinic"], ("--task clinic reads no files",)),
    (["train.tsv", "--task", "rte"], ("unknown label 'agree'", "train.tsv line 2")),
    (["train.tsv", "--max-length", "9"], ("--max-length 9", "name one")),
    (["train.tsv", "--model", "./nowhere"], ("./nowhere", "there is no such folder")),
    (["train.tsv", "--encoder", "./nowhere"], ("./nowhere", "there is no such folder")),
    (["train.tsv", "--encoder", "ENCODER", "--max-length", "99"], ("takes at most 40 tokens",)),
    (
        ["numbers.tsv", "--encoder", "ENCODER"],
        ("--encoder ...: logistic regression on frozen features predicts classes", "numbers.tsv are numbers", "--task"),
    ),
]


def test_bad_files_end_in_one_sentence(headwise, folder, encoder, monkeypatch):
    monkeypatch.chdir(folder)
    write_table(folder / "odd.tsv", [["q", "a", "kind"], ["x", "y", "z"]])
    write_table(folder / "numbers.tsv", rows(30, 0, "pairs-regression"))
    for words, parts in BAD_CHECKS:
        words = [encoder if word == "ENCODER" else word for word in words]
        assert_one_sentence(headwise("data", "check", *words), *parts)
