"""Taking heads away for good."""

import copy
import operator

import pytest
import torch
from attention.test_head_weights import DIFFERENT, build
from conftest import ROUTES, SIZES, build_batch, build_model
from torch import nn

import headwise as hw
from headwise.attention import head_weights, mask, prune, prune_structure, pruned_heads
from headwise.errors import InputError, StateError

LAYERS, HEADS = SIZES["num_hidden_layers"], SIZES["num_attention_heads"]
pytestmark = pytest.mark.filterwarnings("ignore::headwise.errors.HeadwiseWarning")

CHOICES = {
    "some heads": {0: [1], 2: [0, 3]},
    "a whole layer": {1: range(HEADS), 2: [2]},
    "all heads": {layer: range(HEADS) for layer in range(LAYERS)},
}
# For ALBERT, whose layers share their weights.
ALIKE = {"some heads": [1], "a whole layer": [0, 2, 3], "all heads": range(HEADS)}


def choice(family, name):
    return {layer: ALIKE[name] for layer in range(LAYERS)} if family == "albert" else CHOICES[name]


def logits(model, batch):
    with torch.no_grad():
        return model(**batch).logits


def masked(model, heads, batch):
    with mask(model, heads):
        return logits(model, batch)


def size(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("family", "name"),
    [
        *((family, "a whole layer") for family in DIFFERENT),
        ("bert", "some heads"),
        *((each, "all heads") for each in ROUTES),
    ],
)
def test_a_pruned_model_gives_what_a_masked_one_gives(family, name, batch):
    model = build(family).train(name == "a whole layer")  # without dropout: the two modes agree
    heads = choice(family, name)
    wide = build_batch(padding=4)
    expected, free = [masked(model, heads, each) for each in (batch, wide)], logits(model, batch)
    before = size(model)
    assert prune(model, heads) is model
    assert size(model) < before
    for each, wanted in zip((batch, wide), expected, strict=True):
        torch.testing.assert_close(logits(model, each), wanted, rtol=0, atol=1e-5)
    assert (free - expected[0]).abs().max() > 1e-3
    assert pruned_heads(model) == {layer: tuple(numbers) for layer, numbers in heads.items()}


def test_what_is_cut_counted_by_hand(model):
    before, untouched = size(model), list(model.bert.encoder.layer[1].parameters())
    prune(model, {0: [1], 2: [0, 3]})
    # Three heads, each of 8 rows of 32 and 8 biases in query, key and value, and 8 columns of 32 in the output.
    assert before - size(model) == 3 * (4 * 8 * 32 + 3 * 8)
    attention = model.bert.encoder.layer[2].attention
    assert tuple(attention.self.query.weight.shape) == (16, 32)
    assert (attention.self.value.in_features, attention.self.value.out_features) == (32, 16)
    assert (attention.output.dense.in_features, attention.output.dense.out_features) == (16, 32)
    assert tuple(attention.output.dense.bias.shape) == (32,)
    assert (attention.self.num_attention_heads, attention.self.all_head_size) == (2, 16)
    assert all(map(operator.is_, model.bert.encoder.layer[1].parameters(), untouched))


@pytest.mark.parametrize("family", ["bert", "modernbert", "deberta", "mpnet"])
def test_heads_keep_their_numbers(family, batch):
    model = build(family)
    expected = masked(model, {0: [0, 2, 3], 1: range(HEADS), 2: [1]}, batch)
    for heads in ({0: [0], 1: [1, 2]}, {0: [2], 1: [0]}, {0: [3], 1: [3], 2: [1]}):
        prune(model, heads)
    torch.testing.assert_close(logits(model, batch), expected, rtol=0, atol=1e-5)
    assert pruned_heads(model) == {0: (0, 2, 3), 1: (0, 1, 2, 3), 2: (1,)}
    assert model.config.headwise_pruned == {"0": [0, 2, 3], "1": [0, 1, 2, 3], "2": [1]}
    with pytest.raises(InputError, match="head 2 of layer 0 was pruned"):
        prune(model, {0: [1, 2]})
    assert pruned_heads(model)[0] == (0, 2, 3)


