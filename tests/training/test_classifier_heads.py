"""The classifier on top: the encoder's own, or W ReLU(h_CLS) + b."""

import pytest
import torch
from conftest import FAMILIES, build_batch, build_model

import headwise as hw
from headwise.errors import InputError
from headwise.training.classifier import change_head

WITH_RELU = {"bert", "roberta", "xlm-roberta", "camembert", "electra", "ernie", "mobilebert", "mpnet"}


def last_linear(model):
    return model.classifier if isinstance(model.classifier, torch.nn.Linear) else model.classifier.out_proj


@pytest.mark.parametrize("family", sorted(WITH_RELU))
def test_relu_is_what_the_paper_prints(family):
    model = change_head(build_model(family), "relu").eval()
    batch = build_batch()
    state = model(**batch, output_hidden_states=True)
    linear = last_linear(model)
    expected = torch.relu(state.hidden_states[-1][:, 0]) @ linear.weight.T + linear.bias
    torch.testing.assert_close(state.logits, expected)
    assert linear.weight.shape == (3, 32)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_every_parameter_of_it_learns_under_guides(family):
    model = hw.guide(change_head(build_model(family), "relu"), hw.MDG(weight=0.1)).train()
    model(**build_batch()).loss.backward()
    assert last_linear(model).weight.grad.abs().max() > 0
    assert not any("pooler" in name or "dense" in name for name, _ in model.named_parameters() if "encoder" not in name)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_it_drops_out_where_the_model_does(family):
    model = change_head(build_model(family, hidden_dropout_prob=0.5), "relu")
    drops = [
        each for name, each in model.named_modules() if isinstance(each, torch.nn.Dropout) and "encoder" not in name
    ]
    assert any(each.p == 0.5 for each in drops)


def test_pooler_leaves_the_model_as_it_is(family):
    model = build_model(family).eval()
    before = {name: each.clone() for name, each in model.state_dict().items()}
    modules = dict(model.named_modules())
    logits = model(**build_batch()).logits
    assert change_head(model, "pooler") is model
    assert dict(model.named_modules()) == modules
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
    assert torch.equal(model(**build_batch()).logits, logits)


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - WITH_RELU))
def test_families_where_it_is_not_known(family):
    model = build_model(family).eval()
    logits = model(**build_batch()).logits
    with pytest.raises(InputError) as caught:
        change_head(model, "relu")
    assert str(caught.value) == f"head 'relu' is not known for {family} models: use head: pooler."
    assert torch.equal(model(**build_batch()).logits, logits)


def test_an_unknown_head():
    with pytest.raises(InputError) as caught:
        change_head(build_model("bert"), "tanh")
    assert str(caught.value) == "head is 'tanh': expected one of pooler, relu."
