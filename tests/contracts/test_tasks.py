"""What every task owes its users. To stand in the table is to be tested here."""

import json
from pathlib import Path

import pytest
from data.files import FILE_TASKS, LAYOUTS, write_layout

import headwise.retrieval  # noqa: F401 (adds its task to the table)
from headwise.data import TASKS, build_task
from headwise.errors import InputError
from headwise.metrics.classification import METRICS
from headwise.metrics.ranking import MEASURES


@pytest.fixture(params=list(TASKS))
def task(request):
    return TASKS[request.param]


def test_it_is_plain_data(task):
    plain = task.describe()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["name"] == task.name in TASKS
    assert plain["description"]
    assert plain["source"]


def test_its_metrics_are_known_and_one_counts_most(task):
    assert task.metrics
    assert set(task.metrics) <= set(MEASURES if task.kind == "ranking" else METRICS)
    assert task.primary in task.metrics


def test_labels_and_kind_agree(task):
    assert task.kind in ("classification", "regression", "ranking")
    assert task.sentences in (1, 2)
    assert len(set(task.labels)) == len(task.labels)
    if task.kind != "classification":
        assert task.labels == ()
    elif task.name not in ("pairs", "sentences", "sogou"):  # these find theirs in train
        assert len(task.labels) >= 2


def test_an_unknown_option_is_refused(task):
    with pytest.raises(InputError, match="nonsense"):
        build_task(task.name, {"nonsense": 1})


def test_an_unknown_split_is_refused(task, tmp_path):
    with pytest.raises(InputError, match="nonsense"):
        task.read("nonsense", tmp_path)


def test_it_is_made_afresh(task):
    assert build_task(task.name, {}) is not build_task(task.name, {})


def test_every_row_has_a_layout_here():
    assert set(LAYOUTS) == set(FILE_TASKS)


@pytest.mark.parametrize("name", FILE_TASKS)
def test_a_file_in_its_layout_is_read(name, tmp_path):
    write_layout(name, tmp_path)
    task = build_task(name, {})
    splits = task.available(tmp_path)
    assert splits
    for split in splits:
        part = task.read(split, tmp_path)
        assert part.texts == ((("a", "b"), ("c", "d")) if task.sentences == 2 else (("a",), ("c",)))
        assert part.labelled is not (part.labels == (None, None))
        assert part.labelled or split.startswith("test")
        if part.labelled and task.kind == "classification":
            assert set(part.labels) <= set(range(len(task.labels)))


@pytest.mark.parametrize("name", FILE_TASKS)
def test_its_files_can_be_read_one_by_one(name, tmp_path):
    write_layout(name, tmp_path)
    task = build_task(name, {} if TASKS[name].labels or TASKS[name].kind == "regression" else {"labels": ["x", "y"]})
    for place in LAYOUTS[name]:
        # Files with rows to be dropped are left out: for prediction every row counts.
        if place not in ("glue_data/QQP/train.tsv", "multinli_1.0/multinli_1.0_train.jsonl"):
            assert len(task.read_file(tmp_path / place, labelled=False)) in (2, 3)


def test_the_order_is_fixed_and_complete():
    assert list(TASKS) == list(TASKS)
    assert len(TASKS) == len(list(TASKS))
    assert all(name in TASKS for name in TASKS)
    assert "nonsense" not in TASKS


def test_an_unknown_task_is_answered_with_the_nearest():
    for wrong, right in {"mlni": "mnli", "sst_2": "sst2", "SICK": "known"}.items():
        with pytest.raises(InputError, match=right):
            TASKS[wrong]


def test_paths_may_be_text(tmp_path):
    write_layout("rte", tmp_path)
    assert len(build_task("rte", {}).read("train", Path(str(tmp_path)))) == 2
