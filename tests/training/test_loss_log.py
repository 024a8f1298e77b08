"""Every part of a guided loss in the log, by name, wherever the log goes."""

import pytest
from training.small_task import by_hand, exact_model, guided, logged, summed_loss, trainer_of
from transformers import DefaultFlowCallback, Trainer, TrainerCallback

import headwise as hw
from headwise.errors import StateError
from headwise.training.guide_callback import GuideCallback
from headwise.training.trainer import GuidedTrainer

ALWAYS = {"task_loss", "guide/mdg", "guide/mdg_weighted", "guide/mdg_weight"}


class Reporter(TrainerCallback):
    """Stands for TensorBoard and its kin: copies what it is shown, when it is shown."""

    def __init__(self):
        self.shown = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.shown.append(dict(logs))


def reported(trainer):
    """Put a reporter where transformers puts those of report_to: right behind its own flow callback."""
    reporter, callbacks = Reporter(), trainer.callback_handler.callbacks
    place = next(number for number, each in enumerate(callbacks) if isinstance(each, DefaultFlowCallback))
    callbacks.insert(place + 1, reporter)
    return reporter


def parts_of(entries):
    """What the log of a step says of the parts."""
    return [
        {name: value for name, value in entry.items() if name == "task_loss" or name.startswith("guide/")}
        for entry in entries
        if "loss" in entry
    ]


def run(kind, folder, *, guides=None, share_every=0, **changes):
    trainer = trainer_of(kind, guided(guides, share_every=share_every), folder, **changes)
    reporter = reported(trainer)
    if kind is Trainer:
        logged(trainer)
    trainer.train()
    return trainer, reporter


def test_transformers_puts_reporters_behind_its_flow_callback_and_before_the_users(tmp_path):
    """What `reported` relies on."""
    from transformers.integrations import INTEGRATION_TO_CALLBACK

    INTEGRATION_TO_CALLBACK["reporter-of-this-test"] = Reporter
    try:
        trainer = trainer_of(
            Trainer, guided(), tmp_path, report_to=["reporter-of-this-test"], callbacks=[TrainerCallback()]
        )
    finally:
        del INTEGRATION_TO_CALLBACK["reporter-of-this-test"]
    kinds = [type(each) for each in trainer.callback_handler.callbacks]
    assert kinds[:3] == [DefaultFlowCallback, Reporter, TrainerCallback]
    reporter = trainer.callback_handler.callbacks[1]
    logged(trainer).train()
    assert type(trainer.callback_handler.callbacks[0]) is GuideCallback
    assert all(ALWAYS <= set(entry) for entry in reporter.shown if "loss" in entry)
    assert sum("loss" in entry for entry in reporter.shown) == 3


@pytest.mark.parametrize("kind", [Trainer, GuidedTrainer])
def test_the_parts_of_every_step(tmp_path, kind):
    trainer, reporter = run(kind, tmp_path)
    _, history = by_hand(0.5)
    expected = [
        {"task_loss": task, "guide/mdg": guide, "guide/mdg_weighted": 0.5 * guide, "guide/mdg_weight": 0.5}
        for task, guide in history
    ]
    for entries in (reporter.shown, trainer.state.log_history):
        found = parts_of(entries)
        assert len(found) == 3
        for mine, theirs in zip(found, expected, strict=True):
            assert mine == pytest.approx(theirs, rel=1e-9)
            assert all(type(value) is float for value in mine.values())


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        (Trainer, {}),
        (GuidedTrainer, {}),
        (GuidedTrainer, {"label_smoothing_factor": 0.1}),
        (GuidedTrainer, {"compute_loss_func": summed_loss}),
    ],
)
def test_the_parts_add_up_to_the_loss(tmp_path, kind, way):
    trainer, _ = run(kind, tmp_path, guides=hw.MDG(weight=0.5) + hw.PDG(weight=0.1), **way)
    for entry in trainer.state.log_history[:3]:
        total = entry["task_loss"] + entry["guide/mdg_weighted"] + entry["guide/pdg_weighted"]
        assert total == pytest.approx(entry["loss"], rel=1e-5)


