import numpy
import pytest
import torch
from conftest import build_model

from headwise.data import Collator, Encoded
from headwise.errors import InputError
from headwise.training.classifier import fit_linear
from headwise.training.predict import predict_logits


def examples(labels, seed=0):
    random = numpy.random.default_rng(seed)
    lengths = random.integers(3, 12, len(labels))
    starts = numpy.concatenate([[0], numpy.cumsum(lengths)])
    ids = random.integers(5, 60, starts[-1]).astype(numpy.int32)
    return Encoded(ids=ids, starts=starts, types=None, labels=tuple(labels), truncated=0)


def vectors_of(model, data, collate):
    """One at a time, by the encoder alone."""
    model.eval()
    with torch.no_grad():
        return torch.cat(
            [
                model.bert(**{k: v for k, v in collate([data[n]]).items() if k != "labels"}).pooler_output
                for n in range(len(data))
            ]
        ).double()


def test_it_is_the_least_squares_solution():
    model, collate = build_model("bert"), Collator(1)
    data = examples([n % 3 for n in range(200)])
    fit_linear(model, data, collate)
    inputs = torch.cat([vectors_of(model, data, collate), torch.ones(200, 1)], 1)
    targets = torch.nn.functional.one_hot(torch.tensor(data.labels), 3).double()
    residual = targets - inputs @ torch.cat([model.classifier.weight.T, model.classifier.bias[None]]).double()
    # At the minimum the residual is at right angles to every input.
    assert (inputs.T @ residual).abs().max() < 1e-3
    assert residual.pow(2).mean() < targets.sub(targets.mean(0)).pow(2).mean()


def test_a_number_that_depends_linearly_on_the_vectors_is_found():
    model, collate = build_model("bert", num_labels=1), Collator(1, "regression")
    data = examples([0.0] * 120)
    wanted = vectors_of(model, data, collate) @ torch.linspace(-1, 1, 32).double() + 0.5
    data = examples(wanted.tolist())
    fit_linear(model, data, collate)
    found = predict_logits(model, data, collate, batch=16)[:, 0]
    assert numpy.abs(found - wanted.numpy()).max() < 1e-3


def test_only_the_map_changes_and_the_mode_stays():
    model = build_model("bert").train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    fit_linear(model, examples([n % 3 for n in range(50)]), Collator(1))
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"classifier.weight", "classifier.bias"}
    assert model.training
    assert not model.classifier._forward_pre_hooks


def test_a_head_of_several_layers_is_refused():
    with pytest.raises(InputError, match="roberta models is more than one linear map"):
        fit_linear(build_model("roberta"), examples([0, 1, 2]), Collator(1))
