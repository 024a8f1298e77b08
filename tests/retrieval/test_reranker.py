"""Re-rankers: the scores of CrossEncoder, whatever the order, the batch, or how texts are cut."""

import json
import random
import shutil
from pathlib import Path

import numpy
import pytest
import torch
from conftest import FAMILIES, build_model
from sentence_transformers import CrossEncoder
from training.tiny_encoder import WORDS, build_tokenizer, save_encoder

import headwise as hw
from headwise.errors import InputError, StateError
from headwise.retrieval.reranker import Reranker
from headwise.training.classifier import change_head
from headwise.training.predict import FAMILIES as FIRST_TOKEN
from headwise.training.predict import first_token_only, stretches
from headwise.training.saving import prepare_reranker, save_classifier

# Cut at 24: about half of the pairs are longer.
LENGTH = 24


def text(chance, words):
    return " ".join(chance.choices(WORDS, k=words))


@pytest.fixture(scope="module")
def pairs():
    chance = random.Random(5)
    lengths = [(chance.randint(1, 30), chance.randint(1, 40)) for _ in range(60)]
    return [(text(chance, claim), text(chance, paper)) for claim, paper in [*lengths, (2, 60), (60, 2), (40, 40)]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A re-ranker as a run saves it."""
    folder = tmp_path_factory.mktemp("reranker")
    model, tokenizer = build_model("bert", num_labels=1), build_tokenizer()
    prepare_reranker(model, tokenizer, LENGTH)
    save_classifier(model, tokenizer, folder, "cls")
    return folder


@pytest.fixture
def reranker(folder):
    return Reranker.load(folder)


# -- the same scores as CrossEncoder -----------------------------------------------------------------------------------


def test_scores_are_those_of_cross_encoder(folder, reranker, pairs):
    theirs = CrossEncoder(str(folder), device="cpu").predict(pairs)
    ours = reranker.predict(pairs)
    assert ours.dtype == numpy.float32
    assert ours.shape == (len(pairs),)
    assert numpy.ptp(ours) > 0.05
    assert numpy.abs(ours - theirs).max() < 1e-5


def test_what_cross_encoder_saved_loads_here(tmp_path, pairs):
    """Its scores are squeezed by a sigmoid unless it is told otherwise; ours are what goes into it."""
    model = CrossEncoder(str(save_encoder(tmp_path / "encoder", num_labels=1)), max_length=LENGTH, device="cpu")
    model.save_pretrained(str(tmp_path / "saved"))
    theirs = CrossEncoder(str(tmp_path / "saved"), device="cpu").predict(pairs)
    ours = Reranker.load(tmp_path / "saved")
    assert ours.max_length == LENGTH
    assert numpy.abs(1 / (1 + numpy.exp(-ours.predict(pairs))) - theirs).max() < 1e-5


def test_of_two_logits_the_score_is_yes_minus_no(tmp_path, pairs):
    model = CrossEncoder(
        str(save_encoder(tmp_path / "encoder", num_labels=2)), num_labels=2, max_length=LENGTH, device="cpu"
    )
    model.save_pretrained(str(tmp_path / "saved"))
    no, yes = model.predict(pairs).T
    assert numpy.abs(Reranker.load(tmp_path / "saved").predict(pairs) - (yes - no)).max() < 1e-5


def test_a_template_makes_one_string_of_claim_and_text(folder, tmp_path, pairs):
    """Whether it is given or stands in config.json; braces in texts are no fields."""
    texts = [(claim, f"{text} {{claim}} {{0}}") for claim, text in pairs[:9]]
    whole = [f"word1 {claim} word2 {text}" for claim, text in texts]
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    config = json.loads((copy / "config.json").read_text(encoding="utf-8"))
    template = "word1 {claim} word2 {text}"
    (copy / "config.json").write_text(json.dumps({**config, "headwise_template": template}), encoding="utf-8")
    plain = Reranker.load(folder)
    cut = [plain.tokenizer(each, truncation=True, max_length=LENGTH, return_tensors="pt") for each in whole]
    with torch.inference_mode():
        theirs = [plain.model(each["input_ids"], each["attention_mask"]).logits.item() for each in cut]
    for reranker in (Reranker.load(folder, template=template), Reranker.load(copy)):
        assert numpy.abs(reranker.predict(texts) - theirs).max() < 1e-5
    with pytest.raises(InputError, match=r"template 'only \{text\}': expected \{claim\} and \{text\} in it"):
        Reranker.load(folder, template="only {text}")


def test_the_batch_does_not_matter_and_bf16_is_near(reranker, pairs):
    exact, done = reranker.predict(pairs), []
    for batch in (1, 7, 64):
        scores = reranker.predict(pairs, batch=batch, after_batch=done.append)
        assert numpy.abs(scores - exact).max() < 1e-6
        assert done[-1] == len(pairs)
    near = reranker.predict(pairs, precision="bf16")
    assert near.dtype == numpy.float32
    assert 0 < numpy.abs(exact - near).max() < 0.1 * numpy.ptp(exact)


def test_ranks_are_by_score_and_ties_stay_in_order(reranker, pairs):
    claim, papers = pairs[0][0], [pairs[0][1], pairs[1][1], pairs[2][1], pairs[1][1]]
    scores = reranker.predict([(claim, paper) for paper in papers])
    ranked = reranker.rank(claim, papers)
    assert sorted(place for place, _ in ranked) == [0, 1, 2, 3]
    assert [score for _, score in ranked] == sorted(scores.tolist(), reverse=True)
    assert [place for place, _ in ranked if place in (1, 3)] == [1, 3]


def test_gates_change_scores_and_leave_nothing_behind_and_guides_change_nothing(reranker, pairs):
    before = reranker.predict(pairs)
    gates = torch.ones(3, 4)
    with hw.gate(reranker.model, gates):
        open_gates = reranker.predict(pairs)
    gates[2] = 0.0  # also in the last layer, which ends with the first token
    with hw.gate(reranker.model, gates):
        gated = reranker.predict(pairs)
    assert numpy.abs(open_gates - before).max() < 1e-5
    assert numpy.abs(gated - before).max() > 1e-3
    assert (reranker.predict(pairs) == before).all()
    hw.guide(reranker.model, hw.MDG(weight=1.0))
    assert numpy.abs(reranker.predict(pairs) - before).max() < 1e-5


# -- the last layer for the first token --------------------------------------------------------------------------------


@pytest.mark.parametrize("family", sorted({*FIRST_TOKEN, "mobilebert", "distilbert"} & {*FAMILIES}))
def test_families_give_the_scores_of_the_plain_model(family, pairs):
    model = build_model(family, num_labels=1).eval()
    tokenizer = build_tokenizer()
    ours = Reranker(model, tokenizer, LENGTH)
    with first_token_only(model) as known:
        assert known == (family in FIRST_TOKEN)
    inputs = [
        tokenizer(*pair, truncation="longest_first", max_length=LENGTH, padding=False, return_tensors="pt")
        for pair in pairs[:12]
    ]
    with torch.inference_mode():
        expected = [model(each["input_ids"], each["attention_mask"]).logits.item() for each in inputs]
    # MobileBERT's embeddings look at the next token, be it padding: its scores depend on who shares the batch.
    batch = 1 if family == "mobilebert" else None
    assert ours.predict(pairs[:12], batch=batch) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_the_other_head_reads_the_first_token_too(family, pairs):
    model = change_head(build_model(family, num_labels=1), "relu").eval()
    with first_token_only(model) as known:
        assert known
        short = Reranker(model, build_tokenizer(), LENGTH).predict(pairs, batch=8)
    model.base_model.register_forward_hook(lambda *_: None)
    assert Reranker(model, build_tokenizer(), LENGTH).predict(pairs, batch=8) == pytest.approx(short, abs=1e-5)


def test_only_one_token_goes_through_the_end_but_hooks_and_other_heads_see_all(reranker, pairs, monkeypatch):
    seen, last = [], reranker.model.bert.encoder.layer[-1]
    whole = last.feed_forward_chunk
    reranker.model.train()
    with monkeypatch.context() as patch:
        patch.setattr(last, "feed_forward_chunk", lambda states: seen.append(states.shape[1]) or whole(states))
        before = reranker.predict(pairs[:4])
    assert seen == [1]
    assert reranker.model.training  # the model is left as it was
    assert not any(each._forward_pre_hooks for each in reranker.model.modules())
    seen.clear()
    handle = reranker.model.bert.register_forward_hook(lambda _, __, output: seen.append(output[0].shape[1]))
    assert reranker.predict(pairs[:4]) == pytest.approx(before, abs=1e-6)
    assert seen[0] > 1
    handle.remove()

    class Mean(torch.nn.Module):
        def forward(self, states):
            return states.mean(1)

    reranker.model.bert.pooler = Mean()
    with first_token_only(reranker.model) as known:
        assert not known


# -- batches -----------------------------------------------------------------------------------------------------------


def test_batches_keep_to_tokens_and_to_pairs():
    assert list(stretches([10, 10, 6, 5, 2, 2], 100, 20)) == [(0, 2), (2, 5), (5, 6)]
    assert list(stretches([10, 10, 6, 5, 2, 2], 2, 20)) == [(0, 2), (2, 4), (4, 6)]
    assert list(stretches([50, 10], 100, 20)) == [(0, 1), (1, 2)]
    assert list(stretches([3, 2, 1], 2)) == [(0, 2), (2, 3)]


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_folders_that_hold_no_reranker_are_refused(folder, tmp_path):
    with pytest.raises(InputError, match="one logit or two, and this model has 3: train one"):
        Reranker.load(save_encoder(tmp_path / "classes"))
    build_model("bert", num_labels=1).bert.save_pretrained(tmp_path / "encoder")
    build_tokenizer().save_pretrained(tmp_path / "encoder")
    with pytest.raises(InputError, match="holds a BertModel without a classifier"):
        Reranker.load(tmp_path / "encoder")
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    (copy / "headwise.json").write_text(json.dumps({"asked": {"recipe": {"head": "pooler"}}}), encoding="utf-8")
    with pytest.raises(InputError, match=r"headwise.json is damaged \(KeyError\): train again"):
        Reranker.load(copy)


def test_scores_that_are_not_numbers_are_refused(reranker, pairs):
    with torch.no_grad():
        reranker.model.classifier.bias.fill_(float("nan"))
    with pytest.raises(StateError, match="not finite"):
        reranker.predict(pairs)
