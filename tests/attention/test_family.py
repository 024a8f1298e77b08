"""Which models are supported, by which route, and what is said of the others."""

import warnings

import pytest
import torch
import transformers
from conftest import EAGER, FAMILIES, FUSED, ROUTES, SIZES, build_batch, build_model
from torch import nn

import headwise as hw
from headwise.attention import encoder_of, family_of
from headwise.errors import HeadwiseError, HeadwiseWarning, StateError, UnsupportedModelError

LAYERS, HEADS = SIZES["num_hidden_layers"], SIZES["num_attention_heads"]


@pytest.fixture(params=ROUTES)
def family(request):
    """One family for each route; tests over all of them name FAMILIES."""
    return request.param


def test_the_family_is_known_before_the_first_pass():
    for family in FAMILIES:
        known = family_of(build_model(family))
        expected = (family, "fused" if family in FUSED else "eager", (LAYERS, HEADS))
        assert (known.name, known.route, known.shape) == expected


@pytest.mark.parametrize(
    ("family", "longest"),
    # RoBERTa's kind counts positions from the padding token on: two of the 40 are never used.
    [("bert", 40), ("roberta", 38), ("modernbert", None)],
)
def test_the_longest_sequence_is_what_the_model_can_take(family, longest):
    model = build_model(family).eval()
    assert family_of(model).longest == longest
    if longest is not None:
        model(**build_batch(length=longest))
        with pytest.raises((IndexError, RuntimeError)):
            model(**build_batch(length=longest + 1))


# -- not supported -----------------------------------------------------------------------------------------------

DECODER = "is a decoder (each token sees only those before it); headwise works on encoders"
ALONE = "ignores custom attention"


def tiny(name, kind="Model", **changes):
    config = getattr(transformers, f"{name}Config")(**{**SIZES, **changes})
    return getattr(transformers, f"{name}{kind}")(config)


UNSUPPORTED = {
    "gpt2": (lambda: tiny("GPT2", n_embd=32, n_layer=2, n_head=4, n_positions=40), DECODER),
    "bert as decoder": (lambda: tiny("Bert", is_decoder=True), DECODER),
    "t5": (lambda: tiny("T5", d_model=32, d_kv=8, d_ff=40, num_layers=2, num_heads=4), "is an encoder-decoder"),
    "squeezebert": (lambda: tiny("SqueezeBert", embedding_size=32), ALONE),
    "longformer": (lambda: tiny("Longformer", attention_window=4), ALONE),
    "fnet": (lambda: tiny("FNet"), "has no attention that headwise can see"),
    "module": (lambda: nn.Linear(2, 2), "Linear holds no transformers model"),
    "no module": (lambda: "bert-base-uncased", "expected a torch model, got str"),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_other_models_are_refused_in_one_sentence(name):
    build, message = UNSUPPORTED[name]
    with pytest.raises(UnsupportedModelError) as error, hw.capture(build()):
        pytest.fail("the with block was entered")
    assert message in str(error.value)
    assert str(error.value).endswith(".")
    assert "\n" not in str(error.value)
    assert isinstance(error.value, HeadwiseError)


# -- beyond the families that are tested everywhere ---------------------------------------------------------------


def assert_seen(model, batch, tolerance=1e-10):
    """What a capture sees is what eager attention returns, in values and gradients."""
    valid = batch["attention_mask"][:, None, :, None]
    with hw.capture(model) as record, hw.capture(model, layers=1, what="map") as maps:
        model(**batch)
    seen = record.stacked()
    model.set_attn_implementation("eager")
    expected = [each * valid for each in model(**batch, output_attentions=True).attentions]
    torch.testing.assert_close(maps[1], expected[1], rtol=tolerance, atol=tolerance)
    expected = torch.cat(expected, 1).sum(2)
    torch.testing.assert_close(seen, expected, rtol=tolerance, atol=tolerance)
    weight = torch.randn_like(expected)
    found = []
    for tensor in (seen, expected):
        model.zero_grad()
        (tensor * weight).sum().backward()
        found.append([torch.zeros_like(each) if each.grad is None else each.grad for each in model.parameters()])
    torch.testing.assert_close(*found, rtol=tolerance, atol=tolerance)


def test_a_learned_position_bias_counts():
    """T5's encoder adds a bias to its scores, which is trained too."""
    options = {"d_model": 32, "d_kv": 8, "d_ff": 40, "num_layers": 3, "num_heads": 4, "dropout_rate": 0.0}
    batch = build_batch()
    del batch["labels"]
    assert_seen(tiny("T5", "EncoderModel", **options).double().eval(), batch)


def test_padding_has_no_vote_where_a_mask_is_only_very_low():
    """MarkupLM hides padding by adding -10000, which is low but not the lowest number."""
    batch = build_batch()
    del batch["labels"]
    assert_seen(tiny("MarkupLM").double().eval(), batch, 1e-5)  # its own softmax is in float32


# -- models that make their maps themselves ----------------------------------------------------------------------


@pytest.mark.filterwarnings("always::headwise.errors.HeadwiseWarning")
@pytest.mark.parametrize("family", EAGER)
def test_one_warning_says_what_is_seen(family, batch):
    model = build_model(family)
    for _ in range(2):  # each time that we attach
        with (
            warnings.catch_warnings(record=True) as caught,
            hw.capture(model),
            hw.gate(model, torch.ones(LAYERS, HEADS)),
        ):
            for _ in range(2):
                model(**batch)
        (warning,) = caught
        assert warning.category is HeadwiseWarning
        assert family in str(warning.message)
        assert "after dropout" in str(warning.message)
        assert warning.filename == __file__


OTHERS = {
    "RoFormer": {"embedding_size": 32},
    "RemBert": {"input_embedding_size": 16, "output_embedding_size": 16, "classifier_dropout_prob": 0.0},
    "MegatronBert": {},
    "Deberta": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "max_relative_positions": 8},
}


