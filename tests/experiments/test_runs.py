"""What the choices of a recipe do to a run, and what its record, its outputs and its model card say."""

import json
from pathlib import Path

import numpy
import pytest
import torch
from safetensors.torch import load_file
from tiny_runs import log, outcome, record, rows, small, weights, write_data, write_table

from headwise.data import Collator, Split
from headwise.errors import InputError, StateError
from headwise.experiments import check_recipe
from headwise.experiments.apply import evaluate, load_run, predict
from headwise.experiments.outputs import examples_key, read_outputs
from headwise.experiments.prepare import RunPaths, prepare
from headwise.experiments.record import read as read_record
from headwise.experiments.record import read_stored, runs_frame
from headwise.experiments.run import train
from headwise.metrics import score


def assert_metrics_come_back(run):
    """`evaluate` finds to the last digit what was recorded."""
    loaded, happened = load_run(run), record(run)["results"]
    for split, recorded in happened["metrics"].items():
        assert evaluate(loaded, split)["metrics"] == recorded


# -- seeds and order ---------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bits(ran, finished):
    assert outcome(ran("again")) == outcome(finished)
    assert weights(ran("other", seed=2)) != weights(finished)


def test_plain_and_guided_runs_see_the_same_batches(ran, monkeypatch):
    seen = []
    collate = Collator.__call__

    def watched(self, items):
        seen[-1].append([item["input_ids"].tolist() for item in items])
        return collate(self, items)

    monkeypatch.setattr(Collator, "__call__", watched)
    for name, changes in (("guided", {}), ("plain", {"guides": {}})):
        seen.append([])
        run = ran(name, **changes)
    assert seen[0] == seen[1]
    assert len(seen[0]) > 10
    assert not record(run)["results"]["guides"]


def test_a_run_with_two_passes_and_silent_heads_is_recorded(ran):
    guides = {"consistency": {"weight": 0.5}, "head_dropout": {"p": 0.2}, "mdg": {"weight": 0.1}}
    runs = [ran(name, guides=guides, share_every=0) for name in ("one", "two")]
    assert outcome(runs[0]) == outcome(runs[1])
    happened = record(runs[0])["results"]["guides"]
    assert set(happened) == {"consistency", "mdg"}  # head_dropout is no loss
    assert happened["consistency"]["weight"] == 0.5
    assert happened["consistency"]["share"] is None
    assert happened["consistency"]["first"] > 0


# -- length ------------------------------------------------------------------------------------------------------------

STOPPING = {"training__evaluate_every": 1, "training__early_stopping": 2, "training__learning_rate": 1e-9}


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ({"training__epochs": 0.5}, 2),
        ({"training__epochs": 2.5}, 12),
        ({"training__steps": 7, "training__epochs": None}, 7),
        ({"training__accumulation": 2, "data__fraction": 0.5}, 4),
        ({"training__steps": 40, **STOPPING}, 3),
    ],
)
def test_steps(ran, changes, steps):
    run = ran(**changes)
    happened = record(run)["results"]
    assert happened["steps"] == steps
    assert happened["evaluations"][-1]["step"] == steps
    assert max(entry["step"] for entry in log(run)) == steps
    if "training__early_stopping" in changes:
        assert happened["best_step"] == 1
        assert len(happened["evaluations"]) == 3


def test_the_best_model_is_kept_and_not_the_last(ran):
    run = ran(training__steps=16, training__evaluate_every=1, training__learning_rate=1e-2, guides={})
    happened = record(run)["results"]
    scores = {each["step"]: each["eval_accuracy"] for each in happened["evaluations"]}
    assert len(scores) == 16
    assert scores[16] < max(scores.values())  # else this run proves nothing
    assert happened["best_step"] == next(step for step, score in scores.items() if score == max(scores.values()))
    assert happened["metrics"]["validation"]["accuracy"] == max(scores.values())
    assert_metrics_come_back(run)


# -- kinds of tasks and of training ------------------------------------------------------------------------------------


def test_guides_on_a_frozen_encoder_leave_nothing_behind(encoder, pairs, tmp_path):
    chosen = check_recipe(small(encoder, training__freeze=["encoder"]), "test")
    with pytest.raises((InputError, StateError), match="frozen"):
        train(chosen, RunPaths(tmp_path / "run", Path(pairs)))
    assert not (tmp_path / "run").exists()


HELD_OUT = {"data__validation_fraction": 0.3, "data__test_fraction": 0.2, "data__fraction": 0.5}


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("sentences", {"data__padding": "fixed", "training__epochs": 1, **HELD_OUT}),
        ("sentences-regression", {"head": "relu", "training__epochs": 1}),
        ("pairs-regression", {"training__bf16": True}),  # whose scores show every bit
    ],
)
def test_other_tasks_heads_and_precisions(ran, tmp_path, kind, changes):
    data = write_data(tmp_path / "data", kind)
    run = ran(data=data, task=kind, **changes)
    names = ["pearson", "spearman"] if kind.endswith("regression") else ["accuracy", "macro_precision"]
    assert list(record(run)["results"]["metrics"]["test"])[:2] == names
    assert_metrics_come_back(run)
    found = predict(load_run(run), data / "test.tsv")
    assert len(found) == 21
    if "data__padding" in changes:
        only = prepare(check_recipe(record(run)["recipe"], "test"), RunPaths(run, data)).only
        assert only.collate([only.encoded["train"][0]])["input_ids"].shape == (1, 24)
        assert record(run)["results"]["examples"] == {"train": 10, "validation": 12, "test": 8}
    if kind.endswith("regression"):
        assert all(list(row)[-1] == "prediction" and isinstance(row["prediction"], float) for row in found)
        assert len({row["prediction"] for row in found}) > 10
    if "training__bf16" in changes:
        assert all(tensor.dtype == torch.float32 for tensor in load_file(run / "model.safetensors").values())
        assert weights(run) != weights(ran("other", data=data, task=kind))


