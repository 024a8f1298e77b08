"""Checking files: what they are for, which columns count, what is counted rather than refused, and baselines."""

import json
import math
import random

import numpy as np
import pytest

from headwise.data import simple_baselines
from headwise.data.checked_files import file_roles
from headwise.data.checks import PERCENTS, check_files, lengths_of
from headwise.errors import InputError
from headwise.training import find_encoder

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
    (["one.tsv", "two.tsv", "three.tsv"], ["train", "test", "two"]),
    (["one.tsv", "test.tsv"], ["train", "test"]),
    (["one.tsv"], ["one"]),
    (["a/one.tsv", "train=test.tsv", "test=train.tsv", "dev=x=y.tsv"], ["train", "validation", "test", "one"]),
    (["other=train.tsv", "attest.tsv", "latest.tsv"], ["train", "test", "train 2"]),
]


def test_names_say_what_files_are_for(tmp_path, monkeypatch):
    for files, names in NAMED:
        assert [name for _, _, name in file_roles(files)] == names
    roles = [(role, str(path)) for path, role, _ in file_roles(["train=a/test.tsv", "test=b=c.tsv"])]
    assert roles == [("train", "a/test.tsv"), ("test", "b=c.tsv")]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train=x.tsv").touch()
    assert str(file_roles(["train=x.tsv"])[0][0]) == "train=x.tsv"
    with pytest.raises(InputError, match="is given twice"):
        file_roles([str(tmp_path / "a.tsv"), str(tmp_path / "b" / ".." / "a.tsv")])
    with pytest.raises(InputError, match="no file to check"):
        file_roles([])


# -- formats and columns -----------------------------------------------------------------------------------------------


def test_lines_of_duplicates_and_lengths_of_texts(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(dict(zip(HEADER, row, strict=True))) + "\n" for row in ROWS), encoding="utf-8")
    report = check_files([path])
    (file,) = report.files
    assert (report.task, report.texts, report.classes) == ("pairs", ("sentence1", "sentence2"), ("x", "y"))
    assert (file.rows, file.labels.counts, file.labels.imbalance) == (4, {"x": 2, "y": 2}, 1.0)
    (positions,) = file.duplicates.contradicting.examples
    assert [(position.unit, position.number) for position in positions] == [("line", 1), ("line", 3)]
    assert file.words["sentence1"].longest == 3
    assert file.words["together"].percentiles == {5: 2, 25: 2, 50: 4, 75: 4, 95: 5, 99: 5}


def test_columns_are_guessed_or_named(tmp_path):
    single = write(tmp_path / "s.tsv", [("a b", "x"), ("c", "y")], ("sentence", "label"))
    assert check_files([single]).texts == ("sentence",)
    own = write(tmp_path / "o.tsv", [("a b", "x", "1"), ("c", "y", "2")], ("claim", "verdict", "number"))
    report = check_files([own], texts=["claim"], label="verdict")
    assert (report.task, report.classes) == ("sentences", ("x", "y"))
    bare = tmp_path / "b.csv"
    bare.write_text("1,a b,c d\n0,e,f\n")
    report = check_files([bare], texts=("p", "q"), label="l", columns=("l", "p", "q"))
    assert (report.files[0].rows, report.classes) == (2, ("0", "1"))
    rows = [(1, "a", "b", 4.5, "NEUTRAL"), (2, "c", "d", 3, "ENTAILMENT"), (3, "e", "f", 1.5, "neutral")]
    header = ("pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment")
    path = write(tmp_path / "SICK_train.txt", rows, header)
    counts = check_files([path], task="sick").files[0].labels.counts
    assert counts == {"entailment": 1, "neutral": 2, "contradiction": 0}
    numbers = check_files([path], task="sick-r").files[0].labels
    assert (numbers.low, numbers.high, numbers.mean, numbers.deviation) == (1.5, 4.5, 3.0, pytest.approx(1.5))


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
    (file,) = check_files([path], task="snli").files
    assert (file.rows, file.labels.missing, file.empty) == (4, 2, (4,))
    (problem,) = file.broken
    assert "line 5: expected 4 fields, got 3" in problem
    rows = [("de", "neutral", "a", "b"), ("fr", "neutral", "", ""), ("de", "entailment", "c", "d")]
    path = write(tmp_path / "xnli.dev.tsv", rows, ("language", "gold_label", "sentence1", "sentence2"))
    (file,) = check_files([path], task="xnli-de").files
    assert (file.rows, file.empty, file.role) == (2, (), "validation")


def test_a_file_without_labels_is_checked_without_them(tmp_path):
    train = write(tmp_path / "train.tsv", ROWS)
    test = write(tmp_path / "test.tsv", [row[:2] for row in ROWS[:2]], HEADER[:2])
    report = check_files([train, test], label="label")
    assert report.files[1].labels is None
    assert report.notes[0] == "train, test: tab as delimiter, UTF-8"
    assert len(report.notes) == 2  # the other is about baselines
    assert (report.leaks[0].exact.count, report.leaks[0].exact.same_label) == (2, None)
    only = check_files([test])
    assert only.baselines is None
    assert "no file has the column 'label', only 'sentence1', 'sentence2'" in only.notes[0]


