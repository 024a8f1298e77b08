"""Alignment: a loop over tokens and equal tokens, a case by hand, its control, and the weights of rare tokens."""

import math

import pytest
import torch
from conftest import build_model
from guides.reference import assert_same_gradients, random_maps, record_of

import headwise as hw
from headwise.attention import Inputs
from headwise.errors import InputError
from headwise.guides.alignment import token_idf

CLS, SEP, COMMA = 2, 3, 9
IDF = {5: 0.5, 6: 2.0, 7: 0.25, COMMA: 1.0}


def inputs_of(ids, valid):
    marks = {"separator": ids == SEP, "punctuation": ids == COMMA}
    return Inputs(ids, valid.long(), None, marks=marks)


def pairs():
    """Two texts with repeated tokens and commas, a pair that shares only commas, and a single text; padding is a 5."""
    rows = [
        [CLS, 5, 6, COMMA, 5, 7, SEP, 6, 5, COMMA, 8, 6, SEP],
        [CLS, 5, COMMA, SEP, 6, COMMA, SEP, 5, 5, 5, 5, 5, 5],
        [CLS, 8, 7, 6, SEP, 6, 8, 8, SEP, 5, 5, 5, 5],
        [CLS, 5, 5, 6, SEP, 5, 5, 5, 5, 5, 5, 5, 5],
    ]
    lengths = [13, 7, 9, 5]
    ids = torch.tensor(rows)
    valid = torch.arange(13) < torch.tensor(lengths)[:, None]
    return ids, valid, (ids == CLS) | (ids == SEP)


def slow_alignment(maps, ids, valid, idf, distance):
    """A mean over examples of a mean over heads of a weighted mean over the tokens that the other text has, too."""
    examples = []
    for row, tokens, example in zip(ids.tolist(), valid.tolist(), maps, strict=True):
        text, number = [], 0
        for token, is_token in zip(row, tokens, strict=True):
            number += token == SEP
            text.append(None if not is_token or token in (CLS, SEP, COMMA) else number)
        values, weights = [], []
        for query, own in enumerate(text):
            partners = [key for key, other in enumerate(text) if None not in (own, other) and own != other]
            partners = [key for key in partners if row[key] == row[query]]
            if not partners:
                continue
            target = torch.zeros(len(row), dtype=maps.dtype)
            target[partners] = 1 / len(partners)
            weights.append(idf.get(row[query], max(idf.values())))
            values.append([weights[-1] * slow_distance(head[query], target, sum(tokens), distance) for head in example])
        if weights:
            examples.append(torch.stack([sum(each) for each in zip(*values, strict=True)]).mean() / sum(weights))
    return torch.stack(examples).mean()


def slow_distance(row, target, size, distance):
    if distance == "mse":
        return sum((a - t) ** 2 for a, t in zip(row, target, strict=True)) / size
    if distance == "cosine":
        return 1 - row @ target / (row.norm() * target.norm())
    return sum(t * torch.log(t / a) for a, t in zip(row, target, strict=True) if t > 0)


@pytest.mark.parametrize("distance", ["mse", "kl", "cosine"])
def test_equals_the_slow_reference(distance):
    torch.manual_seed(0)
    ids, valid, special = pairs()
    maps = random_maps(valid)
    for idf in (None, IDF):
        value = hw.Alignment(distance=distance, idf=idf)(
            record_of(maps, valid, layers=2, what="map", special=special), inputs_of(ids, valid)
        )
        expected = slow_alignment(maps, ids, valid, idf or {0: 1.0}, distance)
        torch.testing.assert_close(value, expected, rtol=1e-6, atol=0)  # the weights of tokens are float32
        found, wanted = (torch.autograd.grad(each, maps, retain_graph=True)[0] for each in (value, expected))
        assert_same_gradients({"maps": found}, {"maps": wanted}, 1e-6)


def one_pair(shuffle=False, **options):
    """[CLS] a b [SEP] b c b [SEP]: both b of the second text are the target of the b of the first."""
    ids = torch.tensor([[CLS, 5, 6, SEP, 6, 7, 6, SEP]])
    valid = torch.ones_like(ids).bool()
    even = torch.full((1, 1, 8, 8), 1 / 8).requires_grad_()
    guide = hw.Alignment(shuffle=shuffle, **options)
    value = guide(record_of(even, valid, what="map", special=ids <= SEP), inputs_of(ids, valid))
    return value, torch.autograd.grad(value, even)[0][0, 0]


