"""An unchanged transformers.Trainer trains a guided model."""

import gc
import math

import pytest
import torch
from training.small_task import by_hand, distance, exact_model, examples, guided, logged, parameters, trainer_of
from transformers import Trainer

import headwise as hw
from headwise.errors import HeadwiseWarning


def attention_tensors_alive():
    """Tensors shaped like received attention [B,4,K] or a map [B,4,Q,K] of the tiny model."""
    gc.collect()
    return [
        each
        for each in gc.get_objects()
        if type(each) is torch.Tensor and each.dim() in (3, 4) and each.shape[1] == 4 and each.is_floating_point()
    ]


def test_it_does_what_a_loop_by_hand_does(tmp_path):
    model = guided()
    trainer_of(Trainer, model, tmp_path).train()
    expected, _ = by_hand(0.5)
    assert distance(parameters(model), expected) < 1e-9
    assert distance(expected, by_hand(0.0)[0]) > 1e-4  # so the guide did something


def test_the_loss_in_its_log_is_task_plus_guide(tmp_path):
    trainer = trainer_of(Trainer, guided(), tmp_path)
    trainer.train()
    _, history = by_hand(0.5)
    logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert logged == pytest.approx([task + 0.5 * guide for task, guide in history], rel=1e-5)


def test_evaluation_with_dynamic_padding_is_the_tasks_alone_and_keeps_no_maps(tmp_path):
    plain = trainer_of(Trainer, exact_model(), tmp_path).predict(examples(13, seed=4))
    model = guided()
    trainer = trainer_of(Trainer, model, tmp_path)
    before = hw.guides.guidance(model).losses
    alive = len(attention_tensors_alive())
    metrics, predicted = trainer.evaluate(), trainer.predict(examples(13, seed=4))
    assert len(attention_tensors_alive()) <= alive
    assert metrics["eval_loss"] == pytest.approx(plain.metrics["test_loss"], rel=1e-12)
    assert predicted.metrics["test_loss"] == pytest.approx(plain.metrics["test_loss"], rel=1e-12)
    assert predicted.predictions.shape == (13, 3)  # logits only: no maps came along
    assert (predicted.predictions == plain.predictions).all()
    assert hw.guides.guidance(model).losses is before
    assert hw.guides.guidance(model)._raw == {}
    assert hw.guides.guidance(model).step == 0


def test_evaluation_in_the_middle_of_training_changes_nothing(tmp_path):
    model = guided()
    trainer = trainer_of(Trainer, model, tmp_path, eval_strategy="steps", eval_steps=1)
    trainer.train()
    assert len([entry for entry in trainer.state.log_history if "eval_loss" in entry]) == 3
    assert distance(parameters(model), by_hand(0.5)[0]) < 1e-9


def test_no_graph_outlives_an_evaluation(tmp_path):
    model = guided()
    trainer = trainer_of(Trainer, model, tmp_path, max_steps=1)
    trainer.train()
    trainer.evaluate()
    assert hw.guides.guidance(model)._raw == {}
    assert hw.guides.guidance(model)._task is None


def test_the_step_count_is_the_trainers(tmp_path):
    model = guided(hw.MDG(weight=hw.guides.decay(0.5, steps=2)))
    trainer = trainer_of(
        Trainer, model, tmp_path, per_device_train_batch_size=2, gradient_accumulation_steps=2, max_steps=4
    )
    logged(trainer).train()
    assert hw.guides.guidance(model).step == trainer.state.global_step == 4
    weights = [entry.get("guide/mdg_weight") for entry in trainer.state.log_history if "loss" in entry]
    assert weights == [0.5, 0.25, None, None]


def test_two_trainers_one_after_the_other_both_count(tmp_path):
    model = guided()
    trainer_of(Trainer, model, tmp_path, max_steps=2).train()
    gc.collect()
    trainer_of(Trainer, model, tmp_path, max_steps=2).train()
    assert hw.guides.guidance(model).step == 4


def test_with_label_smoothing_the_guides_are_missing(tmp_path):
    """Why there is a GuidedTrainer: the labels never reach the model, so its loss and the guides do not exist."""
    model = guided()
    with pytest.warns(HeadwiseWarning, match=r"trained without the guides \(mdg\).*use hw\.GuidedTrainer"):
        trainer_of(Trainer, model, tmp_path, label_smoothing_factor=0.1).train()
    assert distance(parameters(model), by_hand(0.0, smoothing=0.1)[0]) < 1e-9
    assert distance(parameters(model), by_hand(0.5, smoothing=0.1)[0]) > 1e-4


def test_its_gradients_grow_with_accumulation(tmp_path):
    """And another reason: transformers (5.22) takes the mean for a sum over all items, so 4 x 2 has 4 x the gradient.

    If this fails, transformers was mended, and the docstring of GuidedTrainer should no longer say so.
    """
    model, once = exact_model(), exact_model()
    before = parameters(model)
    options = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "max_steps": 1}
    trainer_of(Trainer, model, tmp_path, **options).train()
    trainer_of(Trainer, once, tmp_path, max_steps=1).train()
    name = "classifier.weight"
    ratio = (parameters(model)[name] - before[name]).norm() / (parameters(once)[name] - before[name]).norm()
    assert math.isclose(float(ratio), 4.0, rel_tol=1e-3)
