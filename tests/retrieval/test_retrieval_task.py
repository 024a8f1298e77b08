"""What a recipe may say about a task of retrieval."""

import pytest

import headwise.retrieval  # noqa: F401 (adds its task to the table)
from headwise.data import build_task
from headwise.errors import InputError
from headwise.metrics.ranking import MEASURES


def test_bad_options_are_refused_in_one_sentence():
    for options, expected in (
        ({"negatives": 0}, "negatives: expected a whole number of 1 or more, got 0"),
        ({"loss": "hinge"}, "loss: 'hinge' is not known; known: list, pairs"),
        ({"stage": "sparse"}, "stage: 'sparse' is not known; known: bm25, dense, hybrid"),
        ({"gold": "all"}, "gold: 'all' is not known"),
        ({"residual": 1}, "residual: expected true or false, got 1"),
        ({"warm_up": -1}, "warm_up: expected a whole number of 0 or more, got -1"),
        ({"b": 1.5}, "b: expected a number of 0 or more, at most 1, got 1.5"),
        ({"drop_unknown": "maybe"}, "drop_unknown: expected true or false"),
        ({"splits": {"exam": "test"}}, "splits: 'exam' is not known"),
        ({"collection": ""}, "collection: expected a text"),
        ({"layout": "beer"}, "layout: 'beer' is not known; did you mean 'beir'"),
    ):
        with pytest.raises(InputError, match=expected):
            build_task("retrieval", options)


def test_options_and_measures():
    task = build_task("retrieval", {"collection": "papers", "splits": {"validation": "dev"}, "negatives": 4})
    assert (task.splits_of, task.negatives, task.loss) == ({"train": "train", "validation": "dev"}, 4, "pairs")
    assert task.metrics == MEASURES


def test_the_folder_lies_below_the_data_root(tmp_path):
    task = build_task("retrieval", {"collection": "papers"})
    assert task.folder(tmp_path) == tmp_path / "papers"
    assert task.available(tmp_path) == ()
    (tmp_path / "papers").mkdir()
    assert task.available(tmp_path) == ("train",)
    with pytest.raises(InputError, match=r"name its folder with task\.collection"):
        build_task("retrieval", {}).folder(tmp_path)
