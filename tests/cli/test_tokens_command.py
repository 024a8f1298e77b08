"""`headwise tokens`: how much each token of a text matters to a run with SSA."""

import json
import re

import pytest
import torch
from tiny_runs import assert_done, assert_one_sentence, json_of, write_table
from transformers import AutoTokenizer

from headwise.data import build_task
from headwise.errors import InputError
from headwise.training import load

TEXT, PAIR = "the cat surely sees a dog", "a dog never likes it"


@pytest.fixture
def tokens(headwise):
    return lambda run, *words: headwise("tokens", run, "--text", TEXT, "--pair", PAIR, *words)


def test_json_is_what_the_model_says(tokens, supervised_run):
    found = json_of(tokens(supervised_run, "--json"))
    model = load(supervised_run)
    batch = AutoTokenizer.from_pretrained(supervised_run)(TEXT, PAIR, return_tensors="pt")
    with torch.no_grad():
        output = model(**batch, output_ssa=True)
    scores, kept = output["ssa_scores"][0].tolist(), output["ssa_kept"][0].tolist()
    chances = output.logits[0].softmax(0).tolist()
    words = [*TEXT.split(), *PAIR.replace("it", "[UNK]").split()]
    scored = [token for token in found["tokens"] if token["score"] is not None]
    assert [token["text"] for token in scored] == words  # an unknown word is text, too
    assert [token["segment"] for token in scored] == [0] * 6 + [1] * 5
    for token, score, pooled in zip(found["tokens"], scores, kept, strict=True):
        assert token["kept"] == pooled
        assert token["score"] is None or token["score"] == pytest.approx(score, abs=1e-5)
    assert [token["text"] for token in found["tokens"] if token["score"] is None] == ["[CLS]", "[SEP]", "[SEP]"]
    assert list(found["probabilities"].values()) == pytest.approx(chances, abs=1e-5)
    assert found["prediction"] == max(found["probabilities"], key=found["probabilities"].get)
    assert found["threshold"] == 0.5


def test_scores_of_a_file_are_a_source_of_marks(headwise, supervised_run, tmp_path):
    rows = [("the cat surely sees a dog", "a dog never likes it", "x"), ("a dog", "the   cat's", "y")]
    path = write_table(tmp_path / "train.tsv", [("sentence1", "sentence2", "label"), *rows])
    words = ("tokens", supervised_run, "--input", path, "--output")
    assert json_of(headwise(*words, tmp_path / "ssa.jsonl", "--json"))["rows"] == 2
    lines = [json.loads(line) for line in (tmp_path / "ssa.jsonl").read_text().splitlines()]
    single = json_of(headwise("tokens", supervised_run, "--text", rows[0][0], "--pair", rows[0][1], "--json"))
    assert lines[0] == {key: value for key, value in single.items() if key != "run"}
    for threshold in (None, sorted(token["score"] for token in lines[0]["tokens"] if token["score"] is not None)[-3]):
        marks = {"ssa": "ssa.jsonl", **({} if threshold is None else {"threshold": threshold})}
        split = build_task("pairs", {"marks": marks}).read("train", tmp_path)
        for line, spans in zip(lines, split.spans, strict=True):
            tokens = zip(line["tokens"], line["offsets"], strict=True)
            real = [(token, offsets) for token, offsets in tokens if token["score"] is not None]
            chosen = [
                (token["segment"], *offsets)
                for token, offsets in real
                if (token["kept"] if threshold is None else token["score"] >= threshold)
            ]
            assert spans == tuple(chosen)
            assert [line["texts"][each][start:end] for each, start, end in chosen][:1] != [""]
        assert any(split.spans)
    assert_one_sentence(headwise(*words, tmp_path / "x.tsv"), "ends in .jsonl")
    assert_one_sentence(headwise(*words[:4]), "--input needs --output")
    assert_one_sentence(headwise("tokens", supervised_run), "either --text, or both --input and --output")
    (tmp_path / "ssa.jsonl").write_text('{"texts": ["a"]}\n')
    with pytest.raises(InputError, match=r"ssa.jsonl line 1: expected the token scores of an example"):
        build_task("pairs", {"marks": marks}).read("train", tmp_path)


def test_without_a_terminal_the_scores_stand_behind_the_tokens(tokens, supervised_run):
    code, out, err = tokens(supervised_run)
    assert (code, err) == (0, "")
    shown = re.findall(r"([\w\[\]]+)\((\d\.\d\d)\)", out)
    answer = json_of(tokens(supervised_run, "--json"))
    scored = [token for token in answer["tokens"] if token["score"] is not None]
    assert shown == [(token["text"], f"{token['score']:.2f}") for token in scored]
    assert f"pooled: {sum(token['kept'] for token in scored)} of 11 tokens (threshold 0.5)" in out
    assert "prediction: " in out
    best = max(scored, key=lambda token: token["score"])
    assert f"highest scores: {best['text']} {best['score']:.3f}" in out
    assert "\x1b" not in out


def test_on_a_terminal_there_are_colours(tokens, supervised_run, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out, _ = assert_done(tokens(supervised_run))
    backgrounds = re.findall(r"48;2;(\d+);(\d+);(\d+)m(\w+)", out)
    assert [word for *_, word in backgrounds][:6] == TEXT.split()
    assert len({tuple(colour) for *colour, _ in backgrounds}) > 1


def test_a_page_is_written_once(tokens, supervised_run, tmp_path):
    page = tmp_path / "tokens.html"
    words = (supervised_run, "--html", page)
    out, _ = assert_done(tokens(*words))
    assert f"saved in {page}" in out
    first = page.read_text(encoding="utf-8")
    assert ">surely<" in first
    assert tokens(*words, "--overwrite")[0] == 0
    assert page.read_text(encoding="utf-8") == first


def test_cotraining_has_scores_and_no_threshold(tokens, cotraining):
    found = json_of(tokens(cotraining, "--json"))
    assert found["threshold"] is None
    assert all(0 < token["score"] < 1 for token in found["tokens"] if token["score"] is not None)


def test_mistakes_are_reported_in_one_sentence(headwise, tokens, supervised_run, finished, tmp_path):
    assert_one_sentence(tokens(finished), "trained without SSA", "ssa: {model: hybrid}")
    assert_one_sentence(headwise("tokens", supervised_run, "--text", TEXT), "trained on pairs", "--pair")
    assert_one_sentence(headwise("tokens", supervised_run, "--text", "", "--pair", ""), "at least one word")
    assert_one_sentence(tokens(tmp_path), "not a run of headwise")
    assert_one_sentence(tokens(supervised_run, "--html", tmp_path / "x.txt"), "ends in .html or .htm")
