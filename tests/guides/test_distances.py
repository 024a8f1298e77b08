"""Distances: plain loops, derivatives by finite differences, numbers by hand."""

import math

import pytest
import torch

from headwise.guides.match import DISTANCES

EVERY = pytest.mark.parametrize("name", DISTANCES)


def distributions(*shape):
    """Random ones, none of whose entries is near zero: there finite differences are too coarse."""
    return (torch.rand(*shape, dtype=torch.float64) + 0.2).softmax(-1)


def targets(*shape):
    """Distributions of which about half the entries are zero."""
    weights = torch.rand(*shape, dtype=torch.float64) * (torch.rand(*shape) < 0.5)
    weights[..., 0] += 0.1
    return weights / weights.sum(-1, keepdim=True)


def slow(name, attention, target):
    """One number for two lists of numbers."""
    if name == "mse":
        return sum((a - t) ** 2 for a, t in zip(attention, target, strict=True))
    if name == "kl":
        return sum(t * math.log(t / a) for a, t in zip(attention, target, strict=True) if t > 0)
    inner = sum(a * t for a, t in zip(attention, target, strict=True))
    return 1 - inner / math.sqrt(sum(a * a for a in attention) * sum(t * t for t in target))


@EVERY
def test_equals_plain_loops(name):
    attention, target = distributions(3, 4, 5, 7), targets(3, 4, 5, 7)
    actual = DISTANCES[name](attention, target)
    assert actual.shape == (3, 4, 5)
    for place in torch.cartesian_prod(*map(torch.arange, (3, 4, 5))).tolist():
        expected = slow(name, attention[tuple(place)].tolist(), target[tuple(place)].tolist())
        assert actual[tuple(place)].item() == pytest.approx(expected, rel=1e-12)


@EVERY
def test_the_derivative_is_that_of_finite_differences_and_keeps_and_changes_nothing(name):
    attention, target = distributions(3, 4, 5, 6).requires_grad_(), targets(3, 1, 5, 6)
    assert (target == 0).any()
    before, kept = (attention.detach().clone(), target.clone()), []
    assert torch.autograd.gradcheck(lambda each: DISTANCES[name](each, target), attention)
    with torch.autograd.graph.saved_tensors_hooks(lambda each: kept.append(each.data_ptr()) or each, lambda each: each):
        DISTANCES[name](attention, target).sum().backward()
    assert kept == [attention.data_ptr(), target.data_ptr()]
    assert torch.equal(attention, before[0])
    assert torch.equal(target, before[1])


def test_zero_attention_is_finite_under_kl_and_has_no_derivative():
    attention = torch.tensor([[0.0, 0.5, 0.5], [0.0, 0.0, 1.0]], requires_grad=True)
    target = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    value = DISTANCES["kl"](attention, target)
    lowest = torch.finfo(torch.float32).tiny
    assert value.tolist() == pytest.approx([0.5 * math.log(0.5 / lowest), -math.log(lowest)], rel=1e-6)
    value.sum().backward()
    assert attention.grad.tolist() == [[0.0, -1.0, 0.0], [0.0, 0.0, 0.0]]


@EVERY
def test_rows_of_nothing_are_finite_and_so_are_their_derivatives(name):
    """A row without a target, which a weight of zero takes out, and a row of which dropout left nothing."""
    attention = distributions(2, 5).float().requires_grad_()
    value = DISTANCES[name](attention, torch.zeros(2, 5))
    assert value.isfinite().all()
    (value * 0).sum().backward()
    assert not attention.grad.any()
    attention = torch.zeros(1, 4, requires_grad=True)
    value = DISTANCES[name](attention, torch.tensor([[0.5, 0.5, 0.0, 0.0]]))
    assert value.isfinite()
    value.backward()
    assert attention.grad.abs().max() <= 1  # and not some power of ten that the next product makes infinite
