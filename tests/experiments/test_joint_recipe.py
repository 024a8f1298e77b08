"""Recipes for several tasks: how they are written, and one sentence for what is wrong."""

import json

import pytest
import yaml
from tiny_runs import small_joint

from headwise.errors import InputError
from headwise.experiments.recipe import check_recipe
from headwise.experiments.recipe_files import bundled, read_recipe, recipe_text


def joint(**changes):
    return check_recipe(small_joint("folder", **changes), "R")


def with_task(**options):
    return joint(tasks={"rte": options})


# -- how it is written -------------------------------------------------------------------------------------------------


def test_names_alone_or_with_options():
    short = check_recipe({"tasks": ["sst2", "rte"]}, "R")
    assert short.several
    assert short == check_recipe({"tasks": {"sst2": None, "rte": {"data": None}}}, "R")
    assert list(short.tasks) == ["sst2", "rte"]
    assert not check_recipe({"task": "rte"}, "R").several
    assert joint().sampling == "proportional"
    assert joint().important is None
    assert joint(iat={}).important.start == 0.9


def test_a_task_has_the_recipes_data_and_what_it_sets_itself():
    common = {"max_length": 24, "fraction": 0.5, "limit": {"train": 30, "test": 7}}
    own = {"validation_fraction": 0.1, "limit": {"train": 10}}
    recipe = joint(tasks={"mine": {"name": "rte", "data": own, "files": {"test": "dev.tsv"}}, "sst2": {}}, data=common)
    mine, other = recipe.single("mine"), recipe.single("sst2")
    assert (mine.task.name, mine.task.options) == ("rte", {"files": {"test": "dev.tsv"}})
    assert (mine.data.limit, mine.data.validation_fraction) == ({"train": 10, "test": 7}, 0.1)
    assert (mine.data.fraction, mine.data.max_length) == (0.5, 24)
    assert (other.data.limit, other.data.validation_fraction) == ({"train": 30, "test": 7}, None)
    assert mine.training == other.training == recipe.training
    assert (mine.seed, mine.model) == (recipe.seed, recipe.model)


def test_plain_data_and_back_keeps_the_order():
    recipe = joint(
        iat={"heads": 0.2}, sampling="annealed", start_from="there", tasks={"sst2": {}, "rte": {}, "cola": {}}
    )
    data = recipe.as_data()
    assert json.loads(json.dumps(data)) == data
    for again in (check_recipe(data, "R"), check_recipe(yaml.safe_load(recipe_text(recipe)), "R")):
        assert again == recipe
        assert list(again.tasks) == ["sst2", "rte", "cola"]
    assert not {"iat", "start_from"} & set(joint().as_data())
    # As a record has it, whatever Python gave.
    tuples = joint(tasks={"pairs": {"texts": ("a", "b"), "labels": ("x", "y")}})
    assert json.loads(json.dumps(tuples.as_data())) == tuples.as_data()


def test_changes_on_top(tmp_path):
    path = tmp_path / "two.yaml"
    path.write_text("tasks: [sst2, rte]\n")
    recipe = read_recipe(str(path), ["tasks.rte.data.limit.train=10", "iat.heads=0.5", "sampling=square_root"])
    assert recipe.name == "two"
    assert recipe.single("rte").data.limit == {"train": 10}
    assert recipe.single("sst2").data.limit == {}
    assert (recipe.important.heads, recipe.sampling) == (0.5, "square_root")
    assert list(read_recipe(str(path), ["tasks.mnli="]).tasks) == ["sst2", "rte", "mnli"]


@pytest.mark.parametrize("name", [name for name in bundled() if name.startswith("heads/")])
def test_the_recipes_of_the_package(name):
    recipe = read_recipe(name)
    assert recipe.several
    assert recipe.description
    with pytest.raises(InputError, match=rf"^{name} is for several tasks \({', '.join(recipe.tasks)}\): expected"):
        read_recipe(name, several=False)


