"""`headwise train` and `evaluate`: what they leave behind, what they print, and where."""

import json
import os
import pty
import select
import sys

import pytest
import torch
from tiny_runs import Process, assert_done, record, write_data
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from headwise.cli.progress_bar import ProgressBar, progress
from headwise.experiments.apply import load_run
from headwise.experiments.recipe_files import read_recipe


def test_an_ordinary_folder_of_transformers(trained, pairs):
    run = trained()
    names = {path.name for path in run.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "headwise.json", "log.jsonl", "README.md"} <= names
    assert "unfinished" not in names
    model = AutoModelForSequenceClassification.from_pretrained(run).eval()
    tokenizer = AutoTokenizer.from_pretrained(run)
    assert model.config.id2label == {0: "agree", 1: "deny", 2: "open"}
    ours = load_run(run)
    split = ours.task.read("test", ours.data)
    for texts, expected in zip(split.texts, ours.logits(split, 1, None), strict=True):
        with torch.inference_mode():
            logits = model(**tokenizer(*texts, return_tensors="pt")).logits[0]
        assert torch.equal(logits, torch.from_numpy(expected))


def test_json_is_one_object_on_stdout_and_the_table_says_the_same(headwise, write_recipe, pairs, tmp_path):
    path = write_recipe()
    words = ["train", path, "--data", pairs, "--output", tmp_path / "run"]
    code, out, err = headwise(*words, "--json")
    answer = json.loads(out)
    assert code == 0
    assert answer.pop("output") == str(tmp_path / "run")
    assert answer == record(tmp_path / "run")
    assert "small: 0/10" in err
    assert "small: 10/10" in err
    assert "\x1b" not in err
    assert answer["command"] == ["headwise", "train", path, "--data", pairs, *answer["command"][5:]]
    # The finished run that is resumed is not touched, and gives the same answer.
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()}
    assert headwise(*words, "--json", "--resume")[:2] == (0, out)
    out, _ = assert_done(headwise(*words, "--resume"))
    for split, metrics in answer["results"]["metrics"].items():
        line = next(line for line in out.splitlines() if line.split()[:1] == [split])
        assert line.split()[1:] == [f"{value:.4f}" for value in metrics.values()]
    assert f"saved in {tmp_path / 'run'}" in out
    scores = answer["results"]["baselines"]["pairs"]["metrics"]["test"]
    names = {"fine_tuned": "this run", "frozen": "logistic regression on frozen features"}
    shown = ", ".join(f"{name} {scores[system]['accuracy']:.4f}" for system, name in names.items())
    majority = f"most frequent class {scores['majority']['accuracy']:.4f}"
    assert f"pairs, accuracy on test: {shown}, {majority}" in out.splitlines()
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()} == before


def test_evaluate_finds_what_was_recorded(headwise, finished, tmp_path):
    run = finished
    for split, examples in {"validation": 24, "test": 21}.items():
        code, out, _ = headwise("evaluate", run, "--split", split, "--json")
        answer = json.loads(out)
        assert code == 0
        assert answer["metrics"] == record(run)["results"]["metrics"][split]
        assert (answer["split"], answer["examples"]) == (split, examples)
    assert "test (21)" in headwise("evaluate", run)[1]
    data = write_data(tmp_path / "other", sizes=(4, 3, 30))
    (data / "train.tsv").unlink()
    code, out, _ = headwise("evaluate", run, "--data", data, "--batch", "7", "--json")
    assert (code, json.loads(out)["examples"]) == (0, 30)


def test_the_run_goes_where_the_recipe_says(headwise, write_recipe, pairs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_done(headwise("train", write_recipe(name="mine"), "--data", pairs, "--set", "seed=5"))
    assert record(tmp_path / "runs" / "mine-seed5")["recipe"]["seed"] == 5


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_dry_run_prints_the_recipe_and_does_nothing(headwise, write_recipe, tmp_path, form):
    path = write_recipe()
    words = ["train", path, "--set", "training.learning_rate=1e-5", "--dry-run", "--output", tmp_path / "run"]
    code, out, err = headwise(*words, *(["--json"] if form == "json" else []))
    again = tmp_path / "again.yaml"
    again.write_text(out)
    assert (code, err) == (0, "")
    assert read_recipe(str(again)) == read_recipe(path, ["training.learning_rate=1e-5"])
    assert not (tmp_path / "run").exists()
    if form == "json":
        json.loads(out)


def test_a_bar_on_a_terminal(write_recipe, pairs, tmp_path):
    """Once in a real terminal: a bar on stderr, plain JSON on stdout, and the cursor comes back."""
    here, there = pty.openpty()
    words = ["train", write_recipe(), "--data", pairs, "--output", tmp_path / "run", "--json"]
    process = Process(tmp_path / "p", *words, terminal=os.ttyname(there))
    shown = b""
    while process.running or select.select([here], [], [], 0)[0]:
        if select.select([here], [], [], 0.05)[0]:
            shown += os.read(here, 4096)
    os.close(here)
    os.close(there)
    code, out, _ = process.result()
    assert code == 0, shown
    assert json.loads(out)["results"]["steps"] == 10
    assert b"/10" in shown
    assert "━".encode() in shown
    assert shown.count(b"\x1b[?25l") == shown.count(b"\x1b[?25h") > 0


def test_a_bar_ends_with_its_run_even_if_that_fails(monkeypatch):
    """Else the terminal is left without a cursor."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    bars = []

    def fail():
        with progress() as shown:
            assert isinstance(shown, ProgressBar)
            shown.start("work", 10)
            bars.append(shown._bar.live)
            assert bars[0].is_started
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not bars[0].is_started
