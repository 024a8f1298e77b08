"""Steps, epochs and warm-up of a run: the numbers that the Trainer itself would have."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from training.small_task import exact_model, examples, trainer_of
from transformers import Trainer

from headwise.training import Material, run_arguments


def arguments(count, **training):
    data = SimpleNamespace(train=range(count))
    return run_arguments({"warmup_steps": 0.1, **training}, Material(None, {"only": data}), "folder")


def test_steps_of_a_run():
    def steps(examples, **changes):
        return arguments(examples, per_device_train_batch_size=8, **changes).max_steps

    assert steps(17, num_train_epochs=3) == 9  # 3 batches, the last of one example
    assert steps(17, num_train_epochs=3, gradient_accumulation_steps=2) == 6
    assert steps(1000, num_train_epochs=None, max_steps=5) == 5
    assert steps(17, num_train_epochs=0.01) == 1  # never none
    assert steps(80, num_train_epochs=0.5) == 5
    assert arguments(17, per_device_train_batch_size=8).steps_per_epoch(17, processes=2) == 2


@settings(max_examples=6, deadline=None)
@given(st.integers(1, 32), st.integers(1, 9), st.integers(1, 3))
def test_they_are_the_trainers(tmp_path_factory, count, batch, accumulation):
    training = {
        "per_device_train_batch_size": batch,
        "gradient_accumulation_steps": accumulation,
        "num_train_epochs": 2,
    }
    trainer = trainer_of(
        Trainer,
        exact_model(),
        tmp_path_factory.mktemp("run"),
        train_dataset=examples(count),
        max_steps=-1,
        **training,
    )
    *_, steps = trainer.set_initial_training_values(trainer.args, trainer.get_train_dataloader())
    assert arguments(count, **training).max_steps == steps


@pytest.mark.parametrize(("warmup", "steps"), [(0.0, 0), (0.1, 10), (0.999, 100), (1, 1), (25, 25)])
def test_warm_up(warmup, steps):
    assert arguments(100, per_device_train_batch_size=1, num_train_epochs=1, warmup_steps=warmup).warmup_steps == steps


def test_evaluations_and_checkpoints_fit_into_the_run():
    short = arguments(20, per_device_train_batch_size=8, num_train_epochs=2, eval_steps=100, save_steps=100)
    assert (short.eval_steps, short.save_steps) == (6, 6)
    assert arguments(20, per_device_train_batch_size=8, num_train_epochs=2).eval_steps == 3  # once per epoch
