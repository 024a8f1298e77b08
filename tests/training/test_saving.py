"""A trained classifier is an ordinary folder of transformers."""

import json
import shutil

import pytest
import torch
from conftest import build_model
from safetensors.torch import load_file
from training.small_task import arguments, collate, examples
from training.tiny_encoder import build_tokenizer
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

import headwise as hw
from headwise.errors import InputError
from headwise.training.classifier import change_head
from headwise.training.saving import HEAD_FILE, load_classifier_folder, save_classifier
from headwise.training.trainer import GuidedTrainer

NAMES = {"id2label": {0: "no", 1: "maybe", 2: "yes"}, "label2id": {"no": 0, "maybe": 1, "yes": 2}}


def trained(family, head, folder):
    """Trained under guides, which stay on while it is saved."""
    model = hw.guide(change_head(build_model(family, **NAMES), head), hw.MDG(weight=0.5))
    trainer = GuidedTrainer(
        model=model, args=arguments(folder / "run"), data_collator=collate, train_dataset=examples()
    )
    trainer.train()
    save_classifier(model, build_tokenizer(), folder / "model", head)
    return model.eval(), folder / "model"


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "modernbert"])
def test_the_poolers_folder_loads_in_plain_transformers(tmp_path, family):
    model, folder = trained(family, "pooler", tmp_path)
    batch = collate(examples(4))
    plain, report = AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert type(plain) is type(model)
    assert torch.equal(plain.eval()(**batch).logits, model(**batch).logits)
    assert plain.config.label2id == NAMES["label2id"]
    assert "headwise" not in (folder / "config.json").read_text()
    assert hw.guides.guidance(model).step == 3  # saving has not taken the guides off
    ours, tokenizer = load_classifier_folder(folder, "pooler")
    assert not ours.training
    assert torch.equal(ours(**batch).logits, model(**batch).logits)
    assert tokenizer("word1 word2")["input_ids"][:3] == [2, 5, 6]


@pytest.mark.parametrize("family", ["bert", "roberta", "electra", "mpnet"])
@pytest.mark.filterwarnings("ignore::headwise.errors.HeadwiseWarning")
def test_the_relu_folder(tmp_path, family):
    model, folder = trained(family, "relu", tmp_path)
    batch = collate(examples(4))
    expected = model(**batch, output_hidden_states=True)
    torch.manual_seed(123)  # fresh weights, if any were left, would differ
    encoder = AutoModel.from_pretrained(folder).eval()
    inputs = {name: tensor for name, tensor in batch.items() if name != "labels"}
    found = encoder(**inputs, output_hidden_states=True).hidden_states
    assert len(found) == len(expected.hidden_states)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(found, expected.hidden_states, strict=True))
    ours, _ = load_classifier_folder(folder, "relu")
    assert not ours.training
    assert torch.equal(ours(**batch).logits, expected.logits)
    assert torch.equal(ours(**batch).loss, expected.loss)
    assert ours.config.id2label == NAMES["id2label"]
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == [type(encoder).__name__]
    assert all(name.startswith("classifier.") for name in load_file(folder / HEAD_FILE))
    assert "headwise" not in json.dumps(config)


def test_the_relu_folder_saves_and_loads_again(tmp_path):
    _, folder = trained("bert", "relu", tmp_path)
    first, tokenizer = load_classifier_folder(folder, "relu")
    save_classifier(first, tokenizer, tmp_path / "again", "relu")
    second, _ = load_classifier_folder(tmp_path / "again", "relu")
    batch = collate(examples(4))
    assert torch.equal(first(**batch).logits, second(**batch).logits)
    assert (folder / HEAD_FILE).read_bytes() == (tmp_path / "again" / HEAD_FILE).read_bytes()


def test_a_regression(tmp_path):
    model = change_head(build_model("bert", num_labels=1, problem_type="regression"), "relu").eval()
    save_classifier(model, build_tokenizer(), tmp_path, "relu")
    again, _ = load_classifier_folder(tmp_path, "relu")
    batch = collate(examples(4))
    batch["labels"] = batch["labels"].float()
    assert torch.equal(again(**batch).logits, model(**batch).logits)
    assert torch.equal(again(**batch).loss, model(**batch).loss)


@pytest.mark.parametrize("harm", ["nothing there", "no weights", "half weights", "no head", "half head", "no config"])
def test_a_folder_that_cannot_be_loaded(tmp_path, harm):
    folder = tmp_path / "model"
    save_classifier(change_head(build_model("bert"), "relu"), build_tokenizer(), folder, "relu")
    file = folder / ("model.safetensors" if "weights" in harm else HEAD_FILE)
    if harm == "nothing there":
        shutil.rmtree(folder)
    elif harm == "no config":
        (folder / "config.json").unlink()
    elif harm.startswith("no"):
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-50])
    with pytest.raises(InputError) as caught:
        load_classifier_folder(folder, "relu")
    assert str(caught.value).startswith(f"the model in {folder} cannot be loaded: ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) > len(f"the model in {folder} cannot be loaded: ") + 10


def test_the_tokenizer_is_saved_as_it_is(tmp_path):
    save_classifier(build_model("bert"), build_tokenizer(), tmp_path, "pooler")
    assert AutoTokenizer.from_pretrained(tmp_path)("word3")["input_ids"] == build_tokenizer()("word3")["input_ids"]