@pytest.mark.parametrize("family", ["bert", "modernbert", "deberta", "mpnet"])
def test_gates_of_a_pruned_model_are_those_of_the_whole_one(family, batch):
    model = build(family)
    gates = torch.rand(LAYERS, 3, HEADS, requires_grad=True)  # one for each example
    heads = choice(family, "a whole layer")

    def gated():
        with hw.gate(model, gates):
            loss = (model(**batch).logits * torch.linspace(-1, 1, 9).view(3, 3)).sum()
        return loss.detach(), torch.autograd.grad(loss, gates)[0]

    with mask(model, heads):
        wanted, slope = gated()
    for layer, numbers in heads.items():
        slope[layer][:, list(numbers)] = 0  # a head that is not there has no slope
    prune(model, heads)
    loss, gradient = gated()
    torch.testing.assert_close(loss, wanted, rtol=0, atol=1e-4)
    torch.testing.assert_close(gradient, slope, rtol=1e-3, atol=1e-5)
    assert slope.abs().max() > 1e-4
    with hw.gate(model, torch.ones(LAYERS, HEADS)):
        watched = logits(model, batch)
    assert torch.equal(watched, logits(model, batch))


@pytest.mark.parametrize(("family", "what"), [("bert", "received"), ("bert", "output"), ("mpnet", "output")])
def test_heads_that_are_there_can_be_watched(family, what, batch):
    model = build(family)
    heads = {0: [1], 1: range(HEADS)}
    chosen = {0: [0, 3], 2: [1, 2]}
    with mask(model, heads), hw.capture(model, heads=chosen, what=what) as whole:
        model(**batch)
    prune(model, heads)
    with hw.capture(model, heads=chosen, what=what) as record:
        model(**batch)
    assert record.heads == whole.heads
    for layer in chosen:
        torch.testing.assert_close(record[layer], whole[layer], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", ["bert", "deberta-v2"])
def test_heads_that_are_gone_cannot_be_watched(family, batch):
    model = prune(build(family), {0: [1], 2: range(HEADS)})
    with hw.capture(model), pytest.raises(InputError, match=r"head 1 of layer 0 was pruned .* its heads \[0, 2, 3\]"):
        model(**batch)
    with hw.capture(model, layers=2), pytest.raises(InputError, match="head 0 of layer 2 was pruned .* no heads left"):
        model(**batch)
    hw.guide(model.train(), hw.MDG(weight=0.1))
    with pytest.raises(InputError, match="was pruned and cannot be watched"):
        model(**batch)
    hw.unguide(model)
    model(**batch)


def test_a_shared_layer_loses_the_same_heads_everywhere_or_none(batch):
    model = build("albert")
    whole = logits(model, batch)
    with pytest.raises(InputError, match="albert shares its weights between layers.*hw.mask"):
        prune(model, {0: [1], 1: [1]})
    assert torch.equal(logits(model, batch), whole)
    grouped = build("albert", num_hidden_layers=4, num_hidden_groups=2)
    expected = masked(grouped, {0: [1], 1: [1]}, batch)
    prune(grouped, {0: [1], 1: [1]})
    torch.testing.assert_close(logits(grouped, batch), expected, rtol=0, atol=1e-5)
    assert pruned_heads(grouped) == {0: (1,), 1: (1,)}


def test_nothing_is_cut_while_somebody_watches(batch):
    model = build("mpnet")
    for watching in (hw.capture(model), mask(model, {0: [0]})):
        with watching, pytest.raises(StateError, match="while headwise watches the model"):
            prune(model, {0: [1]})
    hw.guide(model, hw.MDG(weight=0.1))
    with pytest.raises(StateError, match="hw.unguide"):
        prune(model, {0: [1]})
    assert size(model) == size(build("mpnet"))
    prune(hw.unguide(model), {0: [1]})


@pytest.mark.parametrize("family", ["bert", "deberta"])
def test_what_a_parameter_was_it_stays(family, batch):
    model = build(family).to(torch.bfloat16).train()
    frozen = head_weights(model)[0].parts[0].parameter
    frozen.requires_grad_(False)
    prune(model, {0: [1], 1: range(HEADS)})
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert [parameter.requires_grad for parameter in model.parameters()].count(False) == 1
    assert not head_weights(model)[0].parts[0].parameter.requires_grad
    assert all(module.training for module in model.modules())
    assert all(parameter.is_contiguous() for parameter in model.parameters())
    assert logits(model, batch).dtype == torch.bfloat16


@pytest.mark.parametrize("family", ["bert", "deberta-v2"])
def test_a_pruned_model_trains_even_after_it_was_trained(family, batch):
    model = build(family).train()
    loss = model(**batch).loss
    loss.backward()  # its graph stays alive
    prune(model, {0: [1], 1: range(HEADS)})
    model.zero_grad()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(3):
        losses.append(model(**batch).loss)
        losses[-1].backward()
        optimiser.step()
        optimiser.zero_grad()
    assert losses[2] < losses[1] < losses[0]
    assert loss.isfinite()


def test_gradient_checkpointing_sees_layers_without_heads(batch):
    model = build_model("bert").train()
    prune(model, {1: range(HEADS)})
    gates = torch.ones(LAYERS, HEADS, requires_grad=True)
    with hw.gate(model, gates):
        (expected,) = torch.autograd.grad(model(**batch).loss, gates)
        model.gradient_checkpointing_enable({"use_reentrant": False})
        (found,) = torch.autograd.grad(model(**batch).loss, gates)
    torch.testing.assert_close(found, expected)
    assert (expected[1] == 0).all()


def test_no_kernel_is_called_without_heads(model):
    """What the kernels of a device make of no heads is not known: some divide by their number."""
    prune(model, {1: range(HEADS)})
    names = [layer.attention.self.config._attn_implementation for layer in model.bert.encoder.layer]
    assert names == ["sdpa", "headwise_without_heads", "sdpa"]
    assert model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("family", ["bert", "deberta", "mpnet"])
def test_copies_and_other_attention_give_the_same(family, batch):
    model = prune(build(family), {0: [1], 1: range(HEADS)})
    expected = masked(model, {2: [0]}, batch)
    twin = copy.deepcopy(model)
    prune(model, {2: [1]})
    torch.testing.assert_close(masked(twin, {2: [0]}, batch), expected)
    if family == "bert":
        twin.set_attn_implementation("eager")
    output = twin(**batch, output_attentions=True)
    torch.testing.assert_close(output.logits, logits(twin, batch), rtol=0, atol=1e-5)
    assert [tuple(maps.shape) for maps in output.attentions] == [(3, heads, 12, 12) for heads in (3, 0, 4)]


def test_bare_and_wrapped_encoders_are_pruned_too(batch):
    model = build_model("bert").eval()
    expected = masked(model, {0: [1]}, batch)
    prune(nn.Sequential(model.bert), {0: [1]})
    torch.testing.assert_close(logits(model, batch), expected, rtol=0, atol=1e-5)
    assert model.bert.config.headwise_pruned == {"0": [1]}
    assert pruned_heads(model) == {0: (1,)}


def test_the_structure_of_a_pruned_model_comes_from_its_config():
    model = prune(build_model("bert"), {0: [1], 1: range(HEADS)})
    with torch.device("meta"):
        fresh = type(model)(build_model("bert").config)
    assert prune_structure(fresh, model.config.headwise_pruned) is fresh
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    assert {name: tensor.shape for name, tensor in fresh.state_dict().items()} == shapes
    whole = size(build_model("bert"))
    assert size(prune_structure(build_model("bert"), {})) == whole
    for damaged in ({"one": [1]}, {"0": 1}, [1], {"0": [99]}, {"0": []}):
        with pytest.raises(InputError, match="damaged headwise_pruned"):
            prune_structure(build_model("bert"), damaged)
