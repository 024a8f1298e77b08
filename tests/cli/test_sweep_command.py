"""`headwise sweep` as people type it."""

import json
import shutil
from pathlib import Path

import pytest
from small_sweeps import results, write_sweep
from tiny_runs import assert_done, assert_one_sentence, json_of

from headwise.experiments.sweeps.jobs import JobSettings
from headwise.experiments.sweeps.sweep import runs_with_files
from headwise.experiments.sweeps.sweep_file import plan_sweep


@pytest.fixture
def sweep(tmp_path, encoder):
    def write(**changes):
        return write_sweep(tmp_path / "s.yaml", encoder, **changes)

    return write


@pytest.fixture
def own_pairs(pairs, tmp_path):
    """The small files, and one that has no labels."""
    folder = tmp_path / "pairs"
    shutil.copytree(pairs, folder)
    rows = (folder / "train.tsv").read_text().splitlines()
    (folder / "bad.tsv").write_text("".join(row.rpartition("\t")[0] + "\n" for row in rows))
    return folder


@pytest.mark.slow
def test_a_sweep_is_planned_trained_corrected_and_not_repeated(headwise, sweep, own_pairs, tmp_path):
    files = {"train": "bad.tsv", "validation": "validation.tsv"}
    grid = {"system": {"plain": {"guides": {}}, "bad": {"guides": {}, "task": {"name": "pairs", "files": files}}}}
    path, out = sweep(seeds=[1], grid=grid, compare=None), tmp_path / "out"
    words = ("sweep", path, "--data", own_pairs, "--output", out)
    shown, _ = assert_done(headwise(*words, "--dry-run"))
    assert "2 points, 2 different runs" in shown
    assert not out.exists()

    code, shown, err = headwise(*words, "--workers", 1)
    assert code == 1, err
    assert "2 runs: 1 made now, 1 failed" in shown
    assert "failed: system bad, seed 1: " in shown
    assert "no column 'label'" in shown
    assert f"compare {out}" in shown
    assert "system plain, seed 1: finished, test accuracy 0." in err
    assert len(results(out)) == 1

    (own_pairs / "bad.tsv").write_text((own_pairs / "train.tsv").read_text())
    counts = json_of(headwise(*words, "--json"))
    assert (counts["finished"], counts["present"], counts["failed"]) == (1, 1, 0)
    shown, _ = assert_done(headwise(*words))
    assert "2 runs: 2 already there" in shown
    code, shown, _ = headwise(*words, "--dry-run", "--json")
    assert [run["there"] for run in json.loads(shown)["runs"]] == [True, True]


def test_missing_files_are_named_before_anything_is_written(headwise, sweep, pairs, tmp_path):
    grid = {"model": {"here": None, "away": {"model": "bert-base-uncased"}}}
    path, out = sweep(grid=grid, compare=None, seeds=[1]), tmp_path / "out"
    result = headwise("sweep", path, "--output", out)
    assert_one_sentence(
        result, "2 of 2 runs lack files", "bert-base-uncased", "no --data FOLDER was given", "train of pairs"
    )
    result = headwise("sweep", path, "--output", out, "--data", pairs)
    assert_one_sentence(result, "1 of 2 runs lack files", "bert-base-uncased", "with --download", "with --available")
    assert not out.exists()
    runs = plan_sweep(path).runs
    (kept,) = runs_with_files(runs, JobSettings(out, Path(pairs)), available=True, name="s")
    assert kept.point["model"] == "here"


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--engine", "slurm"), ("unknown engine 'slurm'", "local, ray")),
        (("--address", "10.0.0.1:6379"), ("is for --engine ray",)),
        (("--seeds", "1;2"), ("--seeds 1;2", "such as 1,2,3")),
        (("--output", "."), ("holds other files",)),
    ],
)
def test_mistakes_are_refused_in_one_sentence(headwise, sweep, pairs, tmp_path, monkeypatch, words, parts):
    monkeypatch.chdir(tmp_path)
    result = headwise("sweep", sweep(), "--data", pairs, "--output", tmp_path / "out", *words)
    assert_one_sentence(result, *parts)
    assert not (tmp_path / "out").exists()


def test_a_damaged_result_is_refused(headwise, sweep, pairs, tmp_path):
    path = sweep(seeds=[1], grid=None, compare=None, recipe__training__steps=1)
    words = ("sweep", path, "--data", pairs, "--output", tmp_path / "results", "--workers", "1")
    assert headwise(*words)[0] == 0
    (result,) = (tmp_path / "results" / "runs").glob("*.json")
    result.write_text(result.read_text(encoding="utf-8")[:-20], encoding="utf-8")
    code, _, err = headwise(*words)
    assert (code, "is no JSON" in err) == (2, True)
