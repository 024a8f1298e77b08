"""`report_to`: guides' losses, gradient shares and test scores arrive in each tracker, here without a network."""

from __future__ import annotations

import json

import pytest

from headwise.training.run_trainer import report_summary

WANTED = {"guide/mdg", "guide/mdg_share", "test_accuracy", "eval_accuracy"}
# Of the trackers, which are libraries of others.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def reported(name):
    """As the trackers write the names of metrics of train, validation and test."""
    for split in ("eval", "test"):
        if name.startswith(f"{split}_"):
            return name.replace("_", "/", 1)
    return f"train/{name}"


def scores(run):
    return json.loads((run / "headwise.json").read_text())["results"]["metrics"]["test"]


def test_tensorboard(ran, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = ran(report_to=["tensorboard"])
    found = EventAccumulator(str(run / "tensorboard"))
    found.Reload()
    assert {reported(name) for name in WANTED} <= set(found.Tags()["scalars"])
    (last,) = found.Scalars("test/accuracy")
    assert last.value == pytest.approx(scores(run)["accuracy"])
    report_summary(["tensorboard"], "all", tmp_path / "sums", {"sweep/runs": 6})
    (path,) = (tmp_path / "sums").rglob("events.*")
    found = EventAccumulator(str(path.parent))
    found.Reload()
    assert [each.value for each in found.Scalars("train/sweep/runs")] == [6]


def test_mlflow_in_a_file(ran, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    store = f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "of-a-test")
    mlflow.set_tracking_uri(store)
    run = ran(report_to=["mlflow"])
    (found,) = mlflow.search_runs(experiment_names=["of-a-test"], output_format="list")
    assert {*WANTED} <= set(found.data.metrics)
    assert found.data.metrics["test_accuracy"] == pytest.approx(scores(run)["accuracy"])
    assert found.info.status == "FINISHED"
    report_summary(["mlflow"], "all", tmp_path, {"sweep/runs": 6})
    names = {each.info.run_name: each.data.metrics for each in mlflow.search_runs(
        experiment_names=["of-a-test"], output_format="list"
    )}  # fmt: skip
    assert names["all"] == {"sweep/runs": 6}


def test_wandb_offline(ran, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    ran(report_to=["wandb"])
    assert wandb.run is None  # over: the next run of this process is another one
    (path,) = tmp_path.rglob("*.wandb")
    content = path.read_bytes()
    for name in WANTED:
        assert reported(name).encode() in content
    report_summary(["wandb"], "all", tmp_path, {"sweep/runs": 6})
    assert len(list(tmp_path.rglob("*.wandb"))) == 2
