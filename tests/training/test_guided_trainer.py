"""GuidedTrainer: losses outside of the model, and weights that mean the same under accumulation."""

import inspect

import pytest
import torch
from torch.nn.functional import cross_entropy
from training.small_task import (
    by_hand,
    collate,
    distance,
    exact_model,
    examples,
    guided,
    parameters,
    summed_loss,
    trainer_of,
    twins,
)
from transformers import Trainer

import headwise as hw
from headwise.training.trainer import GuidedTrainer

QUERY = "bert.encoder.layer.0.attention.self.query.weight"
ACCUMULATED = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}


def trained(model, folder, **changes):
    trainer_of(GuidedTrainer, model, folder, **changes).train()
    return parameters(model)


def test_it_overrides_nothing_but_the_loss():
    mine = {name for name in vars(GuidedTrainer) if not name.startswith("__")}
    assert {name for name in mine if hasattr(Trainer, name)} == {"compute_loss"}
    assert all(name.startswith("_") for name in mine - {"compute_loss"})
    assert list(inspect.signature(GuidedTrainer.compute_loss).parameters) == list(
        inspect.signature(Trainer.compute_loss).parameters
    )
    assert hw.GuidedTrainer is GuidedTrainer


def test_without_a_loss_outside_it_is_the_plain_trainer(tmp_path):
    assert distance(trained(guided(), tmp_path), by_hand(0.5)[0]) < 1e-9


def test_an_unguided_model_trains_too(tmp_path):
    trainer = trainer_of(GuidedTrainer, exact_model(), tmp_path)
    trainer.train()
    assert distance(parameters(trainer.model), by_hand(0.0)[0]) < 1e-9
    assert not any("task_loss" in entry for entry in trainer.state.log_history)


# -- losses outside of the model -----------------------------------------------------------------------------------


def test_label_smoothing(tmp_path):
    expected, plain = by_hand(0.5, smoothing=0.1)[0], by_hand(0.0, smoothing=0.1)[0]
    assert distance(expected, plain) > 1e-4
    assert distance(trained(guided(), tmp_path, label_smoothing_factor=0.1), expected) < 1e-9


def test_a_loss_function_of_ones_own(tmp_path):
    assert distance(trained(guided(), tmp_path, compute_loss_func=summed_loss), by_hand(0.5)[0]) < 1e-9


@pytest.mark.parametrize("way", [{"label_smoothing_factor": 0.1}, {"compute_loss_func": summed_loss}])
def test_the_guides_gradient_is_there(tmp_path, way):
    """One training step: its gradient less the task's is the weighted guide's, and that is not zero."""
    found = {}
    for weight in (0.0, 0.5):
        model = guided(hw.MDG(weight=weight))
        trainer = trainer_of(GuidedTrainer, model, tmp_path, **way)
        trainer.current_gradient_accumulation_steps = 1
        trainer.training_step(model, collate(examples(8)), torch.tensor(8))
        found[weight] = {name: each.grad for name, each in model.named_parameters() if each.grad is not None}
    model = exact_model().train()
    with hw.capture(model) as record:
        model(**collate(examples(8)))
        raw = hw.MDG(weight=1.0)(record, None)
    (expected,) = torch.autograd.grad(raw, model.get_parameter(QUERY))
    assert float(expected.norm()) > 1e-3
    torch.testing.assert_close(found[0.5][QUERY] - found[0.0][QUERY], 0.5 * expected, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("way", [{}, {"label_smoothing_factor": 0.1}, {"compute_loss_func": summed_loss}])
def test_evaluation_is_the_tasks_alone(tmp_path, way):
    plain = trainer_of(Trainer, exact_model(), tmp_path, **way).evaluate()["eval_loss"]
    model = guided()
    assert trainer_of(GuidedTrainer, model, tmp_path, **way).evaluate()["eval_loss"] == pytest.approx(plain, rel=1e-9)
    assert hw.guides.guidance(model)._raw == {}


# -- accumulation --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [{}, {"label_smoothing_factor": 0.1}, {"compute_loss_func": summed_loss}])
def test_accumulated_batches_equal_one_batch(tmp_path, way):
    whole, parts = trained(guided(), tmp_path, **way), trained(guided(), tmp_path, **way, **ACCUMULATED)
    smoothing = way.get("label_smoothing_factor", 0.0)
    assert distance(whole, by_hand(0.5, smoothing=smoothing)[0]) < 1e-9
    assert distance(parts, whole) < 1e-9


@pytest.mark.parametrize("way", [{}, {"label_smoothing_factor": 0.1}, {"compute_loss_func": summed_loss}])
def test_an_automatic_weight_is_the_same_under_accumulation(tmp_path, way):
    found = []
    for options in ({}, ACCUMULATED):
        model = guided(hw.MDG(weight=hw.auto(0.3, window=1, every=1)))
        trainer = trainer_of(GuidedTrainer, model, tmp_path, train_dataset=twins(), **way, **options)
        trainer.train()
        weights = [entry["guide/mdg_weight"] for entry in trainer.state.log_history if "loss" in entry]
        found.append((parameters(model), weights))
    assert distance(found[0][0], found[1][0]) < 1e-9
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-9)
    assert len(set(found[0][1])) == 3  # measured anew at every step
    smoothing = way.get("label_smoothing_factor", 0.0)
    assert distance(found[0][0], by_hand(0.0, smoothing=smoothing, rows=twins)[0]) > 1e-5


