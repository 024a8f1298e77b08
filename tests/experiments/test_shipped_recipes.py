"""The recipes of the package: SSA with the authors' values for GLUE and its controls, and one for every guide."""

from functools import cache

import pytest
from tiny_runs import write_encoder, write_table
from transformers import AutoTokenizer

from headwise.experiments import check_recipe
from headwise.experiments.prepare import RunPaths
from headwise.experiments.recipe_files import bundled, read_recipe
from headwise.experiments.run import train
from headwise.experiments.splits import read_splits
from headwise.guides import GUIDES, Guide
from headwise.ssa.config import SSA, build_ssa
from headwise.training.encoders import builtin_folder

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
    "balanced": {"aug_loss_weight": None, "attention_threshold": None, "normalise_blend": True},
}
HYBRID = {"aug_loss_weight": 0.3, "attention_threshold": 0.3, "normalise_blend": False}
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


def test_there_is_one_for_every_setting_and_control():
    checks = [f"ssa/{task}/{control}" for task in ("rte", "sst2") for control in CONTROLS]
    assert len(SETTINGS) == 36
    assert sorted(FAMILY) == sorted([*SETTINGS, *checks, "ssa/composed"])
    composed = recipe("ssa/composed")
    assert composed.guides == {"mdg": {"weight": {"share": 0.03}}}
    splits = read_splits(composed, None)  # no files
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (600, 200, 300)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_the_values_are_the_authors(encoder):
    model, warmup, decay = ENCODERS[encoder]
    common = {"aug_threshold": 0.1, "rm_threshold": 0.7, "pool_softmax": "probabilities"}
    for task in VALUES:
        read, first = recipe(f"ssa/{encoder}/{task}"), recipe(f"ssa/bert-base/{task}")
        weight, threshold, shared = SETTINGS[f"ssa/{encoder}/{task}"].split()
        chosen = {"cls_weight": float(weight), "attention_threshold": float(threshold), "share_weight": shared == "1"}
        assert build_ssa(read.ssa) == SSA.released(**chosen, **common)
        assert (read.model, read.task.name, read.guides) == (model, task, {})
        assert (read.data.max_length, read.data.validation_fraction, read.data.limit) == (128, 0.1, {})
        assert (read.task, read.data) == (first.task, first.data)  # the same for every encoder
        training = read.training
        assert training.num_train_epochs == (5 if task == "rte" and encoder.startswith("bert") else 3)
        assert (training.per_device_train_batch_size, training.learning_rate) == (32, 2e-5)
        assert (training.warmup_steps, training.weight_decay, training.max_grad_norm) == (warmup, decay, 1.0)
        assert ("who give none for this task" in read.description) == (task == "wnli")


@pytest.mark.parametrize("control", CONTROLS)
def test_a_control_differs_from_hybrid_only_where_it_says(control):
    for task, length in (("rte", 96), ("sst2", 64)):
        hybrid, other = recipe(f"ssa/{task}/hybrid"), recipe(f"ssa/{task}/{control}")
        ours, theirs = hybrid.as_data(), other.as_data()
        assert {key for key in ours if ours[key] != theirs[key]} <= {"name", "description", "ssa"}
        assert build_ssa(other.ssa) == SSA(**({} if control == "plain" else HYBRID) | CONTROLS[control])
        assert (hybrid.model, hybrid.guides, hybrid.data.max_length) == ("builtin:minilm-l6", {}, length)
        training = hybrid.training
        assert training.num_train_epochs == 4
        assert (training.per_device_train_batch_size, training.learning_rate) == (32, 5e-5)
    assert build_ssa(recipe(f"ssa/rte/{control}").ssa).learns_labels == (control not in ("plain", "mean-pool"))


def test_every_name_of_the_readme_is_accepted():
    read = check_recipe({"task": "pairs", "ssa": NAMES_OF_THE_README}, "test")
    for name, value in NAMES_OF_THE_README.items():
        assert getattr(build_ssa(read.ssa), name) == value != getattr(SSA(), name)


# -- data --------------------------------------------------------------------------------------------------------------

PAIR = ["sentence1", "sentence2"]
# Task -> folder, the file that is the test, columns (none: no header), and labels in turn.
FILES = {
    "cola": ("CoLA", "dev", ["", "label", "", "sentence"], "01"),
    "stsb": ("STS-B", "dev", [*PAIR, "score"], ("0.0", "2.5", "5.0")),
    "sst2": ("SST-2", "dev", ["sentence", "label"], "01"),
    "mnli": ("MNLI", "dev_matched", [*PAIR, "gold_label"], ("entailment", "neutral", "contradiction")),
}
LABEL_COLUMNS = {"label", "score", "gold_label"}


