"""What every task owes its users. To be in the table is to be tested here."""

import json

import pytest
from data.files import FILE_TASKS, LAYOUTS, write_layout

import headwise.retrieval  # noqa: F401 (adds its task to the table)
from headwise.data import TASKS, build_task
from headwise.data.task import MULTI_LABEL_METRICS, WORD_METRICS
from headwise.errors import InputError
from headwise.metrics.classification import METRICS
from headwise.metrics.ranking import MEASURES

KINDS = {
    "classification": METRICS,
    "regression": METRICS,
    "ranking": MEASURES,
    "multi_label": MULTI_LABEL_METRICS,
    "token_labels": WORD_METRICS,
}
LANGUAGES = [name for name in TASKS if name.startswith("xnli-")]
NAMES = [name for name in TASKS if name not in LANGUAGES[1:]]


def check(task, folder):
    plain = task.describe()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["name"] == task.name in TASKS
    assert plain["description"]
    assert plain["source"]
    assert task.metrics
    assert set(task.metrics) <= set(KINDS[task.kind])
    assert task.primary in task.metrics
    assert task.sentences in (1, 2)
    assert len(set(task.labels)) == len(task.labels)
    if task.kind != "classification":
        assert task.labels == ()
    elif task.name not in ("pairs", "sentences", "sogou"):  # these find theirs in train
        assert len(task.labels) >= 2
    with pytest.raises(InputError, match="nonsense"):
        build_task(task.name, {"nonsense": 1})
    with pytest.raises(InputError, match="nonsense"):
        task.read("nonsense", folder)
    assert build_task(task.name, {}) is not build_task(task.name, {})
    if task.name in FILE_TASKS:
        check_files(task, folder)


def check_files(task, folder):
    write_layout(task.name, folder)
    splits = task.available(folder)
    assert splits
    for split in splits:
        part = task.read(split, folder)
        assert part.texts == ((("a", "b"), ("c", "d")) if task.sentences == 2 else (("a",), ("c",)))
        assert part.labelled is not (part.labels == (None, None))
        assert part.labelled or split.startswith("test")
        if part.labelled and task.kind == "classification":
            assert set(part.labels) <= set(range(len(task.labels)))
    for name in LAYOUTS[task.name]:
        # Files with rows to be dropped are left out: for prediction every row counts.
        if name not in ("glue_data/QQP/train.tsv", "multinli_1.0/multinli_1.0_train.jsonl"):
            assert len(task.read_file(folder / name, labelled=False)) in (2, 3)


@pytest.mark.parametrize("name", NAMES)
def test_a_task_keeps_its_promises_and_reads_its_files(name, tmp_path):
    check(TASKS[name], tmp_path)


def test_all_languages_of_a_task(tmp_path):
    for name in LANGUAGES[1:]:
        check(TASKS[name], tmp_path / name)


def test_the_table_is_complete():
    assert set(LAYOUTS) == set(FILE_TASKS)
    assert len(TASKS) == len(list(TASKS))
    assert all(name in TASKS for name in TASKS)
    assert "nonsense" not in TASKS
    for wrong, right in {"mlni": "mnli", "sst_2": "sst2", "SICK": "known"}.items():
        with pytest.raises(InputError, match=right):
            TASKS[wrong]
