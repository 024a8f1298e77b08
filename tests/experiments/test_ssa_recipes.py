"""The recipes of SSA: the authors' values for GLUE, the controls, and one that composes."""

from dataclasses import asdict
from functools import cache
from itertools import product

import pytest
from tiny_runs import write_table

from headwise.errors import InputError
from headwise.experiments import check_recipe
from headwise.experiments.recipe_files import bundled, read_recipe
from headwise.experiments.splits import read_splits
from headwise.ssa.config import SSA, build_ssa

FAMILY = [name for name in bundled() if name.startswith("ssa/")]
# Encoder -> its name on the Hub; warm-up and weight decay of the authors' code for it.
ENCODERS = {
    "bert-base": ("google-bert/bert-base-uncased", 0.1, 0.01),
    "bert-large": ("google-bert/bert-large-uncased", 0.1, 0.01),
    "roberta-base": ("FacebookAI/roberta-base", 0.06, 0.1),
    "roberta-large": ("FacebookAI/roberta-large", 0.06, 0.1),
}
# cls_weight, attention_threshold and share_weight by the authors' scripts, in the order of ENCODERS.
VALUES = {
    "mrpc": ["0.5 0.3 1", "0.5 0.3 1", "0.5 0.3 0", "0.999 0.3 1"],
    "cola": ["0.999 0.3 1", "0.9 0.3 1", "0.999 0.3 1", "0.5 0.3 0"],
    "rte": ["0.5 0.3 0", "0.5 0.3 0", "0.5 0.3 1", "0.7 0.3 1"],
    "stsb": ["0.9 0.3 0", "0.5 0.3 1", "0.5 0.3 0", "0.999 0.3 1"],
    "sst2": ["0.5 0.3 1", "0.999 0.3 1", "0.5 0.3 1", "0.999 0.3 1"],
    "qnli": ["0.7 0.3 1", "0.9 0.3 1", "0.999 0.3 1", "0.5 0.3 1"],
    "qqp": ["0.9 0.3 1", "0.999 0.3 1", "0.2 0.3 1", "0.5 0.3 1"],
    "mnli": ["0.999 0.3 1", "0.2 0.1 1", "0.2 0.3 1", "0.2 0.3 1"],
    "wnli": ["0.5 0.3 1"] * 4,  # no script has it: the defaults of the code
}
SETTINGS = {
    f"ssa/{encoder}/{task}": values
    for task, row in VALUES.items()
    for encoder, values in zip(ENCODERS, row, strict=True)
}
# What differs from hybrid in the options of SSA.
CONTROLS = {
    "plain": {"only_bert": True},
    "hybrid": {},
    "hybrid-reference": {"sampler": "reference", "label_rule": "reference"},
    "cotraining": {"model": "cotraining"},
    "mean-pool": {"pool_softmax": "uniform", "attention_threshold": 0, "aug_loss_weight": 0},
    "random-labels": {"shuffle_labels": True},
}
NAMES_OF_THE_README = {
    "cls_weight": 0.2,
    "attention_threshold": 0.1,
    "aug_loss_weight": 0.5,
    "aug_threshold": 0.2,
    "rm_threshold": 0.9,
    "use_saved": "runs/plain",
    "share_weight": False,
    "only_bert": True,
}

recipe = cache(read_recipe)


def options(name):
    return asdict(build_ssa(recipe(name).ssa))


def test_there_is_one_for_every_setting_and_control():
    checks = [f"ssa/{task}/{control}" for task in ("rte", "sst2") for control in CONTROLS]
    assert len(SETTINGS) == 36
    assert sorted(FAMILY) == sorted([*SETTINGS, *checks, "ssa/composed"])
    for name in FAMILY:
        assert recipe(name).name == name.replace("/", "-")
        assert "SSA" in recipe(name).description