def write_files(task, root, train=60):
    """Train and dev with labels, and GLUE's test files as they are: without."""
    folder, dev, columns, labels = FILES[task]
    sizes = {"train": train, dev: 7, dev.replace("dev", "test"): 5} | ({"dev_mismatched": 3} if task == "mnli" else {})
    for name, size in sizes.items():
        table = [columns] if task != "cola" else []
        for number in range(size):
            cells = {each: f"{name} {number} {each}" for each in columns if each not in LABEL_COLUMNS}
            table.append([cells.get(each, labels[number % len(labels)]) for each in columns])
        if "test" in name:
            table = [["index", *(each for each in columns if each and each not in LABEL_COLUMNS)]]
            table += [[str(number), *(["text"] * (len(table[0]) - 1))] for number in range(size)]
        write_table(root / folder / f"{name}.tsv", table)
    return root


@pytest.mark.parametrize("task", FILES)
def test_a_tenth_of_train_is_held_out_and_dev_is_the_test(task, tmp_path):
    splits = read_splits(recipe(f"ssa/bert-base/{task}"), write_files(task, tmp_path))
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (54, 6, 7)
    assert splits.test.labelled
    assert not set(splits.train.texts) & set(splits.validation.texts)
    assert all(text.startswith("train ") for texts in splits.validation.texts for text in texts)
    assert all(text.startswith(f"{FILES[task][1]} ") for texts in splits.test.texts for text in texts)


def test_the_pairs_of_a_medical_question_stay_together(tmp_path):
    table = [["1", f"question {n // 2}", f"other {n}", str(n % 2)] for n in range(100)]
    write_table(tmp_path / "mqp.csv", table, delimiter=",")
    splits = read_splits(recipe("mqp"), tmp_path)
    questions = [{texts[0] for texts in part.texts} for part in splits.named.values()]
    assert [len(part) for part in splits.named.values()] == [60, 10, 30]
    assert [len(part) for part in questions] == [30, 5, 15]
    assert len(set().union(*questions)) == 50


# -- Table 2: one recipe for every guide -------------------------------------------------------------------------------

TABLE2 = [name for name in bundled() if name.startswith("table2/")]
PAIRS = [
    ("A dog is chasing a cat.", "The cat is being chased by a dog.", "ENTAILMENT"),
    ("A man is playing the guitar.", "Nobody is playing the guitar.", "CONTRADICTION"),
    ("Two children are eating apples.", "A woman reads a book.", "NEUTRAL"),
    ("The doctor examines the patient.", "The physician is examining a patient.", "ENTAILMENT"),
]


@pytest.fixture(scope="module")
def small_encoder(tmp_path_factory):
    """A random BERT of two small layers that reads real words."""
    tokenizer = AutoTokenizer.from_pretrained(builtin_folder("builtin:minilm-l6"))
    return str(write_encoder(tmp_path_factory.mktemp("small-encoder"), tokenizer))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sick")
    table = [["pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment"]]
    for number in range(24):
        first, second, label = PAIRS[number % len(PAIRS)]
        table.append([str(number + 1), first, second, "4.0", label])
    for name in ("SICK_train.txt", "SICK_trial.txt", "SICK_test_annotated.txt"):
        write_table(folder / name, table)
    (folder / "relations.tsv").write_text("dog\tcat\nplaying\tguitar\ndoctor\tphysician\n", encoding="utf-8")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLE2)
def test_every_recipe_runs_two_steps(name, small_encoder, data, tmp_path):
    changes = [
        f"model={small_encoder}",
        "data.max_length=40",
        "training.max_steps=2",
        "training.per_device_train_batch_size=8",
        "training.warmup_steps=0",
        "training.logging_steps=1",  # automatic weights count from the second step
        "share_every=1",
    ]
    result = train(read_recipe(name, changes), RunPaths(tmp_path / "run", data, cache=tmp_path / "cache"))
    happened = result.record["results"]
    assert happened["steps"] == 2
    assert set(happened["guides"]) == set(read_recipe(name).guides)
    for guide in happened["guides"].values():
        assert guide["weight"] > 0
        assert guide["share"] > 0


def test_there_is_one_for_every_guide_and_they_differ_in_nothing_else():
    guided = {guide for name in TABLE2 for guide in read_recipe(name).guides}
    # Pairs of SICK have no marks: guides that read them are in the recipe `marked`.
    losses = {name for name in GUIDES if issubclass(GUIDES[name], Guide) and not GUIDES[name].reads_marks}
    assert set(read_recipe("marked").guides) == {name for name in GUIDES if GUIDES[name].reads_marks}
    assert guided == losses - {"match"}  # which is these
    plain = read_recipe("table2/plain").as_data()
    for name in TABLE2:
        other = read_recipe(name).as_data()
        assert {key for key in plain if plain[key] != other[key]} <= {"name", "description", "guides"}


def test_recipes_that_repeat_a_paper_have_one_learning_rate():
    papers = ("ssa/", "heads/", "table2/", "cross-genre/", "mednli", "multinli")
    found = {name: read_recipe(name).training.head_learning_rate_multiplier for name in bundled()}
    assert {name for name, multiplier in found.items() if multiplier == 1} == {
        name for name in found if name.startswith(papers)
    }
    assert {found[name] for name in ("demo", "sick", "rte", "pairs", "scifact/plain", "scifact/guided")} == {10.0}
