"""Baselines on files: what they learn from, what they find, and what is said about it."""

import random

import numpy as np
import pytest

from headwise.experiments.data_check import check_files
from headwise.experiments.data_check import simple_baselines as baselines
from headwise.experiments.data_check import simple_baselines as folds
from headwise.experiments.data_check.simple_baselines import FOLDS, fold_numbers

FILLERS = "cat dog bird man woman house tree river sees likes finds holds".split()
SIGNS = {"agree": "surely", "deny": "never"}


def table(count, seed, *, sign=None, longer=False, numbers=False):
    """Pairs whose label is told by a word in text `sign`, or by the length of the first text, or not at all."""
    chance = random.Random(seed)
    rows = []
    for number in range(count):
        name = list(SIGNS)[number % 2]
        texts = [chance.choices(FILLERS, k=chance.randint(5, 7)) for _ in range(2)]
        if sign is not None:
            texts[sign].insert(chance.randint(0, 5), SIGNS[name])
        if longer and name == "deny":
            texts[0] += chance.choices(FILLERS, k=6)
        label = f"{number % 2 + chance.random() / 10:.3f}" if numbers else name
        rows.append([*map(" ".join, texts), label])
    return rows


def write(path, rows):
    lines = [["sentence1", "sentence2", "label"], *rows]
    path.write_text("".join("\t".join(row) + "\n" for row in lines))
    return path


def files(folder, sizes=None, **options):
    sizes = {"train": 300, "test": 200} if sizes is None else sizes
    return [
        write(folder / f"{name}.tsv", table(size, number, **options))
        for number, (name, size) in enumerate(sizes.items())
    ]


def accuracies(report):
    return {each.name: each.scores["accuracy"] for each in report.baselines.results}


def warned(report):
    return {
        finding.message.partition(" gives ")[0]
        for finding in report.findings
        if finding.kind in ("partial_input", "length")
    }


@pytest.mark.parametrize(("sign", "telling"), [(1, "second_text"), (0, "first_text")])
def test_a_planted_word_is_found_by_the_text_that_has_it_alone(sign, telling, tmp_path):
    report = check_files(files(tmp_path, sign=sign))
    found = accuracies(report)
    other = {"second_text": "first_text", "first_text": "second_text"}[telling]
    assert found[telling].value > 0.95
    assert found["bag_of_words"].value > 0.95
    assert found[other].low < 0.5 < found[other].high
    assert found["length"].low < 0.5 < found["length"].high
    assert found["majority"].value == 0.5
    assert warned(report) == {f"sentence{sign + 1} alone"}
    (message,) = (finding.message for finding in report.findings if finding.kind == "partial_input")
    assert "on test, the most frequent class 50.0%" in message
    assert f"without reading sentence{2 - sign}" in message


def test_a_length_that_tells_is_found(tmp_path):
    report = check_files(files(tmp_path, longer=True))
    assert accuracies(report)["length"].value > 0.95
    assert "the number of words alone" in warned(report)


def test_nothing_planted_nothing_warned(tmp_path):
    report = check_files(files(tmp_path))
    assert warned(report) == set()
    assert {each.name for each in report.baselines.results} == {
        "majority",
        "bag_of_words",
        "first_text",
        "second_text",
        "length",
    }


def test_numbers(tmp_path):
    report = check_files(files(tmp_path, sign=1, numbers=True))
    assert report.task == "pairs-regression"
    scores = {each.name: each.scores for each in report.baselines.results}
    assert scores["second_text"]["pearson"].value > 0.9
    assert scores["first_text"]["pearson"].low < 0 < scores["first_text"]["pearson"].high
    assert scores["mean"]["pearson"].value == 0
    assert scores["bag_of_words"]["rmse"].high < scores["mean"]["rmse"].low
    assert warned(report) == {"sentence2 alone"}


def test_single_texts_have_no_partial_input(tmp_path):
    for name in ("train", "test"):
        lines = [f"{row[0]}\t{row[2]}\n" for row in table(100, len(name), sign=0)]
        (tmp_path / f"{name}.tsv").write_text("sentence\tlabel\n" + "".join(lines))
    report = check_files([tmp_path / "train.tsv", tmp_path / "test.tsv"])
    assert set(accuracies(report)) == {"majority", "bag_of_words", "length"}
    assert accuracies(report)["bag_of_words"].value > 0.95
    assert warned(report) == set()  # a word that tells is what single texts are for


