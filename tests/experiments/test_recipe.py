"""Recipes: what they take, and how a mistake is answered."""

import json

import pytest
import yaml
from tiny_runs import small_joint

from headwise.errors import HeadwiseWarning, InputError
from headwise.experiments import check_recipe
from headwise.experiments.recipe import OLD_TRAINING_KEYS, Training
from headwise.experiments.recipe_files import read_recipe, recipe_text
from headwise.guides import guide
from headwise.training import RunArguments


def recipe(**parts):
    return check_recipe({"task": "pairs", **parts}, "test")


@pytest.mark.parametrize(
    ("parts", "facts"),
    [
        # An unknown name is answered with the nearest.
        ({"modle": "x"}, ("modle", "'model'")),
        ({"training": {"learning_rat": 1e-3}}, ("training.learning_rat", "'learning_rate'")),
        ({"data": {"limit": {"trian": 3}}}, ("data.limit.trian", "'train'")),
        ({"task": {"name": "pairs", "file": {}}}, ("file", "'files'")),
        ({"task": "pair"}, ("pair", "'pairs'")),
        ({"guides": {"mgd": {}}}, ("mgd", "'mdg'")),
        ({"guides": {"mdg": {"wieght": 1}}}, ("wieght", "'weight'")),
        ({"ssa": {"cls_weigth": 0.5}}, ("cls_weigth", "'cls_weight'")),
        # A wrong value is answered with key, value and expectation.
        ({"seed": -1}, ("seed is -1", "greater than or equal to 0")),
        ({"seed": True}, ("seed is True", "a whole number")),
        ({"training": {"learning_rate": "fast"}}, ("training.learning_rate is 'fast'", "a number")),
        ({"training": {"learning_rate": 1}}, ("training.learning_rate is 1", "less than 1")),
        ({"training": {"max_grad_norm": float("nan")}}, ("training.max_grad_norm is nan", "a finite number")),
        ({"training": {"lr_scheduler_type": "linaer"}}, ("training.lr_scheduler_type is 'linaer'", "'linear'")),
        ({"training": {"bf16": "fp16"}}, ("training.bf16 is 'fp16'", "true or false")),
        ({"training": {"freeze": "embeddings"}}, ("training.freeze is 'embeddings'", "a list")),
        ({"training": {"freeze": [True]}}, ("training.freeze.0 is True", "expected")),
        ({"training": 5}, ("training is 5", "keys with values")),
        ({"training": {"num_train_epochs": None}}, ("num_train_epochs or max_steps",)),
        ({"training": dict(epochs=2, num_train_epochs=3)}, ("num_train_epochs twice",)),
        ({"data": {"limit": {"train": 0}}}, ("data.limit.train is 0", "greater than or equal to 1")),
        ({"ssa": True}, ("ssa is True: expected options with values", "{model: hybrid}")),
        ({"name": "a/b"}, ("name is 'a/b'", "letters, digits")),
        ({"model": 3}, ("model is 3", "text")),
        ({"guides": 3}, ("guides is 3", "keys with values")),
        ({"guides": {"mdg": {"weight": -1}}}, ("mdg", "-1", "0 or more")),
        ({"guides": {"head_dropout": {"p": 1.0}}}, ("head_dropout(p=1.0)", "below 1")),
        ({"guides": {"consistency": {"weight": {"share": 0.1}}}}, ("consistency has no automatic weight", "number")),
        ({"guides": {"consistency": {"by": "words"}}}, ("by='words'", "'dropout', 'heads'")),
        (
            {"guides": {"consistency": {}}, "training": {"label_smoothing_factor": 0.1}},
            ("guides.consistency needs the loss of the classifier alone", "training.label_smoothing_factor"),
        ),
        ({"guides": {"consistency": {}}, "ssa": {}}, ("guides.consistency", "ssa computes another one")),
        ({"task": None}, ("task is None", "keys with values")),
        ({"task": {"files": {}}}, ("'task.name' is missing",)),
        ({3: 4}, ("3", "text as the key")),
        ({"modle": "x", "training": {"per_device_train_batch_size": 0, "num_train_epochs": -1}}, (" (2 more)",)),
    ],
)
def test_a_mistake_is_answered_in_one_sentence(parts, facts):
    with pytest.raises(InputError) as caught:
        check_recipe({"task": "pairs", **parts}, "test")
    text = str(caught.value)
    assert text.startswith("test: ")
    assert "\n" not in text
    assert text.endswith((".", " more)"))
    assert all(fact in text for fact in facts), text