def test_labels_that_are_not_whole_are_numbers_and_classes_are_those_of_all_files(tmp_path):
    path = write(tmp_path / "train.tsv", [("a", "1.0"), ("b", "2.5"), ("c", "3")], ("sentence", "label"))
    report = check_files([path])
    assert (report.task, report.files[0].labels.high) == ("sentences-regression", 3.0)
    assert "task=sentences" in report.notes[0]
    assert check_files([path], task="sentences").classes == ("1", "2.5", "3")
    train, test = write(tmp_path / "train.tsv", ROWS), write(tmp_path / "test.tsv", [("p", "q", "z"), ("r", "s", "x")])
    report = check_files([train, test])
    assert report.classes == ("x", "y", "z")
    messages = [finding.message for finding in report.findings if finding.kind == "absent_classes"]
    assert messages == ["train: no example of 'z'", "test: no example of 'y'"]


# -- lengths -----------------------------------------------------------------------------------------------------------


def test_percentiles_are_lengths_that_occur():
    for count in (1, 7, 333):
        values = np.random.default_rng(count).integers(0, 50, size=count)
        lengths = lengths_of(values)
        for percent in PERCENTS:
            # The smallest length that so many percent do not exceed.
            assert lengths.percentiles[percent] == sorted(values)[math.ceil(percent / 100 * count) - 1]
        assert lengths.longest == values.max()


def test_tokens_of_a_model_and_what_it_would_cut(tmp_path, encoder):
    # In the encoder's vocabulary, so that words are tokens: [CLS] a [SEP] b [SEP].
    rows = [("the cat", "a dog", "x"), ("the cat sees a dog", "a cat", "y")]
    path = write(tmp_path / "train.tsv", rows)
    tokenizer = find_encoder(encoder).tokenizer
    report = check_files([path], tokenizer=tokenizer, max_length=9)
    tokens = report.files[0].tokens
    assert (tokens.lengths.percentiles[5], tokens.lengths.longest) == (7, 10)
    assert (tokens.limit, tokens.cut, tokens.share) == (9, 1, 0.5)
    message = "train: longer than 9 tokens, so it would be cut: 1 example (50.0%)"
    assert message in [finding.message for finding in report.findings]
    assert check_files([path], tokenizer=tokenizer).files[0].tokens.cut == 0
    with pytest.raises(InputError, match="near: expected a number above 0"):
        check_files([path], near=0.0)


# -- baselines ---------------------------------------------------------------------------------------------------------

FILLERS = "cat dog bird man woman house tree river sees likes finds holds".split()
SIGNS = {"agree": "surely", "deny": "never"}


def table(count, seed, *, sign=None, longer=False, numbers=False):
    """Pairs whose label follows from a word in text `sign`, or from the length of the first text, or not at all."""
    rng = random.Random(seed)
    rows = []
    for number in range(count):
        name = list(SIGNS)[number % 2]
        texts = [rng.choices(FILLERS, k=rng.randint(5, 7)) for _ in range(2)]
        if sign is not None:
            texts[sign].insert(rng.randint(0, 5), SIGNS[name])
        if longer and name == "deny":
            texts[0] += rng.choices(FILLERS, k=6)
        label = f"{number % 2 + rng.random() / 10:.3f}" if numbers else name
        rows.append([*map(" ".join, texts), label])
    return rows


def files(folder, sizes=None, **options):
    sizes = {"train": 300, "test": 200} if sizes is None else sizes
    return [
        write(folder / f"{name}.tsv", table(size, number, **options))
        for number, (name, size) in enumerate(sizes.items())
    ]


def accuracies(report):
    return {each.name: each.scores["accuracy"] for each in report.baselines.results}


def warned(report):
    kinds = ("partial_input", "length")
    return {finding.message.partition(" gives ")[0] for finding in report.findings if finding.kind in kinds}


def test_a_planted_word_is_found_by_the_text_that_has_it_alone(tmp_path):
    report = check_files(files(tmp_path, sign=1))
    scores = accuracies(report)
    assert min(scores["second_text"].value, scores["bag_of_words"].value) > 0.95
    for other in ("first_text", "length"):
        assert scores[other].low < 0.5 < scores[other].high
    assert scores["majority"].value == 0.5
    (message,) = (finding.message for finding in report.findings if finding.kind == "partial_input")
    assert message.startswith("sentence2 alone gives")
    assert "on test, the most frequent class 50.0%" in message
    assert "without reading sentence1" in message


def test_a_length_that_decides_is_found_and_nothing_else_is_warned_of(tmp_path):
    report = check_files(files(tmp_path, longer=True))
    assert accuracies(report)["length"].value > 0.95
    assert "the number of words alone" in warned(report)
    report = check_files(files(tmp_path))
    assert warned(report) == set()
    assert list(accuracies(report)) == ["majority", "bag_of_words", "first_text", "second_text", "length"]


