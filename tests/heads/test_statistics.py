"""Head statistics against plain loops, whatever the batches; vectors and mean maps of one example."""

import json
import math
from statistics import fmean as mean

import pytest
import torch
from conftest import build_batch, build_model
from guides.reference import random_maps, record_of

import headwise as hw
from headwise.attention import AttentionRecord, Request
from headwise.errors import InputError, StateError
from headwise.heads import HeadStatistics, head_vectors, mean_map, principal_components


def by_hand(received, valid=None, heads=None):
    """A record of received attention [B,M,K] in one layer."""
    tensor = torch.tensor(received)
    valid = torch.ones(tensor.shape[0], tensor.shape[2], dtype=torch.bool) if valid is None else torch.tensor(valid)
    request = Request.of("received", heads or {0: tuple(range(tensor.shape[1]))})
    return AttentionRecord(request).fill({0: tensor}, valid, None)


def summary(record, deciding=None):
    statistics = HeadStatistics()
    statistics.add(record, deciding)
    return statistics.result()


# -- the slow way ------------------------------------------------------------------------------------------------------


def slow_cosine(first, second):
    return sum(a * b for a, b in zip(first, second, strict=True)) / math.hypot(*first) / math.hypot(*second)


def slow_entropy(vector):
    shares = [value / sum(vector) for value in vector]
    return -sum(share * math.log(share) for share in shares if share > 0) / math.log(len(shares))


def slow_share(examples, record, chosen):
    """Share and lift over the examples that have a chosen token, and how many they are."""
    shares, lifts = [], []
    for vectors, valid, wanted in zip(examples, record.valid, chosen, strict=True):
        marked = [place for place, index in enumerate(valid.nonzero().flatten()) if wanted[index]]
        if marked:
            share = mean(sum(vector[place] for place in marked) / sum(vector) for vector in vectors)
            shares.append(share)
            lifts.append(share / (len(marked) / len(vectors[0])))
    return mean(shares), mean(lifts), len(shares)


def test_every_number_equals_the_slow_loops():
    valid, special, deciding = torch.ones(3, 9).bool(), torch.zeros(3, 9).bool(), torch.zeros(3, 9).bool()
    valid[1, 6:] = valid[2, :4] = False
    special[[0, 1, 2], [0, 0, 4]] = True
    deciding[0, [2, 3]] = True
    deciding[1, [1, 8]] = True  # the second of these is padding, and does not count
    record = record_of(random_maps(valid).detach(), valid, layers=2, special=special)
    # For every example the vectors of its maps, cut to tokens.
    examples = [
        [[float(value) for value, token in zip(one, tokens, strict=True) if token] for one in maps]
        for maps, tokens in zip(record.stacked(), valid, strict=True)
    ]
    cosines = [
        [mean(slow_cosine(a, b) for j, b in enumerate(vectors) if i != j) for i, a in enumerate(vectors)]
        for vectors in examples
    ]
    entropies = [[slow_entropy(vector) for vector in vectors] for vectors in examples]
    found = summary(record, deciding)
    assert found.examples == 3
    for values, total, by_head in (
        (cosines, found.similarity, found.similarity_by_head),
        (entropies, found.entropy, found.entropy_by_head),
    ):
        expected = [mean(column) for column in zip(*values, strict=True)]
        assert sum(by_head, []) == pytest.approx(expected, rel=1e-12)
        assert total == pytest.approx(mean(expected), rel=1e-12)
    shares = (found.deciding_share, found.deciding_lift, found.deciding_examples)
    assert shares == pytest.approx(slow_share(examples, record, deciding), rel=1e-12)
    shares = (found.special_share, found.special_lift, found.special_examples)
    assert shares == pytest.approx(slow_share(examples, record, special), rel=1e-12)
    assert (found.deciding_examples, found.special_examples) == (2, 3)


def test_the_result_names_its_heads_and_is_json():
    request = Request.of("received", {1: (3,), 5: (0, 2)})
    layers = {1: torch.rand(1, 1, 4) + 0.1, 5: torch.rand(1, 2, 4) + 0.1}
    found = summary(AttentionRecord(request).fill(layers, torch.ones(1, 4, dtype=torch.bool), None))
    assert (found.layers, found.heads) == ([1, 5], [[3], [0, 2]])
    assert [len(row) for row in found.similarity_by_head] == [len(row) for row in found.entropy_by_head] == [1, 2]
    assert json.loads(json.dumps(found.as_dict(), allow_nan=False)) == found.as_dict()
    # A single token, and a head that gives nothing.
    alone = summary(by_hand([[[1.0, 0.0], [0.0, 0.0]]], valid=[[True, False]]))
    assert (alone.entropy, alone.similarity) == (1.0, 0.0)


# -- batches of a model ------------------------------------------------------------------------------------------------


