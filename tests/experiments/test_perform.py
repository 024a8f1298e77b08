"""One run of a sweep: made once, resumed, the same bytes whoever makes it; errors are kept."""

import json
import signal
from pathlib import Path

import pytest
import torch
from small_sweeps import finished_counts, result_bytes, results, write_sweep
from tiny_runs import record, small

from headwise.experiments import check_recipe
from headwise.experiments.prepare import Place
from headwise.experiments.run import train
from headwise.experiments.sweeps.perform import Assignment, perform
from headwise.experiments.sweeps.plan import plan_sweep, run_key
from headwise.experiments.sweeps.sweep_folder import ResultFolder
from headwise.training import Silence
from headwise.training.callbacks import BestModel


@pytest.fixture
def assignment(tmp_path, encoder, pairs):
    def of(folder="out", data=pairs, keep_model=False, then=None, **changes):
        recipe = check_recipe(small(encoder, **({"training__epochs": 1} | changes)), "test")
        return Assignment(
            key=run_key(recipe),
            name="a run",
            recipe=recipe.as_data(),
            folder=str(tmp_path / folder),
            data=str(data),
            keep_model=keep_model,
            then=then,
        )

    return of


def test_a_run_leaves_one_json_with_what_training_says(assignment, tmp_path, ran):
    made = assignment()
    report = perform(made, Silence())
    assert report.state == "finished"
    assert report.message.startswith("test accuracy 0.")
    (content,) = results(tmp_path / "out").values()
    assert content == json.loads(json.dumps(report.content))
    assert set(content) == {"format", "key", "asked", "happened", "world"}
    trained = record(ran("alone", training__epochs=1))
    assert content["results"]["metrics"] == trained["results"]["metrics"]
    assert content["examples"] == trained["examples"]
    assert set(content["results"]["outputs"]) == {"validation", "test"}
    assert content["environment"]["times"]["seconds_per_epoch"]
    assert not any("seconds" in name for name in content["results"])
    assert sorted(path.name for path in (tmp_path / "out" / "unfinished").iterdir()) == []


def test_what_is_there_is_not_repeated(assignment, tmp_path):
    made = assignment()
    perform(made, Silence())
    before = (tmp_path / "out" / "runs" / f"{made.key}.json").stat().st_mtime_ns
    assert perform(made, Silence()).state == "present"
    assert (tmp_path / "out" / "runs" / f"{made.key}.json").stat().st_mtime_ns == before
    assert finished_counts(tmp_path / "out") == {made.key: 1}


def test_a_failed_run_leaves_its_error_until_it_succeeds(assignment, tmp_path, pairs):
    made = assignment(data=tmp_path / "nowhere")
    report = perform(made, Silence())
    assert report.state == "failed"
    error = json.loads((tmp_path / "out" / "runs" / f"{made.key}.error.json").read_text())
    assert error["results"]["status"] == "failed"
    assert error["results"]["error"]["kind"] == "InputError"
    assert "nowhere" in error["results"]["error"]["message"]
    assert error["recipe"] == made.recipe
    assert perform(assignment(), Silence()).state == "finished"
    assert [path.name for path in (tmp_path / "out" / "runs").iterdir()] == [f"{made.key}.json"]


def test_somebody_elses_run_is_left_to_them(assignment, tmp_path):
    made = assignment()
    folder = ResultFolder(tmp_path / "out")
    folder.open()
    with folder.claimed(made.key):
        assert perform(made, Silence()).state == "busy"
    assert perform(made, Silence()).state == "finished"


class Interrupt(Silence):
    """Presses Ctrl-C after some steps."""

    def __init__(self, step):
        self._step = step

    def advance(self, done, note=""):
        if done == self._step:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 3])
def test_an_interrupted_run_goes_on_to_the_same_bytes(assignment, tmp_path, step):
    assert perform(assignment("whole"), Silence()).state == "finished"
    assert perform(assignment("parts"), Interrupt(step)).state == "interrupted"
    assert results(tmp_path / "parts") == {}
    assert perform(assignment("parts"), Silence()).state == "finished"
    assert result_bytes(tmp_path / "parts") == result_bytes(tmp_path / "whole")


def test_a_run_that_was_trained_but_not_kept_is_not_trained_again(assignment, tmp_path, monkeypatch):
    made = assignment()
    ResultFolder(tmp_path / "out").open()
    train(check_recipe(made.recipe, "test"), Place(tmp_path / "out" / "unfinished" / made.key, Path(made.data)))

    def trains(*args, **options):
        raise AssertionError("it is trained again")

    monkeypatch.setattr(BestModel, "on_evaluate", trains)
    assert perform(made, Silence()).state == "finished"
    assert results(tmp_path / "out")[made.key]["results"]["outputs"]


def test_bytes_do_not_depend_on_what_the_process_did_before(assignment, tmp_path):
    first, second = (assignment("one", seed=seed) for seed in (1, 2))
    perform(first, Silence())
    perform(second, Silence())
    torch.rand(5)
    torch.set_num_threads(2)
    perform(assignment("two", seed=2), Silence())
    perform(assignment("two", seed=1), Silence())
    assert torch.get_num_threads() == 1
    assert result_bytes(tmp_path / "one") == result_bytes(tmp_path / "two")


def test_models_are_kept_when_asked_for(assignment, tmp_path):
    made = assignment(keep_model=True)
    perform(made, Silence())
    model = tmp_path / "out" / "models" / made.key
    assert {"model.safetensors", "headwise.json", "outputs.json"} <= {path.name for path in model.iterdir()}
    assert not (model / "unfinished").exists()


def test_the_times_of_labelling_are_of_the_world(assignment, tmp_path):
    made = assignment(ssa={}, guides={}, training__epochs=2)
    assert perform(made, Silence()).state == "finished"
    content = results(tmp_path / "out")[made.key]
    assert len(content["results"]["ssa"]) == 2
    assert not any("seconds" in epoch for epoch in content["results"]["ssa"])
    assert content["environment"]["times"]["labelling"][1] > 0


def test_several_tasks_are_measured_head_by_head(tmp_path, encoder, several):
    from tiny_runs import small_joint

    then = {"prune-curve": {"percent": [50], "controls": False, "examples": 20}, "dissociation": {"resamples": 20}}
    (tmp_path / "recipe.yaml").write_text(json.dumps(small_joint(encoder, training__epochs=1)))
    path = write_sweep(
        tmp_path / "s.yaml", encoder, recipe="recipe.yaml", grid=None, compare=None, seeds=[1], then=then
    )
    plan = plan_sweep(path)
    (planned,) = plan.runs
    made = Assignment(
        planned.key, "heads", planned.recipe.as_data(), str(tmp_path / "out"), data=several, then=plan.sweep.then
    )
    report = perform(made, Silence())
    assert report.state == "finished", report
    heads = results(tmp_path / "out")[made.key]["results"]["heads"]
    tasks = list(planned.recipe.tasks)
    assert heads["prune-curve"]["tasks"] == heads["dissociation"]["tasks"] == tasks
    assert heads["prune-curve"]["counts"] == [4]
