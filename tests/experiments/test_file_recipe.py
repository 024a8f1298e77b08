"""A recipe from a file of examples: columns, kind and splits are detected."""

import random

import pytest
from tiny_runs import rows, write_table

from headwise.errors import InputError
from headwise.experiments import check_recipe
from headwise.experiments.file_recipe import Choice, detect_kind, file_recipe, find_separator, split_table
from headwise.experiments.splits import read_splits


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (["yes", "no"] * 5, "classification"),
        ([str(number % 5) for number in range(40)], "classification"),
        (["1.0", "0.0"] * 5, "classification"),
        ([str(number) for number in range(40)], "regression"),
        (["0.5", "1", "2"] * 5, "regression"),
        (["a;b", "a", "b;c", "c", "a;c"] * 3, "multi_label"),
        (["a | b", "b", "a"] * 3, "multi_label"),
        (["Health; Science", "Sports", "Travel; Food"] * 3, "classification"),
        ([["a"], ["a", "b"], []] * 3, "multi_label"),
        ([["O"], ["B-X", "O"]] * 3, "token_labels"),
    ],
)
def test_kinds(labels, kind):
    texts = [["word"] * len(each) if kind == "token_labels" else "some words" for each in labels]
    assert detect_kind(labels, texts, "here") == kind


def test_a_column_of_texts_is_no_label():
    with pytest.raises(InputError, match=r"here has 500 different values .* name the column"):
        detect_kind([f"a text {number}" for number in range(500)], ["x"] * 500, "here")
    assert find_separator(["a, b", "c, d"]) is None


def test_pairs_without_a_word_about_them(tmp_path):
    path = write_table(tmp_path / "My pairs.csv", rows(60, 1), ",")
    found = file_recipe(path, Choice())
    assert found.root == tmp_path
    assert found.data["name"] == "My-pairs"
    assert found.data["task"] == {
        "name": "pairs",
        "texts": ["sentence1", "sentence2"],
        "label": "label",
        "files": {"train": "My pairs.csv"},
    }
    assert found.data["head"] == "segments"
    assert found.notes == ["from 'sentence1' and 'sentence2' to 'label': one class"]


def test_parts_have_every_class_and_share_no_near_duplicate(tmp_path):
    chance, table = random.Random(1), [["note", "kind"]]
    for number in range(120):
        words = chance.choices("red blue green one two three four five six seven".split(), k=12)
        label = ("often", "rare")[number % 10 == 0]
        table += [[" ".join(words), label], [" ".join([*words, "again"]), label]]
    table += [["", "often"], ["no label here", ""]]
    path = write_table(tmp_path / "notes.csv", table, ",")
    found = file_recipe(path, Choice())
    assert found.notes[1:] == [
        "rows without a label, which are left out: 1",
        "rows without a text, which are left out: 1",
    ]
    splits = read_splits(check_recipe(found.data, "test"), tmp_path)
    sizes = {name: len(split) for name, split in splits.named.items()}
    assert sizes == {"train": 168, "validation": 36, "test": 36}
    parts = {name: {text.removesuffix(" again") for (text,) in split.texts} for name, split in splits.named.items()}
    assert not parts["train"] & parts["validation"] | parts["train"] & parts["test"]
    assert not parts["validation"] & parts["test"]
    assert split_table(splits) == (
        ["", "train", "validation", "test"],
        [["examples", "168", "36", "36"], ["often", "152", "32", "32"], ["rare", "16", "4", "4"]],
    )


def test_a_file_without_a_header_and_a_folder(tmp_path):
    table = rows(60, 1, "sentences")[1:]
    found = file_recipe(write_table(tmp_path / "bare.csv", [[*row, "1"] for row in table], ","), Choice())
    assert found.data["task"] | {"files": None} == {
        "name": "sentences",
        "texts": ["column1"],
        "label": "column2",
        "files": None,
        "columns": ["column1", "column2", "column3"],
    }
    folder = tmp_path / "folder"
    for name in ("train.tsv", "dev.tsv", "test.tsv"):
        write_table(folder / name, rows(60, 1, "sentences-regression"))
    found = file_recipe(folder, Choice())
    assert found.data["task"]["files"] == {"train": "train.tsv", "validation": "dev.tsv", "test": "test.tsv"}
    assert found.data["task"]["name"] == "sentences-regression"
    assert list(found.data["data"]) == ["max_length"]


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (Choice(text="sentense1"), r"text=sentense1: .* did you mean 'sentence1'"),
        (Choice(text="label", label="label"), "expected different columns"),
        (Choice(kind="classify"), "kind=classify: .*classification"),
        (Choice(text="sentence1", pair="sentence2", kind="token_labels"), "leave pair out"),
    ],
)
def test_mistakes(tmp_path, choice, message):
    path = write_table(tmp_path / "a.csv", rows(60, 1), ",")
    with pytest.raises(InputError, match=message):
        file_recipe(path, choice)
