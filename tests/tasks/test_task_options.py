"""What a recipe may say about a task, and what it may not."""

import pytest
from tasks.files import table, write

from headwise.data import build_task
from headwise.errors import InputError

# task, options, words of the refusal
REFUSED = [
    ("rte", {"file": {}}, "no option 'file': did you mean 'files'"),
    ("rte", {"files": "train.tsv"}, "files: expected a mapping"),
    ("rte", {"files": {"dev": "x.tsv"}}, "files: 'dev' is not known"),
    ("rte", {"format": "xml"}, "format: 'xml' is not known"),
    ("rte", {"quoting": "all"}, "quoting: 'all'"),
    ("rte", {"encoding": "utf-9"}, "encoding: 'utf-9' is not a text encoding"),
    ("rte", {"encoding": "rot13"}, "encoding: 'rot13' is not a text encoding"),
    ("rte", {"encoding": 8}, "encoding: expected a text"),
    ("rte", {"texts": ["one"]}, "takes 2.*sentences"),
    ("sst2", {"texts": ["one", "two"]}, "takes 1.*pairs"),
    ("rte", {"texts": ["one", "one"]}, "expected different texts"),
    ("rte", {"texts": []}, "texts: expected a list"),
    ("rte", {"texts": [1, 2]}, "texts: expected a text, got 1"),
    ("rte", {"label": None}, "label: expected a text"),
    ("rte", {"header": "no"}, "header: expected true or false"),
    ("rte", {"header": False}, "needs the names of all columns"),
    ("rte", {"header": True, "columns": ["a"]}, "without a header"),
    ("cola", {"texts": ["text"]}, "'text' is not among the columns.*header: true"),
    ("pairs", {"labels": ["one"]}, "at least two"),
    ("pairs", {"labels": "one"}, "at least two"),
    ("pairs", {"labels": [True, False]}, "quote it"),
    ("pairs", {"labels": ["x", "x"]}, "different"),
    ("rte", {"label_names": {"1": "entailed"}}, "'entailed' is not a label.*did you mean 'entailment'"),
    ("rte", {"label_names": ["x"]}, "expected a mapping"),
    ("pairs", {"label_names": {1: True}}, "quote it"),
    ("stsb", {"labels": ["x", "y"]}, "predicts numbers"),
    ("rte", {"kind": "ranking"}, "kind: 'ranking'"),
    ("rte", {"kind": "regression", "labels": ["x", "y"]}, "predicts numbers"),
    ("rte", {"metrics": ["acuracy"]}, "did you mean 'accuracy'"),
    ("rte", {"metrics": ["pearson"]}, "metrics of a classification task"),
    ("stsb", {"metrics": ["accuracy"]}, "metrics of a regression task"),
    ("snli", {"metrics": ["f1"]}, "f1 is for two classes.*macro_f1"),
    ("rte", {"primary": "matthews"}, "primary: 'matthews'"),
    ("rte", {"unlabelled": {"value": []}}, "did you mean 'values'"),
    ("rte", {"unlabelled": {"values": "-"}}, "expected a list"),
    ("rte", {"unlabelled": {"rule": "skip"}}, "unlabelled.rule: 'skip'"),
    ("rte", {"unlabelled": "-"}, "expected a mapping"),
    ("rte", {"broken_rows": "skip"}, "broken_rows: 'skip'"),
    ("rte", {"hub_config": "rte"}, "name it with hub"),
    ("rte", {"hub": "glue", "files": {}}, "both files and hub"),
    ("rte", {"hub": ""}, "hub: expected a text"),
    ("rte", [], "expected a mapping"),
]


@pytest.mark.parametrize(("name", "options", "words"), REFUSED)
def test_refused(name, options, words):
    with pytest.raises(InputError, match=words) as caught:
        build_task(name, options)
    assert str(caught.value).endswith(".")


def test_columns_and_classes_of_ones_own(tmp_path):
    rows = (("premise", "claim", "gold"), ("a", "b", 1), ("c", "d", 0))
    path = write(tmp_path / "own.csv", table(*rows, delimiter=","))
    task = build_task(
        "pairs",
        {
            "files": {"train": str(path)},
            "texts": ["premise", "claim"],
            "label": "gold",
            "labels": ["no", "yes"],
            "label_names": {0: "no", 1: "yes"},
            "metrics": ["f1", "accuracy"],
            "primary": "accuracy",
        },
    )
    assert task.labels == ("no", "yes")
    assert (task.metrics, task.primary) == (("f1", "accuracy"), "accuracy")
    assert task.read("train", None).labels == (1, 0)


def test_label_names_alone_name_the_classes_found(tmp_path):
    path = write(tmp_path / "own.tsv", table(("sentence", "label"), ("a", 1), ("b", 0), ("c", 2)))
    options = {"files": {"train": str(path)}, "label_names": {0: "bad", 1: "good", 2: "good"}}
    task = build_task("sentences", options)
    assert task.read("train", None).labels == (1, 0, 1)
    assert task.labels == ("bad", "good")


def test_numbers_instead_of_classes():
    task = build_task("sick", {"kind": "regression", "label": "relatedness_score"})
    assert (task.labels, task.metrics, task.primary) == ((), ("pearson", "spearman"), "pearson")
    assert build_task("stsb", {"kind": "regression"}).metrics == ("pearson", "spearman")


def test_the_first_metric_counts_unless_the_old_one_is_kept():
    assert build_task("rte", {"metrics": ["matthews"]}).primary == "matthews"
    assert build_task("rte", {"metrics": ["matthews", "accuracy"]}).primary == "accuracy"
    assert build_task("rte", {"metrics": "matthews"}).metrics == ("matthews",)


def test_names_of_the_table_do_not_hide_labels_of_ones_own(tmp_path):
    path = write(tmp_path / "own.tsv", table(("sentence", "label"), ("a", 1), ("b", 0)))
    task = build_task("sst2", {"files": {"train": str(path)}, "labels": ["1", "0"]})
    assert task.read("train", None).labels == (0, 1)


def test_a_headed_file_for_a_task_that_has_none(tmp_path):
    path = write(tmp_path / "own.tsv", table(("text", "good"), ("a", 1), ("b", 0)))
    options = {"files": {"train": str(path)}, "header": True, "texts": ["text"], "label": "good"}
    assert build_task("cola", options).read("train", None).labels == (1, 0)


def test_the_table_stays_as_it_is():
    build_task("rte", {"metrics": ["matthews"], "files": {"train": "x.tsv"}})
    assert build_task("rte", {}).metrics == ("accuracy",)
