"""The best model is kept, and training ends when it no longer gets better."""

from types import SimpleNamespace

import pytest
import torch
from training.small_task import exact_model, parameters, trainer_of
from transformers import Trainer, TrainerControl, TrainerState

from headwise.training.callbacks import BestModel


def feed(best, *values, start=1, zero=True):
    """Evaluations, one step apart; the last control comes back."""
    for step, value in enumerate(values, start):
        control = TrainerControl()
        state = TrainerState(global_step=step, is_world_process_zero=zero)
        best.on_evaluate(None, state, control, {"eval_accuracy": value, "eval_f1": value / 2})
        if control.should_training_stop:
            break
    return control


def writer(folder):
    folder.mkdir()
    (folder / "weights").write_text("x")


def test_it_keeps_the_first_of_the_best(tmp_path):
    saved = []

    def save(folder):
        saved.append(folder)
        folder.mkdir()
        (folder / "number").write_text(str(len(saved)))

    best = BestModel("accuracy", tmp_path / "best", save)
    feed(best, 0.5, 0.7, 0.7, 0.6)
    assert (best.value, best.step, best.waited) == (0.7, 2, 2)
    assert len(saved) == 2
    assert (tmp_path / "best" / "number").read_text() == "2"
    assert [path.name for path in tmp_path.iterdir()] == ["best"]
    assert best.history[1] == {"step": 2, "eval_accuracy": 0.7, "eval_f1": 0.35}


def test_a_failed_save_leaves_the_old_model(tmp_path):
    best = BestModel("accuracy", tmp_path / "best", writer)
    feed(best, 0.5)

    def full(folder):
        folder.mkdir()
        (folder / "half").write_text("x")
        raise OSError("no space left on device")

    best._save = full
    with pytest.raises(OSError, match="no space"):
        feed(best, 0.6, start=2)
    assert [path.name for path in (tmp_path / "best").iterdir()] == ["weights"]
    best._save = writer
    feed(best, 0.7, start=3)  # and the half one is no obstacle
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["best", "weights"]


def test_patience():
    best = BestModel("accuracy", patience=2)
    assert not feed(best, 0.5, 0.4).should_training_stop
    assert not best.exhausted
    assert not feed(best, 0.6, 0.5, start=3).should_training_stop  # a better one starts the count anew
    assert feed(best, 0.6, start=5).should_training_stop
    assert best.exhausted
    assert not BestModel("accuracy").exhausted
    assert not feed(BestModel("accuracy"), *[0.5] * 20).should_training_stop


def test_only_the_first_process_writes(tmp_path):
    best = BestModel("accuracy", tmp_path / "best", writer)
    feed(best, 0.5, zero=False)
    assert best.value == 0.5
    assert list(tmp_path.iterdir()) == []


def test_its_memory_is_in_checkpoints(tmp_path):
    best = BestModel("accuracy", patience=3)
    feed(best, 0.5, 0.4)
    state = TrainerState(stateful_callbacks=[best])
    state.save_to_json(str(tmp_path / "state.json"))
    again = BestModel("accuracy", patience=3)
    again.on_train_begin(None, TrainerState.load_from_json(str(tmp_path / "state.json")), None)
    assert (again.value, again.step, again.waited, again.history) == (best.value, 1, 1, best.history)
    assert feed(again, 0.4, 0.4, start=3).should_training_stop
    fresh = BestModel("accuracy")
    fresh.on_train_begin(None, SimpleNamespace(stateful_callbacks={}), None)
    assert fresh.value is None


def test_in_a_real_run(tmp_path):
    model, kept = exact_model(), []
    losses = iter([0.1, 0.3, 0.2, 0.25, 0.9])
    best = BestModel("score", tmp_path / "best", lambda folder: (folder.mkdir(), kept.append(parameters(model))), 2)
    trainer = trainer_of(
        Trainer, model, tmp_path / "run", callbacks=[best], eval_strategy="steps", eval_steps=1, max_steps=5
    )
    trainer.compute_metrics = lambda _: {"score": next(losses)}
    trainer.train()
    assert trainer.state.global_step == 4  # stopped before the best of all
    assert (best.value, best.step) == (0.3, 2)
    assert len(kept) == 2
    assert not torch.equal(kept[1]["classifier.weight"], model.classifier.weight)
