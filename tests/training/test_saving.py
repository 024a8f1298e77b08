"""A trained classifier on disk, with another head, a token head or fewer heads: for headwise and plain transformers."""

import json
import logging
import shutil

import pytest
import torch
from attention.test_head_weights import DIFFERENT
from attention.test_head_weights import build as build_different
from conftest import SIZES, build_batch, build_model
from safetensors.torch import load_file, save_file
from training.small_task import arguments, collate, examples
from training.tiny_encoder import build_tokenizer
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer, BertForSequenceClassification

import headwise as hw
from headwise.attention import mask, prune, pruned_heads
from headwise.errors import InputError
from headwise.training.classifier import change_head
from headwise.training.encoders import find_encoder, load_classifier
from headwise.training.saving import HEAD_FILE, load_classifier_folder, load_trained, save_classifier
from headwise.training.trainer import GuidedTrainer

TOKENIZER = build_tokenizer(mask_token="[MASK]")
NAMES = {"id2label": {0: "no", 1: "maybe", 2: "yes"}, "label2id": {"no": 0, "maybe": 1, "yes": 2}}
PRUNED = {0: (1, 2), 1: tuple(range(SIZES["num_attention_heads"]))}
# Which SSA, which classifier under it, and which heads are gone.
CASES = {
    "hybrid": ({}, "cls", {}),
    "cotraining": ({"model": "cotraining"}, "cls", {}),
    "hybrid that does not pool": ({"cls_weight": 1.0}, "cls", {}),
    "cotraining, own decoders": ({"model": "cotraining", "share_weight": False}, "cls", {}),
    "hybrid, relu": ({"pool_softmax": "logits"}, "relu", {}),
    "hybrid, pruned": ({}, "cls", PRUNED),
    "cotraining, relu, pruned": ({"model": "cotraining"}, "relu", PRUNED),
}
pytestmark = pytest.mark.filterwarnings("ignore::headwise.errors.HeadwiseWarning")


def build(case, family="bert", **changes):
    options, head, pruned = CASES[case]
    torch.manual_seed(2)
    model = change_head(build_model(family, **NAMES, **changes), head)
    hw.self_supervise(model, {"attention_threshold": 0.5, **options}, tokenizer=TOKENIZER, max_length=12)
    with torch.no_grad():
        for parameter in model.ssa.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return (prune(model, pruned) if pruned else model).eval()


def save(case, folder, **changes):
    model = build(case, **changes)
    save_classifier(model, TOKENIZER, folder, CASES[case][1])
    torch.manual_seed(123)  # fresh weights, if any were left, would differ
    return model


def assert_same(first, second):
    batch = build_batch()
    more = {"ssa_labels": torch.ones(3, 12), "output_ssa": True} if hasattr(first, "ssa") else {}
    one, other = (model(**batch, **more) for model in (first, second))
    assert set(one) == set(other)
    assert all(torch.equal(one[name], other[name]) for name in one if one[name] is not None)
    if more:
        assert first.ssa.options == second.ssa.options
        assert first.ssa.text == second.ssa.text
        assert first.ssa.head.positions == second.ssa.head.positions
    assert first.config.id2label == second.config.id2label
    assert pruned_heads(first) == pruned_heads(second)
    assert type(first).__name__ == type(second).__name__
    assert not second.training


@pytest.fixture
def heard():
    """What transformers says while it loads."""
    lines, logger = [], logging.getLogger("transformers")
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: lines.append(record.getMessage())
    logger.addHandler(handler)
    yield lines
    logger.removeHandler(handler)


# -- plain classifiers, and the ReLU head ------------------------------------------------------------------------------


