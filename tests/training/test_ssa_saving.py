"""A classifier with self-supervised attention on disk, for headwise and for plain transformers."""

import json
import logging

import pytest
import torch
from conftest import build_batch, build_model
from safetensors.torch import load_file, save_file
from training.tiny_encoder import build_tokenizer
from transformers import AutoModel, AutoModelForSequenceClassification, BertModel

import headwise as hw
from headwise.errors import InputError
from headwise.training.classifier import change_head
from headwise.training.saving import HEAD_FILE, load_classifier_folder, load_trained, save_classifier

TOKENIZER = build_tokenizer(mask_token="[MASK]")
NAMES = {"id2label": {0: "no", 1: "maybe", 2: "yes"}, "label2id": {"no": 0, "maybe": 1, "yes": 2}}
# Which SSA, and which classifier under it.
CASES = {
    "hybrid": ({}, "pooler"),
    "cotraining": ({"model": "cotraining"}, "pooler"),
    "hybrid that does not pool": ({"cls_weight": 1.0}, "pooler"),
    "hybrid, own decoders": ({"share_weight": False}, "pooler"),
    "cotraining, own decoders": ({"model": "cotraining", "share_weight": False}, "pooler"),
    "hybrid, relu": ({"pool_softmax": "logits"}, "relu"),
    "cotraining, relu": ({"model": "cotraining"}, "relu"),
}
PLAIN = ("cotraining", "hybrid that does not pool", "cotraining, own decoders")


@pytest.fixture(params=sorted(CASES))
def case(request):
    return request.param


def build(case, family="bert", **changes):
    options, head = CASES[case]
    torch.manual_seed(2)
    model = change_head(build_model(family, **NAMES, **changes), head)
    hw.self_supervise(model, {"attention_threshold": 0.5, **options}, tokenizer=TOKENIZER, max_length=12)
    with torch.no_grad():
        for parameter in model.ssa.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return model.eval()


def save(case, folder, **changes):
    model = build(case, **changes)
    save_classifier(model, TOKENIZER, folder, CASES[case][1])
    torch.manual_seed(123)  # fresh weights, if any were left, would differ
    return model


def assert_same(first, second):
    batch = build_batch()
    one, other = (model(**batch, ssa_labels=torch.ones(3, 12), output_ssa=True) for model in (first, second))
    assert set(one) == set(other)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert first.ssa.options == second.ssa.options
    assert first.ssa.text == second.ssa.text
    assert first.ssa.head.positions == second.ssa.head.positions
    assert first.config.id2label == second.config.id2label
    assert type(first).__name__ == type(second).__name__


def test_a_saved_classifier_comes_back(tmp_path, case):
    model = save(case, tmp_path / "model")
    again, tokenizer = load_classifier_folder(tmp_path / "model", CASES[case][1])
    assert not again.training
    assert not again.ssa.training
    assert_same(model, again)
    assert tokenizer.mask_token_id == TOKENIZER.mask_token_id
    if CASES[case][1] == "pooler":
        assert_same(model, hw.load(str(tmp_path / "model")))


def test_it_is_saved_and_loaded_again(tmp_path):
    model = save("hybrid, own decoders", tmp_path / "model")
    again, tokenizer = load_classifier_folder(tmp_path / "model", "pooler")
    save_classifier(again, tokenizer, tmp_path / "again", "pooler")
    assert_same(model, hw.load(tmp_path / "again"))


@pytest.mark.parametrize("head", ["pooler", "relu"])
def test_the_front_door_knows_the_head_of_a_run(tmp_path, head):
    case = {"pooler": "hybrid", "relu": "hybrid, relu"}[head]
    model = save(case, tmp_path)
    (tmp_path / "headwise.json").write_text(json.dumps({"recipe": {"head": head, "data": {"max_length": 12}}}))
    assert_same(model, hw.load(tmp_path))


@pytest.mark.parametrize("family", ["roberta", "distilbert", "modernbert", "deberta-v2"])
@pytest.mark.parametrize("case", ["hybrid", "cotraining"])
def test_other_families(tmp_path, family, case):
    assert_same(save(case, tmp_path, family=family), hw.load(tmp_path))


@pytest.mark.parametrize("case", ["hybrid", "cotraining", "hybrid, own decoders", "cotraining, own decoders"])
@pytest.mark.parametrize("shards", [{}, {"max_shard_size": "20KB"}])
def test_what_save_pretrained_wrote_comes_back(tmp_path, case, shards):
    model = build(case)
    model.save_pretrained(tmp_path, **shards)  # without a tokenizer
    assert (len(list(tmp_path.glob("model*.safetensors"))) > 1) == bool(shards)
    assert_same(model, hw.load(tmp_path))


@pytest.mark.parametrize("case", ["hybrid", "cotraining"])
def test_the_newest_of_two_ways_of_saving_counts(tmp_path, case):
    save(case, tmp_path)
    newer = build(case)
    newer.ssa.head.decoder.data.add_(1.0)
    newer.save_pretrained(tmp_path)
    assert_same(newer, hw.load(tmp_path))
    assert_same(save(case, tmp_path), hw.load(tmp_path))


@pytest.mark.parametrize("case", ["hybrid", "cotraining"])
def test_lower_precision_and_guides_change_nothing(tmp_path, case):
    model = build(case).to(torch.bfloat16)
    hw.guide(model, hw.MDG(weight=0.1))
    save_classifier(model, TOKENIZER, tmp_path, "pooler")
    again = hw.load(tmp_path)
    assert {each.dtype for each in again.parameters()} == {torch.bfloat16}
    assert_same(model, again)


