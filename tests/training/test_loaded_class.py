"""hw.load returns the class that was saved, with all heads or without some."""

import json
import sys

import pytest
import torch
import transformers
from conftest import SIZES, build_batch, build_model
from training.tiny_encoder import build_tokenizer
from transformers import BertModel

import headwise as hw
from headwise.attention import pruned_heads
from headwise.errors import InputError
from headwise.training.classifier import change_head
from headwise.training.saving import save_classifier

PRUNED = {0: (1, 2), 1: (0, 1, 2, 3)}
IMAGES = {"image_size": 12, "patch_size": 4, "num_channels": 3}
SUFFIXES = ("Model", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice", "ForPreTraining")
TIED = ["BertForMaskedLM", "RobertaForMaskedLM", "DistilBertForMaskedLM", "ElectraForMaskedLM"]
VISION = ["ViTModel", "ViTForImageClassification"]
WHOLE = [("BertForMaskedLM", {}), ("BertModel", {}), ("ViTModel", {})]


def build(name, **options):
    kind = getattr(transformers, name)
    torch.manual_seed(5)
    sizes = {**SIZES, **(IMAGES | {"encoder_stride": 4} if name in VISION else {}), "embedding_size": 16}
    sizes |= {"num_labels": 2} if name.endswith("QuestionAnswering") else {}
    model = kind(kind.config_class(**sizes), **options).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def without(model, pruned):
    return hw.prune(model, pruned) if pruned else model


def answers(model):
    """Every tensor that the model returns."""
    name = type(model).__name__
    if name in VISION:
        batch = {"pixel_values": torch.rand(2, 3, 12, 12, generator=torch.Generator().manual_seed(3))}
    else:
        batch = {key: each for key, each in build_batch().items() if key != "labels"}
    if name.endswith("MultipleChoice"):
        batch = {key: each.unsqueeze(0) for key, each in batch.items()}
    with torch.no_grad():
        return [each for each in model(**batch).to_tuple() if isinstance(each, torch.Tensor)]


def assert_same(loaded, model):
    assert type(loaded) is type(model)
    assert not loaded.training
    expected = answers(model)
    assert expected
    for each, other in zip(answers(loaded), expected, strict=True):
        assert torch.equal(each, other)
    assert pruned_heads(loaded) == pruned_heads(model)


@pytest.mark.parametrize(
    ("name", "pruned"),
    [*WHOLE, *((name, PRUNED) for name in (*(f"Bert{suffix}" for suffix in SUFFIXES), *TIED, *VISION))],
)
def test_the_saved_class_comes_back_and_answers_the_same(name, pruned, tmp_path):
    model = without(build(name), pruned)
    model.save_pretrained(tmp_path)
    loaded = hw.load(tmp_path)
    assert_same(loaded, model)
    if name == "BertForMaskedLM":
        loaded.save_pretrained(tmp_path / "again")
        assert_same(hw.load(tmp_path / "again"), model)
    if name == "BertModel":  # built without a pooler
        model = without(build(name, add_pooling_layer=False), pruned)
        model.save_pretrained(tmp_path / "bare")
        loaded = hw.load(tmp_path / "bare")
        assert loaded.pooler is None
        assert_same(loaded, model)
    if name in TIED:  # weights that were tied still are
        table, decoder = loaded.get_input_embeddings().weight, loaded.get_output_embeddings().weight
        assert decoder is table
        before = answers(loaded)[0]
        with torch.no_grad():
            table.add_(1.0)
        assert not torch.equal(answers(loaded)[0], before)


def change_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


NO_CLASSES = (
    "os",
    "AutoModel",
    "PreTrainedModel",
    "BertConfig",
    "RobertaModel",
    "canary_of_classes.Model",
    "__import__",
)


def test_only_model_classes_of_transformers_for_this_config_are_loaded(tmp_path, monkeypatch):
    (tmp_path / "canary_of_classes.py").write_text("raise SystemExit('the config chose a module')")
    monkeypatch.syspath_prepend(tmp_path)
    build("BertModel").save_pretrained(tmp_path)
    for named in (*([name] for name in NO_CLASSES), [7], None, "BertModel"):
        change_config(tmp_path, architectures=named)
        with pytest.raises(InputError, match=None if isinstance(named, list) else "architectures") as caught:
            hw.load(tmp_path)
        assert str(tmp_path) in str(caught.value)
        assert "\n" not in str(caught.value)
        assert "canary_of_classes" not in sys.modules


def test_weights_that_do_not_fit_the_class_are_not_made_up(tmp_path):
    build("BertModel").save_pretrained(tmp_path)
    change_config(tmp_path, architectures=["BertForTokenClassification"])
    with pytest.raises(InputError, match=r"2 of its weights are missing or of another size, classifier\.bias first"):
        hw.load(tmp_path)


def test_an_encoder_whose_classifier_lies_beside_it_needs_its_record(tmp_path):
    """If it is of headwise 0.1, whose configs do not name the head."""
    save_classifier(change_head(build_model("bert"), "relu"), build_tokenizer(), tmp_path, "relu")
    change_config(tmp_path, headwise_head=None)
    with pytest.raises(InputError, match="holds a BertModel without a trained classifier"):
        hw.load(tmp_path)
    assert isinstance(transformers.AutoModel.from_pretrained(tmp_path), BertModel)
