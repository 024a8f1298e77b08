"""Several tasks on one encoder: what is shared, what is a task's own."""

import copy

import pytest
import torch
from conftest import build_model
from torch import nn

import headwise as hw
from headwise.errors import InputError
from headwise.training import MultiTask

# Names that attributes of modules and dictionaries have too.
NAMES = ("items", "type", "training")


def build(family="bert", names=NAMES, labels=(3, 2, 1), **changes):
    """Classifiers of different kinds that began with encoders of their own."""
    parts = {}
    for name, count in zip(names, labels, strict=True):
        problem = "regression" if count == 1 else "single_label_classification"
        parts[name] = build_model(family, num_labels=count, problem_type=problem, **changes)
    with torch.no_grad():  # build_model makes the same encoder each time
        for number, part in enumerate(parts.values()):
            for parameter in part.parameters():
                parameter.add_(number * 0.01)
    return MultiTask(parts)


def labelled(batch, labels):
    given = torch.rand(len(batch["labels"])) if labels == 1 else batch["labels"] % labels
    return batch | {"labels": given}


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "albert"])
def test_a_task_is_a_plain_classifier_on_the_shared_encoder(family, batch):
    model = build(family).eval()
    plain = build_model(family)
    encoder = {f"{plain.base_model_prefix}.{name}" for name in plain.base_model.state_dict()}
    for name, labels in zip(NAMES, (3, 2, 1), strict=True):
        classifier = model.classifier(name)
        assert type(classifier) is type(plain)
        assert classifier.base_model is model.encoder
        assert set(classifier.state_dict()) == set(plain.state_dict()) > encoder
        given = labelled(batch, labels)
        both = [call(**given) for call in (classifier, lambda name=name, **inputs: model(task=name, **inputs))]
        assert both[0].logits.shape == (3, labels)
        assert torch.equal(both[0].logits, both[1].logits)
        assert torch.equal(both[0].loss, both[1].loss)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_nothing_is_registered_twice(family):
    model = build(family)
    weights = model.state_dict()
    assert len({tensor.data_ptr() for tensor in weights.values() if tensor.numel()}) == len(weights)
    parameters = list(model.parameters())
    every = {id(each) for name in NAMES for each in model.classifier(name).parameters()}
    assert {id(each) for each in parameters} == every
    assert len(parameters) == len(every)
    own = {id(each) for each in model.own_parameters()}
    assert own == every - {id(each) for each in model.encoder.parameters()}
    # The heads of this run's tasks and no others.
    alone = sum(each.numel() for each in build_model(family, num_labels=3).parameters())
    encoder = sum(each.numel() for each in model.encoder.parameters())
    heads = sum(each.numel() for each in model.own_parameters())
    assert sum(each.numel() for each in parameters) == encoder + heads < 3 * alone


def test_modes_reach_the_classifiers_and_gradients_their_own_head_only(batch):
    model = build()
    for mode in (True, False, True):
        model.train(mode)
        parts = [model, model.encoder, *(model.classifier(name) for name in NAMES)]
        assert [module.training for part in parts for module in part.modules()] == [
            mode for part in parts for _ in part.modules()
        ]
    model(task="type", **labelled(batch, 2)).loss.backward()
    assert model.last_task == "type"
    assert all(each.grad is not None for each in model.encoder.parameters())
    reached = [[each.grad is not None for each in head.parameters()] for head in model.heads]
    assert [any(each) for each in reached] == [False, True, False]
    model.eval()
    model(task="items", **batch)
    assert model.last_task == "type"  # only training counts


def test_a_copy_shares_nothing_with_the_model_and_all_within_itself(batch):
    model, batch = build().eval(), labelled(batch, 2)
    before = model(task="type", **batch).logits
    twin = copy.deepcopy(model)
    assert twin.classifier("type").base_model is twin.encoder is not model.encoder
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(0.3)
    assert torch.equal(model(task="type", **batch).logits, before)
    assert torch.equal(twin.classifier("type")(**batch).logits, twin(task="type", **batch).logits)
    assert not torch.allclose(twin(task="type", **batch).logits, before)
    assert twin.double().classifier("items").classifier.weight.dtype == torch.float64


def test_what_does_not_go_together_is_refused_in_one_sentence(batch):
    with pytest.raises(InputError, match=r"^unknown task 'typ': did you mean 'type'\? known: items, training, type\.$"):
        build().classifier("typ")
    with pytest.raises(InputError, match="unknown task 'rte'"):
        build()(task="rte", **batch)
    with pytest.raises(InputError, match="'b' has a RobertaForSequenceClassification and 'a' a BertFor.*architecture"):
        MultiTask({"a": build_model("bert"), "b": build_model("roberta")})
    with pytest.raises(InputError, match="the encoder of task 'b' is of another size than that of 'a'"):
        MultiTask({"a": build_model("bert"), "b": build_model("bert", num_hidden_layers=2)})
    with pytest.raises(InputError, match="no tasks: give at least one"):
        MultiTask({})
    for other, name in ((nn.Linear(2, 2), "Linear"), (build_model("bert").base_model, "BertModel")):
        with pytest.raises(InputError, match=f"^task 'a' has a {name}: expected a sequence classifier of transformers"):
            MultiTask({"a": other})
    for wrong in ({}, {"task": None}, {"task": 1}):
        with pytest.raises(InputError, match="call the model with task=NAME, of items, type, training"):
            build()(**batch, **wrong)


@pytest.mark.parametrize("place", ["model", "second", "copy"])
def test_pruned_heads_are_noted_in_the_config_of_every_task(place):
    model = build()
    assert not any(hasattr(model.classifier(name).config, "headwise_pruned") for name in NAMES)
    if place == "copy":
        untouched, model = model, copy.deepcopy(model)
    hw.prune(model.classifier("type") if place == "second" else model, {0: [1, 2]})
    assert [model.classifier(name).config.headwise_pruned for name in NAMES] == [{"0": [1, 2]}] * 3
    if place == "copy":
        assert not any(hasattr(untouched.classifier(name).config, "headwise_pruned") for name in NAMES)


def test_a_task_notes_the_pruned_heads_of_the_encoder_it_gets():
    first, second = (hw.prune(build_model("bert"), {0: [head]}) for head in (1, 2))
    assert MultiTask({"a": first, "b": second}).classifier("b").config.headwise_pruned == {"0": [1]}
