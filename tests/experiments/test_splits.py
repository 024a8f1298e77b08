"""Which examples a recipe uses: parts of the training set, held-out ones, and limits."""

import pytest
from tiny_runs import write_data, write_table

from headwise.data import build_task
from headwise.errors import InputError
from headwise.experiments import check_recipe
from headwise.experiments.splits import read_split, read_splits


@pytest.fixture
def read(tmp_path):
    write_data(tmp_path, sizes=(60, 12, 9))

    def splits(seed=1, **data):
        return read_splits(check_recipe({"task": "pairs", "data": data, "seed": seed}, "test"), tmp_path)

    return splits


def sizes(splits):
    return [len(part) for part in splits.named.values()]


def test_all_of_it_in_the_order_of_the_file_or_the_first_ones(read, tmp_path):
    whole, splits = read(), read(limit={"train": 10, "validation": 5, "test": 100})
    lines = (tmp_path / "train.tsv").read_text().splitlines()[1:]
    assert ["\t".join(texts) for texts in whole.train.texts] == [line.rsplit("\t", 1)[0] for line in lines]
    assert sizes(whole) == [60, 12, 9]
    assert sizes(splits) == [10, 5, 9]
    assert splits.validation == whole.validation.subset(range(5))
    assert set(splits.train.texts) < set(whole.train.texts)


def test_a_larger_fraction_contains_a_smaller_one_and_a_seed_decides_this_choice_alone(read):
    parts = [read(fraction=fraction).train for fraction in (0.1, 0.25, 0.5, 1.0)]
    assert [len(part) for part in parts] == [6, 15, 30, 60]
    for smaller, larger in zip(parts, parts[1:], strict=False):
        places = [larger.texts.index(texts) for texts in smaller.texts]
        assert places == sorted(places)
        assert [larger.labels[place] for place in places] == list(smaller.labels)
    part, whole = read(fraction=0.5), read()
    assert part.train == read(fraction=0.5).train != read(fraction=0.5, seed=2).train
    assert (part.validation, part.test) == (whole.validation, whole.test)


def test_held_out_parts_are_disjoint_and_a_fraction_is_one_of_what_is_left(read, tmp_path):
    (tmp_path / "validation.tsv").unlink()
    (tmp_path / "test.tsv").unlink()
    whole, half = (read(validation_fraction=0.2, test_fraction=0.1, fraction=part) for part in (1.0, 0.5))
    assert sizes(whole) == [42, 12, 6]
    assert len({texts for part in whole.named.values() for texts in part.texts}) == 60
    assert (half.validation, half.test) == (whole.validation, whole.test)
    assert len(half.train) == 21
    assert set(half.train.texts) < set(whole.train.texts)


def test_which_files_may_be_missing(read, tmp_path):
    (tmp_path / "test.tsv").unlink()
    assert read().test is None
    (tmp_path / "validation.tsv").unlink()
    with pytest.raises(InputError, match="validation_fraction"):
        read()
    named = {"name": "pairs", "files": {split: f"{split}.tsv" for split in ("train", "validation", "test")}}
    with pytest.raises(InputError, match=r"files\.(test|validation) does not exist"):
        read_splits(check_recipe({"task": named}, "test"), tmp_path)


@pytest.mark.parametrize(
    ("data", "match"),
    [
        ({"validation_fraction": 0.001}, r"validation_fraction is 0.001: it would hold out 0 of 60"),
        ({"validation_fraction": 0.5, "test_fraction": 0.5}, r"test_fraction is 0.5: it would hold out 30 of 60"),
        ({"fraction": 0.001}, "one class only"),
    ],
)
def test_parts_that_leave_nothing(read, data, match):
    with pytest.raises(InputError, match=match):
        read(**data)


def test_one_split_is_what_all_of_them_have_and_needs_no_other_file(read, tmp_path):
    for data in ({}, {"validation_fraction": 0.2, "test_fraction": 0.1}, {"limit": {"validation": 4, "test": 3}}):
        chosen = check_recipe({"task": "pairs", "data": data}, "test")
        splits = read(**data)
        for name in ("train", "validation", "test"):
            # The classes are known from training, as they are when a run is evaluated.
            task = build_task("pairs", {"labels": list(splits.task.labels)})
            assert read_split(chosen, task, name, tmp_path) == getattr(splits, name)
    write_table(tmp_path / "alone" / "test.tsv", [["sentence1", "sentence2", "label"], ["a", "b", "x"]])
    task = build_task("pairs", {"labels": ["w", "x"]})
    assert read_split(check_recipe({"task": "pairs"}, "test"), task, "test", tmp_path / "alone").labels == (1,)
