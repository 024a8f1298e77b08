"""Gates: multipliers on the outputs of heads."""

import pytest
import torch
from conftest import FAMILIES, ROUTES, SIZES, build_model

import headwise as hw
from headwise.errors import InputError

LAYERS, HEADS = SIZES["num_hidden_layers"], SIZES["num_attention_heads"]
WIDTH = SIZES["hidden_size"] // HEADS
pytestmark = pytest.mark.filterwarnings("ignore::headwise.errors.HeadwiseWarning")

# Where each family keeps the projection that takes the heads' outputs, side by side, as its input.
PROJECTIONS = {
    "albert": "attention.dense",
    "distilbert": "attention.out_lin",
    "modernbert": "attn.Wo",
    "mpnet": "attention.attn.o",
}


def projections(model):
    """The output projection of every layer (once if it is shared)."""
    ending = PROJECTIONS.get(model.config.model_type, "attention.output.dense")
    found = [module for name, module in model.named_modules() if name.endswith(ending)]
    assert len(found) in (1, LAYERS)
    return found


def logits(model, batch, gates=None):
    if gates is None:
        return model(**batch).logits
    with hw.gate(model, gates):
        return model(**batch).logits


def multiplied(model, batch, factors):
    """Reference: the input of every output projection multiplied, [N,B,S,H] broadcast, by hooks of our own."""
    calls = iter(factors)

    def multiply(module, args):
        each = next(calls).unsqueeze(-1)  # [B,S,H,1]
        heads = args[0].unflatten(-1, (HEADS, WIDTH))
        return ((heads * each).flatten(-2),)

    handles = [module.register_forward_pre_hook(multiply) for module in projections(model)]
    try:
        return model(**batch).logits
    finally:
        for handle in handles:
            handle.remove()


SHAPES = {"(H)": (HEADS,), "(B,H)": (3, HEADS), "(B,S,H)": (3, 12, HEADS)}


def spread(gates):
    """[N,...,H] as [N,B or 1,S or 1,H]."""
    return gates.reshape(LAYERS, *{2: (1, 1), 3: (3, 1), 4: (3, 12)}[gates.dim()], HEADS)


@pytest.fixture(params=ROUTES)
def family(request):
    """One family for each route; tests over all of them name FAMILIES."""
    return request.param


@pytest.mark.parametrize(
    ("family", "shape"), [*((family, "(B,S,H)") for family in FAMILIES), ("bert", "(H)"), ("bert", "(B,H)")]
)
def test_equals_multiplying_before_the_output_projection(family, batch, shape):
    model = build_model(family, dtype=torch.float64).eval()
    gates = torch.rand(LAYERS, *SHAPES[shape], dtype=torch.float64)
    expected = multiplied(model, batch, spread(gates))
    assert (expected - logits(model, batch)).abs().max() > 1e-6
    torch.testing.assert_close(logits(model, batch, gates), expected, rtol=1e-10, atol=1e-10)
    by_layer = {layer: gates[layer] for layer in range(LAYERS)}
    torch.testing.assert_close(logits(model, batch, by_layer), expected, rtol=1e-10, atol=1e-10)


def test_open_gates_change_no_bit(family, batch):
    model = build_model(family).eval()
    assert torch.equal(logits(model, batch, torch.ones(LAYERS, HEADS)), logits(model, batch))


def test_gradients_into_gates_are_those_of_the_reference(family, batch):
    model = build_model(family, dtype=torch.float64).eval()
    gates = torch.rand(LAYERS, 3, 12, HEADS, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3, 3, dtype=torch.float64)
    (ours,) = torch.autograd.grad((logits(model, batch, gates) * weight).sum(), gates)
    (expected,) = torch.autograd.grad((multiplied(model, batch, spread(gates)) * weight).sum(), gates)
    assert expected.abs().max() > 1e-6
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-10)


def test_gates_multiply_when_nested(batch):
    model = build_model("bert", dtype=torch.float64).eval()
    first, second = torch.rand(2, LAYERS, HEADS, dtype=torch.float64)
    with hw.gate(model, first), hw.gate(model, {1: second[1]}):
        nested = model(**batch).logits
    second[[0, 2]] = 1
    torch.testing.assert_close(nested, logits(model, batch, first * second), rtol=1e-12, atol=1e-12)


def test_half_precision_outputs_stay_so(batch):
    model = build_model("bert", dtype=torch.bfloat16).eval()
    assert logits(model, batch, torch.ones(LAYERS, HEADS)).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("gates", "message"),
    [
        (torch.ones(HEADS), r"gates of shape \(4,\): expected \[3,4\], \[3,B,4\] or \[3,B,S,4\]"),
        ({0: torch.ones(3, 3)}, r"gates of layer 0 have shape \(3, 3\): expected \(4,\), \(B,4\) or \(B,S,4\)"),
        ({3: torch.ones(HEADS)}, "gates for layer 3: the model has layers 0 to 2"),
        ({0: torch.ones(HEADS, dtype=torch.long)}, "gates of layer 0: expected a floating-point tensor"),
    ],
)
def test_wrong_gates_say_what_was_expected(model, gates, message):
    with pytest.raises(InputError, match=message), hw.gate(model, gates):
        pytest.fail("the with block was entered")


@pytest.mark.parametrize(("family", "shape"), [("bert", (2, HEADS)), ("mpnet", (3, 7, HEADS))])
def test_gates_that_do_not_fit_the_batch_say_so(family, batch, shape):
    model = build_model(family).eval()
    with hw.gate(model, {0: torch.ones(shape)}), pytest.raises(InputError, match="gates of layer 0"):
        model(**batch)
