"""D-scores of a curve, and a model that is wired so that they must be large."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_runs import WORDS, build_tokenizer, small, write_table
from transformers import BertConfig, BertForSequenceClassification

from headwise.data import build_task
from headwise.errors import InputError
from headwise.experiments import check_recipe
from headwise.experiments.apply import Loaded, RunTasks, Source, load_tasks
from headwise.experiments.head_studies.curve_masks import CurveSettings
from headwise.experiments.head_studies.head_dissociation import MEAN, dissociate
from headwise.experiments.head_studies.head_similarity import measure_similarity
from headwise.experiments.head_studies.prune_curve import measure_curve
from headwise.heads.dissociation import (
    VARIANTS,
    bootstrap_dissociation,
    dissociation,
    null_dissociation,
    over_percents,
)
from headwise.metrics import score
from headwise.training import MultiTask, Silence

# Task -> the two words that tell its classes apart, and the place of their difference in a word's vector.
WIRED = {"mood": (("surely", "never"), 0), "animal": (("cat", "dog"), 2)}
CONSTANT = 4  # where [CLS] has a number of its own, which keeps the size of its vector
WIDTH = 8  # of a head


@pytest.fixture(scope="module")
def curve(joint):
    settings = CurveSettings(percent=(50.0, 25.0))
    return measure_curve(load_tasks(joint), settings, Source(), listener=Silence())


@pytest.fixture(scope="module")
def found(curve):
    return dissociate(curve, resamples=100, seed=3)


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


@pytest.fixture(scope="module")
def wired(joint, tmp_path_factory):
    """The D-scores of the wired model, by the order of its tasks."""

    def measure(*names):
        run = wired_run(tmp_path_factory.mktemp("wired"), joint, names)
        curve = measure_curve(run, CurveSettings(number=(1,), random=8), Source(), listener=Silence())
        return dissociate(curve, resamples=100)

    return measure("mood", "animal"), measure("animal", "mood")


def test_two_heads_that_serve_one_task_each_dissociate(wired):
    found, _ = wired
    assert [each.tolist() for each in found.curve.matrix("descending")[0]] == [[0.5, 1.0], [1.0, 0.5]]
    assert found.curve.base.tolist() == [1.0, 1.0]
    for name in VARIANTS:
        assert found.steps[0].scores[VARIANTS.index(name), :-1].tolist() == [50.0, 50.0]
    assert found.steps[0].double == {("mood", "animal"): True}
    assert (found.intervals.scores.low[-1, :, -1] > 35).all()
    assert found.intervals.double[-1].tolist() == [1.0]


def test_the_heads_that_are_found_are_the_wired_ones(wired):
    heads = {m.pruned_for: np.argwhere(m.mask).tolist() for m in wired[0].curve.masks if m.order == "descending"}
    assert heads == {"mood": [[1, 0]], "animal": [[1, 1]]}


def test_the_least_important_heads_and_chance_give_no_dissociation(wired):
    found, _ = wired
    assert np.array_equal(found.ascending[0].scores, np.zeros((3, 3)))
    assert abs(found.nulls["random"].mean[-1, :, -1]).max() < 15
    assert (found.nulls["random"].p[-1, :, -1] < 0.2).all()


def test_another_order_of_the_tasks_gives_the_same_scores_in_that_order(wired):
    one, other = wired
    assert np.array_equal(one.mean.scores[:, [1, 0, 2]], other.mean.scores)


# -- what the library says ---------------------------------------------------------------------------------------------


def test_every_part_is_what_the_library_says(curve, found):
    observed = curve.matrix("descending")
    steps = [dissociation(matrix, curve.base, tasks=curve.tasks) for matrix in observed]
    steps.append(over_percents(steps))
    assert [each.as_dict() for each in found.steps] == [each.as_dict() for each in steps]
    intervals = bootstrap_dissociation(curve.task_predictions(), resamples=100, seed=3)
    assert np.array_equal(found.intervals.scores.low, intervals.scores.low)
    for name, values in (("random", curve.random), ("layer_matched", curve.layer_matched)):
        null = null_dissociation(values, curve.base, observed=observed, seed=3)
        assert found.nulls[name].as_dict(-1, curve.tasks) == null.as_dict(-1, curve.tasks)
    ascending = [dissociation(matrix, curve.base, tasks=curve.tasks) for matrix in curve.matrix("ascending")]
    assert [each.as_dict() for each in found.ascending[:-1]] == [each.as_dict() for each in ascending]


def test_the_rows_say_what_the_json_says(found):
    data, rows = found.as_dict(), list(found.rows())
    assert len(rows) == (2 + 1) * 3 * (3 + 1)
    for row in rows:
        step = data["mean"] if row["percent"] == MEAN else data["steps"][[50.0, 25.0].index(row["percent"])]

        def of(part, row=row):
            scores = part[row["variant"]]
            return scores["mean"] if row["task"] == MEAN else scores["tasks"][row["task"]]

        assert row["score"] == of(step)
        assert (row["low"], row["high"]) == (of(step["interval"]["low"]), of(step["interval"]["high"]))
        for null in ("random", "layer_matched"):
            assert (row[null], row[f"{null}_p"]) == (of(step["null"][null]["mean"]), of(step["null"][null]["p"]))
        assert row["ascending"] == of(step["ascending"])


def test_a_base_of_zero_is_marked(curve):
    predictions = curve.predictions | {"number": np.zeros_like(curve.predictions["number"])}
    values = curve.values.copy()
    values[:, 2] = score(["pearson"], predictions["number"][0], curve.labels["number"])["pearson"]
    found = dissociate(replace(curve, predictions=predictions, values=values), resamples=20)
    assert found.mean.undefined == {"number": "its metric without pruning is 0: there is nothing to lose"}
    assert np.isnan(found.mean.scores[:, 2]).all()
    assert np.isfinite(found.mean.scores[:, [0, 1, 3]]).all()
    data = found.as_dict()["mean"]
    assert data["row"]["tasks"]["number"] is None
    assert [row["score"] for row in found.rows() if row["task"] == "number"] == [None] * 9


# -- controls that are not there ---------------------------------------------------------------------------------------


def test_without_random_masks_there_is_no_null(joint):
    settings = CurveSettings(percent=(25.0,), controls=False)
    curve = measure_curve(load_tasks(joint), settings, Source(), listener=Silence())
    found = dissociate(curve, resamples=10)
    assert (found.nulls, found.ascending) == ({"random": None, "layer_matched": None}, ())
    assert set(found.missing) == {"random", "layer_matched"}
    assert {row["random_p"] for row in found.rows()} == {None}


def test_too_few_random_masks_and_tasks_that_were_left_out_are_told(joint):
    tasks = load_tasks(joint)
    few = measure_curve(tasks, CurveSettings(percent=(25.0,), random=2), Source(), listener=Silence())
    found = dissociate(few, resamples=10)
    assert found.nulls["random"] is None
    assert "3 tasks need 3 random masks" in found.missing["random"]
    some = measure_curve(tasks, CurveSettings(percent=(25.0,), task=("signs",)), Source(), listener=Silence())
    found = dissociate(some, resamples=10)
    assert found.missing == {"random": "not every task's heads were pruned"}
    assert found.mean.undefined["single"] == found.mean.undefined["number"] == "its heads were not pruned"
    assert np.isnan(found.mean.scores[:, 1:3]).all()
    assert np.isfinite(found.mean.scores[:2, 0]).all()
    assert np.isfinite(found.nulls["layer_matched"].p[-1, 1, 0])


def test_one_task_has_no_score(finished):
    tasks = load_tasks(finished)
    curve = measure_curve(tasks, CurveSettings(percent=(25.0,)), Source(), listener=Silence())
    with pytest.raises(InputError, match="a D-score compares tasks, and this run has one only"):
        dissociate(curve, resamples=10)
    with pytest.raises(InputError, match="similarity compares tasks"):
        measure_similarity(tasks, CurveSettings().importance, Source(), folder=tasks.folder, listener=Silence())