# -- in plain transformers -----------------------------------------------------------------------------------------


@pytest.fixture
def heard():
    """What transformers says while it loads."""
    lines, logger = [], logging.getLogger("transformers")
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: lines.append(record.getMessage())
    logger.addHandler(handler)
    yield lines
    logger.removeHandler(handler)


@pytest.mark.parametrize("case", PLAIN)
def test_without_pooling_it_is_a_plain_classifier(tmp_path, case, heard):
    model = save(case, tmp_path)
    plain, report = AutoModelForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert heard == []
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert not any(name.startswith("ssa.") for name in load_file(tmp_path / "model.safetensors"))
    assert all(name.startswith("ssa.") for name in load_file(tmp_path / HEAD_FILE))
    batch = build_batch()
    assert torch.equal(plain.eval()(**batch).logits, model(**batch).logits)
    assert plain.config.label2id == NAMES["label2id"]


def test_loading_it_with_its_token_head_is_quiet_too(tmp_path, heard):
    for case in ("hybrid", "cotraining"):
        save(case, tmp_path / case)
        hw.load(tmp_path / case)
        build(case).save_pretrained(tmp_path / f"{case} by itself")
        hw.load(tmp_path / f"{case} by itself")
    assert heard == []


def test_of_a_hybrid_model_plain_transformers_loads_the_encoder(tmp_path, heard):
    model = save("hybrid", tmp_path)
    encoder = AutoModel.from_pretrained(tmp_path).eval()
    assert heard == []
    assert type(encoder).__name__ == "BertModel"
    batch = {name: value for name, value in build_batch().items() if name != "labels"}
    states = model(**batch, output_hidden_states=True).hidden_states[-1]
    assert torch.equal(encoder(**batch).last_hidden_state, states)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["BertModel"]
    # Nobody is given a classifier that does not pool: the weights are not where it looks.
    assert not any(name.startswith("classifier") for name in load_file(tmp_path / "model.safetensors"))


# -- what cannot be loaded -----------------------------------------------------------------------------------------


def without_a_weight(path, start):
    weights = load_file(path)
    gone = next(name for name in sorted(weights) if name.startswith(start))
    save_file({name: value for name, value in weights.items() if name != gone}, path)


def with_another_size(path, start):
    weights = load_file(path)
    odd = next(name for name in sorted(weights) if name.startswith(start))
    save_file(weights | {odd: weights[odd][..., :-1].contiguous()}, path)


def damaged_config(path, **changes):
    config = json.loads(path.read_text())
    config["headwise_ssa"] = config["headwise_ssa"] | changes if changes else "gone"
    path.write_text(json.dumps(config))


HARMS = {
    "no head file": lambda folder: (folder / HEAD_FILE).unlink(),
    "half a head file": lambda folder: (folder / HEAD_FILE).write_bytes((folder / HEAD_FILE).read_bytes()[:-50]),
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "half the weights": lambda folder: (folder / "model.safetensors").write_bytes(b"half of it"),
    "a weight less": lambda folder: without_a_weight(folder / HEAD_FILE, "ssa."),
    "a weight of another size": lambda folder: with_another_size(folder / HEAD_FILE, "ssa."),
    "odd settings": lambda folder: damaged_config(folder / "config.json"),
    "no mask": lambda folder: damaged_config(folder / "config.json", mask_id=None),
    "unknown option": lambda folder: damaged_config(folder / "config.json", options={"modle": "hybrid"}),
}


@pytest.mark.parametrize("harm", sorted(HARMS))
@pytest.mark.parametrize("case", ["hybrid", "cotraining"])
def test_a_damaged_folder_is_told_in_one_sentence(tmp_path, case, harm):
    save(case, tmp_path)
    HARMS[harm](tmp_path)
    with pytest.raises(InputError) as caught:
        hw.load(tmp_path)
    message = str(caught.value)
    assert message.startswith(f"the model in {tmp_path} cannot be loaded: ")
    assert "\n" not in message
    assert len(message) > len(f"the model in {tmp_path} cannot be loaded: ") + 10


def test_a_classifier_that_lost_a_weight_is_not_made_up(tmp_path):
    save("hybrid", tmp_path)
    without_a_weight(tmp_path / HEAD_FILE, "classifier.")
    with pytest.raises(InputError, match=r"1 of its weights are missing or of another size, classifier\.bias first"):
        hw.load(tmp_path)


def test_what_is_no_classifier(tmp_path):
    with pytest.raises(InputError, match=r"holds no model: expected a folder with a config\.json; name a finished run"):
        hw.load(tmp_path / "nowhere")
    build_model("bert").base_model.save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    assert type(hw.load(tmp_path)) is BertModel
    with pytest.raises(InputError, match=r"holds a BertModel without a trained classifier: name a finished run"):
        load_trained(tmp_path)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"asked": {"recipe": {"head": "relu"}}}'])
def test_a_damaged_record(tmp_path, content):
    save("hybrid", tmp_path)
    (tmp_path / "headwise.json").write_text(content)
    with pytest.raises(InputError, match=r"headwise\.json is damaged \(.*Error\): train again"):
        hw.load(tmp_path)


def test_a_plain_classifier_is_loaded_as_such(tmp_path):
    model = build_model("bert").eval()
    save_classifier(model, TOKENIZER, tmp_path, "pooler")
    again = hw.load(tmp_path)
    assert type(again) is type(model)
    assert torch.equal(again(**build_batch()).logits, model(**build_batch()).logits)
    assert "ssa" not in dict(again.named_modules())
