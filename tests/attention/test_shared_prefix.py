"""What masks share is computed once, and what is silenced not at all."""

import numpy
import pytest
import torch
from conftest import build_batch, build_model
from torch import nn
from torch.nn import functional

import headwise as hw
from headwise.attention.shared_prefix import can_share_layers, first_tokens_under_masks

LAYERS, HEADS, SIZE = 3, 4, 8


@pytest.fixture
def model():
    return build_model("bert").eval()


@pytest.fixture
def attended(monkeypatch):
    """The shape of the queries of every attention call, as torch gets them."""
    shapes, plain = [], functional.scaled_dot_product_attention

    def noting(query, *others, **options):
        shapes.append(tuple(query.shape))
        return plain(query, *others, **options)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", noting)
    return shapes


def logits_under(model, masks, batch):
    with first_tokens_under_masks(model, masks), torch.inference_mode():
        return model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits


def one_by_one(model, masks, batch):
    """The slow way: a pass for each mask, with gates of 0."""
    found = []
    for mask in masks:
        with hw.gate(model, torch.from_numpy(~mask).float()), torch.inference_mode():
            found.append(model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits)
    return torch.cat(found)


def test_masks_share_what_lies_before_the_layer_where_they_part(model, batch, attended):
    """They part in the middle layer: its attention, and that of the first, is computed once, that of the last twice."""
    masks = numpy.zeros((2, LAYERS, HEADS), dtype=bool)
    masks[1, 1, 2] = True
    logits_under(model, masks, batch)
    whole, last = (3, HEADS, 12, SIZE), (3, 1, HEADS, HEADS * SIZE)
    assert attended == [whole, whole, last, last]


def test_equal_masks_share_everything(model, batch, attended):
    masks = numpy.zeros((5, LAYERS, HEADS), dtype=bool)
    masks[:, 0, 1] = True
    found = logits_under(model, masks, batch)
    assert len(attended) == LAYERS
    assert torch.equal(found, found[:3].repeat(5, 1))


def test_silenced_heads_are_not_computed(model, batch, attended):
    """One head of the first layer is silent in both masks, another in one; the middle layer is silent in both."""
    masks = numpy.zeros((2, LAYERS, HEADS), dtype=bool)
    masks[:, 0, 0] = masks[1, 0, 3] = masks[:, 1] = True
    found = logits_under(model, masks, batch)
    assert attended[0] == (3, HEADS - 1, 12, SIZE)
    assert [shape[2] for shape in attended[1:]] == [HEADS, HEADS]  # the last layer, where the heads are the queries
    torch.testing.assert_close(found, one_by_one(model, masks, batch), atol=1e-5, rtol=0)


class OwnLinear(nn.Linear):
    """What an adapter might put in the place of a projection."""

    def forward(self, states):
        return super().forward(states) + 1


def watch(model):
    model.bert.encoder.layer[0].register_forward_hook(lambda *_: None)


def wrap(model):
    model.bert.encoder.layer[1].forward = model.bert.encoder.layer[1].forward


def adapt(model):
    model.bert.encoder.layer[1].attention.self.key = OwnLinear(HEADS * SIZE, HEADS * SIZE)


def replace_layer(model):
    class Layer(type(model.bert.encoder.layer[0])):
        __module__ = "elsewhere"

    model.bert.encoder.layer[0].__class__ = Layer


def ask_for_states(model):
    model.config.output_hidden_states = True


@pytest.mark.parametrize("change", [watch, wrap, adapt, replace_layer, ask_for_states])
def test_changed_models_do_not_share(model, change):
    assert can_share_layers(model)
    change(model)
    assert not can_share_layers(model)


def test_watched_models_do_not_share(model):
    with hw.capture(model):
        assert not can_share_layers(model)
    assert can_share_layers(model)


def test_batches_need_no_attention_mask(model):
    ids = build_batch(size=2)["input_ids"]
    masks = numpy.zeros((1, LAYERS, HEADS), dtype=bool)
    with torch.inference_mode():
        expected = model(input_ids=ids).logits
        with first_tokens_under_masks(model, masks):
            torch.testing.assert_close(model(input_ids=ids).logits, expected, atol=1e-5, rtol=0)
