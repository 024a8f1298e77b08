"""MDG and PDG: numbers by hand, the matrix that they share, special tokens, and the authors' released code."""

import math
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conftest import build_batch, build_model
from guides.reference import NO_INPUTS, random_maps, record_of, seen_by, slow_maps, slow_mdg, slow_pdg
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import headwise as hw
from headwise.attention import query_key_projections
from headwise.errors import InputError
from headwise.guides import gram

BOTH = pytest.mark.parametrize(("kind", "slow"), [(hw.MDG, slow_mdg), (hw.PDG, slow_pdg)])

# -- by hand -----------------------------------------------------------------------------------------------------------

# Map 0: both queries look at key 0 alone: received (2, 0), length one (1, 0).
# Map 1: both give 3/7 to key 0 and 4/7 to key 1: received (6/7, 8/7), length one (0.6, 0.8).
# MDG: their cosine is 0.6, so -log softmax(1, 0.6)_0 = log(1 + exp(-0.4)), and the same for map 1.
# PDG, with U of these rows:
#
#     U^T U - I = | 1 + 0.36   0.48 | - I = | 0.36   0.48 |     squares: 0.1296 + 0.2304 + 0.2304 + 0.1296 = 0.72
#                 | 0.48       0.64 |       | 0.48  -0.36 |
TWO = torch.tensor([[[[1.0, 0.0], [1.0, 0.0]], [[3 / 7, 4 / 7], [3 / 7, 4 / 7]]]], dtype=torch.float64)
# Without unit rows M^T M - I has 4 + 36/49 - 1 = 183/49 and 64/49 - 1 = 15/49 on its diagonal, and twice 48/49.
RAW = (183**2 + 2 * 48**2 + 15**2) / 49**2
PADDED = torch.zeros(1, 2, 3, 3, dtype=torch.float64)
PADDED[:, :, :2, :2] = TWO
PADDED[:, 0, 2, 1] = 1.0  # a padded query, which has no vote


def looking_at(*keys, size):
    """One map per key, whose queries all look at that key alone: [1,S,Q,K]."""
    return torch.stack([torch.nn.functional.one_hot(torch.full((size,), key), size).double() for key in keys])[None]


@pytest.mark.parametrize(
    ("guide", "maps", "expected"),
    [
        (hw.MDG(tau=0.5), TWO, math.log(1 + math.exp(-0.8))),
        (hw.MDG(tau=3), TWO, math.log(1 + math.exp(-0.4 / 3))),
        (hw.MDG(), PADDED, math.log(1 + math.exp(-0.4))),
        # maps that share no key have the least value
        (hw.MDG(tau=0.1), looking_at(0, 1, 2, 3, size=4), math.log(1 + 3 * math.exp(-10))),
        # two layers of two equal maps
        (hw.MDG(), looking_at(0, 0, 1, 1, size=2), math.log(2 + 2 * math.exp(-1))),
        (hw.MDG(contrast="layer"), looking_at(0, 0, 1, 1, size=2), math.log(2)),
        (hw.PDG(reduction="sum"), TWO, 0.72),
        (hw.PDG(), PADDED, 0.36),
        (hw.PDG(normalise=False, reduction="sum"), TWO, RAW),
        (hw.PDG(normalise=False), TWO, RAW / 2),
        # keys that nobody looks at are 1 off the identity
        (hw.PDG(reduction="sum"), looking_at(0, 1, 2, size=3), 0.0),
        (hw.PDG(reduction="sum"), looking_at(0, size=3), 2.0),
        # of two maps every position is 1 in one and -1 in the other: their correlation is -1, twice
        (hw.PDG(standardise=True, reduction="sum"), TWO, 2.0),
        (hw.PDG(standardise=True), PADDED, 1.0),
        # keys of which each is looked at by one of three maps: variance 2/9, covariance -1/9
        (hw.PDG(standardise=True, reduction="sum"), looking_at(0, 1, 2, size=3), 6 / 4),
        # keys that are the same in all maps have no correlation
        (hw.PDG(standardise=True), looking_at(0, 0, 0, size=3), 0.0),
    ],
)
def test_by_hand(guide, maps, expected):
    valid = torch.tensor([[True, True, False]]) if maps is PADDED else torch.ones(1, maps.shape[3], dtype=torch.bool)
    layers = 2 if maps.shape[1] == 4 and maps.shape[3] == 2 else 1
    value = guide(record_of(maps, valid, layers=layers), NO_INPUTS).item()
    assert value == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("count", [1, 7])
def test_equal_maps(count):
    valid = torch.ones(1, 5, dtype=torch.bool)
    record = record_of(random_maps(valid, 1).expand(-1, count, -1, -1), valid)
    assert hw.MDG()(record, NO_INPUTS).item() == pytest.approx(math.log(count), abs=1e-12)
    # U^T U = count * u u^T with |u| = 1: count^2 - 2 count + K
    assert hw.PDG(reduction="sum")(record, NO_INPUTS).item() == pytest.approx(count**2 - 2 * count + 5, rel=1e-12)


