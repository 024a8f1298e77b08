"""The recipes of Table 2: one for every guide, each of which really runs."""

import csv

import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

from headwise.experiments.prepare import Place
from headwise.experiments.recipe_files import bundled, read_recipe
from headwise.experiments.run import train
from headwise.guides import GUIDES
from headwise.training.encoders import builtin_folder

FAMILY = [name for name in bundled() if name.startswith("table2/")]
PAIRS = [
    ("A dog is chasing a cat.", "The cat is being chased by a dog.", "ENTAILMENT"),
    ("A man is playing the guitar.", "Nobody is playing the guitar.", "CONTRADICTION"),
    ("Two children are eating apples.", "A woman reads a book.", "NEUTRAL"),
    ("The doctor examines the patient.", "The physician is examining a patient.", "ENTAILMENT"),
]


@pytest.fixture(scope="module")
def small_encoder(tmp_path_factory):
    """A random BERT of two small layers that reads real words."""
    folder = tmp_path_factory.mktemp("small-encoder")
    tokenizer = AutoTokenizer.from_pretrained(builtin_folder("builtin:minilm-l6"))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=64,
    )
    BertForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sick")
    for name in ("SICK_train.txt", "SICK_trial.txt", "SICK_test_annotated.txt"):
        with (folder / name).open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file, delimiter="\t")
            rows.writerow(["pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment"])
            for number in range(24):
                first, second, label = PAIRS[number % len(PAIRS)]
                rows.writerow([number + 1, first, second, 4.0, label])
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILY)
def test_every_recipe_runs_two_steps(name, small_encoder, data, tmp_path):
    changes = [
        f"model={small_encoder}",
        "training.max_steps=2",
        "training.per_device_train_batch_size=8",
        "training.warmup_steps=0",
        "share_every=1",
    ]
    result = train(read_recipe(name, changes), Place(tmp_path / "run", data, cache=tmp_path / "cache"))
    happened = result.record["results"]
    assert happened["steps"] == 2
    assert set(happened["guides"]) == set(read_recipe(name).guides)
    for guide in happened["guides"].values():
        assert guide["weight"] > 0
        assert guide["share"] > 0


def test_there_is_one_for_every_guide_and_one_without():
    guided = {guide for name in FAMILY for guide in read_recipe(name).guides}
    assert guided == set(GUIDES) - {"match"}  # which is these
    assert "table2/plain" in FAMILY


def test_they_differ_in_nothing_but_their_guides():
    plain = read_recipe("table2/plain").as_data()
    for name in FAMILY:
        other = read_recipe(name).as_data()
        assert {key for key in plain if plain[key] != other[key]} <= {"name", "description", "guides"}