def test_they_are_averaged_over_the_steps_since_the_last_log(tmp_path):
    trainer, _ = run(GuidedTrainer, tmp_path, logging_steps=3)
    (found,) = parts_of(trainer.state.log_history)
    _, history = by_hand(0.5)
    assert found["task_loss"] == pytest.approx(sum(task for task, _ in history) / 3, rel=1e-9)
    assert found["guide/mdg"] == pytest.approx(sum(guide for _, guide in history) / 3, rel=1e-9)


@pytest.mark.parametrize("way", [{}, {"label_smoothing_factor": 0.1}, {"compute_loss_func": summed_loss}])
def test_they_are_averaged_over_accumulated_batches(tmp_path, way):
    """So they are those of one batch of all examples, however the loss is scaled for its gradient."""
    trainer, _ = run(GuidedTrainer, tmp_path, per_device_train_batch_size=2, gradient_accumulation_steps=4, **way)
    _, history = by_hand(0.5, smoothing=way.get("label_smoothing_factor", 0.0))
    found = parts_of(trainer.state.log_history)
    assert [each["task_loss"] for each in found] == pytest.approx([task for task, _ in history], rel=1e-7)
    assert [each["guide/mdg"] for each in found] == pytest.approx([guide for _, guide in history], rel=1e-7)
    assert [each["guide/mdg_weight"] for each in found] == [0.5] * 3


@pytest.mark.parametrize("kind", [Trainer, GuidedTrainer])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_the_share_comes_every_few_steps(tmp_path, kind, accumulation):
    trainer, reporter = run(
        kind,
        tmp_path,
        guides=hw.MDG(weight=0.1),
        share_every=2,
        max_steps=4,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=accumulation,
    )
    for entries in (reporter.shown, trainer.state.log_history):
        found = parts_of(entries)
        assert ["guide/mdg_share" in each for each in found] == [True, False, True, False]
        assert all(0 < each["guide/mdg_share"] < 1 for each in found[::2])


@pytest.mark.parametrize("kind", [Trainer, GuidedTrainer])
def test_other_logs_are_left_alone(tmp_path, kind):
    trainer, reporter = run(kind, tmp_path, eval_strategy="steps", eval_steps=1, logging_steps=2, max_steps=2)
    for entries in (reporter.shown, trainer.state.log_history):
        others = [entry for entry in entries if "loss" not in entry]
        assert len(others) == 3  # two evaluations and the end of the training
        assert not any(name == "task_loss" or name.startswith("guide/") for entry in others for name in entry)
        assert len(parts_of(entries)) == 1


def test_it_is_in_the_row_once_and_in_front(tmp_path):
    trainer = trainer_of(GuidedTrainer, guided(), tmp_path, callbacks=[hw.GuideCallback()])
    trainer.train()
    kinds = [type(each) for each in trainer.callback_handler.callbacks]
    assert kinds.count(GuideCallback) == 1
    assert kinds[0] is GuideCallback
    callbacks = trainer.callback_handler.callbacks
    callbacks.append(callbacks.pop(0))
    trainer.train()
    assert type(callbacks[0]) is GuideCallback


def test_a_model_that_is_guided_anew_is_logged_anew(tmp_path):
    trainer = logged(trainer_of(Trainer, guided(), tmp_path))
    trainer.train()
    hw.guide(hw.unguide(trainer.model), hw.PDG(weight=0.1))
    trainer.train()
    *_, last = parts_of(trainer.state.log_history)
    assert set(last) == {"task_loss", "guide/pdg", "guide/pdg_weighted", "guide/pdg_weight"}


def test_a_model_without_guides_is_trained_as_usual(tmp_path):
    trainer = logged(trainer_of(Trainer, exact_model(), tmp_path))
    trainer.train()
    assert not any(parts_of(trainer.state.log_history))


def test_the_old_function_still_works(tmp_path):
    with pytest.warns(DeprecationWarning, match="use callbacks"):
        trainer = hw.log_losses(trainer_of(Trainer, guided(), tmp_path))
    trainer.train()
    assert all(set(parts) >= ALWAYS for parts in parts_of(trainer.state.log_history))
    with pytest.raises(StateError, match=r"is not guided: call guide\(model, \.\.\.\) first"):
        hw.training.log_losses(trainer_of(Trainer, exact_model(), tmp_path))