def test_what_is_no_recipe():
    for data in (None, [], "sick", 3):
        with pytest.raises(InputError, match="a recipe is a list of keys and values"):
            check_recipe(data, "test")
    with pytest.raises(InputError, match="key 'task' is missing"):
        check_recipe({}, "test")


def test_short_forms_mean_the_long_ones():
    assert recipe(guides=["mdg"]) == recipe(guides={"mdg": None}) == recipe(guides={"mdg": {}}) == recipe(guides="mdg")
    assert recipe() == recipe(task={"name": "pairs"}) == recipe(task={"name": "pairs", "options": {}})
    assert recipe(training=None, data=None, guides=None) == recipe()
    assert recipe(training={"num_train_epochs": 2}) == recipe(training={"num_train_epochs": 2.0})
    short = check_recipe({"tasks": ["sst2", "rte"]}, "R")
    assert short == check_recipe({"tasks": {"sst2": None, "rte": {"data": None}}}, "R")
    assert list(short.tasks) == ["sst2", "rte"]
    assert (short.several, recipe().several) == (True, False)
    assert joint().sampling == "proportional"
    assert joint().important is None
    assert joint(iat={}).important.start == 0.5


def test_plain_data_is_the_same_recipe_again(model):
    single = recipe(
        task={"name": "pairs", "labels": ["1e5", "no"], "files": {"train": "a b.tsv"}},
        guides={"mdg": {"weight": {"share": 0.1}, "heads": {0: [1, 2], -1: "all"}}},
        training={"freeze": ["embeddings", 0], "learning_rate": 1e-5, "max_steps": 3},
        report_to=["tensorboard"],
        description="Über “Köpfe” 🙂: a # b",
    )
    several = joint(
        iat={"heads": 0.2}, sampling="annealed", start_from="there", tasks={"sst2": {}, "rte": {}, "cola": {}}
    )
    for chosen in (single, several):
        data = chosen.as_data()
        for again in (data, yaml.safe_load(yaml.safe_dump(data, sort_keys=False)), yaml.safe_load(recipe_text(chosen))):
            assert check_recipe(again, "again") == chosen
            assert list(again.get("tasks", {})) == list(chosen.tasks or {})  # in their order
    assert json.loads(json.dumps(several.as_data())) == several.as_data()
    assert not {"iat", "start_from"} & set(joint().as_data())
    # As a record has it, whatever Python gave.
    tuples = joint(tasks={"pairs": {"texts": ("a", "b"), "labels": ("x", "y")}})
    assert json.loads(json.dumps(tuples.as_data())) == tuples.as_data()
    heads = recipe(guides={"mdg": {"heads": {0: [1, 2]}}}).as_data()  # JSON has the layers as text
    guide(model, check_recipe(json.loads(json.dumps(heads)), "again").guides)


def test_the_training_block_has_fields_of_the_training_arguments():
    # Of the loss, of the model before training, and of a callback of the run.
    ours = {"class_weights", "freeze", "snapshots"}
    assert set(Training.model_fields) - ours <= set(RunArguments.__dataclass_fields__)


OLD = dict(epochs=2, steps=7, batch=4, evaluation_batch=8, accumulation=2, schedule="cosine", warmup=5, clip=0.5)
OLD |= dict(precision="bf16", label_smoothing=0.1, early_stopping=3, evaluate_every=6, checkpoint_every=9, log_every=1)