def test_by_hand():
    # The first b has two partners, 1/2 each: KL = log(1/2 : 1/8) = log 4. The others have one: log 8.
    value, gradient = one_pair()
    assert float(value.detach()) == pytest.approx((math.log(4) + 2 * math.log(8)) / 3)
    assert {tuple(cell) for cell in gradient.nonzero().tolist()} == {(2, 4), (2, 6), (4, 2), (6, 2)}
    # Each cell is pulled by - (1/3 of the rows) T / A.
    torch.testing.assert_close(gradient[2, [4, 6]], torch.full((2,), -0.5 * 8 / 3))
    torch.testing.assert_close(gradient[[4, 6], 2], torch.full((2,), -8 / 3))


def test_the_shuffled_twin_has_as_many_partners_in_the_same_text():
    ids, valid, special = pairs()
    inputs = inputs_of(ids, valid)
    own, twin = (hw.Alignment(shuffle=shuffle)._equal(inputs, valid, special) for shuffle in (False, True))
    assert torch.equal(own.sum(2), twin.sum(2))
    assert not torch.equal(own, twin)
    behind = inputs.marks["separator"].cumsum(1) > 0
    words = valid & ~special & ~inputs.marks["punctuation"]
    rows, queries, keys = twin.nonzero(as_tuple=True)
    assert (behind[rows, queries] != behind[rows, keys]).all()
    assert words[rows, keys].all()


def test_rare_tokens_weigh_more():
    idf = token_idf([[2, 5, 5, 6, 3], torch.tensor([2, 5, 3]), [2, 7, 3]])
    assert idf == {2: 0.0, 3: 0.0, 5: math.log(4 / 3), 6: math.log(2), 7: math.log(2)}
    guide = hw.Alignment().fitted([[2, 5, 5, 6, 3], [2, 5, 3], [2, 7, 3]])
    assert guide.idf == idf
    assert guide.fitted([[1]]) is guide
    # Tokens that no example has are the rarest.
    weights = guide._idf_of(inputs_of(torch.tensor([[5, 6, 8, 100, 0]]), torch.ones(1, 5).bool()))
    torch.testing.assert_close(weights, torch.tensor([[math.log(4 / 3)] + [math.log(2)] * 4]))
    assert "0.69" not in repr(guide)


def test_a_head_learns_it_and_the_weight_falls_to_zero():
    ids, valid, _ = pairs()
    ids, valid = ids[[0, 2]], valid[[0, 2]]
    model = build_model("bert").train()
    tokenizer = type("Tokens", (), {"all_special_ids": [CLS, SEP], "sep_token_id": SEP, "get_vocab": lambda _: {}})()
    guide = hw.Alignment(layers=1, heads=[(1, 2)], weight={"share": 5.0, "decay": 30})
    hw.guide(model, guide, tokenizer=tokenizer)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    values, weights = [], []
    for _ in range(32):
        optimiser.zero_grad()
        model(input_ids=ids, attention_mask=valid.long(), labels=torch.tensor([0, 1])).loss.backward()
        optimiser.step()
        losses = hw.guides.last_losses(model)
        values.append(losses.get("alignment"))
        weights.append(losses.get("alignment_weight"))
    assert values[29] < 0.5 * values[0]
    assert weights[29] > 0
    assert weights[30:] == values[30:] == [None, None]  # not even computed


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"idf": {"the": 1.0}}, "expected a token id"),
        ({"idf": {5: -1.0}}, "weight of 0 or more"),
        ({"idf": [1.0]}, "expected a mapping"),
        ({"idf": {5: 0}}, "all weights are 0"),
        ({"distance": "l2"}, "expected one of 'mse', 'kl', 'cosine'"),
        ({"shuffle": 1}, "expected one of True, False"),
        ({"weight": {"share": 0.1, "decay": 0}}, "decay=0"),
    ],
)
def test_bad_options_are_refused(options, part):
    with pytest.raises(InputError, match=part):
        hw.Alignment(**options)


def test_it_needs_to_know_where_the_second_text_begins():
    ids, valid, special = pairs()
    record = record_of(random_maps(valid), valid, what="map", special=special)
    with pytest.raises(InputError, match="where the second text begins"):
        hw.Alignment()(record, Inputs(ids, valid.long(), None))
    with pytest.raises(InputError, match="separator tokens: pass tokenizer"):
        hw.guide(build_model("bert"), hw.Alignment())
