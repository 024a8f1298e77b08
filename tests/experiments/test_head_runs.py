"""Runs with each head of the classifier: trained, loaded, resumed and re-ranked; and what recipes refuse."""

import json
import signal
import warnings
from pathlib import Path

import numpy
import pytest
import torch
from safetensors.torch import load_file
from small_collection import write_collection
from tiny_runs import (
    Process,
    assert_one_sentence,
    build_tokenizer,
    digest,
    log,
    outcome,
    record,
    slowly,
    small,
    undisturbed,
    write_data,
)
from transformers import GPT2Config, GPT2ForSequenceClassification

import headwise as hw
from headwise.errors import HeadwiseWarning, InputError
from headwise.experiments import check_recipe
from headwise.experiments.apply import evaluate, load_run, predict
from headwise.experiments.prepare import RunPaths
from headwise.experiments.run import train
from headwise.retrieval.reranker import Reranker
from headwise.training import Silence
from headwise.training.run_trainer import RunTrainer
from headwise.training.saving import HEAD_FILE

HEADS = ("cls", "mean", "segments", "relu")


@pytest.fixture(scope="module", params=HEADS)
def run(request, tmp_path_factory, encoder, pairs):
    """A run with each head, guides on, to look at only."""
    folder = tmp_path_factory.mktemp(request.param) / "run"
    return undisturbed(folder, encoder, pairs, {"head": request.param})


def test_every_head_comes_back(run, pairs, tmp_path):
    content, loaded = record(run), load_run(run)
    head, results = content["recipe"]["head"], content["results"]
    for split, recorded in results["metrics"].items():
        assert evaluate(loaded, split)["metrics"] == recorded
    assert len(predict(loaded, Path(pairs) / "test.tsv")) == 21
    assert (run / HEAD_FILE).is_file() == (head != "cls")
    # Of a folder without its record, the config says which head it is.
    batch = {"input_ids": torch.tensor([[2, 7, 8, 3, 9, 3]]), "attention_mask": torch.ones(1, 6, dtype=torch.long)}
    for name in ("config.json", "model.safetensors", *([HEAD_FILE] if head != "cls" else [])):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    assert torch.equal(hw.load(tmp_path)(**batch).logits, loaded.model(**batch).logits)


def test_the_card_and_the_record_speak_of_head_and_pooler(run):
    content, card = record(run), " ".join((run / "README.md").read_text().split())
    head = content["recipe"]["head"]
    fresh = "is untrained (the checkpoint has none), so training started with a fresh one."
    assert content["results"].get("fresh_pooler") == ("the checkpoint has none" if head == "cls" else None)
    assert (fresh in card) == (head == "cls")
    words = {
        "cls": "AutoModelForSequenceClassification.from_pretrained(folder)",
        "mean": "Its classifier reads the mean of all tokens, which",
        "segments": "of the means u and v of the two texts, which",
        "relu": "Eq. 7 of the attention-guiding paper, which",
    }
    assert [name for name, part in words.items() if part in card] == [head]
    assert "\n\n\n" not in (run / "README.md").read_text()


@pytest.mark.parametrize("head", ["segments", *(slowly(each) for each in ("cls", "mean", "relu"))])
def test_a_killed_run_ends_the_same(write_recipe, pairs, encoder, tmp_path, head):
    whole = undisturbed(tmp_path / "whole", encoder, pairs, {"head": head})
    words = ["train", write_recipe(head=head), "--data", pairs, "--output", tmp_path / "run"]
    kill = ("headwise.training.callbacks.Clock.on_step_end", 6, signal.SIGKILL)
    assert Process(tmp_path / "p1", *words, at=kill).result()[0] == -signal.SIGKILL
    code, _, err = Process(tmp_path / "p2", *words, "--resume").result()
    assert code == 0, err
    assert outcome(tmp_path / "run") == outcome(whole)
    if head != "cls":
        assert digest(tmp_path / "run" / HEAD_FILE) == digest(whole / HEAD_FILE)


@pytest.mark.parametrize("head", ["mean", "segments"])
def test_rerankers(encoder, tmp_path, head):
    write_collection(tmp_path / "papers")
    task = {"name": "retrieval", "collection": "papers", "stage": "bm25", "negatives": 3, "loss": "list"}
    recipe = small(encoder, task=task, head=head, guides={}, training__epochs=1, training__batch=2)
    train(check_recipe(recipe, "test"), RunPaths(tmp_path / "run", tmp_path, cache=tmp_path / "cache"))
    reranker = Reranker.load(tmp_path / "run")
    pairs = [("the cat sees", "a cat sees the bird"), ("old house", "the river holds a new tree")]
    scores = reranker.predict(pairs)
    for (claim, text), score in zip(pairs, scores, strict=True):
        inputs = reranker.tokenizer(claim, text, return_tensors="pt")
        assert reranker.model(**inputs).logits.item() == pytest.approx(score, abs=1e-5)
    assert numpy.ptp(scores) > 0


# -- recipes -----------------------------------------------------------------------------------------------------------


