"""The contract of every guide: registering a guide enrols it in these tests."""

import copy
import warnings
from types import SimpleNamespace

import pytest
import torch
from conftest import EAGER, build_batch, build_model
from guides.reference import assert_same_gradients, gradients, seen_by, slow_maps, slow_mdg, slow_pdg

import headwise as hw
from headwise.attention import query_key_projections
from headwise.guides import GUIDES, Guide, build

# The guides that are losses on attention. The other two change the forward pass: they have no value for some attention,
# so that of what follows only the last promise is for them, that they can be switched off.
LOSSES = [name for name in GUIDES if issubclass(GUIDES[name], Guide)]
OTHERS = {"consistency": {"weight": 0.0}, "head_dropout": {"p": 0.0}}
SLOW = {"mdg": slow_mdg, "pdg": slow_pdg}
NEEDED = {"match": {"pattern": "next"}}
DEFAULTS = [pytest.param(name, NEEDED.get(name, {}), id=name) for name in LOSSES]
OPTIONS = {
    "mdg": [
        {"reduction": "sum"},
        {"contrast": "layer"},
        {"tau": 0.2},
        {"special_tokens": False},
        {"layers": "last:2", "heads": [0, 3]},
        {"dropout": "after"},
        {"preset": "released", "special_tokens": False},
    ],
    "pdg": [
        {"reduction": "sum"},
        {"normalise": False},
        {"standardise": True},
        {"standardise": True, "reduction": "sum"},
        {"special_tokens": False, "normalise": False, "reduction": "sum"},
        {"special_tokens": False, "standardise": True, "dropout": "after"},
        {"layers": [0, 2], "heads": {0: [1], 2: [0, 2, 3]}},
        {"dropout": "after"},
        {"preset": "released", "normalise": False},
    ],
    "match": [
        {"pattern": "prev", "on": "map", "distance": "kl"},
        {"pattern": "delim", "on": "received", "distance": "mse"},
        {"pattern": "delim", "on": "map", "distance": "cosine"},
        {"pattern": "prev", "on": "received", "distance": "cosine"},
    ],
    "next": [
        {"reduction": "sum"},
        {"shuffle": True},
        {"special_tokens": False},
        {"dropout": "after"},
        {"layers": [0], "heads": [1, 3]},
    ],
    "pmi": [{"on": "map"}, {"special_tokens": False}, {"distance": "cosine"}],
    "period": [{"on": "received", "special_tokens": False}, {"heads": "all", "on": "received", "dropout": "after"}],
    "rationale": [
        {"form": "kl", "layers": "all"},
        {"form": "hinge", "mass": 0.9, "queries": "cls"},
        {"queries": "cls", "special_tokens": True},
        {"shuffle": True, "dropout": "after"},
    ],
    "alignment": [
        {"distance": "mse"},
        {"distance": "cosine", "idf": {5: 0.5, 7: 2.0}},
        {"shuffle": True},
        {"special_tokens": False, "layers": "last:2", "heads": [(1, 0), (1, 3), (2, 2)]},
    ],
    "entropy": [
        {"on": "received"},
        {"on": "received", "special_tokens": False},
        {"direction": "lower"},
        {"special_tokens": False, "heads": [0, 2], "dropout": "after"},
    ],
    "relations": [{"on": "received"}, {"distance": "kl"}],
    "disagreement": [
        {"on": "subspace"},
        {"on": "position"},
        {"on": "position", "reduction": "paper"},
        {"on": "output", "special_tokens": False, "heads": [0, 2, 3]},
    ],
}
VARIANTS = [
    pytest.param(name, options, id="-".join([name, *(f"{option}={value}" for option, value in options.items())]))
    for name, variants in OPTIONS.items()
    for options in variants
]
CASES = DEFAULTS + VARIANTS
# One guide for each thing that the seam gives: received attention, maps, outputs.
ROUTES = ("mdg", "next", "disagreement")
# Of these the gradient is zero by construction, see tests/guides/test_released.py.
FLAT = "preset=released"
# The values of a layer do not depend on its own queries and keys.
NO_SCORES = "on=subspace"


def with_special_tokens(batch):
    """The first and the last token of every example are special; people marked two others."""
    mask = batch["attention_mask"]
    special = torch.zeros_like(mask)
    special[:, 0] = 1
    special[torch.arange(len(mask)), mask.sum(1) - 1] = 1
    return {**with_marks(batch), "special_tokens_mask": special}


def with_marks(batch):
    """The second token of every example is marked, and the fourth, which is padding in one of them."""
    marked = torch.zeros_like(batch["attention_mask"])
    marked[:, [1, 3]] = 1
    return {**batch, "rationale_mask": marked * batch["attention_mask"]}