@pytest.mark.parametrize("encoder", ENCODERS)
def test_values_and_training_are_the_authors(encoder):
    common = {"aug_loss_weight": 0.3, "aug_threshold": 0.1, "rm_threshold": 0.7}
    reference = {"sampler": "reference", "label_rule": "reference", "pool_softmax": "probabilities"}
    model, warmup, decay = ENCODERS[encoder]
    for task in VALUES:
        read = recipe(f"ssa/{encoder}/{task}")
        weight, threshold, shared = SETTINGS[f"ssa/{encoder}/{task}"].split()
        own = {"cls_weight": float(weight), "attention_threshold": float(threshold), "share_weight": shared == "1"}
        assert asdict(build_ssa(read.ssa)) == {**asdict(SSA()), **own, **common, **reference}
        assert ("who give none for this task" in read.description) == (task == "wnli")
        assert (read.model, read.task.name, read.guides) == (model, task, {})
        assert read.task.options["files"] == {"test": "dev_matched.tsv" if task == "mnli" else "dev.tsv"}
        assert (read.data.max_length, read.data.validation_fraction, read.data.limit) == (128, 0.1, {})
        training = read.training
        assert training.num_train_epochs == (5 if task == "rte" and encoder.startswith("bert") else 3)
        assert (training.per_device_train_batch_size, training.learning_rate) == (32, 2e-5)
        assert (training.lr_scheduler_type, training.max_grad_norm) == ("linear", 1.0)
        assert (training.warmup_steps, training.weight_decay) == (warmup, decay)


# -- the controls ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["rte", "sst2"])
def test_controls_differ_from_hybrid_only_in_their_options(task):
    hybrid = recipe(f"ssa/{task}/hybrid").as_data()
    for control, changes in CONTROLS.items():
        other = recipe(f"ssa/{task}/{control}").as_data()
        assert {key for key in hybrid if hybrid[key] != other[key]} <= {"name", "description", "ssa"}
        assert options(f"ssa/{task}/{control}") == {**asdict(SSA()), **changes}


def test_the_checks_train_alike():
    for task, length in (("rte", 96), ("sst2", 64)):
        read = recipe(f"ssa/{task}/hybrid")
        assert (read.model, read.guides, read.data.max_length) == ("builtin:minilm-l6", {}, length)
        assert (
            read.training.num_train_epochs,
            read.training.per_device_train_batch_size,
            read.training.learning_rate,
        ) == (4, 32, 5e-5)


def test_one_composes():
    read = recipe("ssa/composed")
    assert read.guides == {"mdg": {"weight": {"share": 0.03}}}
    splits = read_splits(read, None)  # no files
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (600, 200, 300)


# -- names -------------------------------------------------------------------------------------------------------------


def test_every_name_of_the_readme_is_accepted_and_no_other():
    for name, value in NAMES_OF_THE_README.items():
        read = check_recipe({"task": "pairs", "ssa": {name: value}}, "test")
        assert getattr(build_ssa(read.ssa), name) == value != getattr(SSA(), name)
    with pytest.raises(InputError, match="cls_weigth.*'cls_weight'"):
        check_recipe({"task": "pairs", "ssa": {"cls_weigth": 0.5}}, "test")


# -- data --------------------------------------------------------------------------------------------------------------


def write_files(root, train):
    """Train and dev of SST-2 with labels, and its test file as it is: without."""
    for name, size in {"train": train, "dev": 7}.items():
        rows = [[f"{name} {number}", str(number % 2)] for number in range(size)]
        write_table(root / "SST-2" / f"{name}.tsv", [["sentence", "label"], *rows])
    write_table(root / "SST-2" / "test.tsv", [["index", "sentence"], ["0", "text"]])
    return root


def test_a_tenth_of_train_is_held_out_and_dev_is_the_test(tmp_path):
    splits = read_splits(recipe("ssa/bert-base/sst2"), write_files(tmp_path, 60))
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (54, 6, 7)
    assert splits.test.labelled
    assert not set(splits.train.texts) & set(splits.validation.texts)
    assert all(text.startswith("train ") for texts in splits.validation.texts for text in texts)
    assert all(text.startswith("dev ") for texts in splits.test.texts for text in texts)


def test_the_data_are_the_same_for_every_encoder():
    for encoder, task in product(ENCODERS, VALUES):
        first, other = recipe(f"ssa/bert-base/{task}"), recipe(f"ssa/{encoder}/{task}")
        assert (first.task, first.data) == (other.task, other.data)


def test_examples_of_sst2_are_limited_after_some_were_held_out(tmp_path):
    read = read_recipe("ssa/sst2/plain")
    assert (read.data.limit, read.data.validation_fraction) == ({"train": 2000, "validation": 1000}, 0.1)
    splits = read_splits(read, write_files(tmp_path, 11_000))
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (2000, 1000, 7)
    assert not set(splits.train.texts) & set(splits.validation.texts)
