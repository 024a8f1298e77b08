"""Naming heads, and silencing them."""

import numpy
import pytest
import torch
from conftest import SIZES, build_batch, build_model
from transformers import SplinterConfig, SplinterModel

import headwise as hw
from headwise.attention import heads_of, mask, prune
from headwise.errors import InputError

LAYERS, HEADS = SIZES["num_hidden_layers"], SIZES["num_attention_heads"]
CHOSEN = numpy.zeros((LAYERS, HEADS), dtype=bool)
CHOSEN[0, [1, 3]] = CHOSEN[2, 0] = True
SAME = {
    "mapping": {2: [0], 0: (3, 1, 3), 1: []},
    "pairs": [(0, 3), (2, 0), (0, 1)],
    "numpy mask": CHOSEN,
    "torch mask": torch.from_numpy(CHOSEN),
    "numpy numbers": {numpy.int64(0): numpy.array([1, 3]), 2: torch.tensor([0])},
}


def test_every_way_to_name_heads_means_the_same(model):
    for way, heads in SAME.items():
        assert heads_of(model, heads) == {0: (1, 3), 2: (0,)}, way


@pytest.mark.parametrize("family", ["bert", "mpnet"])
@pytest.mark.filterwarnings("ignore::headwise.errors.HeadwiseWarning")
def test_a_mask_is_gates_of_zero_inside_the_block_only(family, batch):
    model = build_model(family).eval()
    gates = torch.from_numpy(1.0 - CHOSEN)
    with hw.gate(model, gates):
        expected = model(**batch).logits
    before = model(**batch).logits
    with mask(model, CHOSEN):
        assert torch.equal(model(**batch).logits, expected)
    assert torch.equal(model(**batch).logits, before)
    assert (before - expected).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ({3: [0]}, "layer 3: the model has layers 0 to 2"),
        ([(0, 4)], "head 4 of layer 0: the model has heads 0 to 3"),
        ({}, "no heads chosen: name at least one"),
        (numpy.ones((HEADS, LAYERS), dtype=bool), r"a mask of shape \(4, 3\): the model has 3 layers of 4 heads"),
        (torch.ones(LAYERS, HEADS), r"head array.*: expected \{layer: \[heads\]\}"),
        ({0: [True]}, "head True: expected a number"),
        ({0: 1}, "heads 1 of layer 0: expected"),
        ("all", "heads 'all': expected"),
        ([(1, 2, 3)], r"head \(1, 2, 3\): expected"),
    ],
)
def test_wrong_heads_say_what_was_expected(model, heads, message):
    with pytest.raises(InputError, match=message) as caught:
        heads_of(model, heads)
    assert "\n" not in str(caught.value)


def test_a_head_that_was_pruned_cannot_be_named(model):
    prune(model, {1: [3], 2: range(HEADS)})
    with pytest.raises(InputError, match=r"head 3 of layer 1 was pruned from this model: its heads \[0, 1, 2\] are"):
        heads_of(model, {1: [0, 3]})
    with pytest.raises(InputError, match="head 0 of layer 2 was pruned from this model: no head of that layer"):
        heads_of(model, [(2, 0)])
    assert heads_of(model, {1: [0]}) == {1: (0,)}


def test_a_module_that_does_not_say_whether_it_is_causal_is_not():
    """Without padding there is no mask, and then transformers would take Splinter's attention for a decoder's."""
    torch.manual_seed(7)
    model = SplinterModel(SplinterConfig(**SIZES, question_token_id=3)).eval()
    ids = build_batch()["input_ids"]
    plain = model(ids).last_hidden_state
    with hw.gate(model, torch.ones(LAYERS, HEADS)):
        torch.testing.assert_close(model(ids).last_hidden_state, plain, rtol=1e-5, atol=1e-6)
