"""Seconds per step and epoch, evaluation and saving left out."""

import time

import pytest
from training.small_task import exact_model, trainer_of
from transformers import Trainer, TrainerCallback, TrainerState

from headwise.training.callbacks import Clock


class Slow(TrainerCallback):
    """Takes its time where the clock should run, and where it should not."""

    def on_optimizer_step(self, *args, **kwargs):
        time.sleep(0.02)

    def on_evaluate(self, *args, **kwargs):
        time.sleep(0.1)

    def on_save(self, *args, **kwargs):
        time.sleep(0.1)


def test_steps_count_evaluation_and_saving_do_not(tmp_path):
    clock = Clock()
    trainer = trainer_of(
        Trainer,
        exact_model(),
        tmp_path,
        callbacks=[clock, Slow()],
        max_steps=6,
        per_device_train_batch_size=16,
        eval_strategy="steps",
        eval_steps=1,
        save_strategy="steps",
        save_steps=2,
    )
    began = time.perf_counter()
    trainer.train()
    whole = time.perf_counter() - began
    assert list(clock.epochs) == ["0", "1", "2"]
    assert all(seconds >= 0.04 for seconds in clock.epochs.values())
    assert clock.seconds_per_step >= 0.02
    assert sum(clock.epochs.values()) < whole - 0.9 + 0.001  # 6 evaluations and 3 checkpoints


def test_the_first_step_does_not_count_for_the_median():
    clock = Clock()
    assert clock.seconds_per_step is None
    clock._steps = [9.0]
    assert clock.seconds_per_step is None
    clock._steps = [9.0, 1.0, 3.0, 2.0]
    assert clock.seconds_per_step == 2.0


def test_epochs_go_on_after_an_interruption(tmp_path):
    clock = Clock()
    clock.epochs = {"0": 3.0, "1": 1.5}
    TrainerState(stateful_callbacks=[clock]).save_to_json(str(tmp_path / "state.json"))
    again = Clock()
    again.on_train_begin(None, TrainerState.load_from_json(str(tmp_path / "state.json")), None)
    again.on_step_begin(None, TrainerState(epoch=1.5), None)
    again.on_step_end(None, TrainerState(epoch=2.0), None)  # the Trainer has rounded up by then
    assert again.epochs["0"] == 3.0
    assert again.epochs["1"] == pytest.approx(1.5, abs=0.5)
    assert again.epochs["1"] > 1.5
    assert list(again.epochs) == ["0", "1"]