def test_baselines_for_numbers(tmp_path):
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
        write(tmp_path / f"{name}.tsv", [row[::2] for row in table(100, len(name), sign=0)], ("sentence", "label"))
    report = check_files([tmp_path / "train.tsv", tmp_path / "test.tsv"])
    assert set(accuracies(report)) == {"majority", "bag_of_words", "length"}
    assert accuracies(report)["bag_of_words"].value > 0.95
    assert warned(report) == set()  # a word that decides is what single texts are for


PLANS = [
    ({"train": 60, "dev": 30, "test": 20}, ("train", "test", 60, 20, False)),
    ({"train": 60, "dev": 30}, ("train", "validation", 60, 30, False)),
    ({"dev": 60, "test": 30}, ("validation", "validation", 60, 60, True)),
    ({"train_a": 60, "train_b": 30, "test": 20}, ("train, train 2", "test", 90, 20, False)),
]


def test_what_they_learn_from_and_are_scored_on(tmp_path):
    for sizes, expected in PLANS:
        paths = files(tmp_path, sizes)
        found = check_files(paths).baselines
        assert (found.learned_from, found.scored_on, found.train, found.test, found.cross_validated) == expected
        if len(paths) == 3 and "dev" in sizes:  # a test without labels is not scored on
            test = paths[2]
            test.write_text("".join(line.rpartition("\t")[0] + "\n" for line in test.read_text().splitlines()))
            assert check_files(paths).baselines.scored_on == "validation"


def test_cross_validation_finds_the_word_and_cannot_learn_premises_by_heart(tmp_path):
    scores = accuracies(check_files(files(tmp_path, {"data": 300}, sign=1)))
    assert scores["second_text"].value > 0.9
    assert scores["first_text"].low < 0.5 < scores["first_text"].high
    # Each premise is a different word, and all pairs with it have the same label: only its copies could give it away.
    rows = [[f"premise{number // 4}", f"hypothesis{number}", ("x", "y")[number // 4 % 2]] for number in range(200)]
    assert accuracies(check_files([write(tmp_path / "data.tsv", rows)]))["first_text"].value < 0.7


def test_many_rows_are_a_seeded_choice(tmp_path, monkeypatch):
    monkeypatch.setattr(simple_baselines, "MOST", 100)
    paths = files(tmp_path, {"train": 300, "test": 60}, sign=1)
    report = check_files(paths)
    found = report.baselines
    assert (found.train, found.test, found.capped) == (100, 60, True)
    assert "learn from 100 examples of train (a seeded choice) and are scored on 60 of test" in report.notes[-1]
    assert check_files(paths).baselines == found
    assert not check_files(paths[1:]).baselines.capped


def test_why_there_are_none(tmp_path, monkeypatch):
    def reason(rows):
        report = check_files([write(tmp_path / "train.tsv", rows)])
        assert report.baselines is None
        return report.notes[-1]

    rows = table(40, 0)
    assert reason([[*row[:2], "x"] for row in rows]) == "no baselines: all labels of train are the same"
    assert reason(rows[:6]) == "no baselines: they need 10 labelled examples, but train has 6"
    assert "begin with the same text" in reason([["same", *row[1:]] for row in rows])
    monkeypatch.setattr(simple_baselines, "MOST_CLASSES", 20)
    assert "train has 40 classes" in reason([[*row[:2], f"c{number}"] for number, row in enumerate(rows)])


def test_the_floor_is_the_most_frequent_class_of_what_is_scored(tmp_path):
    # Train has mostly deny, test mostly agree: whoever predicts agree beats the majority of train, and knows nothing.
    train = write(tmp_path / "train.tsv", [*table(100, 0), *[row for row in table(100, 1) if row[2] == "deny"]])
    test = write(tmp_path / "test.tsv", [*table(40, 2), *[row for row in table(400, 3) if row[2] == "agree"]])
    report = check_files([train, test])
    assert report.baselines.chance == pytest.approx(220 / 240)
    assert warned(report) == set()


def test_labels_that_are_read_as_one_and_how_the_files_are_written(tmp_path):
    path = tmp_path / "train.csv"
    rows = [f"naïve {number};{label}" for number, label in enumerate(["yes", "Yes", "yes", "no", "no"])]
    path.write_bytes("\n".join(["sentence;label", *rows]).encode("latin-1"))
    report = check_files([path])
    assert report.notes[0] == "train: ; as delimiter, latin-1 (cp1252)"
    assert report.files[0].written == "; as delimiter, latin-1 (cp1252)"
    assert [each.message for each in report.findings if each.kind == "spellings"] == [
        "train: labels are read as one: 'Yes' (1), 'yes' (2) as 'yes'"
    ]
    with pytest.raises(InputError, match="no column 'sentence'|none of which"):
        check_files([path], written={"delimiter": ","})
    with pytest.raises(InputError, match=r"trains.csv does not exist: did you mean train.csv\?"):
        check_files([tmp_path / "trains.csv"])
