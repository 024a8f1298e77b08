"""`headwise export`: a run as plain transformers knows it."""

import json

import torch
from tiny_runs import assert_done, assert_one_sentence
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from headwise.training import load


def logits(model, folder):
    batch = AutoTokenizer.from_pretrained(folder)("the cat", "a dog", return_tensors="pt")
    with torch.no_grad():
        return model(**batch).logits


def test_cotraining_becomes_a_plain_classifier(headwise, cotraining, tmp_path):
    target = tmp_path / "models" / "plain"
    out, _ = assert_done(headwise("export", cotraining, "--output", target, "--json"))
    assert json.loads(out) == {"run": str(cotraining), "output": str(target), "token_head_removed": True}
    model, found = AutoModelForSequenceClassification.from_pretrained(target, output_loading_info=True)
    assert not any(found.values())
    assert "ssa" not in (target / "config.json").read_text(encoding="utf-8")
    assert torch.equal(logits(model, target), logits(load(cotraining), cotraining))
    assert sorted(path.name for path in target.parent.iterdir()) == ["plain"]
    assert {path.name for path in target.iterdir()} == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }


def test_a_run_without_ssa_is_exported_as_it_is(headwise, finished, tmp_path):
    target = tmp_path / "plain"
    code, out, err = headwise("export", finished, "--output", target)
    assert (code, out) == (0, f"saved in {target}\n"), err
    assert torch.equal(logits(load(target), target), logits(load(finished), finished))


def test_a_blend_with_the_whole_weight_on_the_classifier_is_exported(headwise, ran, tmp_path):
    run = ran(guides={}, training__epochs=1, ssa={"cls_weight": 1.0})
    assert headwise("export", run, "--output", tmp_path / "plain")[0] == 0
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "plain")
    assert torch.equal(logits(plain, run), logits(load(run), run))


def test_what_plain_transformers_cannot_compute_is_refused(headwise, supervised_run, ran, tmp_path):
    answer = headwise("export", supervised_run, "--output", tmp_path / "plain")
    assert_one_sentence(answer, "hybrid model of SSA", "with --onnx", "cotraining")
    for head in ("mean", "segments", "relu"):
        run = ran(head, guides={}, training__epochs=1, head=head)
        answer = headwise("export", run, "--output", tmp_path / "plain")
        assert_one_sentence(answer, f"head '{head}'", "with --onnx", "head: cls")
    assert not (tmp_path / "plain").exists()


def test_nothing_is_overwritten(headwise, cotraining, tmp_path):
    (tmp_path / "there").write_text("mine")
    assert_one_sentence(headwise("export", cotraining, "--output", tmp_path), "exists already")
    assert_one_sentence(headwise("export", cotraining, "--output", tmp_path / "there"), "exists already")
    assert (tmp_path / "there").read_text() == "mine"
