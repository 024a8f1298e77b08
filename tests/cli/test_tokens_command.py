"""`headwise tokens`: how much each token of a text matters to a run with SSA."""

import json
import re

import pytest
import torch
from tiny_runs import assert_one_sentence, undisturbed
from transformers import AutoTokenizer

from headwise.training import load

TEXT, PAIR = "the cat surely sees a dog", "a dog never likes it"


def run_of(folder, encoder, data, **changes):
    torch.set_num_threads(1)
    return undisturbed(folder, encoder, str(data), {"guides": {}, "training__epochs": 1, **changes})


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory, encoder, pairs):
    return run_of(tmp_path_factory.mktemp("hybrid") / "run", encoder, pairs, ssa={"attention_threshold": 0.5})


@pytest.fixture(scope="module")
def cotraining(tmp_path_factory, encoder, pairs):
    return run_of(tmp_path_factory.mktemp("cotraining") / "run", encoder, pairs, ssa={"model": "cotraining"})


@pytest.fixture
def answer(headwise, hybrid):
    def type_in(*words, run=hybrid):
        code, out, err = headwise("tokens", run, "--text", TEXT, "--pair", PAIR, "--json", *words)
        assert code == 0, err
        return json.loads(out)

    return type_in


def test_json_is_what_the_model_says(answer, hybrid):
    found = answer()
    model = load(hybrid)
    batch = AutoTokenizer.from_pretrained(hybrid)(TEXT, PAIR, return_tensors="pt")
    with torch.no_grad():
        output = model(**batch, output_ssa=True)
    scores, kept = output["ssa_scores"][0].tolist(), output["ssa_kept"][0].tolist()
    chances = output.logits[0].softmax(0).tolist()
    words = [*TEXT.split(), *PAIR.replace("it", "[UNK]").split()]
    tokens = [token for token in found["tokens"] if token["score"] is not None]
    assert [token["text"] for token in tokens] == words  # an unknown word is text, too
    assert [token["segment"] for token in tokens] == [0] * 6 + [1] * 5
    for token, score, pooled in zip(found["tokens"], scores, kept, strict=True):
        assert token["kept"] == pooled
        assert token["score"] is None or token["score"] == pytest.approx(score, abs=1e-5)
    assert [token["text"] for token in found["tokens"] if token["score"] is None] == ["[CLS]", "[SEP]", "[SEP]"]
    assert list(found["probabilities"].values()) == pytest.approx(chances, abs=1e-5)
    assert found["prediction"] == max(found["probabilities"], key=found["probabilities"].get)
    assert found["threshold"] == 0.5


def test_without_a_terminal_the_scores_stand_behind_the_tokens(headwise, hybrid, answer):
    code, out, err = headwise("tokens", hybrid, "--text", TEXT, "--pair", PAIR)
    assert (code, err) == (0, "")
    shown = re.findall(r"([\w\[\]]+)\((\d\.\d\d)\)", out)
    tokens = [token for token in answer()["tokens"] if token["score"] is not None]
    assert shown == [(token["text"], f"{token['score']:.2f}") for token in tokens]
    assert f"pooled: {sum(token['kept'] for token in tokens)} of 11 tokens (threshold 0.5)" in out
    assert "prediction: " in out
    best = max(tokens, key=lambda token: token["score"])
    assert f"highest scores: {best['text']} {best['score']:.3f}" in out
    assert "\x1b" not in out


def test_on_a_terminal_there_are_colours(headwise, hybrid, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.delenv("NO_COLOR", raising=False)
    code, out, _ = headwise("tokens", hybrid, "--text", TEXT, "--pair", PAIR)
    assert code == 0
    backgrounds = re.findall(r"48;2;(\d+);(\d+);(\d+)m(\w+)", out)
    assert [word for *_, word in backgrounds][:6] == TEXT.split()
    assert len({tuple(colour) for *colour, _ in backgrounds}) > 1


def test_a_page_is_written_once(headwise, hybrid, tmp_path):
    page = tmp_path / "tokens.html"
    words = ("tokens", hybrid, "--text", TEXT, "--pair", PAIR, "--html", page)
    code, out, _ = headwise(*words)
    assert code == 0
    assert f"saved in {page}" in out
    first = page.read_text(encoding="utf-8")
    assert ">surely<" in first
    assert_one_sentence(headwise(*words), "exists already", "--overwrite")
    assert headwise(*words, "--overwrite")[0] == 0
    assert page.read_text(encoding="utf-8") == first


def test_cotraining_has_scores_and_no_threshold(answer, cotraining):
    found = answer(run=cotraining)
    assert found["threshold"] is None
    assert all(0 < token["score"] < 1 for token in found["tokens"] if token["score"] is not None)


def test_mistakes_are_reported_in_one_sentence(headwise, hybrid, finished, tmp_path):
    words = ("--text", TEXT, "--pair", PAIR)
    assert_one_sentence(headwise("tokens", finished, *words), "trained without SSA", "ssa: {model: hybrid}")
    assert_one_sentence(headwise("tokens", hybrid, "--text", TEXT), "trained on pairs", "--pair")
    assert_one_sentence(headwise("tokens", hybrid, "--text", "", "--pair", ""), "at least one word")
    assert_one_sentence(headwise("tokens", tmp_path, *words), "not a run of headwise")
    assert_one_sentence(headwise("tokens", hybrid, *words, "--html", tmp_path / "x.txt"), "ends in .html or .htm")
    assert_one_sentence(headwise("tokens", hybrid, *words, "--html", tmp_path / "no" / "x.html"), "there is no folder")