def test_old_names_still_work_with_one_warning():
    with pytest.warns(HeadwiseWarning, match="names of an earlier version .epochs is num_train_epochs") as caught:
        old = recipe(training=OLD)
    assert len(caught) == 1
    new = {OLD_TRAINING_KEYS[key]: value for key, value in OLD.items()} | {"bf16": True}
    assert old == recipe(training=new)
    with pytest.warns(HeadwiseWarning):
        assert recipe(training={"warmup_ratio": 0.2, "bf16": False}) == recipe(training={"warmup_steps": 0.2})


# -- several tasks -----------------------------------------------------------------------------------------------------


def joint(**changes):
    return check_recipe(small_joint("folder", **changes), "R")


def test_a_task_has_the_recipes_data_and_what_it_sets_itself(tmp_path):
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
    (tmp_path / "two.yaml").write_text("tasks: [sst2, rte]\n")
    changes = ["tasks.rte.data.limit.train=10", "tasks.mnli=", "iat.heads=0.5", "sampling=square_root"]
    recipe = read_recipe(str(tmp_path / "two.yaml"), changes)
    assert [recipe.single(task).data.limit for task in ("rte", "sst2")] == [{"train": 10}, {}]
    assert (recipe.name, recipe.important.heads, recipe.sampling) == ("two", 0.5, "square_root")
    assert list(recipe.tasks) == ["sst2", "rte", "mnli"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"tasks": ["rte", "sst2", "rte"]}, "tasks is .*: expected each task once, but rte is listed twice"),
        ({"task": "rte"}, "the recipe has both task and tasks: take one of them away"),
        ({"tasks": {}}, "tasks is {}: expected at least one"),
        ({"tasks": None}, "tasks is None: expected keys with values"),
        ({"tasks": {1: None}}, "tasks.1 is 1: expected text"),
        ({"tasks": {"rtee": None}}, "tasks.rtee: unknown task 'rtee': did you mean 'rte'"),
        ({"tasks": {"a/b": {"name": "rte"}}}, "tasks names 'a/b': expected letters, digits, hyphens and underscores"),
        ({"tasks": {"retrieval": None}}, "tasks.retrieval ranks candidates.*: train it alone"),
        ({"tasks": {"rte": {"data": {"limits": {}}}}}, "tasks.rte.data: unknown key 'limits': did you mean 'limit'"),
        (
            {"tasks": {"rte": {"data": {"max_length": 8}}}},
            "tasks.rte.data.max_length is the same for all tasks: set data.max_length",
        ),
        ({"tasks": {"rte": {"data": 3}}}, "tasks.rte.data is 3: expected keys with values"),
        ({"tasks": {"rte": {"file": {}}}}, "tasks.rte: task 'rte' has no option 'file': did you mean 'files'"),
        ({"training__epocs": 3}, "unknown key 'training.epocs': did you mean 'num_train_epochs'"),
        (
            {"training__label_smoothing": 0.1},
            "training.label_smoothing_factor is for classes, and tasks.score is a regression",
        ),
        ({"training__snapshots": 3}, "training.snapshots is for runs on one task, and agree is one of several"),
        ({"guides": {"consistency": {}}}, "guides is for one task, and this recipe has `tasks`: leave guides out"),
        ({"guides": {"mdg": {}}}, "guides is for one task, and this recipe has `tasks`: leave guides out"),
        ({"iat": 3}, "iat is 3: expected options with values"),
        ({"iat": {"heads": 0}}, "iat.heads is 0: expected a number above 0 and below 1"),
        ({"iat": {"strt": 0.5}}, "iat has no option 'strt': did you mean 'start'"),
        ({"iat": {}, "linear": True}, "linear trains nothing, so there is no iat: leave one of them out"),
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
def test_a_mistake_in_a_recipe_for_several_tasks(changes, expected):
    with pytest.raises(InputError, match=rf"^R: {expected}") as caught:
        joint(**changes)
    assert len(str(caught.value).splitlines()) == 1
