"""Parts of an encoder that stay as they are."""

import pytest
import torch
from conftest import build_batch, build_model
from training.small_task import exact_model, parameters, trainer_of
from transformers import Trainer

import headwise as hw
from headwise.errors import InputError
from headwise.training.encoders import freeze


def frozen(model):
    return {name for name, each in model.named_parameters() if not each.requires_grad}


def test_embeddings(family):
    model = build_model(family)
    count = freeze(model, ["embeddings"])
    names = frozen(model)
    assert names == {name for name, _ in model.named_parameters() if f"{model.base_model_prefix}.embeddings." in name}
    assert names
    assert count == sum(model.get_parameter(name).numel() for name in names)


def test_encoder(family):
    model = build_model(family)
    count = freeze(model, ["encoder"])
    inside = {name for name, _ in model.named_parameters() if name.startswith(f"{model.base_model_prefix}.")}
    assert frozen(model) == inside
    assert count == sum(model.get_parameter(name).numel() for name in inside)


def test_layers(family):
    model = build_model(family)
    if family == "albert":
        with pytest.raises(InputError, match="share weights, so single ones cannot be frozen"):
            freeze(model, [0])
        return
    freeze(model, [0, 2])
    names = frozen(model)
    assert {part for name in names for part in name.split(".") if part.isdigit()} >= {"0", "2"}
    layers = {next(part for part in name.split(".") if part.isdigit()) for name in names}
    assert layers == {"0", "2"}
    free = {name for name, _ in model.named_parameters()} - names
    assert any(".1." in name for name in free)
    model.train()(**build_batch()).loss.backward()
    assert all(model.get_parameter(name).grad is None for name in names)
    assert not any(".layer.0." in name or ".layers.0." in name for name in free)


def test_overlapping_parts_count_once():
    model = build_model("bert")
    assert freeze(model, ["encoder", "embeddings", 0]) == sum(each.numel() for each in model.base_model.parameters())
    assert freeze(model, ["embeddings"]) == 0
    assert freeze(model, []) == 0


@pytest.mark.parametrize("part", [3, -1, True, 1.0, "layer 1", "classifier", "1", None])
def test_bad_values(part):
    with pytest.raises(InputError) as caught:
        freeze(build_model("bert"), [part])
    assert str(caught.value) == (
        f"training.freeze names {part!r}: expected embeddings, encoder, or layers from 0 to 2."
    )


def test_something_must_be_left_to_train():
    model = build_model("bert").base_model
    with pytest.raises(InputError, match=r"leaves nothing to train: leave some part out of it\.$"):
        freeze(model, ["encoder"])


def test_frozen_parts_do_not_change_in_training(tmp_path):
    model = exact_model()
    freeze(model, ["embeddings", 0])
    hw.guide(model, hw.MDG(weight=0.5))
    before = parameters(model)
    trainer_of(Trainer, model, tmp_path).train()
    for name, after in parameters(model).items():
        stays = ".embeddings." in name or ".layer.0." in name
        if stays:
            assert torch.equal(after, before[name])
    assert not torch.equal(
        model.bert.encoder.layer[1].attention.self.query.weight,
        before["bert.encoder.layer.1.attention.self.query.weight"],
    )