def with_positions(model, batch):
    """Say where each token is, so that padding before it does not shift it."""
    mask = batch["attention_mask"]
    # RoBERTa's kind keeps the numbers up to that of the padding for padding
    first = 2 if any(kind in model.config.model_type for kind in ("roberta", "camembert", "mpnet")) else 0
    return {**batch, "position_ids": (mask.cumsum(1) - 1).clamp_min(0) * mask + first}


def widened(batch, *, left=0, right=0):
    """The same sentences with more padding."""
    padding = {"input_ids": 1, "attention_mask": 0, "special_tokens_mask": 0, "rationale_mask": 0, "position_ids": 2}
    return {
        name: torch.nn.functional.pad(value, (left, right), value=padding[name]) if name in padding else value
        for name, value in batch.items()
    }


def pick(batch, examples):
    return {name: value[examples] for name, value in batch.items()}


def exact_model(family="bert", **changes):
    model = build_model(family, dtype=torch.float64, **changes).eval()
    with torch.no_grad():
        # as in any model: MobileBERT looks at its neighbours' embeddings, and the end of the batch is a row of zeros
        model.get_input_embeddings().weight[model.config.pad_token_id] = 0
    return model


# What guides need from a tokenizer.
TOKENIZER = SimpleNamespace(all_special_ids=[2, 3], sep_token_id=3, get_vocab=lambda: {".": 4})


def batch_for(guide, **options):
    """For alignment every example has the same two tokens, 5 and 7, in both texts; even ones separate texts."""
    batch = build_batch(**options)
    if guide.name != "alignment":
        return batch
    ids, mask = batch["input_ids"], batch["attention_mask"] != 0
    repeated = 5 + 2 * torch.arange(ids.shape[1]) % 4  # 5, 7, 5, 7, ...
    repeated[3] = 6
    return {**batch, "input_ids": torch.where(mask, repeated, ids)}


def by_name(name, **options):
    return build(name, **NEEDED.get(name, {}), **options)


@pytest.fixture(autouse=True)
def _eager_families_warn_elsewhere():
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message=".* does not call custom attention", category=hw.errors.HeadwiseWarning
        )
        yield


# -- what must hold for every guide ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "options"), CASES)
def test_examples_padding_and_gradients(name, options, request):
    guide = build(name, **options)
    batch = with_special_tokens(batch_for(guide))
    check_padding("roberta", guide, {"left": 2, "right": 3})
    # A batch is the mean of its examples, in any order.
    model = exact_model()
    alone = torch.stack([seen_by(model, guide, pick(batch, [example])) for example in range(3)])
    assert alone.std() > 0 or getattr(guide, "preset", None) == "released"
    for order in ([0, 1, 2], [2, 0, 1]):
        value = seen_by(model, guide, pick(batch, order))
        assert value.shape == ()
        torch.testing.assert_close(value, alone.mean(), rtol=1e-12, atol=0)
    # In evaluation mode the gradient reaches the attention scores.
    case = request.node.callspec.id
    if FLAT not in case and NO_SCORES not in case:
        found = gradients(model, value)
        for layer in {"all": [0, 1, 2], "last:2": [1, 2], "last:half": [2]}.get(str(guide.layers), guide.layers):
            for projection in ("query", "key"):
                assert found[f"bert.encoder.layer.{layer}.attention.self.{projection}.weight"].norm() > 1e-5


def test_padding_and_gradients_in_every_family(family):
    for name, padding in zip(ROUTES, ({"right": 6}, {"left": 6}, {"left": 3, "right": 3}), strict=True):
        check_padding(family, by_name(name), padding)
        model = exact_model(family)
        seen_by(model, by_name(name), build_batch()).backward()
        projections = query_key_projections(model)
        assert len(projections) == {"albert": 2, "modernbert": 3}.get(family, 6)
        assert all(projection.part(projection.parameter.grad).norm() > 1e-5 for projection in projections)


def check_padding(family, guide, padding):
    """More padding changes no value and no gradient."""
    model = exact_model(family)
    batch = with_positions(model, with_special_tokens(batch_for(guide)))
    narrow, wide = (seen_by(model, guide, each) for each in (batch, widened(batch, **padding)))
    torch.testing.assert_close(wide, narrow, rtol=1e-10, atol=0)
    if getattr(guide, "preset", None) != "released":  # those have no gradient to speak of
        assert_same_gradients(gradients(model, wide), gradients(model, narrow))


def test_what_is_no_loss_on_attention_is_listed():
    assert set(GUIDES) == {*LOSSES, *OTHERS}


