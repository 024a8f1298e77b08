"""`headwise sweep` as people type it."""

import json

import pytest
from small_sweeps import results, write_sweep
from tiny_runs import assert_one_sentence


@pytest.fixture
def sweep(tmp_path, encoder):
    def write(**changes):
        return write_sweep(tmp_path / "s.yaml", encoder, **changes)

    return write


def test_a_sweep_is_planned_made_and_not_repeated(headwise, sweep, pairs, tmp_path):
    path, out = sweep(seeds=[1]), tmp_path / "out"
    code, shown, _ = headwise("sweep", path, "--data", pairs, "--output", out, "--dry-run")
    assert code == 0
    assert "2 points, 2 different runs" in shown
    assert not out.exists()
    code, shown, err = headwise("sweep", path, "--data", pairs, "--output", out, "--workers", 1)
    assert code == 0, err
    assert "2 runs: 2 made now" in shown
    assert f"compare {out}" in shown
    assert "system plain, seed 1: finished, test accuracy 0." in err
    assert len(results(out)) == 2
    code, shown, _ = headwise("sweep", path, "--data", pairs, "--output", out, "--json")
    assert code == 0
    assert json.loads(shown)["present"] == 2
    code, shown, _ = headwise("sweep", path, "--output", out, "--dry-run", "--json")
    assert [run["there"] for run in json.loads(shown)["runs"]] == [True, True]


def test_a_failed_run_is_told_and_gives_exit_code_1(headwise, sweep, pairs, tmp_path):
    grid = {"system": {"plain": {"guides": {}}, "bad": {"guides": {}, "training.learning_rate": 0.9999}}}
    path, out = sweep(seeds=[1], grid=grid, compare=None), tmp_path / "out"
    code, shown, _ = headwise("sweep", path, "--data", pairs, "--output", out, "--set", "training.steps=60", "--json")
    told = json.loads(shown)
    if code == 0:  # it did not diverge on this machine: nothing to see
        pytest.skip("a learning rate of 0.9999 did not diverge here")
    assert code == 1
    assert (told["finished"], told["failed"]) == (1, 1)
    assert "diverged" in told["errors"][0]["error"]


def test_missing_files_are_named_before_anything_is_written(headwise, sweep, pairs, tmp_path):
    grid = {"model": {"here": None, "away": {"model": "bert-base-uncased"}}}
    path, out = sweep(grid=grid, compare=None, seeds=[1]), tmp_path / "out"
    result = headwise("sweep", path, "--output", out)
    assert_one_sentence(result, "2 of 2 runs lack files", "bert-base-uncased", "no --data was given", "train of pairs")
    result = headwise("sweep", path, "--output", out, "--data", pairs)
    assert_one_sentence(result, "1 of 2 runs lack files", "bert-base-uncased", "add --download", "--available")
    assert not out.exists()
    code, shown, err = headwise("sweep", path, "--output", out, "--data", pairs, "--available", "--json")
    assert code == 0, err
    assert (json.loads(shown)["finished"], json.loads(shown)["left_out"]) == (1, 1)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--engine", "slurm"), ("unknown engine 'slurm'", "local, ray")),
        (("--address", "10.0.0.1:6379"), ("is for --engine ray",)),
        (("--seeds", "1;2"), ("--seeds 1;2", "such as 1,2,3")),
        (("--only", "sistem=plain"), ("unknown axis 'sistem'",)),
        (("--scale", "small"), ("--scale small",)),
        (("--set", "training.epoch=1"), ("unknown key 'training.epoch'",)),
    ],
)
def test_mistakes_are_told_in_a_sentence(headwise, sweep, pairs, tmp_path, words, parts):
    result = headwise("sweep", sweep(), "--data", pairs, "--output", tmp_path / "out", *words)
    assert_one_sentence(result, *parts)
    assert not (tmp_path / "out").exists()


def test_a_folder_of_something_else_is_refused(headwise, sweep, pairs, tmp_path):
    assert_one_sentence(headwise("sweep", sweep(), "--data", pairs, "--output", tmp_path), "holds other files")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "headwise-sweep.json").write_text('{"format": 0, "headwise": "0.0.1"}')
    result = headwise("sweep", sweep(), "--data", pairs, "--output", tmp_path / "out")
    assert_one_sentence(result, "results of headwise 0.0.1", "not mixed")
