"""The model card: intervals beside the results, metadata as the Hub reads it, and how to load what was trained."""

import json

import numpy
import pytest
from huggingface_hub import ModelCard

from headwise.experiments.model_card import hub_name, intervals, model_card
from headwise.experiments.outputs import read_outputs


def record(run):
    return json.loads((run / "headwise.json").read_text())


def test_the_hub_reads_every_score_beside_its_interval(finished):
    content, card = record(finished), ModelCard((finished / "README.md").read_text())
    assert card.data.library_name == "transformers"
    assert card.data.model_name == content["recipe"]["name"]
    read = {(each.dataset_split, each.metric_type): each for each in card.data.eval_results}
    scores = {
        (split, name): value for split, each in content["results"]["metrics"].items() for name, value in each.items()
    }
    assert {key: each.metric_value for key, each in read.items()} == {
        key: pytest.approx(value, abs=5e-5) for key, value in scores.items()
    }
    for split, each in intervals(read_outputs(finished)).items():
        for name, (low, high) in each.items():
            assert low <= scores.get((split, name), low) <= high
            if (split, name) in scores:
                assert f"{low:.4f} to {high:.4f}" in read[split, name].metric_name
                assert f"{scores[split, name]:.4f} ({low:.4f} to {high:.4f})" in card.text


def test_an_interval_is_that_of_a_slow_bootstrap():
    random = numpy.random.default_rng(3)
    gold = random.integers(2, size=200)
    predictions = numpy.where(random.random(200) < 0.8, gold, 1 - gold)
    output = {"kind": "classification", "gold": gold.tolist(), "predictions": predictions.tolist()}
    low, high = intervals({"test": output})["test"]["accuracy"]
    right = gold == predictions
    drawn = [right[random.integers(200, size=200)].mean() for _ in range(4000)]
    assert numpy.allclose([low, high], numpy.quantile(drawn, [0.025, 0.975]), atol=0.015)
    claims = {str(at): {"R@1": float(hit), "RR": 0.5} for at, hit in enumerate(right)}
    ranked = intervals({"test": {"kind": "ranking", "per_query": claims}})["test"]
    assert numpy.allclose(ranked["R@1"], numpy.quantile(drawn, [0.025, 0.975]), atol=0.015)
    assert ranked["RR"] == (0.5, 0.5)


def test_the_card_says_how_to_load_what_transformers_cannot(finished):
    content = record(finished)
    plain, pruned = (model_card(content, repo="me/mine", pruned=each) for each in (False, True))
    assert 'AutoModelForSequenceClassification.from_pretrained("me/mine")' in plain
    assert 'headwise.load(snapshot_download("me/mine"))' in pruned
    assert "AutoModelForSequenceClassification" not in pruned
    assert "headwise.load(folder)" in model_card(content, pruned=True)


def test_only_names_of_the_hub_are_given_as_base_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "mine").mkdir(parents=True)
    assert hub_name("builtin:minilm-l6") == "sentence-transformers/all-MiniLM-L6-v2"
    assert hub_name("google-bert/bert-base-cased") == "google-bert/bert-base-cased"
    assert hub_name("bert-base-cased") == "bert-base-cased"
    for folder in ("models/mine", "/home/me/model", "../model", "./model", "~/model"):
        assert hub_name(folder) is None
