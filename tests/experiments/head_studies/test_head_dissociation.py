"""D-scores of a curve, and a model that is wired so that they must be large."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_runs import WORDS, build_tokenizer, small, write_table
from transformers import BertConfig, BertForSequenceClassification

from headwise.data import build_task
from headwise.experiments import check_recipe
from headwise.experiments.apply import Loaded, RunTasks, Source, load_tasks
from headwise.experiments.head_studies.curve_masks import CurveSettings
from headwise.experiments.head_studies.head_dissociation import MEAN, dissociate, dissociation_rows
from headwise.experiments.head_studies.prune_curve import measure_curve
from headwise.heads.dissociation import VARIANTS, bootstrap_dissociation, dissociations, null_dissociation
from headwise.metrics import score
from headwise.training import MultiTask, Silence

# Task -> the two words that tell its classes apart, and the place of their difference in a word's vector.
WIRED = {"mood": (("surely", "never"), 0), "animal": (("cat", "dog"), 2)}
CONSTANT = 4  # where [CLS] has a number of its own, which keeps the size of its vector
WIDTH = 8  # of a head


@pytest.fixture(scope="module")
def curve(joint):
    settings = CurveSettings(percent=(50.0, 25.0))
    return measure_curve(load_tasks(joint), settings, Source(), progress=Silence())


# -- two heads, each wired to one task ---------------------------------------------------------------------------------


def difference(at, size=32):
    """+1 and -1 side by side, so that a layer norm has nothing to centre."""
    vector = torch.zeros(size)
    vector[at], vector[at + 1] = 1.0, -1.0
    return vector


def wired_classifier(at, vocabulary):
    """Head 0 of layer 1 carries the mood to [CLS], head 1 the animal; a task reads one of them, at its place."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 8}
    model = BertForSequenceClassification(BertConfig(vocab_size=len(vocabulary), num_labels=2, **sizes)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(float(name.endswith("LayerNorm.weight")))
        words = model.bert.embeddings.word_embeddings.weight
        words[vocabulary["[CLS]"]] = difference(CONSTANT)
        layer = model.bert.encoder.layer[1].attention
        for head, ((first, second), place) in enumerate(WIRED.values()):
            words[vocabulary[first]], words[vocabulary[second]] = difference(place), -difference(place)
            for side in range(2):
                layer.self.value.weight[head * WIDTH + side, place + side] = 1.0
                layer.output.dense.weight[place + side, head * WIDTH + side] = 1.0
        model.bert.pooler.dense.weight.copy_(torch.eye(32))
        model.classifier.weight.copy_(torch.stack([difference(at), -difference(at)]))
        model.classifier.bias[0] = 1e-3  # without a sign, class 0
    return model


def wired_run(folder, joint, names):
    """A run whose texts have one word of each task, and whose labels are told by one of them."""
    tokenizer, chance = build_tokenizer(), random.Random(5)
    others = [word for word in WORDS if word not in ("cat", "dog")]
    classifiers, vocabulary = {}, tokenizer.get_vocab()
    for name in names:
        words, at = WIRED[name]
        for split in ("train", "validation"):
            table = [["sentence", "label"]]
            for number in range(40):
                signs = [
                    each[number % 2 if task == name else chance.randint(0, 1)] for task, (each, _) in WIRED.items()
                ]
                text = [*chance.choices(others, k=chance.randint(1, 5)), *signs]
                chance.shuffle(text)
                table.append([" ".join(text), words[number % 2]])
            write_table(folder / name / f"{split}.tsv", table)
        classifiers[name] = wired_classifier(at, vocabulary)
    model = MultiTask(classifiers)
    runs = {}
    for name in names:
        files = {split: f"{name}/{split}.tsv" for split in ("train", "validation")}
        task = {"name": "sentences", "files": files, "labels": list(WIRED[name][0])}
        recipe = check_recipe(small("nowhere", task=task, guides={}), "test")
        built = build_task("sentences", {"files": files, "labels": task["labels"]})
        runs[name] = Loaded(recipe, built, model.classifier(name), tokenizer, built.labels, folder)
    return RunTasks(joint, True, runs)


def test_two_heads_that_serve_one_task_each_dissociate(joint, tmp_path):
    def measure(*names):
        run = wired_run(tmp_path / names[0], joint, names)
        curve = measure_curve(run, CurveSettings(number=(1,), random=8), Source(), progress=Silence())
        return curve, dissociate(curve, resamples=100)

    curve, found = measure("mood", "animal")
    heads = {m.pruned_for: np.argwhere(m.mask).tolist() for m in curve.masks if m.order == "descending"}
    assert heads == {"mood": [[1, 0]], "animal": [[1, 1]]}
    assert curve.matrix("descending")[0].tolist() == [[0.5, 1.0], [1.0, 0.5]]
    assert curve.base.tolist() == [1.0, 1.0]
    mean, null = found["mean"], found["mean"]["null"]["random"]
    for name in VARIANTS:
        assert found["steps"][0][name]["tasks"] == {"mood": 50.0, "animal": 50.0}
        assert mean["interval"]["low"][name]["mean"] > 35
        # Neither the least important heads nor chance give a dissociation.
        assert found["steps"][0]["ascending"][name] == {"mean": 0.0, "tasks": {"mood": 0.0, "animal": 0.0}}
        assert abs(null["mean"][name]["mean"]) < 15
        assert null["p"][name]["mean"] < 0.2
    assert mean["double_dissociation"] == [{"tasks": ["mood", "animal"], "holds": True}]
    assert mean["interval"]["double_dissociation"][0]["holds"] == 1.0
    _, other = measure("animal", "mood")
    assert [other["mean"][name] for name in VARIANTS] == [mean[name] for name in VARIANTS]


# -- what the library says ---------------------------------------------------------------------------------------------


def test_every_part_is_what_the_library_says(curve):
    found, tasks = dissociate(curve, resamples=100, seed=3), curve.tasks
    observed = curve.matrix("descending")
    steps = dissociations(observed, curve.base, tasks=tasks)
    ascending = dissociations(curve.matrix("ascending"), curve.base, tasks=tasks)
    intervals = bootstrap_dissociation(curve.task_predictions(), resamples=100, seed=3)
    parts = [*found["steps"], found["mean"]]
    for number, (part, step) in enumerate(zip(parts, steps, strict=True)):
        assert part.items() >= step.as_dict().items()
        assert part["interval"] == intervals.as_dict(number, tasks)
        for name, values in (("random", curve.random), ("layer_matched", curve.layer_matched)):
            null = null_dissociation(values, curve.base, observed=observed, seed=3)
            assert part["null"][name] == null.as_dict(number, tasks)
    assert [part["ascending"] for part in parts] == [each.as_dict() for each in ascending]
    rows = list(dissociation_rows(found))
    assert len(rows) == (2 + 1) * 3 * (3 + 1)
    for row in rows:
        step = found["mean"] if row["percent"] == MEAN else parts[[50.0, 25.0].index(row["percent"])]

        def of(part, row=row):
            scores = part[row["variant"]]
            return scores["mean"] if row["task"] == MEAN else scores["tasks"][row["task"]]

        assert (row["score"], row["ascending"]) == (of(step), of(step["ascending"]))
        assert (row["low"], row["high"]) == (of(step["interval"]["low"]), of(step["interval"]["high"]))
        for null in ("random", "layer_matched"):
            assert (row[null], row[f"{null}_p"]) == (of(step["null"][null]["mean"]), of(step["null"][null]["p"]))


def test_a_base_of_zero_has_no_score(curve):
    predictions = curve.predictions | {"number": np.zeros_like(curve.predictions["number"])}
    values = curve.values.copy()
    values[:, 2] = score(["pearson"], predictions["number"][0], curve.labels["number"])["pearson"]
    found = dissociate(replace(curve, predictions=predictions, values=values), resamples=20)
    assert found["mean"]["undefined"] == {"number": "its metric without pruning is 0: there is nothing to lose"}
    assert [row["score"] for row in dissociation_rows(found) if row["task"] == "number"] == [None] * 9
    assert None not in [row["score"] for row in dissociation_rows(found) if row["task"] != "number"]


# -- controls that are not there ---------------------------------------------------------------------------------------


def test_missing_controls_are_reported(joint):
    def scores(**settings):
        curve = measure_curve(tasks, CurveSettings(percent=(25.0,), **settings), Source(), progress=Silence())
        return dissociate(curve, resamples=10)

    tasks = load_tasks(joint)
    found = scores(controls=False)
    assert set(found["missing"]) == {"random", "layer_matched"}
    assert (found["mean"]["null"], found["mean"]["ascending"]) == ({"random": None, "layer_matched": None}, None)
    assert {row["random_p"] for row in dissociation_rows(found)} == {None}
    few = scores(random=2)
    assert few["mean"]["null"]["random"] is None
    assert "3 tasks need 3 random masks" in few["missing"]["random"]
    some = scores(task=("signs",))
    assert some["missing"] == {"random": "not every task's heads were pruned"}
    for task in ("single", "number"):
        assert some["mean"]["undefined"][task] == "its heads were not pruned"
    assert list(some["mean"]["row"]["tasks"].values())[1:] == [None, None]
    assert some["mean"]["null"]["layer_matched"]["p"]["row"]["tasks"]["signs"] is not None