@pytest.mark.parametrize("options", [{}, ACCUMULATED])
@pytest.mark.parametrize("way", [{}, {"label_smoothing_factor": 0.1}, {"compute_loss_func": summed_loss}])
def test_the_measured_share_is_the_one_that_was_asked_for(tmp_path, way, options):
    """On data as it comes, whose micro batches differ: the first is measured, so its share is exact."""
    model = guided(hw.MDG(weight=hw.auto(0.3)), share_every=1)
    trainer = trainer_of(GuidedTrainer, model, tmp_path, max_steps=1, **way, **options)
    trainer.train()
    assert trainer.state.log_history[0]["guide/mdg_share"] == pytest.approx(0.3, rel=1e-6)


def test_items_that_are_not_examples(tmp_path):
    """Several labels per example: the weight must not be divided by the labels."""

    def many(outputs, labels, num_items_in_batch=None):
        loss = torch.nn.functional.binary_cross_entropy_with_logits(outputs.logits, labels, reduction="sum")
        return loss / num_items_in_batch

    def with_many_labels(rows):
        batch = collate(rows)
        return {**batch, "labels": torch.nn.functional.one_hot(batch["labels"], 3).double()}

    found = []
    for weight, options in ((0.5, {}), (0.5, ACCUMULATED), (0.0, {})):
        model = guided(hw.MDG(weight=weight))
        trainer = trainer_of(GuidedTrainer, model, tmp_path, compute_loss_func=many, max_steps=1, **options)
        trainer.data_collator = with_many_labels
        before = parameters(model)[QUERY]
        trainer.train()
        found.append((before - parameters(model)[QUERY], parameters(model)))
    assert distance(found[0][1], found[1][1]) < 1e-9
    model = exact_model().train()
    with hw.capture(model) as record:
        model(**collate(examples()[:8]))
        (expected,) = torch.autograd.grad(hw.MDG(weight=1.0)(record, None), model.get_parameter(QUERY))
    torch.testing.assert_close(found[0][0] - found[2][0], 0.5 * 0.5 * expected, rtol=1e-8, atol=1e-12)


def test_a_batch_whose_labels_are_all_ignored(tmp_path):
    def lenient(outputs, labels, num_items_in_batch=None):
        return cross_entropy(outputs.logits, labels, reduction="sum") / num_items_in_batch

    rows = [{**row, "labels": -100 if number < 2 else row["labels"]} for number, row in enumerate(examples(8))]
    model = guided()
    found = trained(model, tmp_path, compute_loss_func=lenient, train_dataset=rows, max_steps=1, **ACCUMULATED)
    assert all(torch.isfinite(each).all() for each in found.values())