@pytest.mark.filterwarnings("ignore::headwise.errors.HeadwiseWarning")
@pytest.mark.parametrize("name", OTHERS)
def test_their_own_maps_are_what_we_see(name, batch):
    torch.manual_seed(7)
    model = tiny(name, "ForSequenceClassification", **OTHERS[name]).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    assert family_of(model).route == "eager"
    plain = model(**batch, output_attentions=True)
    with hw.capture(model) as record, hw.capture(model, what="map") as maps:
        output = model(**batch)
    valid = batch["attention_mask"][:, None, :, None]
    expected = torch.cat(plain.attentions, 1) * valid
    assert torch.equal(output.logits, plain.logits)
    torch.testing.assert_close(maps.stacked(), expected, rtol=0, atol=0)
    torch.testing.assert_close(record.stacked(), expected.sum(2), rtol=1e-12, atol=1e-12)
    assert record.stacked().shape[1] == LAYERS * HEADS


@pytest.mark.filterwarnings("ignore::headwise.errors.HeadwiseWarning")
def test_who_asks_for_maps_still_gets_them(batch):
    model = build_model("mpnet").eval()
    expected = model(**batch, output_attentions=True).attentions
    with hw.capture(model):
        asked = model(**batch, output_attentions=True).attentions
        assert not model(**batch).attentions
    assert len(asked) == LAYERS
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(asked, expected, strict=True))


@pytest.mark.filterwarnings("ignore::headwise.errors.HeadwiseWarning")
def test_in_training_their_maps_are_after_dropout(batch):
    model = build_model("mpnet", dropout=0.4).train()
    with hw.capture(model) as record:
        model(**batch)
    votes = batch["attention_mask"].sum(1, keepdim=True)
    assert (record.stacked().sum(-1) - votes).abs().max() > 0.1


# -- a model that changes while it is watched --------------------------------------------------------------------


def test_an_implementation_switched_meanwhile_is_noticed(model, batch):
    with hw.capture(model):
        model(**batch)
        model.set_attn_implementation("eager")
        with pytest.raises(StateError, match="expected attention from 3 layers, got 0 by the fused route"):
            model(**batch)


def test_a_skipped_layer_is_noticed(family, batch):
    model = build_model(family)
    (layers,) = [m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) == LAYERS] or [None]
    if layers is None:
        pytest.skip("its layers are one layer")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeadwiseWarning)
        with hw.capture(model):
            del layers[1]
            with pytest.raises(StateError, match="expected attention from 3 layers, got 2 by the"):
                model(**batch)


def test_more_calls_than_layers_are_noticed(model, batch):
    with hw.capture(model):
        model.bert.encoder.layer.append(model.bert.encoder.layer[0])
        with pytest.raises(UnsupportedModelError, match="calls attention more often than its 3 layers"):
            model(**batch)


@pytest.mark.filterwarnings("ignore::headwise.errors.HeadwiseWarning")
@pytest.mark.parametrize(("family", "what"), [("bert", "received"), ("mpnet", "map")])
def test_other_heads_than_the_config_says_are_noticed(family, batch, what):
    """What arrives is held against what was promised: N layers of [B,H,...]."""
    model = build_model(family)
    model.config.num_attention_heads = 2
    with hw.capture(model, what=what) as record, pytest.raises(HeadwiseError, match="heads"):
        model(**batch)
    assert len(record) == 0


def test_a_causal_layer_is_refused_while_it_runs(model, batch):
    with hw.capture(model):
        model.bert.encoder.layer[1].attention.self.is_causal = True
        with pytest.raises(UnsupportedModelError, match="is causal"):
            model(**batch)


def test_the_encoder_is_found_in_its_wrapping(model):
    assert encoder_of(nn.Sequential(nn.Identity(), nn.Sequential(nn.Identity(), model))) is model
