"""The best model is kept, training ends when it no longer gets better or a `watch` says so, the clock counts steps."""

import time
from pathlib import Path

import pytest
from tiny_runs import IAT, small, small_joint
from training.small_task import exact_model, trainer_of
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState

from headwise.experiments import check_recipe
from headwise.experiments.prepare import RunPaths
from headwise.experiments.run import train
from headwise.training.callbacks import AbandonRun, BestModel, Clock


def evaluate(best, *values, start=1, zero=True):
    """Evaluations, one step apart; the last control comes back."""
    for step, value in enumerate(values, start):
        control = TrainerControl()
        state = TrainerState(global_step=step, max_steps=9, is_world_process_zero=zero)
        best.on_evaluate(None, state, control, {"eval_accuracy": value, "eval_f1": value / 2})
        if control.should_training_stop:
            break
    return control


def saved_and_restored(callback, fresh, path):
    TrainerState(stateful_callbacks=[callback]).save_to_json(str(path))
    fresh.on_train_begin(None, TrainerState.load_from_json(str(path)), None)
    return fresh


def test_it_keeps_the_first_of_the_best(tmp_path):
    saved, watched = [], []

    def save(folder):
        saved.append(folder)
        folder.mkdir()
        (folder / "number").write_text(str(len(saved)))

    best = BestModel("accuracy", tmp_path / "best", save, watch=lambda *each: watched.append(each))
    evaluate(best, 0.5, 0.7, 0.7, 0.6)
    assert (best.value, best.step, best.waited) == (0.7, 2, 2)
    assert (tmp_path / "best" / "number").read_text() == str(len(saved)) == "2"
    assert [path.name for path in tmp_path.iterdir()] == ["best"]
    assert best.history[1] == {"step": 2, "eval_accuracy": 0.7, "eval_f1": 0.35}
    assert watched == [(1, 9, 0.5), (2, 9, 0.7), (3, 9, 0.7), (4, 9, 0.7)]
    evaluate(best, 0.9, zero=False)  # another process writes
    assert (best.value, len(saved)) == (0.9, 2)


def test_a_failed_save_leaves_the_old_model(tmp_path):
    def write(folder):
        folder.mkdir()
        (folder / "weights").write_text("x")

    def full(folder):
        folder.mkdir()
        (folder / "half").write_text("x")
        raise OSError("no space left on device")

    best = BestModel("accuracy", tmp_path / "best", write)
    evaluate(best, 0.5)
    best._save = full
    with pytest.raises(OSError, match="no space"):
        evaluate(best, 0.6, start=2)
    assert [path.name for path in (tmp_path / "best").iterdir()] == ["weights"]
    best._save = write
    evaluate(best, 0.7, start=3)  # and the half one is no obstacle
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["best", "weights"]


def test_patience_and_memory_in_checkpoints(tmp_path):
    best = BestModel("accuracy", patience=2)
    assert not evaluate(best, 0.5, 0.4).should_training_stop
    assert not evaluate(best, 0.6, 0.5, start=3).should_training_stop  # a better one starts the count anew
    again = saved_and_restored(best, BestModel("accuracy", patience=2), tmp_path / "state.json")
    assert (again.value, again.step, again.waited, again.history) == (0.6, 3, 1, best.history)
    assert evaluate(again, 0.6, start=5).should_training_stop
    assert again.exhausted
    assert not evaluate(BestModel("accuracy"), *[0.5] * 20).should_training_stop


class Slow(TrainerCallback):
    """Takes its time where the clock should run, and where it should not."""

    def on_optimizer_step(self, *args, **kwargs):
        time.sleep(0.01)

    def on_evaluate(self, *args, **kwargs):
        time.sleep(0.05)

    on_save = on_evaluate


def test_steps_count_evaluation_and_saving_do_not(tmp_path):
    clock = Clock()
    assert clock.seconds_per_step is None
    options = {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 2}
    trainer = trainer_of(
        Trainer,
        exact_model(),
        tmp_path,
        callbacks=[clock, Slow()],
        max_steps=6,
        per_device_train_batch_size=16,
        **options,
    )
    began = time.perf_counter()
    trainer.train()
    whole = time.perf_counter() - began
    assert list(clock.epochs) == ["0", "1", "2"]
    assert all(seconds >= 0.02 for seconds in clock.epochs.values())
    assert clock.seconds_per_step >= 0.01
    assert sum(clock.epochs.values()) < whole - 0.45 + 0.001  # 6 evaluations and 3 checkpoints
    clock._steps = [9.0, 1.0, 3.0, 2.0]  # the first one warms up
    assert clock.seconds_per_step == 2.0


def test_seconds_of_epochs_are_resumed(tmp_path):
    clock = Clock()
    clock.epochs = {"0": 3.0, "1": 1.5}
    again = saved_and_restored(clock, Clock(), tmp_path / "state.json")
    again.on_step_begin(None, TrainerState(epoch=1.5), None)
    again.on_step_end(None, TrainerState(epoch=2.0), None)  # the Trainer has rounded up by then
    assert again.epochs["0"] == 3.0
    assert 1.5 < again.epochs["1"] < 2
    assert list(again.epochs) == ["0", "1"]


def test_a_watch_ends_a_run(encoder, pairs, tmp_path):
    seen = []

    def end(step, total, best):
        seen.append(step)
        if step == 4:
            raise AbandonRun

    with pytest.raises(AbandonRun):
        train(
            check_recipe(small(encoder, training__evaluate_every=2), "test"),
            RunPaths(tmp_path / "run", Path(pairs)),
            watch=end,
        )
    assert seen == [2, 4]


@pytest.mark.slow
def test_the_control_of_important_heads_is_not_watched(encoder, several, tmp_path):
    seen = []
    data = small_joint(encoder, among=["type", "score"], training__epochs=1, training__evaluate_every=2, iat=IAT)
    place = RunPaths(tmp_path / "run", Path(several))
    result = train(check_recipe(data, "test"), place, watch=lambda *each: seen.append(each[0]))
    assert "control" in result.record["results"]
    assert seen == sorted(set(seen))
    assert seen[-1] == result.record["results"]["steps"]
