"""Recipes: what they take, and how a mistake is answered."""

import pytest
import yaml

from headwise.errors import HeadwiseWarning, InputError
from headwise.experiments import check_recipe
from headwise.experiments.recipe import OLD_TRAINING_KEYS
from headwise.guides import guide
from headwise.training import RunArguments


def recipe(**parts):
    return check_recipe({"task": "pairs", **parts}, "test")


def answer(parts):
    """What is said of a recipe that is wrong."""
    with pytest.raises(InputError) as caught:
        check_recipe({"task": "pairs", **parts}, "test")
    text = str(caught.value)
    assert text.startswith("test: ")
    assert "\n" not in text
    assert text.endswith((".", " more)"))
    return text


@pytest.mark.parametrize(
    ("parts", "unknown", "nearest"),
    [
        ({"modle": "x"}, "modle", "model"),
        ({"training": {"learning_rat": 1e-3}}, "training.learning_rat", "learning_rate"),
        ({"data": {"max_lenght": 3}}, "data.max_lenght", "max_length"),
        ({"data": {"limit": {"trian": 3}}}, "data.limit.trian", "train"),
        ({"task": {"name": "pairs", "file": {}}}, "file", "files"),
        ({"task": "pair"}, "pair", "pairs"),
        ({"guides": {"mgd": {}}}, "mgd", "mdg"),
        ({"guides": {"mdg": {"wieght": 1}}}, "wieght", "weight"),
        ({"guides": ["pgd"]}, "pgd", "pdg"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(parts, unknown, nearest):
    text = answer(parts)
    assert unknown in text
    assert f"'{nearest}'" in text


@pytest.mark.parametrize(
    ("parts", "facts"),
    [
        (
            {"training": {"per_device_train_batch_size": 0}},
            ("training.per_device_train_batch_size is 0", "greater than or equal to 1"),
        ),
        (
            {"training": {"per_device_train_batch_size": True}},
            ("training.per_device_train_batch_size is True", "a whole number"),
        ),
        (
            {"training": {"per_device_train_batch_size": "16"}},
            ("training.per_device_train_batch_size is '16'", "a whole number"),
        ),
        (
            {"training": {"per_device_train_batch_size": 1.5}},
            ("training.per_device_train_batch_size is 1.5", "a whole number"),
        ),
        ({"training": {"learning_rate": "fast"}}, ("training.learning_rate is 'fast'", "a number")),
        ({"training": {"learning_rate": -1}}, ("training.learning_rate is -1", "greater than 0")),
        ({"training": {"learning_rate": 1}}, ("training.learning_rate is 1", "less than 1")),
        ({"training": {"warmup_steps": float("inf")}}, ("training.warmup_steps is inf", "a finite number")),
        ({"training": {"max_grad_norm": float("nan")}}, ("training.max_grad_norm is nan", "a finite number")),
        ({"training": {"label_smoothing_factor": 1.0}}, ("training.label_smoothing_factor is 1.0", "less than 1")),
        ({"training": {"lr_scheduler_type": "linaer"}}, ("training.lr_scheduler_type is 'linaer'", "'linear'")),
        ({"training": {"bf16": "fp16"}}, ("training.bf16 is 'fp16'", "true or false")),
        (
            {"training": {"early_stopping_patience": 0}},
            ("training.early_stopping_patience is 0", "greater than or equal to 1"),
        ),
        ({"training": {"freeze": "embeddings"}}, ("training.freeze is 'embeddings'", "a list")),
        ({"training": {"freeze": [True]}}, ("training.freeze.0 is True", "expected")),
        ({"training": 5}, ("training is 5", "keys with values")),
        ({"training": {"num_train_epochs": None}}, ("num_train_epochs or max_steps",)),
        ({"data": {"max_length": 3}}, ("data.max_length is 3", "greater than or equal to 4")),
        ({"data": {"fraction": 0}}, ("data.fraction is 0", "greater than 0")),
        ({"data": {"fraction": 1.5}}, ("data.fraction is 1.5", "less than or equal to 1")),
        ({"data": {"validation_fraction": 1.0}}, ("data.validation_fraction is 1.0", "less than 1")),
        ({"data": {"buckets": "yes"}}, ("data.buckets is 'yes'", "true or false")),
        ({"data": {"limit": {"train": 0}}}, ("data.limit.train is 0", "greater than or equal to 1")),
        ({"head": "tanh"}, ("head is 'tanh'", "'relu'")),
        ({"ssa": True}, ("ssa is True: expected options with values", "{model: hybrid}")),
        ({"seed": -1}, ("seed is -1", "greater than or equal to 0")),
        ({"share_every": -1}, ("share_every is -1", "greater than or equal to 0")),
        ({"name": "a/b"}, ("name is 'a/b'", "letters, digits")),
        ({"model": 3}, ("model is 3", "text")),
        ({"report_to": "tensorboard"}, ("report_to is 'tensorboard'", "a list")),
        ({"guides": 3}, ("guides is 3", "keys with values")),
        ({"guides": {"mdg": 3}}, ("guides.mdg is 3", "keys with values")),
        ({"guides": {"mdg": {"weight": -1}}}, ("mdg", "-1", "0 or more")),
        ({"guides": {"mdg": {"weight": "strong"}}}, ("mdg", "'strong'")),
        ({"guides": {"mdg": {"weight": {"share": -1}}}}, ("share", "-1", "0 or more")),
        ({"task": None}, ("task is None", "keys with values")),
        ({"task": {"files": {}}}, ("'task.name' is missing",)),
        ({"task": {"name": "pairs", "files": 3}}, ("files", "3")),
        ({3: 4}, ("3", "text as the key")),
    ],
)
def test_a_wrong_value_is_answered_with_key_value_and_expectation(parts, facts):
    text = answer(parts)
    for fact in facts:
        assert fact in text


def test_several_mistakes_are_counted():
    assert answer({"modle": "x", "training": {"per_device_train_batch_size": 0, "num_train_epochs": -1}}).endswith(
        " (2 more)"
    )


@pytest.mark.parametrize("data", [None, [], "sick", 3])
def test_no_recipe_at_all(data):
    with pytest.raises(InputError, match="a recipe is a list of keys and values"):
        check_recipe(data, "test")


def test_a_task_is_needed():
    with pytest.raises(InputError, match="key 'task' is missing"):
        check_recipe({}, "test")


def test_short_forms_mean_the_long_ones():
    assert recipe(guides=["mdg"]) == recipe(guides={"mdg": None}) == recipe(guides={"mdg": {}}) == recipe(guides="mdg")
    assert recipe() == recipe(task={"name": "pairs"}) == recipe(task={"name": "pairs", "options": {}})
    assert recipe(training=None, data=None, guides=None) == recipe()
    assert recipe(training={"num_train_epochs": 2}) == recipe(training={"num_train_epochs": 2.0})


def test_plain_data_is_the_same_recipe_again():
    chosen = recipe(
        task={"name": "pairs", "labels": ["1e5", "no"], "files": {"train": "a b.tsv"}},
        guides={"mdg": {"weight": {"share": 0.1}, "heads": {0: [1, 2], -1: "all"}}},
        training={"freeze": ["embeddings", 0], "learning_rate": 1e-5, "max_steps": 3},
        report_to=["tensorboard"],
        description="Über “Köpfe” 🙂: a # b",
    )
    assert check_recipe(chosen.as_data(), "again") == chosen
    assert check_recipe(yaml.safe_load(yaml.safe_dump(chosen.as_data())), "again") == chosen


def test_heads_by_layer_still_work_after_a_journey_through_json(model):
    chosen = recipe(guides={"mdg": {"heads": {0: [1, 2]}}})
    guide(model, check_recipe(chosen.as_data(), "again").guides)


def test_the_training_block_has_fields_of_the_training_arguments():
    from headwise.experiments.recipe import Training

    ours = {"freeze", "snapshots"}  # of the model before training, and of a callback of the run
    assert set(Training.model_fields) - ours <= set(RunArguments.__dataclass_fields__)


OLD = {
    "epochs": 2,
    "steps": 7,
    "batch": 4,
    "evaluation_batch": 8,
    "accumulation": 2,
    "schedule": "cosine",
    "warmup": 5,
    "clip": 0.5,
    "precision": "bf16",
    "label_smoothing": 0.1,
    "early_stopping": 3,
    "evaluate_every": 6,
    "checkpoint_every": 9,
    "log_every": 1,
}


def test_old_names_still_work_with_one_warning():
    with pytest.warns(HeadwiseWarning, match="names of an earlier version .epochs is num_train_epochs") as caught:
        old = recipe(training=OLD)
    assert len(caught) == 1
    new = {OLD_TRAINING_KEYS[key]: value for key, value in OLD.items()} | {"bf16": True}
    assert old == recipe(training=new)
    with pytest.warns(HeadwiseWarning):
        assert recipe(training={"warmup_ratio": 0.2, "bf16": False}) == recipe(training={"warmup_steps": 0.2})


def test_one_value_under_two_names_is_refused():
    assert "num_train_epochs twice" in answer({"training": dict(epochs=2, num_train_epochs=3)})
