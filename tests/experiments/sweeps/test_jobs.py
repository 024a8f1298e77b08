"""One run of a sweep: trained once, resumed with the same results; errors are kept."""

import json
import signal
from pathlib import Path

import pytest
from small_sweeps import differences, finished_counts, results, write_sweep
from tiny_runs import record, small, small_joint

from headwise.experiments import check_recipe
from headwise.experiments.prepare import RunPaths
from headwise.experiments.run import train
from headwise.experiments.sweeps.jobs import JobSettings, run_job
from headwise.experiments.sweeps.result_folder import ResultFolder
from headwise.experiments.sweeps.sweep_file import plan_sweep
from headwise.training import Silence
from headwise.training.callbacks import BestModel


@pytest.fixture
def job(tmp_path, encoder, pairs):
    def of(folder="out", data=pairs, keep_models=False, **changes):
        recipe = check_recipe(small(encoder, **({"training__epochs": 1} | changes)), "test")
        return JobSettings(tmp_path / folder, Path(data), keep_models=keep_models).job(recipe, "a run")

    return of


def test_a_run_is_trained_once_and_leaves_one_json_and_its_model(job, tmp_path, ran):
    changes = {"ssa": {}, "guides": {}, "training__epochs": 2}
    run, folder = job(keep_models=True, **changes), ResultFolder(tmp_path / "out")
    folder.open()
    with folder.claimed(run.key):  # by another process
        assert run_job(run, Silence()).state == "busy"
    result = run_job(run, Silence())
    assert result.state == "finished"
    assert result.message.startswith("test accuracy 0.")
    (content,) = results(tmp_path / "out").values()
    assert content == json.loads(json.dumps(result.content))
    assert set(content) == {"format", "key", "recipe", "examples", "results", "environment"}
    trained = record(ran("alone", **changes))
    assert content["results"]["metrics"] == trained["results"]["metrics"]
    assert content["examples"] == trained["examples"]
    assert set(content["results"]["outputs"]) == {"validation", "test"}
    times = content["environment"]["times"]
    assert len(times["seconds_per_epoch"]) == len(times["labelling"]) == len(content["results"]["ssa"]) == 2
    assert "seconds" not in json.dumps(content["results"])
    assert list((tmp_path / "out" / "unfinished").iterdir()) == []
    model = tmp_path / "out" / "models" / run.key
    assert {"model.safetensors", "headwise.json", "outputs.json"} <= {path.name for path in model.iterdir()}
    assert not (model / "unfinished").exists()
    before = folder.result(run.key).stat().st_mtime_ns
    assert run_job(run, Silence()).state == "present"
    assert folder.result(run.key).stat().st_mtime_ns == before
    assert finished_counts(tmp_path / "out") == {run.key: 1}


def test_a_failed_run_leaves_its_error_until_it_succeeds(job, tmp_path):
    run = job(data=tmp_path / "nowhere")
    assert run_job(run, Silence()).state == "failed"
    error = json.loads((tmp_path / "out" / "runs" / f"{run.key}.error.json").read_text())
    assert error["results"]["status"] == "failed"
    assert error["results"]["error"]["kind"] == "InputError"
    assert "nowhere" in error["results"]["error"]["message"]
    assert error["recipe"] == run.recipe
    assert run_job(job(), Silence()).state == "finished"
    assert [path.name for path in (tmp_path / "out" / "runs").iterdir()] == [f"{run.key}.json"]


class Interrupt(Silence):
    """Presses Ctrl-C after three steps."""

    def advance(self, done, note=""):
        if done == 3:
            signal.raise_signal(signal.SIGINT)


def test_an_interrupted_run_is_resumed_with_the_same_results(job, tmp_path):
    assert run_job(job("whole"), Silence()).state == "finished"
    assert run_job(job("parts"), Interrupt()).state == "interrupted"
    assert results(tmp_path / "parts") == {}
    assert run_job(job("parts"), Silence()).state == "finished"
    assert differences(tmp_path / "parts", tmp_path / "whole") == []


def test_a_run_that_was_trained_but_not_saved_is_not_trained_again(job, tmp_path, monkeypatch):
    run = job()
    ResultFolder(tmp_path / "out").open()
    train(check_recipe(run.recipe, "test"), RunPaths(tmp_path / "out" / "unfinished" / run.key, run.settings.data))

    def trains(*args, **options):
        raise AssertionError("it is trained again")

    monkeypatch.setattr(BestModel, "on_evaluate", trains)
    assert run_job(run, Silence()).state == "finished"
    assert results(tmp_path / "out")[run.key]["results"]["outputs"]


def test_heads_are_measured_on_a_run_on_several_tasks(tmp_path, encoder, several):
    then = {"prune-curve": {"percent": [50], "controls": False, "examples": 20}, "dissociation": {"resamples": 20}}
    (tmp_path / "recipe.yaml").write_text(json.dumps(small_joint(encoder, training__epochs=1)))
    changes = {"recipe": "recipe.yaml", "grid": None, "compare": None, "seeds": [1], "then": then}
    plan = plan_sweep(write_sweep(tmp_path / "s.yaml", encoder, **changes))
    (planned,) = plan.runs
    run = JobSettings(tmp_path / "out", Path(several)).job(planned.recipe, "heads", then=plan.sweep.then)
    assert run.key == planned.key
    assert run_job(run, Silence()).state == "finished"
    heads = results(tmp_path / "out")[run.key]["results"]["heads"]
    assert heads["prune-curve"]["tasks"] == heads["dissociation"]["tasks"] == list(planned.recipe.tasks)
    assert heads["prune-curve"]["counts"] == [4]