@pytest.mark.parametrize("name", LOSSES)
def test_bfloat16_works(name):
    guide = by_name(name)
    batch = with_special_tokens(batch_for(guide))
    expected = seen_by(build_model("bert").eval(), guide, batch)
    for half in ("autocast", "weights"):
        model = build_model("bert", dtype=torch.bfloat16 if half == "weights" else torch.float32).eval()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half == "autocast"):
            value = seen_by(model, guide, batch)
        value.backward()
        assert value.dtype == torch.float32
        torch.testing.assert_close(value, expected, rtol=0.03, atol=0)
        assert value != expected
        assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None)


@pytest.mark.parametrize(
    ("name", "family", "zero"),
    [(name, "bert", "weight") for name in GUIDES]
    + [("consistency", "modernbert", "factor"), ("head_dropout", "mpnet", "weight")]
    + [("mdg", "modernbert", "factor"), ("next", "mpnet", "factor"), ("disagreement", "modernbert", "factor")],
)
def test_weight_zero_is_unguided_training_bit_for_bit(name, zero, family):
    plain = build_model(family, dropout=0.1, hidden_dropout_prob=0.1).train()
    guided = copy.deepcopy(plain)
    start = copy.deepcopy(plain)
    if family not in EAGER:  # SDPA drops other weights
        plain.set_attn_implementation("headwise")
    chosen = by_name(name, **OTHERS.get(name, {"weight": 0.0})) if zero == "weight" else by_name(name) * 0
    hw.guide(guided, chosen, tokenizer=TOKENIZER)
    for model in (plain, guided):
        train(model)
    for (parameter, expected), before in zip(
        zip(guided.parameters(), plain.parameters(), strict=True), start.parameters(), strict=True
    ):
        assert torch.equal(parameter, expected)
        assert not torch.equal(parameter, before) or not parameter.grad.any()


def train(model):
    torch.manual_seed(5)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(3):
        model(**build_batch()).loss.backward()
        optimiser.step()


# -- what must hold for the two guides of the paper --------------------------------------------------------------------


def test_equals_the_slow_reference_on_every_family(family):
    batch = with_positions(exact_model(family), build_batch(padding=3))
    for name, slow in SLOW.items():
        model, twin = exact_model(family), exact_model(family)
        actual = seen_by(model, build(name), batch)
        maps = slow_maps(twin, batch, eager=family in EAGER)
        assert maps.shape == (3, 12, 15, 15)
        assert maps.dtype == torch.float64
        expected = slow(maps, batch["attention_mask"] != 0)
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=0)
        assert_same_gradients(gradients(model, actual), gradients(twin, expected))


@pytest.mark.parametrize(
    ("name", "options"), [case for case in VARIANTS if "layers" not in case.id and case.values[0] in SLOW]
)
def test_every_option_equals_the_slow_reference(name, options):
    batch = with_special_tokens(build_batch())
    model, twin = exact_model(), exact_model()
    actual = seen_by(model, build(name, **options), batch)
    known = {key: value for key, value in batch.items() if key not in ("special_tokens_mask", "rationale_mask")}
    maps = slow_maps(twin, known, eager=False)
    valid, special = batch["attention_mask"] != 0, batch["special_tokens_mask"] != 0
    others = ("special_tokens", "dropout", "contrast", "preset")
    chosen = {key: value for key, value in options.items() if key not in others}
    if options.get("contrast") == "layer":
        chosen["layer_of"] = [layer for layer in range(3) for _ in range(4)]
    if "preset" in options:
        chosen |= {"reduce": "given"} | ({"tau": 2.0} if name == "mdg" else {})
    positions = valid if options.get("special_tokens", True) else valid & ~special
    expected = SLOW[name](maps, valid, positions, **chosen)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=0)
    if "preset" not in options:
        assert_same_gradients(gradients(model, actual), gradients(twin, expected))


@pytest.mark.parametrize("name", SLOW)
@pytest.mark.parametrize(("layers", "heads", "maps"), [("last:2", [0, 3], [4, 7, 8, 11]), (1, {1: [2, 0]}, [4, 6])])
def test_a_selection_equals_the_slow_reference_of_these_maps(name, layers, heads, maps):
    batch, model, twin = build_batch(), exact_model(), exact_model()
    actual = seen_by(model, build(name, layers=layers, heads=heads), batch)
    expected = SLOW[name](slow_maps(twin, batch, eager=False)[:, maps], batch["attention_mask"] != 0)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=0)
    assert_same_gradients(gradients(model, actual), gradients(twin, expected))
