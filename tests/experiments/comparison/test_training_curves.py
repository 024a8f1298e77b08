"""The curves of a run are the numbers of its log, by name."""

import json

import pytest
from small_heads import bare_record
from tiny_runs import log, record

from headwise.errors import InputError
from headwise.experiments.comparison.run_plots import training_curves


def pick(series, group, name, kind="raw"):
    """The points of one series."""
    (found,) = [each for each in series if (each["group"], each["name"], each["kind"]) == (group, name, kind)]
    return list(zip(found["x"], found["y"], strict=True))


def slow_points(entries, key):
    return [(entry["step"], entry[key]) for entry in entries if key in entry]


def test_a_guided_run_has_both_losses_all_parts_of_its_guides_and_its_scores(finished):
    series = training_curves(finished, "m3")
    steps = [entry for entry in log(finished) if "loss" in entry]
    assert {each["model"] for each in series} == {"m3"}
    assert len(steps) == 10
    assert pick(series, "loss", "task loss") == slow_points(steps, "task_loss")
    assert pick(series, "loss", "whole loss") == slow_points(steps, "loss")
    for guide in ("mdg", "pdg"):
        for kind, ending in {"raw": "", "weighted": "_weighted", "share": "_share"}.items():
            assert pick(series, f"guide:{guide}", guide, kind) == slow_points(steps, f"guide/{guide}{ending}")
    assert 0 < len(pick(series, "guide:mdg", "mdg", "share")) < 10  # measured now and then only
    scores, results = [each for each in series if each["group"] == "validation"], record(finished)["results"]
    assert scores[0]["name"] == results["primary"] == "accuracy"
    assert {each["name"] for each in scores} == set(results["metrics"]["validation"])
    assert pick(scores, "validation", "macro_f1") == slow_points(results["evaluations"], "eval_macro_f1")


def test_a_run_on_several_tasks_has_the_scores_of_each(with_iat):
    series = training_curves(with_iat, "m0")
    assert [each["name"] for each in series][:5] == [
        *("task loss", "mean", "agree/accuracy", "type/accuracy", "score/pearson")
    ]
    evaluations = record(with_iat)["results"]["evaluations"]
    assert pick(series, "validation", "score/spearman") == slow_points(evaluations, "eval_score/spearman")
    assert pick(series, "loss", "task loss") == slow_points(log(with_iat), "loss")


@pytest.fixture
def write_run(tmp_path):
    """A run of a record and of lines of a log."""

    def write(*lines, **results):
        (tmp_path / "headwise.json").write_text(json.dumps(bare_record("run", **results)))
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        (tmp_path / "log.jsonl").write_text("".join(f"{text}\n" for text in texts))
        return tmp_path

    return write


def test_values_that_are_no_numbers_are_left_out_and_ssa_has_a_token_loss(write_run):
    run = write_run({"step": 1, "loss": float("nan")}, {"step": 2, "loss": 0.5}, {"step": 3, "train_loss": 9.0})
    (series,) = training_curves(run, "m0")
    assert (series["x"], series["y"]) == ([2], [0.5])
    parts = {"ssa/task_loss": 0.4, "ssa/token_loss": 0.7, "task_loss": 1.1}
    series = training_curves(write_run({"step": 1, "loss": 1.2, **parts}), "m0")
    found = {each["name"]: each["y"] for each in series}
    assert found == {"task loss": [0.4], "token loss": [0.7], "whole loss": [1.2]}


def test_damaged_files_and_a_run_without_a_log_or_an_end_are_refused(write_run, tmp_path):
    for line in ('{"step": 1, "loss"', '{"step": null, "loss": 1.0}'):
        with pytest.raises(InputError, match=r"log.jsonl, line 2, is damaged .* train again"):
            training_curves(write_run({"step": 1, "loss": 1.0}, line), "m0")
    with pytest.raises(InputError, match=r"headwise.json is damaged .* train again"):
        training_curves(write_run({"step": 1, "loss": 1.0}, evaluations=[3]), "m0")
    run = write_run({"step": 1, "loss": 1.0})
    (run / "log.jsonl").unlink()
    with pytest.raises(InputError, match=r"log.jsonl is not there.*train again"):
        training_curves(run, "m0")
    content = json.loads((run / "headwise.json").read_text()) | {"results": None}
    (run / "headwise.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="not finished: finish it first"):
        training_curves(run, "m0")
    with pytest.raises(InputError, match="is not a run of headwise"):
        training_curves(tmp_path.parent, "m0")