PLANS = [
    ({"train": 60, "dev": 30, "test": 20}, ("train", "test", 60, 20, False)),
    ({"train": 60, "dev": 30}, ("train", "validation", 60, 30, False)),
    ({"train": 60}, ("train", "train", 60, 60, True)),
    ({"dev": 60, "test": 30}, ("validation", "validation", 60, 60, True)),
    ({"train_a": 60, "train_b": 30, "test": 20}, ("train, train 2", "test", 90, 20, False)),
]


@pytest.mark.parametrize(("sizes", "expected"), PLANS)
def test_what_they_learn_from_and_are_scored_on(sizes, expected, tmp_path):
    found = check_files(files(tmp_path, sizes)).baselines
    assert (found.learned_from, found.scored_on, found.train, found.test, found.cross_validated) == expected


def test_an_unlabelled_test_is_passed_over(tmp_path):
    train, dev, test = files(tmp_path, {"train": 60, "dev": 30, "test": 20})
    test.write_text("".join(line.rpartition("\t")[0] + "\n" for line in test.read_text().splitlines()))
    assert check_files([train, dev, test]).baselines.scored_on == "validation"
    found = check_files([train, test]).baselines
    assert (found.cross_validated, found.test) == (True, 60)


def test_cross_validation_finds_the_word_too_and_no_more(tmp_path):
    report = check_files(files(tmp_path, {"data": 300}, sign=1))
    found = accuracies(report)
    assert found["second_text"].value > 0.9
    assert found["first_text"].low < 0.5 < found["first_text"].high


def test_cross_validation_cannot_learn_premises_by_heart(tmp_path):
    # Each premise is a word of its own, and all pairs with it have the same label: only its copies could tell.
    rows = [[f"premise{number // 4}", f"hypothesis{number}", ("x", "y")[number // 4 % 2]] for number in range(200)]
    report = check_files([write(tmp_path / "data.tsv", rows)])
    assert accuracies(report)["first_text"].value < 0.7


def test_folds_keep_first_texts_together_and_are_of_a_size():
    chance = random.Random(0)
    texts = [chance.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(500)]
    numbers = fold_numbers(texts, seed=0)
    assert set(numbers) == set(range(FOLDS))
    for text in set(texts):
        assert len({number for number, each in zip(numbers, texts, strict=True) if each == text}) == 1
    assert np.bincount(numbers).max() < 2 * np.bincount(numbers).min()
    assert fold_numbers(texts, seed=0).tolist() == numbers.tolist() != fold_numbers(texts, seed=1).tolist()


def test_many_rows_are_a_seeded_choice(tmp_path, monkeypatch):
    monkeypatch.setattr(folds, "MOST", 100)
    given = files(tmp_path, {"train": 300, "test": 60}, sign=1)
    report = check_files(given)
    found = report.baselines
    assert (found.train, found.test, found.capped) == (100, 60, True)
    assert "learn from 100 examples of train (a seeded choice) and are scored on 60 of test" in report.notes[-1]
    assert check_files(given).baselines == found
    assert not check_files(given[1:]).baselines.capped


def test_why_there_are_none(tmp_path, monkeypatch):
    def reason(rows, name="train.tsv"):
        report = check_files([write(tmp_path / name, rows)])
        assert report.baselines is None
        return report.notes[-1]

    rows = table(40, 0)
    assert reason([[*row[:2], "x"] for row in rows]) == "no baselines: all labels of train are the same"
    assert reason(rows[:6]) == "no baselines: they need 10 labelled examples, but train has 6"
    assert "begin with the same text" in reason([["same", *row[1:]] for row in rows])
    monkeypatch.setattr(baselines, "MOST_CLASSES", 20)
    assert "train has 40 classes" in reason([[*row[:2], f"c{number}"] for number, row in enumerate(rows)])


def test_the_floor_is_the_most_frequent_class_of_what_is_scored(tmp_path):
    # Train has mostly deny, test mostly agree: whoever predicts agree beats the majority of train, and knows nothing.
    train = write(tmp_path / "train.tsv", [*table(100, 0), *[row for row in table(100, 1) if row[2] == "deny"]])
    test = write(tmp_path / "test.tsv", [*table(40, 2), *[row for row in table(400, 3) if row[2] == "agree"]])
    report = check_files([train, test])
    assert report.baselines.chance == pytest.approx(220 / 240)
    assert warned(report) == set()