def test_positions_that_differ_by_rounding_only_have_no_correlation_and_no_gradient():
    """As the single token of a text, which receives 1 in every map, and all positions of equal maps."""
    valid = torch.tensor([[1, 0, 0, 0], [1, 1, 1, 0]]).bool()
    maps = random_maps(valid, 1).detach().float() * (1 + 1e-7 * torch.rand(2, 5, 4, 4))
    maps.requires_grad_()
    value = hw.PDG(standardise=True)(record_of(maps, valid), NO_INPUTS)
    assert value == 0
    (gradient,) = torch.autograd.grad(value, maps)
    assert not gradient.any()


def test_on_a_real_encoder_standardised_pdg_is_another_guide_than_mdg_and_pdg_is_not():
    study = runpy.run_path(str(Path(__file__).parents[2] / "studies" / "gradients.py"))
    pulls, cosine = study["guide_pulls"](study["load"](), study["PAIRS"][:8]), study["cosine"]
    assert cosine(pulls["mdg"], pulls["pdg"]) > 0.97
    for other in ("mdg", "pdg"):
        assert abs(cosine(pulls[other], pulls["pdg standardised"])) < 0.2


# -- one small matrix, and none of keys by keys ------------------------------------------------------------------------

KEYS = 37


class Shapes(TorchDispatchMode):
    """Notes the shape of every tensor that is made, in the forward and in the backward pass."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        made = operation(*args, **(kwargs or {}))
        self.seen |= {tuple(each.shape) for each in tree_leaves(made) if isinstance(each, torch.Tensor)}
        return made

    @property
    def square(self):
        return {shape for shape in self.seen if shape.count(KEYS) > 1 or any(size >= KEYS**2 for size in shape)}


@pytest.mark.parametrize(
    "guide", [hw.MDG(contrast="layer"), hw.PDG(), hw.PDG(normalise=False), hw.PDG(standardise=True)], ids=repr
)
def test_no_tensor_of_keys_by_keys_is_made(guide):
    valid = torch.ones(2, KEYS, dtype=torch.bool)
    valid[1, 20:] = False
    received = record_of(random_maps(valid, 5).detach(), valid).stacked().requires_grad_()
    record = record_of(torch.zeros(2, 5, KEYS, KEYS), valid).fill({0: received}, valid, None)
    with Shapes() as shapes:
        guide(record, NO_INPUTS).backward()
    assert received.grad.any()
    assert {(2, 5, 5), (2, 5, KEYS)} <= shapes.seen
    assert shapes.square == set()
    with Shapes() as shapes:  # and such a tensor would be noticed
        slow_pdg(torch.rand(1, 1, 1, KEYS, dtype=torch.float64), valid[:1, :1], valid[:1])
    assert shapes.square == {(KEYS, KEYS)}


@pytest.fixture
def grams(monkeypatch):
    """How many Gram matrices are computed."""
    made = []
    original = gram.compute_gram
    monkeypatch.setattr(gram, "compute_gram", lambda *args, **options: made.append(args) or original(*args, **options))
    return made


@pytest.mark.parametrize(
    ("other", "count"),
    [
        pytest.param(hw.PDG(), 1, id="the two guides"),
        pytest.param(hw.MDG(tau=0.5, contrast="layer"), 1, id="another contrast"),
        pytest.param(hw.PDG(special_tokens=False), 2, id="other positions"),
        pytest.param(hw.PDG(layers=0), 2, id="another layer"),
        pytest.param(hw.PDG(dropout="after"), 2, id="after dropout"),
    ],
)
def test_guides_share_a_gram_and_never_mix_different_things(grams, other, count):
    batch = {**build_batch(), "special_tokens_mask": torch.eye(12)[:3]}

    def values(guides):
        model = hw.guide(build_model("bert").train(), guides)
        model(**batch)
        return hw.guides.last_losses(model)

    together = values(hw.MDG() + other)
    assert len(grams) == count
    name = "pdg" if isinstance(other, hw.PDG) else "mdg-2"
    # with other guides the kernel may be another one: equal but for rounding
    assert together["mdg"] == pytest.approx(values(hw.MDG())["mdg"], rel=1e-5)
    assert together[name] == pytest.approx(values(other)[other.name], rel=1e-5)


def test_a_gram_lives_as_long_as_its_forward_pass(grams):
    model = build_model("bert").eval()
    with hw.capture(model) as record:
        for _ in range(2):
            model(**build_batch())
            hw.MDG()(record, NO_INPUTS)
            hw.PDG()(record, NO_INPUTS)
    assert len(grams) == 2


# -- special tokens ----------------------------------------------------------------------------------------------------


def batch_with_special():
    """Tokens 2 and 3 as [CLS] and [SEP], around and between the words."""
    batch = build_batch()
    batch["input_ids"][:, 0] = 2
    batch["input_ids"][:, 4] = 3
    return batch, torch.isin(batch["input_ids"], torch.tensor([1, 2, 3]))


@BOTH
def test_special_tokens_can_be_left_out(kind, slow):
    """A tokenizer or a mask says what is special, and the mask comes first."""
    batch, special = batch_with_special()
    valid, maps = batch["attention_mask"] != 0, slow_maps(build_model("bert", dtype=torch.float64), batch, eager=False)
    mask = {"special_tokens_mask": special.long()}
    for ids, more in ((None, mask), ([1, 2, 3, 2], {}), ([], mask)):
        model = build_model("bert", dtype=torch.float64).train()
        tokenizer = None if ids is None else SimpleNamespace(all_special_ids=ids)
        hw.guide(model, kind(special_tokens=False), tokenizer=tokenizer)(**batch, **more)
        actual = hw.guides.guidance(model).losses.guides[kind.name].raw
        torch.testing.assert_close(actual, slow(maps, valid, valid & ~special), rtol=1e-10, atol=0)
        assert not torch.isclose(actual, slow(maps, valid), rtol=1e-3)


@BOTH
def test_an_example_of_special_tokens_only_does_not_count(kind, slow):
    valid = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool()
    special = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0]]).bool()
    maps = random_maps(valid)
    guide = kind(special_tokens=False)
    both = guide(record_of(maps, valid, special=special), NO_INPUTS)
    first = guide(record_of(maps[:1], valid[:1], special=special[:1]), NO_INPUTS)
    torch.testing.assert_close(both, first, rtol=1e-12, atol=0)
    (gradient,) = torch.autograd.grad(both, maps)
    assert gradient.isfinite().all()
    assert not gradient[1].any()
    assert gradient[0].any()


def test_the_mask_does_not_reach_the_model_and_without_one_special_tokens_are_unknown():
    batch, special = batch_with_special()
    for training in (True, False):
        expected = build_model("bert").train(training)(**batch).logits
        guided = hw.guide(build_model("bert").train(training), hw.MDG())
        torch.testing.assert_close(guided(**batch, special_tokens_mask=special).logits, expected)
    model = hw.guide(build_model("bert").train(), hw.PDG(special_tokens=False))
    with pytest.raises(InputError, match=r"^pdg\(special_tokens=False\) .*tokenizer=.*special_tokens_mask=.*\.$"):
        model(**build_batch())


# -- the authors' released code, which averages maps over keys ---------------------------------------------------------


def pull(guide, *, training, dropout=0.0):
    """The gradient norm of a guide on the query/key projections."""
    model = build_model("bert", dropout=dropout, dtype=torch.float64).train(training)
    seen_by(model, guide, build_batch()).backward()
    return math.hypot(*(float(each.parameter.grad.norm()) for each in query_key_projections(model)))


@BOTH
def test_released_has_a_gradient_from_dropout_alone_and_the_paper_has_one(kind, slow):
    released = kind(preset="released")
    assert (released.dropout, released.what) == ("after", "map")
    assert (kind().dropout, kind().what) == ("before", "received")
    assert pull(released, training=True) < 1e-10
    assert pull(kind(), training=False) > 1e-3
    assert pull(released, training=True, dropout=0.1) > 1e-3
    assert pull(released, training=False, dropout=0.1) < 1e-10


def test_released_is_a_constant_without_dropout():
    """MDG is the log of 12 maps; PDG of 12 rows of K equal entries is (144 - 24 + K) / K, for 12, 9 and 6 tokens."""
    pdg = sum((120 + keys) / keys for keys in (12, 9, 6)) / 3
    for guide, expected in ((hw.MDG(preset="released"), math.log(12)), (hw.PDG(preset="released"), pdg)):
        value = seen_by(build_model("bert", dtype=torch.float64).train(), guide, build_batch())
        assert value.item() == pytest.approx(expected, rel=1e-12)


def test_released_is_the_authors_formula_on_what_dropout_left():
    torch.manual_seed(3)
    valid = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()
    maps = torch.nn.functional.dropout(random_maps(valid), 0.3)
    record = record_of(maps, valid, what="map")
    mdg, pdg = (kind(preset="released")(record, NO_INPUTS) for kind in (hw.MDG, hw.PDG))
    torch.testing.assert_close(mdg, slow_mdg(maps, valid, tau=2.0, reduce="given"))
    torch.testing.assert_close(pdg, slow_pdg(maps, valid, reduce="given"))
    assert mdg != slow_mdg(maps, valid, tau=2.0)
    guide = hw.PDG(preset="released", normalise=False)  # and it does not depend on padding
    wide, narrow = (
        guide(record_of(maps[:, :, :keys, :keys][1:], valid[1:, :keys], what="map"), NO_INPUTS) for keys in (5, 3)
    )
    torch.testing.assert_close(wide, narrow, rtol=1e-12, atol=0)
