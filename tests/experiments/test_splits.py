"""Which examples a recipe uses: parts of the training set, held-out ones, and limits."""

import unicodedata

import numpy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
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


# -- groups of examples that share a text ------------------------------------------------------------------------------


def write_groups(folder, groups, column=0):
    """train.tsv; `groups` are the sizes of the groups of equal texts, whose examples do not stand together."""
    numbers = [group for group, size in enumerate(groups) for _ in range(size)]
    table = [["sentence1", "sentence2", "label"]]
    for line, index in enumerate(numpy.random.default_rng(0).permutation(len(numbers))):
        # One text in several spellings: composed or not, in any case, with more white space.
        shared = f"Caf\u00e9 {numbers[index]} a"
        shared = [shared, unicodedata.normalize("NFD", shared), shared.upper(), shared.replace(" ", "  ")][line % 4]
        texts = [shared, f"other {line}"]
        table.append([texts[column], texts[1 - column], "xy"[line % 2]])
    return write_table(folder / "train.tsv", table)


def grouped(folder, seed=1, **data):
    return read_splits(check_recipe({"task": "pairs", "data": data, "seed": seed}, "test"), folder)


def groups_of(split, column=0):
    return {texts[column].split()[1] for texts in split.texts}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(1, 6), min_size=8, max_size=30),
    st.floats(0.1, 0.35),
    st.floats(0.1, 0.35),
    st.integers(0, 3),
    st.integers(0, 1),
)
def test_no_group_is_in_two_splits_and_sizes_are_within_one_group(tmp_path, groups, validation, test, seed, column):
    write_groups(tmp_path, groups, column)
    data = {"validation_fraction": validation, "test_fraction": test, "group_by": f"text{column + 1}"}
    splits = grouped(tmp_path, seed, **data)
    parts = [groups_of(part, column) for part in splits.named.values()]
    assert sum(map(len, parts)) == len(set().union(*parts)) == len(groups)
    assert sum(sizes(splits)) == sum(groups)
    for fraction, size in zip((validation, test), sizes(splits)[1:], strict=True):
        assert abs(size - round(fraction * sum(groups))) <= max(groups)
    again = grouped(tmp_path, seed, **data)
    assert (again.train, again.validation, again.test) == (splits.train, splits.validation, splits.test)


def test_groups_are_drawn_by_the_seed_and_limits_count_examples(tmp_path):
    write_groups(tmp_path, [2] * 50)
    data = {"validation_fraction": 0.1, "test_fraction": 0.3, "group_by": "text1"}
    whole = grouped(tmp_path, **data)
    assert sizes(whole) == [60, 10, 30]
    assert grouped(tmp_path, 2, **data).test != whole.test
    parts = [grouped(tmp_path, fraction=fraction, **data) for fraction in (0.25, 0.5)]
    limited = grouped(tmp_path, limit={"train": 15, "validation": 3, "test": 7}, **data)
    assert [sizes(part) for part in (*parts, limited)] == [[15, 10, 30], [30, 10, 30], [15, 3, 7]]
    assert limited.train == parts[0].train
    assert set(parts[0].train.texts) < set(parts[1].train.texts) < set(whole.train.texts)
    recipe = check_recipe({"task": "pairs", "data": data}, "test")
    for name, part in whole.named.items():
        assert read_split(recipe, whole.task, name, tmp_path) == part


def test_without_groups_the_order_of_the_seed_decides_as_it_always_did(tmp_path):
    write_groups(tmp_path, [2] * 20)
    splits = grouped(tmp_path, 3, validation_fraction=0.2, test_fraction=0.1, fraction=0.5)
    order = numpy.random.default_rng([3, 7]).permutation(40).tolist()
    expected = [sorted(order[12:26]), sorted(order[:8]), sorted(order[8:12])]
    assert list(splits.named.values()) == [splits.whole.subset(indices) for indices in expected]
    recipe = {"task": "pairs", "data": {"validation_fraction": 0.2}}
    assert not {"group_by", "min_words", "whole_texts"} & set(check_recipe(recipe, "test").as_data()["data"])
    recipe["data"]["group_by"] = "text2"
    assert check_recipe(recipe, "test").as_data()["data"]["group_by"] == "text2"


