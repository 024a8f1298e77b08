"""Where files are looked for."""

import pytest
from tasks.files import table, write, write_layout

from headwise.data import build_task
from headwise.errors import InputError

RTE = table(("index", "sentence1", "sentence2", "label"), (0, "a", "b", "entailment"), (1, "c", "d", "not_entailment"))


@pytest.mark.parametrize("folder", ["", "RTE/", "glue/RTE/", "GLUE/RTE/", "glue_data/RTE/"])
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_task_is_found_in_several_places(tmp_path, folder, ending):
    import gzip

    path = tmp_path / f"{folder}train.tsv{ending}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(RTE.encode()) if ending else RTE.encode())
    assert len(build_task("rte", {}).read("train", tmp_path)) == 2


def test_one_split_never_comes_from_a_neighbour(tmp_path):
    write(tmp_path / "RTE" / "train.tsv", RTE)
    write(tmp_path / "dev.tsv", RTE)
    task = build_task("rte", {})
    assert task.available(tmp_path) == ("train",)
    with pytest.raises(InputError, match="no validation split"):
        task.read("validation", tmp_path)


def test_own_files_lie_below_the_root_below_the_folder_or_anywhere(tmp_path):
    path = write(tmp_path / "RTE" / "mine.tsv", RTE)
    for place in ("RTE/mine.tsv", "mine.tsv", str(path)):
        assert len(build_task("rte", {"files": {"train": place}}).read("train", tmp_path)) == 2
    assert len(build_task("rte", {"files": {"train": str(path)}}).read("train", None)) == 2


def test_own_files_of_a_named_task_leave_its_other_splits(tmp_path):
    write_layout("rte", tmp_path)
    task = build_task("rte", {"files": {"train": str(write(tmp_path / "mine.tsv", RTE * 1))}})
    assert task.splits == ("train", "validation", "test")
    assert len(task.read("validation", tmp_path)) == 2


def test_own_files_of_a_general_task_are_all_it_has(tmp_path):
    assert build_task("pairs", {}).splits == ("train", "validation", "test")
    assert build_task("pairs", {"files": {"train": "mine.tsv"}}).splits == ("train",)


def test_what_is_available(tmp_path):
    write_layout("qnli", tmp_path)
    assert build_task("qnli", {}).available(tmp_path) == ("train", "test")
    assert build_task("qnli", {}).available(None) == ()


def test_missing_files_name_the_places(tmp_path):
    with pytest.raises(InputError, match="train.tsv in ") as caught:
        build_task("rte", {}).read("train", tmp_path)
    for place in (tmp_path / "RTE", tmp_path / "glue" / "RTE"):
        assert str(place) in str(caught.value)


def test_a_missing_validation_split_names_both_ways_out(tmp_path):
    write_layout("qnli", tmp_path)
    for task in (build_task("qnli", {}), build_task("pairs", {"files": {"train": "x.tsv"}})):
        with pytest.raises(InputError, match=r"files\.validation.*data\.validation_fraction"):
            task.read("validation", tmp_path)


def test_a_missing_file_of_ones_own_is_named_with_the_root(tmp_path):
    with pytest.raises(InputError, match="data root") as caught:
        build_task("pairs", {"files": {"train": "gone.tsv"}}).read("train", tmp_path)
    assert str(tmp_path / "gone.tsv") in str(caught.value)


def test_without_a_root():
    for options in ({}, {"files": {"train": "mine.tsv"}}):
        with pytest.raises(InputError, match="data root.*absolute"):
            build_task("rte", options).read("train", None)