def test_a_test_set_without_labels_is_not_scored(ran, tmp_path):
    data = write_data(tmp_path / "data")
    write_table(data / "test.tsv", [row[:2] for row in rows(9, 5)])
    run = ran(data=data)
    assert record(run)["results"]["metrics"]["test"] is None
    assert "| validation |" in (run / "README.md").read_text()
    with pytest.raises(InputError, match="no labels"):
        evaluate(load_run(run), "test")
    assert len(predict(load_run(run), data / "test.tsv")) == 9


# -- the record --------------------------------------------------------------------------------------------------------


def test_the_record_and_the_model_card(finished):
    content = json.loads(
        (finished / "headwise.json").read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON")
    )
    assert set(content) == {"format", "recipe", "data", "examples", "command", "results", "environment"}
    assert content["recipe"]["seed"] == 1
    happened = content["results"]
    assert len(happened["seconds_per_epoch"]) == 2
    assert all(seconds > 0 for seconds in happened["seconds_per_epoch"])
    assert happened["examples"] == {"train": 40, "validation": 24, "test": 21}
    assert happened["labels"] == ["agree", "deny", "open"]
    assert {"headwise", "python", "packages", "threads"} <= set(content["environment"])
    assert "torch" in content["environment"]["packages"]
    assert happened["guides"]["mdg"]["share"] == pytest.approx(0.1, rel=0.5)
    text = (finished / "README.md").read_text()
    lines = text.splitlines()
    assert lines[0] == "---"
    assert lines.count("---") == 2
    tables = [line for line in lines if line.startswith("|")]
    # Head and line of three tables, two splits, two guides, two splits beside baselines.
    assert len(tables) == 3 * 2 + 2 + 2 + 2
    for table in (tables[:4], tables[4:8], tables[8:]):
        assert len({line.count("|") for line in table}) == 1
    assert "AutoModelForSequenceClassification" in text
    assert "mdg, pdg" in text
    assert "\n\n\n" not in text


def test_records_that_are_damaged_or_of_the_first_version(finished, tmp_path):
    for text in ("", "{", "[]", "3", "{}", '{"format": 2}', '{"format": 1}'):
        (tmp_path / "headwise.json").write_text(text)
        with pytest.raises(InputError) as caught:
            load_run(tmp_path)
        assert "\n" not in str(caught.value)
    content = record(finished)
    recipe = content["recipe"] | {"training": {"epochs": 2, "batch": 8}}
    old = {
        "format": 1,
        "asked": {"recipe": recipe, "seed": 1, "data": content["data"], "examples": content["examples"]},
        "happened": content["results"],
        "world": content["environment"],
    }
    (tmp_path / "headwise.json").write_text(json.dumps(old))
    read = read_record(tmp_path)
    assert read["recipe"]["training"] == {"num_train_epochs": 2, "per_device_train_batch_size": 8}
    assert (read["results"], read["environment"]) == (content["results"], content["environment"])


def test_runs_are_rows_of_a_data_frame(finished, joint):
    frame = runs_frame([finished, str(joint), read_stored(finished)])
    assert list(frame["name"]) == ["small", "tiny", "small"]
    assert list(frame["task"]) == ["pairs", "signs,single,number", "pairs"]
    assert list(frame["guides"]) == ["mdg,pdg", "", "mdg,pdg"]
    metrics = record(finished)["results"]["metrics"]
    assert frame["test/accuracy"][0] == frame["test/accuracy"][2] == metrics["test"]["accuracy"]
    assert frame["seconds"].gt(0).all()


# -- what was answered to every example, so that runs can be compared example by example -------------------------------


def test_the_outputs_give_the_metrics(finished, with_iat):
    outputs, happened = read_outputs(finished), record(finished)["results"]
    assert set(outputs) == {"validation", "test"}
    for split, output in outputs.items():
        assert output["kind"] == "classification"
        assert len(output["gold"]) == happened["examples"][split]
        names = list(happened["metrics"][split])
        found = score(names, numpy.array(output["predictions"]), numpy.array(output["gold"]))
        assert found == happened["metrics"][split]
    outputs, tasks = read_outputs(with_iat), record(with_iat)["results"]["tasks"]
    assert set(outputs) == {f"{task}/{split}" for task in tasks for split in ("validation", "test")}
    assert {outputs[f"{task}/test"]["kind"] for task in tasks} == {"classification", "regression"}
    for task, about in tasks.items():
        output = outputs[f"{task}/test"]
        found = score([about["primary"]], numpy.array(output["predictions"]), numpy.array(output["gold"]))
        assert found[about["primary"]] == pytest.approx(about["metrics"]["test"][about["primary"]], abs=1e-12)


def test_the_key_of_examples_knows_texts_labels_and_order():
    split = Split((("a", "b"), ("c", "d")), (0, 1))
    others = (split.subset([1, 0]), Split(split.texts, (1, 1)), Split((("a", "b"), ("c", "e")), (0, 1)))
    assert len({examples_key(each) for each in (split, *others)}) == 4
    assert examples_key(split) == examples_key(split.subset([0, 1]))


def test_outputs_that_are_damaged_or_of_another_format_are_refused(tmp_path):
    assert read_outputs(tmp_path) == {}
    for text, said in (("{", "damaged"), (json.dumps({"format": 9, "outputs": {}}), "format 9")):
        (tmp_path / "outputs.json").write_text(text)
        with pytest.raises(InputError, match=said):
            read_outputs(tmp_path)
