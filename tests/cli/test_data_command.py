"""`headwise data`: data sets made from others."""

import errno
import json

import pytest
from tiny_runs import assert_one_sentence


@pytest.fixture
def news(tmp_path):
    path = tmp_path / "news.csv"
    path.write_text("".join(f'"{topic}","title {topic}.{n}","text {n}"\n' for n in range(40) for topic in "1234"))
    return path


def test_pairs_of_news(headwise, news, tmp_path):
    target = tmp_path / "pairs.tsv"
    code, out, err = headwise("data", "ag-pair", "--news", news, "--out", target, "--json")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    assert (answer["rows"], answer["same"], answer["different"]) == (160, 80, 80)
    assert answer["topics"] == dict.fromkeys("1234", 40)
    assert answer["occurrences"] == {"2": 160}
    assert answer["output"] == str(target)
    assert 0.5 <= answer["shortcut"] < 0.62
    lines = target.read_text().splitlines()
    assert lines[0].split("\t") == ["label", *(f"news{n}-sentence{m}" for n in (1, 2) for m in (1, 2))]
    assert len(lines) == 161
    assert sum(line.startswith("same\t") for line in lines) == 80


def test_a_table_for_people(headwise, news, tmp_path):
    code, out, _ = headwise(
        "data", "ag-pair", "--news", news, "--out", tmp_path / "pairs.tsv", "--slot-order", "reference"
    )
    assert code == 0
    assert "160 pairs: 80 same, 80 different" in out
    assert "every news occurs 2 times" in out
    # Of slot 1, in a round: 20, 12, 8 and 0 different against 10 same of each topic, so 20 + 12 + 10 + 10 of 80.
    assert "gives 65.0% of the labels, chance 50.0%" in out
    assert ["4", "40", "20", "20", "0", "40"] in [line.split() for line in out.splitlines()]


def test_seed_and_rounds_are_heard(headwise, news, tmp_path):
    written = {}
    for name, more in {"a": (), "b": ("--seed", 0), "c": ("--seed", 1), "d": ("--rounds", 1)}.items():
        assert headwise("data", "ag-pair", "--news", news, "--out", tmp_path / f"{name}.tsv", *more)[0] == 0
        written[name] = (tmp_path / f"{name}.tsv").read_text()
    assert written["a"] == written["b"] != written["c"]
    assert len(written["d"].splitlines()) == 81


BAD = [
    ({"--news": "none.csv"}, ("none.csv does not exist",)),
    ({"--news": "."}, ("is a directory",)),
    ({"--out": "pairs.csv"}, ("pairs.csv", "ends in .tsv")),
    ({"--out": "no/pairs.tsv"}, ("there is no folder", "make it first")),
    ({"--out": "."}, ("is a folder", "train.tsv")),
    ({"--out": "old.tsv"}, ("old.tsv exists already", "--overwrite")),
    ({"--slot-order": "sorted"}, ("'sorted'", "random, reference")),
    ({"--news": "one.csv"}, ("only the topic '1'",)),
    ({"--news": "few.csv"}, ("topic '2' has 1 news",)),
    ({"--news": "wide.csv"}, ("expected news as class, title and description",)),
]


@pytest.mark.parametrize(("change", "words"), BAD)
def test_bad_input_ends_in_one_sentence_and_writes_nothing(headwise, news, tmp_path, monkeypatch, change, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.tsv").write_text("precious")
    (tmp_path / "one.csv").write_text("1,a,b\n" * 8)
    (tmp_path / "few.csv").write_text("".join(f"1,a {n},b\n" for n in range(9)) + "2,c,d\n")
    (tmp_path / "wide.csv").write_text("1,a,b,c\n")
    before = sorted(tmp_path.rglob("*"))
    options = {"--news": "news.csv", "--out": "pairs.tsv", **change}
    assert_one_sentence(headwise("data", "ag-pair", *(word for item in options.items() for word in item)), *words)
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "old.tsv").read_text() == "precious"


def test_overwriting_is_whole_or_not_at_all(headwise, news, tmp_path, monkeypatch):
    target = tmp_path / "pairs.tsv"
    target.write_text("precious")
    words = ("data", "ag-pair", "--news", news, "--out", target, "--overwrite")

    def full(number):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        assert_one_sentence(headwise(*words), "could not be written: No space left on device")
    assert target.read_text() == "precious"
    assert headwise(*words)[0] == 0
    assert target.read_text().startswith("label\t")


def test_help(headwise):
    assert "ag-pair" in headwise("data", "--help")[1]
    code, out, _ = headwise("data", "ag-pair", "--help")
    assert code == 0
    for option in ("--news", "--out", "--seed", "--rounds", "--slot-order", "--overwrite", "--json"):
        assert option in out
