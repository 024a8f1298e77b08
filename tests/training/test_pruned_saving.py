"""A pruned classifier on disk."""

import json

import pytest
import torch
from attention.test_head_weights import DIFFERENT, build
from conftest import SIZES, build_batch, build_model
from safetensors.torch import load_file, save_file
from training.tiny_encoder import build_tokenizer
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertForSequenceClassification,
    BertModel,
)

import headwise as hw
from headwise.attention import mask, prune, pruned_heads
from headwise.attention.doctor import diagnose
from headwise.errors import InputError
from headwise.training.classifier import change_head
from headwise.training.encoders import find_encoder, load_classifier
from headwise.training.saving import load, load_classifier_folder, load_trained, save_classifier

HEADS = SIZES["num_attention_heads"]
PRUNED = {0: (1, 2), 1: tuple(range(HEADS))}
pytestmark = pytest.mark.filterwarnings("ignore::headwise.errors.HeadwiseWarning")


def logits(model):
    with torch.no_grad():
        return model(**build_batch()).logits


def assert_same(loaded, model):
    torch.manual_seed(123)  # fresh weights, if any were left, would differ
    assert type(loaded) is type(model)
    assert not loaded.training
    assert torch.equal(logits(loaded), logits(model.eval()))
    assert pruned_heads(loaded) == pruned_heads(model)
    assert loaded.config.headwise_pruned == model.config.headwise_pruned


@pytest.mark.parametrize("family", DIFFERENT)
def test_it_comes_back_as_it_was(family, tmp_path):
    heads = {layer: [0, 3] for layer in range(3)} if family == "albert" else PRUNED
    model = prune(build(family), heads)
    model.save_pretrained(tmp_path)
    loaded = load(tmp_path)
    assert_same(loaded, model)
    loaded.train().requires_grad_(True)(**build_batch()).loss.backward()


def test_a_loaded_one_goes_on_being_pruned_and_saved(tmp_path):
    model = prune(build_model("bert"), PRUNED).to(torch.bfloat16).eval()
    model.save_pretrained(tmp_path / "first", max_shard_size="20KB")  # in several files
    loaded = load(tmp_path / "first")
    assert loaded.dtype == torch.bfloat16
    loaded = loaded.float()
    with mask(loaded, {2: [0]}):
        expected = logits(loaded)
    prune(loaded, {2: [0]}).save_pretrained(tmp_path / "second")
    torch.testing.assert_close(logits(load(tmp_path / "second")), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("head", ["pooler", "relu"])
@pytest.mark.parametrize("ssa", [None, "hybrid", "cotraining"])
def test_with_a_head_that_plain_transformers_does_not_know(head, ssa, tmp_path):
    tokenizer = build_tokenizer(mask_token="[MASK]")
    model = change_head(build_model("bert"), head)
    if ssa is not None:
        hw.self_supervise(model, {"model": ssa}, tokenizer=tokenizer, max_length=12)
    prune(model, PRUNED)
    save_classifier(model, tokenizer, tmp_path, head)
    assert_same(load_classifier_folder(tmp_path, head)[0], model)


def test_plain_transformers_refuses_it(tmp_path):
    prune(build_model("bert"), PRUNED).save_pretrained(tmp_path)
    with pytest.raises(RuntimeError, match="mismatched"):
        AutoModelForSequenceClassification.from_pretrained(tmp_path)


def damage(folder, change):
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda config: config.update(headwise_pruned="none"), "damaged headwise_pruned"),
        (lambda config: config.update(headwise_pruned={"0": [17]}), "damaged headwise_pruned"),
        (lambda config: config.update(headwise_pruned={"0": [1]}), "of its weights are missing or of another size"),
        (lambda config: config.update(num_hidden_layers=4), "of its weights are missing or of another size"),
    ],
)
def test_a_config_that_does_not_fit_is_refused_in_one_sentence(tmp_path, change, message):
    prune(build_model("bert"), PRUNED).save_pretrained(tmp_path)
    damage(tmp_path, change)
    with pytest.raises(InputError, match=message) as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_missing_weight_is_not_made_up(tmp_path):
    prune(build_model("bert"), PRUNED).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["bert.encoder.layer.0.attention.self.key.bias"]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match=r"1 of its weights are missing or of another size, .*layer\.0.*key\.bias"):
        load(tmp_path)


def test_a_bare_encoder_is_loaded_as_one_and_is_no_classifier(tmp_path):
    prune(build_model("bert").bert, PRUNED).save_pretrained(tmp_path)
    assert type(load(tmp_path)) is BertModel
    with pytest.raises(InputError, match="holds a BertModel without a trained classifier: name a finished run"):
        load_trained(tmp_path)


def test_a_pruned_encoder_starts_a_run_and_stays_pruned(encoder, tmp_path):
    model = AutoModel.from_pretrained(encoder)
    gone = {0: (1, 2), 1: (0, 1, 2, 3)}
    prune(model, gone)
    model.save_pretrained(tmp_path / "pruned")
    AutoTokenizer.from_pretrained(encoder).save_pretrained(tmp_path / "pruned")
    fresh = load_classifier(find_encoder(str(tmp_path / "pruned")), labels=("a", "b"), head="pooler", seed=1)
    assert type(fresh) is BertForSequenceClassification
    assert pruned_heads(fresh) == gone
    for name, tensor in model.state_dict().items():
        if "pooler" not in name:
            assert torch.equal(fresh.bert.state_dict()[name], tensor)


def test_the_doctor_examines_a_pruned_model(encoder, tmp_path):
    model = AutoModel.from_pretrained(encoder)
    prune(model, {0: [1, 2]})
    model.save_pretrained(tmp_path)
    found = diagnose(str(tmp_path), length=8)
    assert found.verified
    assert found.route == "fused"
