"""The classifier on top (the encoder's own, or W ReLU(h_CLS) + b), fitted by least squares, and frozen parts below."""

import numpy
import pytest
import torch
from conftest import build_batch, build_model
from training.small_task import exact_model, parameters, trainer_of
from transformers import Trainer

import headwise as hw
from headwise.data import Collator, Encoded
from headwise.errors import InputError
from headwise.training.classifier import change_head, fit_linear
from headwise.training.encoders import freeze
from headwise.training.predict import predict_logits

# -- heads -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_relu_is_what_the_paper_prints(family):
    model = change_head(build_model(family, hidden_dropout_prob=0.5), "relu").eval()
    state = model(**build_batch(), output_hidden_states=True)
    linear = model.classifier if isinstance(model.classifier, torch.nn.Linear) else model.classifier.out_proj
    expected = torch.relu(state.hidden_states[-1][:, 0]) @ linear.weight.T + linear.bias
    torch.testing.assert_close(state.logits, expected)
    drops = [each for name, each in model.named_modules() if isinstance(each, torch.nn.Dropout) and "enc" not in name]
    assert any(each.p == 0.5 for each in drops)


def test_other_heads():
    model = build_model("bert").eval()
    modules = dict(model.named_modules())
    assert change_head(model, "cls") is change_head(model, "pooler") is model
    assert dict(model.named_modules()) == modules
    with pytest.raises(InputError, match=r"^head is 'tanh': known: cls, mean, relu, segments\.$"):
        change_head(model, "tanh")
    for family in ("albert", "distilbert", "modernbert"):
        model = build_model(family).eval()
        logits = model(**build_batch()).logits
        with pytest.raises(InputError, match=rf"^head 'relu' is not known for {family} models, .*: use head: cls\.$"):
            change_head(model, "relu")
        assert torch.equal(model(**build_batch()).logits, logits)


# -- least squares -----------------------------------------------------------------------------------------------------


def encoded(labels, seed=0):
    random = numpy.random.default_rng(seed)
    starts = numpy.concatenate([[0], numpy.cumsum(random.integers(3, 12, len(labels)))])
    ids = random.integers(5, 60, starts[-1]).astype(numpy.int32)
    return Encoded(ids=ids, starts=starts, types=None, labels=tuple(labels), truncated=0)


def vectors_of(model, data, collate):
    """One at a time, by the encoder alone."""
    model.eval()
    batches = [collate([data[number]]) for number in range(len(data))]
    with torch.no_grad():
        parts = [model.bert(batch["input_ids"], batch["attention_mask"]).pooler_output for batch in batches]
    return torch.cat(parts).double()


def test_it_is_the_least_squares_solution_and_nothing_else_changes():
    model, collate = build_model("bert").train(), Collator(1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    data = encoded([n % 3 for n in range(200)])
    fit_linear(model, data, collate)
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"classifier.weight", "classifier.bias"}
    assert model.training
    assert not model.classifier._forward_pre_hooks
    inputs = torch.cat([vectors_of(model, data, collate), torch.ones(200, 1)], 1)
    targets = torch.nn.functional.one_hot(torch.tensor(data.labels), 3).double()
    residual = targets - inputs @ torch.cat([model.classifier.weight.T, model.classifier.bias[None]]).double()
    # At the minimum the residual is at right angles to every input.
    assert (inputs.T @ residual).abs().max() < 1e-3
    assert residual.pow(2).mean() < targets.sub(targets.mean(0)).pow(2).mean()


def test_a_number_that_depends_linearly_on_the_vectors_is_found():
    model, collate = build_model("bert", num_labels=1), Collator(1, "regression")
    expected = vectors_of(model, encoded([0.0] * 120), collate) @ torch.linspace(-1, 1, 32).double() + 0.5
    data = encoded(expected.tolist())
    fit_linear(model, data, collate)
    found = predict_logits(model, data, collate, batch=16)[:, 0]
    assert numpy.abs(found - expected.numpy()).max() < 1e-3
    with pytest.raises(InputError, match="roberta models is more than one linear map"):
        fit_linear(build_model("roberta"), encoded([0, 1, 2]), Collator(1))


# -- frozen parts ------------------------------------------------------------------------------------------------------


def frozen(model):
    return {name for name, each in model.named_parameters() if not each.requires_grad}


@pytest.mark.parametrize("family", ["bert", "distilbert", "modernbert"])
def test_embeddings_and_layers_are_frozen(family):
    model = build_model(family)
    count, names = freeze(model, ["embeddings"]), frozen(model)
    inside = f"{model.base_model_prefix}.embeddings."
    assert names == {name for name, _ in model.named_parameters() if inside in name}
    assert count == sum(model.get_parameter(name).numel() for name in names) > 0
    freeze(model, [0, 2])
    layers = {next(part for part in name.split(".") if part.isdigit()) for name in frozen(model) - names}
    assert layers == {"0", "2"}
    free = {name for name, each in model.named_parameters() if each.requires_grad}
    assert any(".1." in name for name in free)
    assert not any(".layer.0." in name or ".layers.0." in name for name in free)


def test_overlapping_parts_count_once():
    model = build_model("bert")
    assert freeze(model, ["encoder", "embeddings", 0]) == sum(each.numel() for each in model.base_model.parameters())
    assert freeze(model, ["embeddings"]) == freeze(model, []) == 0


def test_what_cannot_be_frozen():
    for part in (3, -1, True, "classifier"):
        with pytest.raises(InputError) as caught:
            freeze(build_model("bert"), [part])
        assert str(caught.value) == (
            f"training.freeze names {part!r}: expected embeddings, encoder, or layers from 0 to 2."
        )
    with pytest.raises(InputError, match="share weights, so single ones cannot be frozen"):
        freeze(build_model("albert"), [0])
    with pytest.raises(InputError, match=r"leaves nothing to train: leave some part out of it\.$"):
        freeze(build_model("bert").base_model, ["encoder"])


def test_frozen_parts_do_not_change_in_training(tmp_path):
    model = exact_model()
    freeze(model, ["embeddings", 0])
    hw.guide(model, hw.MDG(weight=0.5))
    before = parameters(model)
    trainer_of(Trainer, model, tmp_path).train()
    changed = {name for name, after in parameters(model).items() if not torch.equal(after, before[name])}
    assert not any(".embeddings." in name or ".layer.0." in name for name in changed)
    assert "bert.encoder.layer.1.attention.self.query.weight" in changed
