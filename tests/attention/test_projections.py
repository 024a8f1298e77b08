"""Which parameters decide where attention goes."""

import pytest
import torch
from conftest import FAMILIES, ROUTES, build_batch, build_model

import headwise as hw
from headwise.attention import query_key_projections

pytestmark = pytest.mark.filterwarnings("ignore::headwise.errors.HeadwiseWarning")

# A shared layer has one pair; ModernBERT keeps query, key and value in one matrix.
COUNTS = {"albert": 2, "modernbert": 3}


@pytest.fixture(params=ROUTES)
def family(request):
    """One family for each route; tests over all of them name FAMILIES."""
    return request.param


def test_query_and_key_of_every_layer():
    for family in FAMILIES:
        found = query_key_projections(build_model(family))
        assert len(found) == COUNTS.get(family, 6), family
        assert {each.share for each in found} == ({2 / 3} if family == "modernbert" else {1.0}), family


def test_the_gradient_of_what_is_seen_lies_in_their_part(family):
    """In the last layer received attention depends on query and key, and not at all on value."""
    model = build_model(family, num_hidden_layers=1, dtype=torch.float64).eval()
    with hw.capture(model) as record:
        model(**build_batch())
    found = query_key_projections(model)
    weight = torch.randn_like(record.stacked())
    gradients = torch.autograd.grad((record.stacked() * weight).sum(), [each.parameter for each in found])
    for each, gradient in zip(found, gradients, strict=True):
        part = each.part(gradient)
        assert part.abs().amax(1).min() > 1e-9
        assert gradient[part.shape[0] :].abs().sum() == 0
    assert sum(each.part(gradient).numel() for each, gradient in zip(found, gradients, strict=True)) == 2 * 32 * 32


def test_frozen_parameters_are_left_out(model):
    model.bert.encoder.layer[0].requires_grad_(False)
    assert len(query_key_projections(model)) == 4


def test_of_adapters_only_the_trained_parts_count(model):
    peft = pytest.importorskip("peft")
    adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["query", "value"], r=2))
    names = {id(parameter): name for name, parameter in adapted.named_parameters()}
    found = [names[id(each.parameter)] for each in query_key_projections(adapted)]
    assert len(found) == 6  # two matrices for the query of each layer
    assert all(".query.lora_" in name for name in found)
