"""Values and outputs of heads, in every family, against the model's own projections and maps."""

import functools

import pytest
import torch
import transformers
from conftest import FAMILIES, ROUTES, SIZES, build_batch, build_model
from slow_attention import model_maps

import headwise as hw

LAYERS, HEADS = SIZES["num_hidden_layers"], SIZES["num_attention_heads"]
WIDTH = SIZES["hidden_size"] // HEADS
PARTS = ("value", "output")
pytestmark = pytest.mark.filterwarnings("ignore::headwise.errors.HeadwiseWarning")

# Where a family makes its values, and where it takes the heads' outputs, side by side, if not as BERT does.
VALUES = {
    "distilbert": "v_lin",
    "modernbert": "Wqkv",
    "mpnet": "attn.v",
    "deberta-v2": "value_proj",
    "deberta": "in_proj",
}
PROJECTIONS = {
    "albert": "attention.dense",
    "distilbert": "attention.out_lin",
    "modernbert": "attn.Wo",
    "mpnet": "attention.attn.o",
}
OTHERS = {
    "Deberta": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "max_relative_positions": 8},
    "RoFormer": {"embedding_size": 32},
    "RemBert": {"input_embedding_size": 16, "output_embedding_size": 16, "classifier_dropout_prob": 0.0},
    "MegatronBert": {},
}


@pytest.fixture(params=ROUTES)
def family(request):
    """One family for each route; tests over all of them name FAMILIES."""
    return request.param


@pytest.fixture(params=["bert", *sorted({*VALUES, *PROJECTIONS} & {*FAMILIES}), *OTHERS])
def build(request):
    """Makes a model of each kind, the same each time."""
    if request.param in FAMILIES:
        return functools.partial(build_model, request.param)
    return functools.partial(build_other, request.param)


def build_other(name, *, dtype=torch.float32):
    torch.manual_seed(7)
    config = getattr(transformers, f"{name}Config")(**SIZES, **OTHERS[name])
    model = getattr(transformers, f"{name}ForSequenceClassification")(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.to(dtype)


def run(model, batch, what, **choice):
    with hw.capture(model, what=what, **choice) as record:
        output = model(**batch)
    return record, output


# -- by another way ----------------------------------------------------------------------------------------------------


def noted(model, ending, note):
    """Hooks on the modules of this name, one for each layer or one for all."""
    found = [module for name, module in model.named_modules() if name.endswith(ending)]
    assert len(found) in (1, LAYERS)
    return [module.register_forward_hook(note) for module in found]


def apart(model, batch):
    """{value, output: [N][B,H,S,D]} of a model that nobody watches, read off its own projections."""
    seen = {"value": [], "output": []}
    family = model.config.model_type

    def note_values(module, args, output):
        if family == "modernbert":
            seen["value"].append(output.unflatten(-1, (3, HEADS, WIDTH))[:, :, 2].transpose(1, 2))
        elif family == "deberta":
            owner = next(each for each in model.modules() if getattr(each, "in_proj", None) is module)
            joint = output.unflatten(-1, (HEADS, 3 * WIDTH))[..., 2 * WIDTH :]
            seen["value"].append((joint + owner.v_bias.view(HEADS, WIDTH)).transpose(1, 2))
        else:
            seen["value"].append(output.unflatten(-1, (HEADS, WIDTH)).transpose(1, 2))

    def note_outputs(module, args, output):
        seen["output"].append(args[0].unflatten(-1, (HEADS, WIDTH)).transpose(1, 2))

    handles = noted(model, VALUES.get(family, ".value"), note_values)
    handles += noted(model, PROJECTIONS.get(family, "attention.output.dense"), note_outputs)
    maps = model_maps(model, batch)
    for handle in handles:
        handle.remove()
    assert len(seen["value"]) == len(seen["output"]) == LAYERS
    tokens = batch["attention_mask"].bool()[:, None, :, None]
    for layer, value, output in zip(maps, seen["value"], seen["output"], strict=True):
        torch.testing.assert_close((layer @ value) * tokens, output * tokens, rtol=1e-9, atol=1e-9)  # A V, indeed
    return seen


def test_equals_what_the_model_has_inside(build):
    batch = build_batch(left=True)
    expected = apart(build(dtype=torch.float64).eval(), batch)
    model = build(dtype=torch.float64).eval()
    tokens = batch["attention_mask"].bool()[:, None, :, None]
    for what in PARTS:
        record, _ = run(model, batch, what)
        assert list(record) == list(range(LAYERS))
        for layer, each in enumerate(expected[what]):
            assert record[layer].shape == (3, HEADS, 12, WIDTH)
            torch.testing.assert_close(record[layer] * tokens, each * tokens, rtol=1e-9, atol=1e-9)
        assert torch.equal(record.valid, batch["attention_mask"].bool())


def test_gradients_are_those_of_what_the_model_has_inside(family):
    batch = build_batch()
    model, twin = (build_model(family, dtype=torch.float64) for _ in range(2))
    expected = apart(twin, batch)
    tokens = batch["attention_mask"].bool()[:, None, :, None]
    for what in PARTS:
        record, _ = run(model, batch, what)
        weights = torch.randn(3, LAYERS * HEADS, 12, WIDTH, dtype=torch.float64) * tokens
        ours = slopes(model, (record.stacked() * weights).sum())
        theirs = slopes(twin, (torch.cat(expected[what], 1) * weights).sum())
        assert sum(bool(each.abs().max() > 1e-6) for each in theirs) > 2 * LAYERS or family == "albert"
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


def slopes(model, loss):
    found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True, retain_graph=True)
    return [torch.zeros(()) if each is None else each for each in found]


def test_gates_act_where_only_parts_are_watched(family, batch):
    model = build_model(family, dtype=torch.float64).eval()
    gates = torch.rand(LAYERS, HEADS, dtype=torch.float64)
    with hw.gate(model, gates):
        expected = model(**batch).logits
        for what in PARTS:
            torch.testing.assert_close(run(model, batch, what)[1].logits, expected, rtol=1e-9, atol=1e-9)


def test_an_output_is_the_map_that_dropout_left_times_the_values(batch):
    """Heads 0 and 2 go by explicit maps, 1 and 3 by SDPA."""
    model = build_model("bert", dropout=0.4, dtype=torch.float64).train()
    with (
        hw.capture(model, what="map", heads=[0, 2], after_dropout=True) as maps,
        hw.capture(model, what="value") as values,
        hw.capture(model, what="output") as outputs,
    ):
        model(**batch)
    tokens = batch["attention_mask"].bool()[:, None, :, None]
    for layer in range(LAYERS):
        expected = maps[layer] @ values[layer][:, [0, 2]]
        torch.testing.assert_close(outputs[layer][:, [0, 2]] * tokens, expected, rtol=1e-9, atol=1e-9)
        assert (maps[layer][0].sum(-1) - 1).abs().max() > 0.05