def trained(family, head, folder):
    """Trained under guides, which stay on while it is saved."""
    model = hw.guide(change_head(build_model(family, **NAMES), head), hw.MDG(weight=0.5))
    trainer = GuidedTrainer(
        model=model, args=arguments(folder / "run"), data_collator=collate, train_dataset=examples()
    )
    trainer.train()
    save_classifier(model, build_tokenizer(), folder / "model", head)
    return model.eval(), folder / "model"


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_the_poolers_folder_loads_in_plain_transformers(tmp_path, family):
    model, folder = trained(family, "cls", tmp_path)
    batch = collate(examples(4))
    plain, report = AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert type(plain) is type(model)
    assert torch.equal(plain.eval()(**batch).logits, model(**batch).logits)
    assert plain.config.label2id == NAMES["label2id"]
    assert "headwise" not in (folder / "config.json").read_text()
    assert hw.guides.guidance(model).step == 3  # saving has not taken the guides off
    ours, tokenizer = load_classifier_folder(folder, "cls")
    assert_same(model, ours)
    assert tokenizer("word1 word2")["input_ids"][:3] == [2, 5, 6]


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_of_the_relu_folder_plain_transformers_loads_the_encoder(tmp_path, family):
    model, folder = trained(family, "relu", tmp_path)
    batch = collate(examples(4))
    expected = model(**batch, output_hidden_states=True)
    torch.manual_seed(123)
    encoder = AutoModel.from_pretrained(folder).eval()
    inputs = {name: tensor for name, tensor in batch.items() if name != "labels"}
    assert torch.equal(encoder(**inputs).last_hidden_state, expected.hidden_states[-1])
    assert_same(model, load_classifier_folder(folder, "relu")[0])
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == [type(encoder).__name__]
    assert all(name.startswith("classifier.") for name in load_file(folder / HEAD_FILE))
    assert config["headwise_head"] == {"kind": "relu"}
    del config["headwise_head"]  # as headwise 0.1 wrote it: the record says which head it is
    (folder / "config.json").write_text(json.dumps(config))
    assert_same(model, load_classifier_folder(folder, "relu")[0])


# -- token heads -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_a_saved_classifier_comes_back(tmp_path, case, heard):
    head = CASES[case][1]
    model = save(case, tmp_path)
    (tmp_path / "headwise.json").write_text(json.dumps({"recipe": {"head": head, "data": {"max_length": 12}}}))
    again, tokenizer = load_classifier_folder(tmp_path, head)
    assert_same(model, again)
    assert tokenizer.mask_token_id == TOKENIZER.mask_token_id
    assert_same(model, hw.load(str(tmp_path)))  # which reads the head from the record
    assert head == "relu" or heard == []  # of an encoder without a pooler transformers says so


@pytest.mark.parametrize(
    ("family", "case"), [("roberta", "hybrid"), ("distilbert", "cotraining"), ("deberta-v2", "hybrid")]
)
def test_other_families(tmp_path, family, case):
    assert_same(save(case, tmp_path, family=family), hw.load(tmp_path))


@pytest.mark.parametrize(("case", "shards"), [("hybrid", {"max_shard_size": "20KB"}), ("cotraining, own decoders", {})])
def test_what_save_pretrained_wrote_comes_back(tmp_path, case, shards):
    save(case, tmp_path)
    for file in tmp_path.glob("model*"):
        file.unlink()
    newer = build(case).to(torch.bfloat16)
    newer.ssa.head.decoder.data.add_(1.0)
    hw.guide(newer, hw.MDG(weight=0.1))
    newer.save_pretrained(tmp_path, **shards)  # beside what was saved before
    assert (len(list(tmp_path.glob("model*.safetensors"))) > 1) == bool(shards)
    again = hw.load(tmp_path)
    assert {each.dtype for each in again.parameters()} == {torch.bfloat16}
    assert_same(newer, again)


@pytest.mark.parametrize("case", ["cotraining", "hybrid that does not pool"])
def test_without_pooling_it_is_a_plain_classifier(tmp_path, case, heard):
    model = save(case, tmp_path)
    plain, report = AutoModelForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert heard == []
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert all(name.startswith("ssa.") for name in load_file(tmp_path / HEAD_FILE))
    assert torch.equal(plain.eval()(**build_batch()).logits, model(**build_batch()).logits)


def test_of_a_hybrid_model_plain_transformers_loads_the_encoder(tmp_path, heard):
    model = save("hybrid", tmp_path)
    encoder = AutoModel.from_pretrained(tmp_path).eval()
    assert heard == []
    assert type(encoder).__name__ == "BertModel"
    batch = {name: value for name, value in build_batch().items() if name != "labels"}
    states = model(**batch, output_hidden_states=True).hidden_states[-1]
    assert torch.equal(encoder(**batch).last_hidden_state, states)
    # Nobody is given a classifier that does not pool: the weights are not where it looks.
    assert not any(name.startswith("classifier") for name in load_file(tmp_path / "model.safetensors"))


# -- fewer heads -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", DIFFERENT)
def test_a_pruned_model_comes_back(family, tmp_path):
    heads = {layer: [0, 3] for layer in range(3)} if family == "albert" else PRUNED
    model = prune(build_different(family), heads).eval()
    model.save_pretrained(tmp_path)
    loaded = hw.load(tmp_path)
    assert_same(model, loaded)
    assert loaded.config.headwise_pruned == model.config.headwise_pruned
    loaded.train().requires_grad_(True)(**build_batch()).loss.backward()


