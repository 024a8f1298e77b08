"""What a model answered is kept beside a run, so that runs can be compared example by example."""

import json

import numpy
import pytest
from small_collection import write_collection
from tiny_runs import record, small

from headwise.data import Split
from headwise.errors import InputError
from headwise.experiments import check_recipe
from headwise.experiments.outputs import examples_key, read_outputs
from headwise.experiments.prepare import RunPaths
from headwise.experiments.run import train
from headwise.metrics import score


def test_the_outputs_of_a_classifier_give_its_metrics(finished):
    outputs, happened = read_outputs(finished), record(finished)["results"]
    assert set(outputs) == {"validation", "test"}
    for split, output in outputs.items():
        assert output["kind"] == "classification"
        assert len(output["gold"]) == happened["examples"][split]
        names = list(happened["metrics"][split])
        found = score(names, numpy.array(output["predictions"]), numpy.array(output["gold"]))
        assert found == happened["metrics"][split]


def test_the_outputs_of_several_tasks_stand_under_task_and_split(with_iat):
    outputs, happened = read_outputs(with_iat), record(with_iat)["results"]
    assert set(outputs) == {f"{task}/{split}" for task in happened["tasks"] for split in ("validation", "test")}
    assert {outputs[f"{task}/test"]["kind"] for task in happened["tasks"]} == {"classification", "regression"}
    for task, about in happened["tasks"].items():
        output = outputs[f"{task}/test"]
        found = score([about["primary"]], numpy.array(output["predictions"]), numpy.array(output["gold"]))
        assert found[about["primary"]] == pytest.approx(about["metrics"]["test"][about["primary"]], abs=1e-12)


@pytest.fixture(scope="module")
def reranker(tmp_path_factory, encoder):
    """A re-ranker that is tested on claims of the collection."""
    root = tmp_path_factory.mktemp("root")
    write_collection(root / "papers")
    task = {"name": "retrieval", "collection": "papers", "negatives": 2, "splits": {"test": "test"}}
    recipe = small(encoder, task=task, guides={}, training__epochs=1) | {
        "data": {"max_length": 24, "limit": {"test": 5}}
    }
    train(check_recipe(recipe, "test"), RunPaths(root / "run", root, cache=root / "cache"))
    return root / "run"


def test_a_reranker_is_tested_on_the_claims_of_a_split(reranker):
    outputs, happened = read_outputs(reranker), record(reranker)["results"]
    assert happened["claims"]["test"] == 5
    for split, output in outputs.items():
        rows = output["per_query"].values()
        means = {name: numpy.mean([row[name] for row in rows]) for name in happened["metrics"][split]}
        assert means == pytest.approx(happened["metrics"][split], abs=1e-12)
    assert {claim[0] for claim in outputs["test"]["per_query"]} == {"v"}


def test_the_key_of_examples_knows_texts_labels_and_order():
    split = Split((("a", "b"), ("c", "d")), (0, 1))
    keys = {
        examples_key(each)
        for each in (split, split.subset([1, 0]), Split(split.texts, (1, 1)), Split((("a", "b"), ("c", "e")), (0, 1)))
    }
    assert len(keys) == 4
    assert examples_key(split) == examples_key(split.subset([0, 1]))


def test_outputs_that_are_damaged_or_of_another_format_are_refused(tmp_path):
    assert read_outputs(tmp_path) == {}
    (tmp_path / "outputs.json").write_text("{")
    with pytest.raises(InputError, match="damaged"):
        read_outputs(tmp_path)
    (tmp_path / "outputs.json").write_text(json.dumps({"format": 9, "outputs": {}}))
    with pytest.raises(InputError, match="format 9"):
        read_outputs(tmp_path)
