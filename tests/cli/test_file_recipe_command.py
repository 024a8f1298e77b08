"""`headwise train` on a file without a recipe, and `headwise init`: for every kind of label."""

import json
import random
import signal

import pytest
import torch
import yaml
from tiny_runs import Process, assert_done, assert_one_sentence, json_of, record, weights
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification, AutoTokenizer

import headwise as hw
from headwise.cli import init_command

WORDS = "red blue green one two three four five six seven the a dog cat".split()
SHORT = ("--set", "training.max_steps=2", "--set", "baseline=false")


def write(folder, kind):
    """A file of 60 examples as people have them."""
    chance = random.Random(2)
    texts = [" ".join(chance.choices(WORDS, k=6)) for _ in range(60)]
    if kind == "token_labels":
        path = folder / "data.conll"
        marked = [[f"{word} {'B-CLR' if word in WORDS[:3] else 'O'}" for word in text.split()] for text in texts]
        path.write_text("\n\n".join("\n".join(each) for each in marked) + "\n")
        return path
    labels = {
        "classification": ["red" if "red" in text else "other" for text in texts],
        "regression": [f"{len(text) / 10}" for text in texts],
        "multi_label": [";".join(word for word in WORDS[:3] if word in text) for text in texts],
    }[kind]
    path = folder / "data.csv"
    rows = [f"{number}|{text}|{label}" for number, (text, label) in enumerate(zip(texts, labels, strict=True))]
    path.write_text("\n".join(["id|note|label", *rows]) + "\n")
    return path


@pytest.mark.parametrize("kind", ["classification", "regression", "multi_label", "token_labels"])
def test_from_a_file_to_predictions(headwise, encoder, tmp_path, kind):
    path, run, recipe = write(tmp_path, kind), tmp_path / "run", tmp_path / "recipe.yaml"
    mdg = ("--set", "guides={mdg: {weight: 0.1}}")  # every kind trains with guides
    words = ("--data", path, "--model", encoder, *SHORT, *mdg, "--set", "head=cls", "--output", run)
    _, err = assert_done(headwise("train", *words, "--save-recipe", recipe))
    assert kind in err or kind == "classification"
    assert "examples" in err
    results = record(run)["results"]
    assert json_of(headwise("evaluate", run, "--json"))["metrics"] == results["metrics"]["test"]
    assert "mdg" in (run / "README.md").read_text()
    if kind == "multi_label":  # the recipe gives the same run
        again = tmp_path / "again"
        assert_done(headwise("train", recipe, "--data", path, "--output", again))
        assert weights(again) == weights(run)
    # A plain model of transformers.
    auto = AutoModelForTokenClassification if kind == "token_labels" else AutoModelForSequenceClassification
    model, tokenizer = auto.from_pretrained(run).eval(), AutoTokenizer.from_pretrained(run)
    assert type(hw.load(run)) is type(model)
    with torch.inference_mode():
        logits = model(**tokenizer("the red dog", return_tensors="pt")).logits[0]
    # A file without labels.
    new, out = tmp_path / "new.csv", tmp_path / "out.jsonl"
    new.write_text(f"id,{'tokens' if kind == 'token_labels' else 'note'}\n7,the red dog\n")
    assert_done(headwise("predict", run, "--input", new, "--output", out))
    row = json.loads(out.read_text())
    assert row["id"] == "7"
    names = list(results["labels"])
    if kind == "token_labels":
        assert row["prediction"] == [names[index] for index in logits[1:-1].argmax(1)]
        assert_one_sentence(headwise("predict", run, "--text", "the red dog", "--explain"), "labels each word")
    elif kind == "regression":
        assert row["prediction"] == pytest.approx(float(logits[0]), abs=1e-5)
    elif kind == "multi_label":
        assert row["prediction"] == [name for name, each in zip(names, logits, strict=True) if each > 0]
        chances = [row[f"probability_{name}"] for name in names]
        assert chances == pytest.approx(logits.sigmoid().tolist(), abs=1e-5)
    else:
        assert row["prediction"] == names[int(logits.argmax())]
    if kind != "token_labels":
        explained = json_of(headwise("predict", run, "--text", "the red dog", "--explain", "--json"))
        assert [each["word"] for each in explained["words"]] == ["the", "red", "dog"]


@pytest.mark.slow
def test_words_of_a_run_that_is_killed_and_resumed(headwise, encoder, tmp_path):
    torch.set_num_threads(1)
    path = write(tmp_path, "token_labels")
    steps = ("training.max_steps=6", "training.save_steps=2", "training.eval_steps=3")
    changes = (word for step in steps for word in ("--set", step))
    words = ("train", "--data", path, "--model", encoder, *changes, "--output")
    whole, run = tmp_path / "whole", tmp_path / "run"
    assert_done(headwise(*words, whole))
    at = ("headwise.training.callbacks.Clock.on_step_end", 4, signal.SIGKILL)
    assert Process(tmp_path / "process", *words, run, at=at).result()[0] == -signal.SIGKILL
    assert_done(headwise(*words, run, "--resume"))
    assert weights(run) == weights(whole)


def test_a_saved_recipe_is_not_overwritten(headwise, encoder, tmp_path):
    path, recipe = write(tmp_path, "classification"), tmp_path / "recipe.yaml"
    recipe.write_text("precious")
    words = ("train", "--data", path, "--model", encoder, "--dry-run", "--save-recipe", recipe)
    assert_one_sentence(
        (*headwise(*words)[:2], headwise(*words)[2].splitlines()[-1]), "exists already", "--save-recipe"
    )
    assert recipe.read_text() == "precious"


def test_what_is_missing(headwise, tmp_path):
    path = write(tmp_path, "classification")
    assert_one_sentence(headwise("train"), "--data FILE.csv --text COLUMN")
    assert_one_sentence(headwise("train", path), "put --data before it")
    assert_one_sentence(headwise("train", "--data", path, "--text", "notes"), "--text notes", "did you mean 'note'")
    assert_one_sentence(headwise("train", "sst2", "--label", "note"), "--label", "without a recipe")


def test_init_takes_what_it_detects(headwise, tmp_path):
    path, recipe = write(tmp_path, "multi_label"), tmp_path / "my.yaml"
    answer = json_of(headwise("init", path, "--yes", "--output", recipe, "--json"))
    assert answer["task"]["name"] == "sentences-labels"
    assert yaml.safe_load(recipe.read_text())["task"] == answer["task"]
    assert "# Fields of transformers.TrainingArguments" in recipe.read_text()
    assert_done(headwise("train", recipe, "--data", path, "--dry-run"))
    assert_one_sentence(headwise("init", path, "--output", recipe), "exists already")
    assert_one_sentence(headwise("init", path, "--output", tmp_path / "my.txt"), ".yaml")


def test_init_asks_until_the_answer_is_a_column(headwise, tmp_path, monkeypatch):
    path, recipe = write(tmp_path, "classification"), tmp_path / "my.yaml"
    answers = {"labels": ["labl", "label"], "texts": ["note"], "pair": ["none"], "predicted": ["regression"]}
    questions = []

    def prompt(question, default=None, err=False):
        questions.append(question)
        return next((left.pop(0) for word, left in answers.items() if word in question and left), default)

    monkeypatch.setattr(init_command.typer, "prompt", prompt)
    monkeypatch.setattr(init_command.sys.stdin, "isatty", lambda: True, raising=False)
    _, err = assert_done(headwise("init", path, "--output", recipe))
    assert "did you mean 'label'" in err
    assert len(questions) == 6  # one of them twice
    assert yaml.safe_load(recipe.read_text())["task"]["name"] == "sentences-regression"