def test_heads_that_a_recipe_cannot_have(headwise, write_recipe, write_joint, several, tmp_path):
    data = write_data(tmp_path / "data", "sentences")
    words = ["--data", data, "--output", tmp_path / "run"]
    answer = headwise("train", write_recipe(task="sentences", head="segments"), *words)
    assert_one_sentence(answer, "head: segments compares the two texts", "task sentences have one: use cls or mean.")
    assert_one_sentence(headwise("train", write_recipe(head="max"), *words), "head", "cls", "segments")
    joint = headwise("train", write_joint(head="mean"), "--data", several, "--output", tmp_path / "run")
    assert_one_sentence(joint, "head is for one task", "leave head out")
    for value in (0, -2, "fast", float("inf")):
        answer = headwise("train", write_recipe(training__head_learning_rate_multiplier=value), *words)
        assert_one_sentence(answer, "training.head_learning_rate_multiplier")
    assert not (tmp_path / "run").exists()


def test_the_old_name_still_works_with_one_warning(finished, tmp_path):
    with pytest.warns(
        HeadwiseWarning, match="^head: pooler is the name of an earlier version: use head: cls.$"
    ) as found:
        assert check_recipe({"task": "sick", "head": "pooler"}, "test").head == "cls"
    assert len(found) == 1
    copy = tmp_path / "old"
    copy.mkdir()
    for path in finished.iterdir():
        if path.is_file():
            (copy / path.name).write_bytes(path.read_bytes())
    content = record(finished)
    content["recipe"]["head"] = "pooler"
    del content["recipe"]["training"]["head_learning_rate_multiplier"]
    (copy / "headwise.json").write_text(json.dumps(content))
    with warnings.catch_warnings():
        warnings.simplefilter("error", HeadwiseWarning)
        old, new = load_run(copy), load_run(finished)
    states = [each.model.state_dict() for each in (old, new)]
    assert all(torch.equal(states[0][name], tensor) for name, tensor in states[1].items())
    assert evaluate(old, "test") == evaluate(new, "test")


# -- pooler and learning rate ------------------------------------------------------------------------------------------


def test_the_log_says_once_that_a_pooler_is_fresh(encoder, pairs, tmp_path):
    lines = []

    class Listening(Silence):
        def log(self, message):
            lines.append(message)

    recipe = check_recipe(small(encoder, training__steps=1), "test")
    train(recipe, RunPaths(tmp_path / "run", Path(pairs)), progress=Listening())
    assert [line for line in lines if "pooler" in line] == [
        f"the pooler of {encoder} is untrained (the checkpoint has none): it starts from fresh weights"
    ]
    lines.clear()
    train(recipe, RunPaths(tmp_path / "run", Path(pairs)), resume=True, progress=Listening())
    assert not [line for line in lines if "pooler" in line]


@pytest.mark.parametrize(("multiplier", "rates"), [(10.0, [1.0, 1.0, 10.0, 10.0]), (1.0, [1.0, 1.0])])
def test_the_head_has_its_own_learning_rate(ran, monkeypatch, multiplier, rates):
    groups, whole = [], RunTrainer.create_optimizer

    def watched(self, model=None):
        optimizer = whole(self, model)
        groups.extend((group["lr"], group["weight_decay"], len(group["params"])) for group in optimizer.param_groups)
        return optimizer

    monkeypatch.setattr(RunTrainer, "create_optimizer", watched)
    run = ran(guides={}, training__head_learning_rate_multiplier=multiplier, training__epochs=1, training__warmup=0)
    assert [rate for rate, _, _ in groups] == pytest.approx([1e-3 * each for each in rates])
    assert [decay for _, decay, _ in groups] == [0.01, 0.0] * (len(rates) // 2)
    if multiplier != 1:
        assert [count for _, _, count in groups[2:]] == [2, 2]  # weights and biases of pooler and classifier
    # What is logged is the learning rate of the encoder.
    assert max(entry["learning_rate"] for entry in log(run) if "loss" in entry) == pytest.approx(1e-3)


def test_a_frozen_encoder_with_a_head_that_learns_fast(ran, encoder):
    run = ran(guides={}, head="mean", training__freeze=["encoder"], training__epochs=1)
    before, after = load_file(Path(encoder) / "model.safetensors"), load_file(run / "model.safetensors")
    assert all(torch.equal(tensor, before[f"bert.{name}"]) for name, tensor in after.items())


def test_a_model_that_cannot_take_the_head_is_refused_before_anything_is_written(encoder, pairs, tmp_path):
    tokenizer = build_tokenizer()
    config = GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=1, n_head=2, pad_token_id=0)
    GPT2ForSequenceClassification(config).save_pretrained(tmp_path / "gpt2")
    tokenizer.save_pretrained(tmp_path / "gpt2")
    recipe = check_recipe(small(str(tmp_path / "gpt2"), head="mean", guides={}), "test")
    with pytest.raises(InputError, match="head 'mean' is not known for gpt2 models, .*: use head: cls"):
        train(recipe, RunPaths(tmp_path / "run", Path(pairs)))
    assert not (tmp_path / "run").exists()