def of_model(batches, dtype=torch.float64):
    """Statistics of a tiny BERT; the deciding tokens are those with an even number, the special ones the first."""
    model, statistics = build_model("bert", dtype=dtype).eval(), HeadStatistics()
    with torch.no_grad(), hw.capture(model) as record:
        for batch in batches:
            tokens = batch["attention_mask"] == 1
            model(**batch, special_tokens_mask=(tokens.cumsum(1) == 1) & tokens)
            statistics.add(record, batch["input_ids"] % 2 == 0)
    return statistics.result().as_dict()


def assert_same(first, second, tolerance):
    assert first.keys() == second.keys()
    for name, value in first.items():
        one, other = (torch.tensor(each, dtype=torch.float64) for each in (value, second[name]))
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance, msg=name)


def test_batches_padding_and_low_precision_change_nothing(batch):
    expected, padded = of_model([batch]), build_batch(padding=7)
    single = [{name: value[i : i + 1] for name, value in padded.items()} for i in (2, 0, 1)]
    assert_same(of_model(single), expected, 1e-10)
    assert_same(of_model([batch], torch.float32), expected, 1e-5)


PAIR = [[[1.0, 1.0], [1.0, 1.0]]]


def test_bad_input_is_refused_and_not_counted():
    statistics = HeadStatistics()
    for record, deciding, message in (
        (by_hand([[[1.0, 1.0]]]), None, "only one head"),
        (by_hand([[[math.nan, 1.0], [1.0, 1.0]]]), None, "example 0 is not finite"),
        (by_hand(PAIR), torch.ones(1, 3).bool(), r"bool \[1, 3\]: expected .*\[1, 2\]"),
    ):
        with pytest.raises(InputError, match=message):
            statistics.add(record, deciding)
    with pytest.raises(StateError):
        statistics.result()
    statistics.add(by_hand(PAIR))
    with pytest.raises(InputError, match="for each choice of heads"):
        statistics.add(by_hand(PAIR, heads={0: (1, 2)}))
    assert statistics.result().examples == 1


# -- one example -------------------------------------------------------------------------------------------------------

MAPS = 12


def captured(batch, what):
    model = build_model("bert", dtype=torch.float64).eval()
    with torch.no_grad(), hw.capture(model, what=what) as record:
        model(**batch)
    return record


def close(first, second):
    torch.testing.assert_close(first, second, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("example", "tokens"), [(0, 12), (2, 6)])
def test_vectors_and_mean_map_of_an_example(batch, example, tokens):
    received, maps = captured(batch, "received"), captured(batch, "map")
    vectors = head_vectors(received, example)
    assert vectors.shape == (MAPS, tokens)
    close(vectors, received.stacked()[example, :, :tokens] / tokens)  # every token gives one, so `tokens` come in
    total = torch.zeros(tokens, tokens).double()
    for layer, head in maps.maps:
        total += maps[layer][example, head, :tokens, :tokens]
    close(mean_map(maps, example), total / MAPS)
    for question, record, other, what in (
        (head_vectors, received, maps, "received"),
        (mean_map, maps, received, "map"),
    ):
        with pytest.raises(InputError, match=f"capture it with what='{what}'"):
            question(other, 0)
        with pytest.raises(InputError, match="it holds 0 to 2"):
            question(record, 3)


# -- principal components ----------------------------------------------------------------------------------------------


def test_components_equal_the_eigenvectors_of_the_covariance():
    vectors = torch.randn(20, 7, dtype=torch.float64)
    coordinates, explained = principal_components(vectors, 3)
    centred = vectors - vectors.mean(0)
    values, axes = torch.linalg.eigh(centred.T @ centred)  # ascending
    close(coordinates.abs(), (centred @ axes[:, -3:].flip(1)).abs())
    close(explained, values[-3:].flip(0) / values.sum())
    # Two tokens: what one gets the other loses, so both entries of the axis are equal but for rounding.
    for first in torch.rand(50, 6, dtype=torch.float64):
        coordinates, _ = principal_components(torch.stack([first, 1 - first], 1))
        assert (coordinates[:, 0].argsort() == first.argsort()).all()


def test_points_that_agree_and_axes_that_are_missing_give_zero():
    coordinates, explained = principal_components(torch.ones(4, 3), 2)
    assert coordinates.shape == (4, 2)
    assert not coordinates.any()
    assert not explained.any()
    coordinates, explained = principal_components(torch.tensor([[1.0], [3.0]]), 2)
    close(coordinates, torch.tensor([[-1.0, 0.0], [1.0, 0.0]]).double())
    close(explained, torch.tensor([1.0, 0.0]).double())
    for shape, count in (((3,), 2), ((0, 3), 2), ((3, 3), 0)):
        with pytest.raises(InputError, match=r"expected vectors \[M,T\]"):
            principal_components(torch.ones(shape), count)