# -- what is wrong -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"tasks": ["rte", "sst2", "rte"]}, "tasks is .*: expected each task once, but rte is listed twice"),
        ({"task": "rte"}, "the recipe has both task and tasks: take one of them away"),
        ({"tasks": {}}, "tasks is {}: expected at least one"),
        ({"tasks": "rte"}, "tasks is 'rte': expected keys with values"),
        ({"tasks": None}, "tasks is None: expected keys with values"),
        ({"tasks": {1: None}}, "tasks.1 is 1: expected text"),
        ({"tasks": {"rtee": None}}, "tasks.rtee: unknown task 'rtee': did you mean 'rte'"),
        ({"tasks": {"a/b": {"name": "rte"}}}, "tasks names 'a/b': expected letters, digits, hyphens and underscores"),
        ({"tasks": {"retrieval": None}}, "tasks.retrieval ranks candidates.*: train it alone"),
        ({"samplng": "annealed"}, "unknown key 'samplng': did you mean 'sampling'"),
        ({"sampling": "anealed"}, "sampling is 'anealed': expected 'proportional', 'square_root' or 'annealed'"),
        ({"training__epocs": 3}, "unknown key 'training.epocs': did you mean 'num_train_epochs'"),
        ({"training__epochs": None}, "training needs num_train_epochs or max_steps"),
        (
            {"training__label_smoothing": 0.1},
            "training.label_smoothing_factor is for classes, and tasks.score is a regression",
        ),
        ({"data__maxlength": 3}, "unknown key 'data.maxlength': did you mean 'max_length'"),
        ({"start_from": 3}, "start_from is 3: expected text"),
        ({"guides": {"mdg": {}}}, "guides is for one task, and this recipe has `tasks`: leave guides out"),
        ({"ssa": {}}, "ssa is for one task, and this recipe has `tasks`"),
        ({"head": "relu"}, "head is for one task, and this recipe has `tasks`"),
        ({"iat": 3}, "iat is 3: expected options with values"),
        ({"iat": {"start": 2}}, "iat.start is 2: expected a number above 0 and below 1"),
        ({"iat": {"heads": 0}}, "iat.heads is 0: expected a number above 0 and below 1"),
        ({"iat": {"strt": 0.5}}, "iat has no option 'strt': did you mean 'start'"),
        ({"iat": {"mode": "skp"}}, "iat.mode is 'skp': did you mean 'skip'"),
        (
            {"iat": {}, "training__early_stopping": 2},
            "iat starts at a given part .* leave training.early_stopping_patience out",
        ),
        (
            {"iat": {"shared": False}, "tasks": ["rte"]},
            "iat.shared is false, .* with one task those are all: set shared",
        ),
    ],
)
def test_a_mistake_in_the_recipe(changes, expected):
    with pytest.raises(InputError, match=rf"^R: {expected}") as caught:
        joint(**changes)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"data": {"limits": {}}}, "tasks.rte.data: unknown key 'limits': did you mean 'limit'"),
        ({"data": {"limit": {"trian": 3}}}, "tasks.rte.data: limit.trian is 'trian': expected 'train', 'validation'"),
        ({"data": {"limit": {"train": 0}}}, "tasks.rte.data: limit.train is 0: expected greater than or equal to 1"),
        ({"data": {"limit": 3}}, "tasks.rte.data: limit is 3: expected keys with values"),
        ({"data": {"max_length": 8}}, "tasks.rte.data.max_length is the same for all tasks: set data.max_length"),
        ({"data": 3}, "tasks.rte.data is 3: expected keys with values"),
        ({"file": {}}, "tasks.rte: task 'rte' has no option 'file': did you mean 'files'"),
        ({"files": {"trian": "x"}}, "tasks.rte: files: 'trian' is not known; did you mean 'train'"),
        ({"name": 3}, "tasks.rte.name is 3: expected text"),
    ],
)
def test_a_mistake_in_one_of_the_tasks(options, expected):
    with pytest.raises(InputError, match=rf"^R: {expected}") as caught:
        with_task(**options)
    assert len(str(caught.value).splitlines()) == 1


def test_a_key_twice_in_the_file(tmp_path):
    path = tmp_path / "twice.yaml"
    path.write_text("tasks:\n  rte:\n  sst2:\n  rte:\n")
    with pytest.raises(InputError, match=r"not valid YAML: key 'rte' stands twice \(line 4\)"):
        read_recipe(str(path))
