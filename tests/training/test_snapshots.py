"""Snapshots of the heads while a model trains: right numbers, and no trace in the training."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_runs import record as record_of
from tiny_runs import small

import headwise as hw
from headwise.data import Collator, encode
from headwise.errors import InputError
from headwise.experiments.apply import load_run
from headwise.experiments.prepare import RunPaths
from headwise.experiments.recipe import check_recipe
from headwise.experiments.run import train
from headwise.experiments.snapshots import NAME, read_snapshots
from headwise.experiments.splits import read_split
from headwise.heads import HeadStatistics


@pytest.fixture(scope="module")
def runs(tmp_path_factory, encoder, pairs):
    folder = tmp_path_factory.mktemp("snapshots")
    for name, count in (("with", 5), ("without", 0)):
        training = {"num_train_epochs": 1, "per_device_train_batch_size": 16, "eval_steps": 2, "snapshots": count}
        recipe = check_recipe(small(encoder, training=training), "test")
        train(recipe, RunPaths(folder / name, Path(pairs)))
    return folder


def test_there_is_one_before_training_and_one_at_each_evaluation(runs):
    found = read_snapshots(runs / "with")
    assert found.steps.tolist() == [0, 2, 3]
    assert found.examples == 5
    assert found.similarity.shape == found.entropy.shape == found.vectors.shape[:2]
    assert (abs(found.vectors.sum(2) - 1) < 1e-5).all()
    assert abs(found.similarity[0] - found.similarity[-1]).max() > 1e-6
    assert read_snapshots(runs / "without") is None
    # Looking changes no bit of the model.
    mine, theirs = (load_file(runs / name / "model.safetensors") for name in ("with", "without"))
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


def test_that_of_the_best_step_is_what_the_saved_model_does(runs):
    run, found = load_run(runs / "with"), read_snapshots(runs / "with")
    split = read_split(run.recipe, run.task, "validation", run.data).subset(range(5))
    encoded, statistics = encode(split, run.tokenizer, run.recipe.data.max_length), HeadStatistics()
    collate = Collator.of(run.tokenizer, "classification", max_length=run.recipe.data.max_length)
    with torch.inference_mode(), hw.capture(run.model.eval()) as record:
        for number in range(5):
            inputs = collate([encoded[number]])
            inputs.pop("labels")
            run.model(**inputs)
            statistics.add(record)
    expected = [value for row in statistics.result().similarity_by_head for value in row]
    best = found.steps.tolist().index(record_of(runs / "with")["results"]["best_step"])
    assert found.similarity[best].tolist() == pytest.approx(expected, abs=1e-5)


def test_a_damaged_file_is_refused(runs):
    path = runs / "with" / NAME
    whole = path.read_bytes()
    path.write_bytes(whole[:50])
    with pytest.raises(InputError, match="damaged"):
        read_snapshots(runs / "with")
    path.write_bytes(whole)