def test_a_loaded_model_can_be_pruned_and_saved_again(tmp_path):
    prune(build_model("bert"), PRUNED).save_pretrained(tmp_path / "first", max_shard_size="20KB")  # in several files
    loaded = hw.load(tmp_path / "first")
    with mask(loaded, {2: [0]}), torch.no_grad():
        expected = loaded(**build_batch()).logits
    prune(loaded, {2: [0]}).save_pretrained(tmp_path / "second")
    torch.testing.assert_close(hw.load(tmp_path / "second")(**build_batch()).logits, expected, rtol=0, atol=1e-5)
    with pytest.raises(RuntimeError, match="mismatched"):
        AutoModelForSequenceClassification.from_pretrained(tmp_path / "second")


def test_a_pruned_encoder_starts_a_run_and_stays_pruned(encoder, tmp_path):
    model = prune(AutoModel.from_pretrained(encoder), {0: (1, 2), 1: (0, 1, 2, 3)})
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(encoder).save_pretrained(tmp_path)
    fresh = load_classifier(find_encoder(str(tmp_path)), labels=("a", "b"), head="cls", seed=1)
    assert type(fresh) is BertForSequenceClassification
    assert pruned_heads(fresh) == pruned_heads(model)
    for name, tensor in model.state_dict().items():
        if "pooler" not in name:
            assert torch.equal(fresh.bert.state_dict()[name], tensor)


# -- what cannot be loaded ---------------------------------------------------------------------------------------------


def change_weight(path, change):
    weights = load_file(path)
    name = next(name for name in sorted(weights) if name.startswith("ssa."))
    value = change(weights.pop(name))
    save_file(weights if value is None else weights | {name: value}, path)


def change_config(folder, key="headwise_ssa", **changes):
    config = json.loads((folder / "config.json").read_text())
    config[key] = config[key] | changes if changes else "gone"
    (folder / "config.json").write_text(json.dumps(config))


HARMS = {
    "nothing there": shutil.rmtree,
    "no head file": lambda folder: (folder / HEAD_FILE).unlink(),
    "half a head file": lambda folder: (folder / HEAD_FILE).write_bytes((folder / HEAD_FILE).read_bytes()[:-50]),
    "half the weights": lambda folder: (folder / "model.safetensors").write_bytes(b"half of it"),
    "a weight less": lambda folder: change_weight(folder / HEAD_FILE, lambda value: None),
    "a weight of another size": lambda folder: change_weight(
        folder / HEAD_FILE, lambda value: value[..., :-1].contiguous()
    ),
    "odd settings": change_config,
    "no mask": lambda folder: change_config(folder, mask_id=None),
    "unknown option": lambda folder: change_config(folder, options={"modle": "hybrid"}),
    "damaged headwise_pruned": lambda folder: change_config(folder, "headwise_pruned"),
    "head that does not exist": lambda folder: change_config(folder, "headwise_pruned", **{"0": [17]}),
    "heads that are still there": lambda folder: change_config(folder, "headwise_pruned", **{"2": [1]}),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_folder_is_one_sentence(tmp_path, harm):
    folder = tmp_path / "model"
    save("hybrid, pruned", folder)
    HARMS[harm](folder)
    with pytest.raises(InputError) as caught:
        load_classifier_folder(folder, "cls")
    message, start = str(caught.value), f"the model in {folder} cannot be loaded: "
    assert message.startswith(start)
    assert "\n" not in message
    assert len(message) > len(start) + 10


def test_what_is_no_classifier(tmp_path):
    with pytest.raises(InputError, match=r"holds no model: expected a folder with a config\.json; name a finished run"):
        hw.load(tmp_path / "nowhere")
    prune(build_model("bert").base_model, PRUNED).save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    assert type(hw.load(tmp_path)).__name__ == "BertModel"
    with pytest.raises(InputError, match=r"holds a BertModel without a trained classifier: name a finished run"):
        load_trained(tmp_path)


@pytest.mark.parametrize("content", ["[]", '{"asked": {"recipe": {"head": "relu"}}}'])
def test_a_damaged_record(tmp_path, content):
    save("hybrid", tmp_path)
    (tmp_path / "headwise.json").write_text(content)
    with pytest.raises(InputError, match=r"headwise\.json is damaged \(.*Error\): train again"):
        hw.load(tmp_path)
