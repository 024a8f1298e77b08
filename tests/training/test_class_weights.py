"""Class weights: what each class counts, and a training in which every example counts by that, written out by hand."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tiny_runs import log, record, small
from torch.nn.functional import log_softmax
from training.small_task import collate, distance, eager_mdg, exact_model, examples, guided, parameters, sgd, trainer_of

from headwise.errors import InputError
from headwise.experiments.prepare import RunPaths
from headwise.experiments.recipe import check_recipe
from headwise.experiments.run import train
from headwise.training.class_weights import WeightedCrossEntropy, class_weights
from headwise.training.trainer import GuidedTrainer

WEIGHTS = (0.5, 3.0, 1.0)


def test_balanced_weights_give_every_class_the_same_total():
    labels = [0] * 6 + [1] * 3 + [2] + [None]
    weights = class_weights("balanced", labels, ("a", "b", "c", "gone"))
    assert weights == {"a": 10 / 18, "b": 10 / 9, "c": 10 / 3, "gone": 1.0}
    assert class_weights("balanced", [(0, 0, 1), (0, -100)], ("O", "B")) == {"O": 4 / 6, "B": 2.0}
    assert class_weights({"b": 3}, labels, ("a", "b", "c")) == {"a": 1.0, "b": 3.0, "c": 1.0}


def test_mistakes_are_refused():
    with pytest.raises(InputError, match="'B' is not a class; known: a, b"):
        class_weights({"B": 2.0}, [], ("a", "b"))
    with pytest.raises(InputError, match="above 0, got 0"):
        class_weights({"a": 0}, [], ("a", "b"))
    with pytest.raises(InputError, match="expected balanced"):
        class_weights("equal", [], ("a", "b"))


def test_the_loss_is_that_of_a_loop_and_parts_of_a_batch_add_up():
    logits, labels = torch.randn(7, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 1, 0, -100, 2])
    loss = WeightedCrossEntropy(WEIGHTS)
    known = [(row, int(label)) for row, label in zip(logits, labels, strict=True) if label >= 0]
    slow = sum(-WEIGHTS[label] * log_softmax(row, -1)[label] for row, label in known) / len(known)
    torch.testing.assert_close(loss(SimpleNamespace(logits=logits), labels), slow)
    torch.testing.assert_close(loss(SimpleNamespace(logits=logits.view(7, 1, 3)), labels.view(7, 1)), slow)
    parts = [loss(SimpleNamespace(logits=logits[part]), labels[part], 6) for part in (slice(0, 2), slice(2, 7))]
    torch.testing.assert_close(sum(parts), slow)


@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("guide", [False, True])
def test_a_training_does_what_a_loop_by_hand_does(tmp_path, accumulation, guide):
    rows = examples()
    if accumulation > 1 and guide:  # a guide sees micro-batches, so these are all alike
        rows = [row for pair in range(4) for row in examples(2, seed=pair) * 4]
    model = exact_model().train()
    model.set_attn_implementation("eager")
    optimiser, _ = sgd(model)
    for step in range(3):
        inputs = collate(rows[step * 8 : step * 8 + 8])
        labels = inputs.pop("labels")
        outputs = model(**inputs, output_attentions=True)
        losses = [-WEIGHTS[y] * each[y] for each, y in zip(log_softmax(outputs.logits, -1), labels, strict=True)]
        part = collate(rows[step * 8 : step * 8 + 8 // accumulation])
        part.pop("labels")
        attentions = model(**part, output_attentions=True).attentions
        loss = sum(losses) / 8 + (0.5 * eager_mdg(attentions, part["attention_mask"]) if guide else 0)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    found = guided() if guide else exact_model()
    trainer_of(
        *(GuidedTrainer, found, tmp_path),
        train_dataset=rows,
        compute_loss_func=WeightedCrossEntropy(WEIGHTS),
        per_device_train_batch_size=8 // accumulation,
        gradient_accumulation_steps=accumulation,
    ).train()
    assert distance(parameters(found), parameters(model)) < 1e-9


def run(encoder, data, folder, **changes):
    recipe = check_recipe(small(encoder, training__max_steps=2, **changes), "test")
    train(recipe, RunPaths(folder, Path(data)))
    return record(folder)


def test_a_recipe_records_its_weights(encoder, pairs, tmp_path):
    content = run(encoder, pairs, tmp_path / "balanced", training__class_weights="balanced")
    assert content["recipe"]["training"]["class_weights"] == "balanced"
    weights = content["results"]["class_weights"]
    assert [round(14 * weight * 3 / 40) for weight in weights.values()] == [1, 1, 1]  # 40 examples of three classes
    card = (tmp_path / "balanced" / "README.md").read_text()
    assert f"the classes count differently: `{next(iter(weights))}`" in card
    name = next(iter(weights))
    content = run(encoder, pairs, tmp_path / "own", training__class_weights={name: 3}, guides={"mdg": {"weight": 0.1}})
    assert content["results"]["class_weights"] == dict.fromkeys(weights, 1.0) | {name: 3.0}
    for folder, weight in (("ssa", None), ("weighted ssa", dict.fromkeys(weights, 100))):
        run(encoder, pairs, tmp_path / folder, ssa={"label_rule": "soft"}, training__class_weights=weight)
    first, weighted = (log(tmp_path / folder)[0]["ssa/task_loss"] for folder in ("ssa", "weighted ssa"))
    assert weighted == pytest.approx(100 * first, rel=1e-4)
    assert "class_weights" not in run(encoder, pairs, tmp_path / "plain")["recipe"]["training"]


def test_recipes_that_weigh_no_classes(encoder, pairs, tmp_path):
    for changes, words in [
        ({"training__class_weights": {"nobody": 2}}, "'nobody' is not a class"),
        ({"training__class_weights": "even"}, "class_weights"),
        ({"training__class_weights": {True: 2}}, "expected classes as keys, got True: quote it"),
        ({"training__class_weights": {"a": 0}}, "class_weights"),
        (
            {"training__class_weights": "balanced", "training__label_smoothing": 0.1},
            "label_smoothing_factor has another",
        ),
        ({"training__class_weights": "balanced", "task": "pairs-regression"}, "a regression task has another loss"),
    ]:
        with pytest.raises(InputError, match=words):
            run(encoder, pairs, tmp_path / "refused", **changes)
    assert not (tmp_path / "refused").exists()
