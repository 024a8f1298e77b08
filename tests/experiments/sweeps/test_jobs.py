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
from headwise.experiments.sweeps.jobs import Job, run_job, run_key
from headwise.experiments.sweeps.result_folder import ResultFolder
from headwise.experiments.sweeps.sweep_file import plan_sweep
from headwise.training import Silence
from headwise.training.callbacks import BestModel


@pytest.fixture
def job(tmp_path, encoder, pairs):
    def of(folder="out", data=pairs, keep_model=False, then=None, **changes):
        recipe = check_recipe(small(encoder, **({"training__epochs": 1} | changes)), "test")
        return Job(
            key=run_key(recipe),
            name="a run",
            recipe=recipe.as_data(),
            folder=str(tmp_path / folder),
            data=str(data),
            keep_model=keep_model,
            then=then,
        )

    return of


def test_a_run_leaves_one_json_with_what_training_says(job, tmp_path, ran):
    made = job()
    report = run_job(made, Silence())
    assert report.state == "finished"
    assert report.message.startswith("test accuracy 0.")
    (content,) = results(tmp_path / "out").values()
    assert content == json.loads(json.dumps(report.content))
    assert set(content) == {"format", "key", "recipe", "examples", "results", "environment"}
    trained = record(ran("alone", training__epochs=1))
    assert content["results"]["metrics"] == trained["results"]["metrics"]
    assert content["examples"] == trained["examples"]
    assert set(content["results"]["outputs"]) == {"validation", "test"}
    assert content["environment"]["times"]["seconds_per_epoch"]
    assert not any("seconds" in name for name in content["results"])
    assert sorted(path.name for path in (tmp_path / "out" / "unfinished").iterdir()) == []


def test_what_is_there_is_not_repeated(job, tmp_path):
    made = job()
    run_job(made, Silence())
    before = (tmp_path / "out" / "runs" / f"{made.key}.json").stat().st_mtime_ns
    assert run_job(made, Silence()).state == "present"
    assert (tmp_path / "out" / "runs" / f"{made.key}.json").stat().st_mtime_ns == before
    assert finished_counts(tmp_path / "out") == {made.key: 1}


def test_a_failed_run_leaves_its_error_until_it_succeeds(job, tmp_path, pairs):
    made = job(data=tmp_path / "nowhere")
    report = run_job(made, Silence())
    assert report.state == "failed"
    error = json.loads((tmp_path / "out" / "runs" / f"{made.key}.error.json").read_text())
    assert error["results"]["status"] == "failed"
    assert error["results"]["error"]["kind"] == "InputError"
    assert "nowhere" in error["results"]["error"]["message"]
    assert error["recipe"] == made.recipe
    assert run_job(job(), Silence()).state == "finished"
    assert [path.name for path in (tmp_path / "out" / "runs").iterdir()] == [f"{made.key}.json"]


def test_somebody_elses_run_is_left_to_them(job, tmp_path):
    made = job()
    folder = ResultFolder(tmp_path / "out")
    folder.open()
    with folder.claimed(made.key):
        assert run_job(made, Silence()).state == "busy"
    assert run_job(made, Silence()).state == "finished"


class Interrupt(Silence):
    """Presses Ctrl-C after some steps."""

    def __init__(self, step):
        self._step = step

    def advance(self, done, note=""):
        if done == self._step:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 3])
def test_an_interrupted_run_goes_on_to_the_same_bytes(job, tmp_path, step):
    assert run_job(job("whole"), Silence()).state == "finished"
    assert run_job(job("parts"), Interrupt(step)).state == "interrupted"
    assert results(tmp_path / "parts") == {}
    assert run_job(job("parts"), Silence()).state == "finished"
    assert result_bytes(tmp_path / "parts") == result_bytes(tmp_path / "whole")


def test_a_run_that_was_trained_but_not_kept_is_not_trained_again(job, tmp_path, monkeypatch):
    made = job()
    ResultFolder(tmp_path / "out").open()
    train(check_recipe(made.recipe, "test"), Place(tmp_path / "out" / "unfinished" / made.key, Path(made.data)))

    def trains(*args, **options):
        raise AssertionError("it is trained again")

    monkeypatch.setattr(BestModel, "on_evaluate", trains)
    assert run_job(made, Silence()).state == "finished"
    assert results(tmp_path / "out")[made.key]["results"]["outputs"]


def test_bytes_do_not_depend_on_what_the_process_did_before(job, tmp_path):
    first, second = (job("one", seed=seed) for seed in (1, 2))
    run_job(first, Silence())
    run_job(second, Silence())
    torch.rand(5)
    torch.set_num_threads(2)
    run_job(job("two", seed=2), Silence())
    run_job(job("two", seed=1), Silence())
    assert torch.get_num_threads() == 1
    assert result_bytes(tmp_path / "one") == result_bytes(tmp_path / "two")


def test_models_are_kept_when_asked_for(job, tmp_path):
    made = job(keep_model=True)
    run_job(made, Silence())
    model = tmp_path / "out" / "models" / made.key
    assert {"model.safetensors", "headwise.json", "outputs.json"} <= {path.name for path in model.iterdir()}
    assert not (model / "unfinished").exists()


def test_the_times_of_labelling_are_of_the_world(job, tmp_path):
    made = job(ssa={}, guides={}, training__epochs=2)
    assert run_job(made, Silence()).state == "finished"
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
    made = Job(
        planned.key, "heads", planned.recipe.as_data(), str(tmp_path / "out"), data=several, then=plan.sweep.then
    )
    report = run_job(made, Silence())
    assert report.state == "finished", report
    heads = results(tmp_path / "out")[made.key]["results"]["heads"]
    tasks = list(planned.recipe.tasks)
    assert heads["prune-curve"]["tasks"] == heads["dissociation"]["tasks"] == tasks
    assert heads["prune-curve"]["counts"] == [4]
