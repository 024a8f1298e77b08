"""Vectors, points and mean maps of one example."""

import pytest
import torch
from conftest import build_batch, build_model
from guides.reference import random_maps, record_of

import headwise as hw
from headwise.errors import InputError
from headwise.heads import head_vectors, mean_map, principal_components

MAPS = 12


def seen(batch, what):
    model = build_model("bert", dtype=torch.float64).eval()
    with torch.no_grad(), hw.capture(model, what=what) as record:
        model(**batch)
    return record


def close(first, second):
    torch.testing.assert_close(first, second, rtol=1e-10, atol=1e-10)


# -- vectors and maps of one example -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("example", "tokens"), [(0, 12), (1, 9), (2, 6)])
def test_vectors_are_received_attention_that_sums_to_one(batch, example, tokens):
    record = seen(batch, "received")
    vectors = head_vectors(record, example)
    assert vectors.shape == (MAPS, tokens)
    close(vectors, record.stacked()[example, :, :tokens] / tokens)  # every token gives one, so `tokens` come in
    close(vectors.sum(1), torch.ones(MAPS).double())


@pytest.mark.parametrize("example", [0, 1, 2])
def test_mean_map_is_the_mean_over_heads_and_layers(batch, example):
    record = seen(batch, "map")
    tokens = int(record.valid[example].sum())
    total = torch.zeros(tokens, tokens).double()
    for layer, head in record.maps:
        total += record[layer][example, head, :tokens, :tokens]
    close(mean_map(record, example), total / MAPS)
    close(mean_map(record, example).sum(1), torch.ones(tokens).double())


@pytest.mark.parametrize("padding", [0, 5])
def test_padding_and_the_rest_of_the_batch_change_nothing(batch, padding):
    padded = build_batch(padding=padding)
    alone = {name: value[1:2, :9] if value.dim() == 2 else value[1:2] for name, value in batch.items()}
    close(head_vectors(seen(padded, "received"), 1), head_vectors(seen(alone, "received"), 0))
    close(mean_map(seen(padded, "map"), 1), mean_map(seen(alone, "map"), 0))


def test_padding_on_the_left_is_cut_too():
    valid = torch.tensor([[False, False, True, True]])
    maps = random_maps(valid).detach()
    close(mean_map(record_of(maps, valid, what="map"), 0), maps[0, :, 2:, 2:].mean(0))
    close(head_vectors(record_of(maps, valid), 0), maps[0, :, 2:, 2:].sum(1) / 2)


@pytest.mark.parametrize(("question", "what"), [(head_vectors, "received"), (mean_map, "map")])
def test_what_is_refused(batch, question, what):
    other = {"received": "map", "map": "received"}[what]
    with pytest.raises(InputError, match=f"capture it with what='{what}'"):
        question(seen(batch, other), 0)
    for example in (-1, 3):
        with pytest.raises(InputError, match="it holds 0 to 2"):
            question(seen(batch, what), example)


# -- principal components ----------------------------------------------------------------------------------------------


def test_components_equal_the_eigenvectors_of_the_covariance():
    vectors = torch.randn(20, 7, dtype=torch.float64)
    coordinates, explained = principal_components(vectors, 3)
    centred = vectors - vectors.mean(0)
    values, axes = torch.linalg.eigh(centred.T @ centred)  # ascending
    close(coordinates.abs(), (centred @ axes[:, -3:].flip(1)).abs())
    close(explained, values[-3:].flip(0) / values.sum())


def test_points_on_a_line_worked_by_hand():
    vectors = torch.tensor([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]])
    coordinates, explained = principal_components(vectors, 2)
    close(coordinates, torch.tensor([[-5.0, 0.0], [0.0, 0.0], [5.0, 0.0]]).double())
    close(explained, torch.tensor([1.0, 0.0]).double())


def test_the_sign_does_not_depend_on_the_order_of_the_points():
    vectors, order = torch.rand(30, 8), torch.randperm(30)
    close(principal_components(vectors[order])[0], principal_components(vectors)[0][order])


def test_of_equal_entries_the_first_is_positive():
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


@pytest.mark.parametrize(("shape", "count"), [((3,), 2), ((0, 3), 2), ((3, 3), 0)])
def test_bad_vectors_are_refused(shape, count):
    with pytest.raises(InputError, match=r"expected vectors \[M,T\]"):
        principal_components(torch.ones(shape), count)
