"""Steps, epochs and warm-up of a run: the numbers that the Trainer itself would come to."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from training.small_task import exact_model, examples, trainer_of
from transformers import Trainer

from headwise.training.arguments import Settings

SETTINGS = Settings(
    seed=1,
    batch=8,
    accumulation=1,
    evaluation_batch=8,
    epochs=3.0,
    steps=None,
    learning_rate=1e-3,
    schedule="linear",
    warmup=0.1,
    weight_decay=0.0,
    clip=1.0,
    precision="fp32",
    label_smoothing=0.0,
    early_stopping=None,
    evaluate_every=None,
    checkpoint_every=10,
    log_every=1,
    share_every=0,
    by_length=True,
    report_to=(),
)


def changed(**changes):
    return dataclasses.replace(SETTINGS, **changes)


def test_steps_of_a_run():
    def steps(examples, processes=1, **changes):
        run = changed(**changes)
        return run.total_steps(run.steps_per_epoch(examples, processes))

    assert steps(17, epochs=3) == 9  # 3 batches, the last of one example
    assert steps(17, epochs=3, accumulation=2) == 6
    assert steps(17, processes=2, epochs=3) == 6
    assert steps(1000, epochs=None, steps=5) == 5
    assert steps(17, epochs=0.01) == 1  # never none
    assert steps(80, epochs=0.5) == 5


@settings(max_examples=6, deadline=None)
@given(st.integers(1, 32), st.integers(1, 9), st.integers(1, 3))
def test_they_are_the_trainers(tmp_path_factory, count, batch, accumulation):
    trainer = trainer_of(
        Trainer,
        exact_model(),
        tmp_path_factory.mktemp("run"),
        train_dataset=examples(count),
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=accumulation,
        max_steps=-1,
        num_train_epochs=2,
    )
    *_, steps = trainer.set_initial_training_values(trainer.args, trainer.get_train_dataloader())
    run = changed(epochs=2, batch=batch, accumulation=accumulation)
    assert run.total_steps(run.steps_per_epoch(count)) == steps


@pytest.mark.parametrize(("warmup", "steps"), [(0.0, 0), (0.1, 10), (0.999, 100), (1, 1), (25, 25)])
def test_warm_up(warmup, steps):
    assert changed(warmup=warmup).warmup_steps(100) == steps


def test_settings_do_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SETTINGS.seed = 2