@pytest.mark.parametrize("column", [0, 1])
def test_one_group_cannot_be_held_out(tmp_path, column):
    write_groups(tmp_path, [12], column)
    words = (
        f"data.validation_fraction is 0.5 and data.group_by is text{column + 1}: expected two or more different texts "
        "among the 12 examples of train to choose from, got one; leave group_by out"
    )
    with pytest.raises(InputError, match=words):
        grouped(tmp_path, validation_fraction=0.5, group_by=f"text{column + 1}")
    write_groups(tmp_path, [6, 6], column)
    with pytest.raises(InputError, match="data.test_fraction is 0.2 .* among the 6 examples"):
        grouped(tmp_path, validation_fraction=0.5, test_fraction=0.2, group_by=f"text{column + 1}")


@pytest.mark.parametrize(
    ("recipe", "match"),
    [
        ({"task": "pairs", "data": {"group_by": "text1"}}, "test: data.group_by is text1, and nothing is held out"),
        ({"task": "pairs", "data": {"group_by": "text3"}}, "data.group_by"),
        ({"task": "sst2", "data": {"group_by": "text2", "test_fraction": 0.1}}, "sst2 have one text: use text1"),
        ({"tasks": {"rte": {"data": {"group_by": "text1"}}, "sst2": {}}}, "nothing is held out"),
        ({"task": {"name": "retrieval", "collection": "x"}, "data": {"group_by": "text1"}}, "not for re-rankers"),
        ({"task": "pairs", "data": {"whole_texts": True}}, "whole_texts is for tasks of single texts, and pairs has"),
    ],
)
def test_groups_that_make_no_sense(recipe, match):
    with pytest.raises(InputError, match=match):
        check_recipe(recipe, "test")


def test_one_of_several_tasks_may_hold_out_groups():
    tasks = {"rte": {"data": {"validation_fraction": 0.1}}, "sst2": {}}
    recipe = check_recipe({"tasks": tasks, "data": {"group_by": "text1"}}, "test")
    assert recipe.single("rte").data.group_by == recipe.single("sst2").data.group_by == "text1"


def test_short_training_texts_are_left_out_before_anything_is_held_out(tmp_path):
    texts = {"train": [" ".join(["word"] * (1 + number % 8)) + f" {number}" for number in range(80)]}
    texts["test"] = ["one", "two words"]
    for name, part in texts.items():
        write_table(
            tmp_path / f"{name}.tsv",
            [["sentence", "label"], *([text, "ab"[i % 3 == 0]] for i, text in enumerate(part))],
        )
    recipe = {"task": "sentences", "data": {"min_words": 6, "validation_fraction": 0.25}}
    splits = read_splits(check_recipe(recipe, "test"), tmp_path)
    kept = [text for text in texts["train"] if len(text.split()) >= 6]
    assert sorted(text for split in (splits.train, splits.validation) for (text,) in split.texts) == sorted(kept)
    assert len(splits.validation) == len(kept) // 4
    assert [text for (text,) in splits.test.texts] == texts["test"]
    recipe["data"]["min_words"] = 20
    with pytest.raises(InputError, match=r"^data\.min_words is 20: it leaves 0 of 80 .* has 9 words; lower it\.$"):
        read_splits(check_recipe(recipe, "test"), tmp_path)


def test_pieces_of_other_training_texts_are_left_out(tmp_path):
    rng = numpy.random.default_rng(0)
    sentences = [" ".join(rng.choice(list("abcdefg"), rng.integers(4, 12))) for _ in range(40)]
    pieces = [" ".join(text.split()[start : start + 3]) for start, text in enumerate(sentences)]
    texts = [*sentences, *(piece for piece in pieces if piece), sentences[0], "bb cc", "b"]
    rng.shuffle(texts)
    rows = [["sentence", "label"], *([text, "xy"[number % 2]] for number, text in enumerate(texts))]
    write_table(tmp_path / "train.tsv", rows)
    recipe = {"task": "sentences", "data": {"whole_texts": True, "validation_fraction": 0.25}}
    splits = read_splits(check_recipe(recipe, "test"), tmp_path)
    whole = [one for one in texts if not any(one != other and f" {one} " in f" {other} " for other in texts)]
    assert sorted(text for part in (splits.train, splits.validation) for (text,) in part.texts) == sorted(whole)
    assert 40 < len(whole) + 10 < len(texts)
    assert "bb cc" in whole  # whole words count, not characters
