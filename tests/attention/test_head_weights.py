"""Which weights belong to which head."""

import pytest
import torch
import transformers
from conftest import FAMILIES, SIZES, build_model

from headwise.attention import encoder_of, head_weights, mask, prune
from headwise.errors import UnsupportedModelError

LAYERS, HEADS = SIZES["num_hidden_layers"], SIZES["num_attention_heads"]
WIDTH = SIZES["hidden_size"] // HEADS
pytestmark = pytest.mark.filterwarnings("ignore::headwise.errors.HeadwiseWarning")

# The other families that make their maps themselves, and two that headwise does not know by name.
OTHERS = {
    "deberta": ("Deberta", {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "max_relative_positions": 20}),
    "roformer": ("RoFormer", {"embedding_size": 32}),
    "rembert": (
        "RemBert",
        {
            "input_embedding_size": 16,
            "classifier_dropout_prob": 0.0,
            **dict.fromkeys(("bos_token_id", "eos_token_id"), 2),
        },
    ),
    "megatron-bert": ("MegatronBert", {}),
    "data2vec-text": ("Data2VecText", {}),
    "esm": ("Esm", {"position_embedding_type": "rotary", "mask_token_id": 4, "token_dropout": False}),
}
ALL = sorted([*FAMILIES, *OTHERS])
OWN_WEIGHTS = [family for family in ALL if family != "albert"]
# Without those whose attention is a copy of another's: tests of all families have their time.
DIFFERENT = sorted({*ALL} - {"roberta", "xlm-roberta", "camembert", "electra", "ernie", "data2vec-text", "rembert"})
DIFFERENT_WEIGHTS = [family for family in DIFFERENT if family != "albert"]


def build(family, **changes):
    """A tiny classifier of any family; nothing in it is zero by chance."""
    if family in FAMILIES:
        return build_model(family, **changes).eval()
    prefix, special = OTHERS[family]
    torch.manual_seed(7)
    config = getattr(transformers, f"{prefix}Config")(**{**SIZES, **special, **changes})
    model = getattr(transformers, f"{prefix}ForSequenceClassification")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def logits(model, batch):
    with torch.no_grad():
        return model(**batch).logits


def shake(parts, head):
    """Make the weights of one head, by its place, others than they were."""
    with torch.no_grad():
        for part in parts:
            chosen = part.parameter.index_select(part.dim, part.places[head])
            part.parameter.index_copy_(part.dim, part.places[head], torch.randn_like(chosen))


@pytest.mark.parametrize("family", DIFFERENT_WEIGHTS)
def test_the_weights_of_a_silent_head_do_not_matter_and_those_of_others_do(family, batch):
    model = build(family)
    layer = head_weights(model)[1]
    free = logits(model, batch)
    with mask(model, {1: [2]}):
        silent = logits(model, batch)
        shake(layer.parts, 2)
        assert torch.equal(logits(model, batch), silent)
        shake(layer.parts, 3)
        assert (logits(model, batch) - silent).abs().max() > 1e-4
    assert (free - silent).abs().max() > 1e-4


@pytest.mark.parametrize("family", OWN_WEIGHTS)
def test_every_weight_of_the_attention_has_one_owner(family):
    model = build(family)
    layers = head_weights(model)
    assert [layer.layer for layer in layers] == list(range(LAYERS))
    assert {layer.heads for layer in layers} == {tuple(range(HEADS))}
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for layer in layers:
        places = {}
        for part in layer.parts:
            assert part.places.shape == (HEADS, WIDTH)
            places.setdefault((names[id(part.parameter)], part.dim), []).extend(part.places.flatten().tolist())
        for (name, dim), those in places.items():
            assert sorted(those) == list(range(model.get_parameter(name).shape[dim]))
    owned = {id(part.parameter) for layer in layers for part in layer.parts}
    others = [name for name, parameter in model.named_parameters() if id(parameter) not in owned]
    words = ("query", "key", "value", "q_lin", "k_lin", "v_lin", "in_proj", "q_bias", "v_bias", "Wqkv", "pos_")
    assert not [name for name in others if any(f".{word}" in name for word in words)]


def test_a_pruned_layer_names_the_heads_that_are_there():
    whole, pruned = head_weights(build("deberta")), head_weights(prune(build("deberta"), {0: [1], 2: range(HEADS)}))
    assert [layer.heads for layer in pruned] == [(0, 2, 3), (0, 1, 2, 3), ()]
    for before, after in zip(whole[0].parts, pruned[0].parts, strict=True):
        for place, head in enumerate(pruned[0].heads):
            expected = before.parameter.index_select(before.dim, before.places[head])
            assert torch.equal(after.parameter.index_select(after.dim, after.places[place]), expected)
    assert all(part.places.numel() == 0 for part in pruned[2].parts)


def test_a_shared_layer_is_refused_and_layers_of_their_own_are_not():
    with pytest.raises(UnsupportedModelError, match="albert shares its weights between layers"):
        head_weights(build("albert"))
    assert len(head_weights(build("albert", num_hidden_groups=LAYERS))) == LAYERS


def test_an_adapter_is_to_be_merged_first(model):
    peft = pytest.importorskip("peft")
    adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["query"], r=2))
    with pytest.raises(UnsupportedModelError, match=r"'query' is a Linear.*merge the adapter first"):
        head_weights(adapted)
    assert len(head_weights(adapted.merge_and_unload())) == LAYERS


def sizes(**changes):
    return {name: value for name, value in {**SIZES, **changes}.items() if name != "num_labels"}


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("deberta", {"talking_head": True}, "deberta has talking heads"),
        ("eurobert", {"num_key_value_heads": 2}, "eurobert has heads that share weights"),
        ("t5", {"d_kv": 8, "d_model": 32, "num_layers": 3, "num_heads": 4}, r"weights of unknown use .*\(relative"),
    ],
)
def test_what_no_head_owns_alone_is_refused(name, changes, message):
    config = transformers.AutoConfig.for_model(name, **(changes if name == "t5" else sizes(**changes)))
    model = transformers.T5EncoderModel(config) if name == "t5" else transformers.AutoModel.from_config(config)
    with pytest.raises(UnsupportedModelError, match=message):
        head_weights(encoder_of(model))
