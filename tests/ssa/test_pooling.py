"""Pooling by scores: the worked example, a slow reference, and what happens where nothing is kept."""

import math

import pytest
import torch

from headwise.ssa.model import blend, kept_tokens, pooled, pooling_weights

# The worked example of the authors' formulas: five tokens, of which the middle three are text.
SCORES = torch.tensor([[0.9, 0.8, 0.2, 0.6, 0.95]])
TEXT = torch.tensor([[False, True, True, True, False]])
STATES = torch.tensor([[[9.0, 9.0], [1.0, 0.0], [7.0, 7.0], [0.0, 1.0], [5.0, 5.0]]])


def test_the_worked_example():
    kept = kept_tokens(SCORES, TEXT, 0.3)
    assert kept.tolist() == [[False, True, False, True, False]]
    weights = pooling_weights(SCORES, kept)
    assert weights[0].tolist() == pytest.approx([0, 0.549834, 0, 0.450166, 0], abs=1e-6)
    mixed = blend(torch.tensor([[0.2, -0.4]]), pooled(STATES, weights), 0.5, TEXT.any(1))
    assert mixed[0].tolist() == pytest.approx([0.374917, 0.025083], abs=1e-6)


def slowly(values, scores, eligible, threshold, states):
    """One example, one token at a time."""
    kept = [place for place in range(len(scores)) if eligible[place] and scores[place] >= threshold]
    kept = kept or [place for place in range(len(scores)) if eligible[place]]
    total = sum(math.exp(values[place]) for place in kept)
    weights = [math.exp(values[place]) / total if place in kept else 0.0 for place in range(len(scores))]
    context = [sum(weight * state[d] for weight, state in zip(weights, states, strict=True)) for d in range(4)]
    return [place in kept for place in range(len(scores))], weights, context


def test_it_is_the_slow_reference_on_random_input():
    scores, values = torch.rand(6, 9, dtype=torch.float64), 5 * torch.randn(6, 9, dtype=torch.float64)
    eligible, states = torch.rand(6, 9) < 0.7, torch.randn(6, 9, 4, dtype=torch.float64)
    scores[0], eligible[1] = 0.1, False  # none reaches the threshold; no text
    kept = kept_tokens(scores, eligible, 0.4)
    weights = pooling_weights(values, kept)
    context = pooled(states, weights)
    assert not kept[1].any()
    assert torch.equal(kept[0], eligible[0])
    for row in range(6):
        rows = (values[row].tolist(), scores[row].tolist(), eligible[row].tolist())
        expected = slowly(*rows, 0.4, states[row].tolist())
        assert kept[row].tolist() == expected[0]
        assert weights[row].tolist() == pytest.approx(expected[1], abs=1e-12)
        assert context[row].tolist() == pytest.approx(expected[2], abs=1e-12)


def test_a_score_at_the_threshold_is_kept():
    assert kept_tokens(torch.tensor([[0.5, 0.25]]), torch.ones(1, 2, dtype=torch.bool), 0.5).tolist() == [[True, False]]


def test_nothing_outside_of_the_text_gets_weight_where_no_token_reaches_the_threshold():
    kept = kept_tokens(SCORES, TEXT, 0.99)
    assert torch.equal(kept, TEXT)
    weights = pooling_weights(SCORES, kept)
    assert float(weights.sum()) == pytest.approx(1)
    assert weights[~TEXT].tolist() == [0, 0]


def test_the_softmax_is_over_whatever_it_is_given():
    kept = torch.tensor([[True, True, False, True]])
    logits = torch.tensor([[math.log(1.0), math.log(2.0), 50.0, math.log(5.0)]])
    assert pooling_weights(logits, kept)[0].tolist() == pytest.approx([1 / 8, 2 / 8, 0, 5 / 8])
    assert pooling_weights(torch.zeros(1, 4), kept)[0].tolist() == pytest.approx([1 / 3, 1 / 3, 0, 1 / 3])


def test_probabilities_weigh_alike_as_the_authors_softmax_does():
    """At most e^(1 - k) between the largest and the smallest weight."""
    weights = pooling_weights(torch.tensor([[0.3, 1.0]]), torch.ones(1, 2, dtype=torch.bool))
    assert float(weights[0, 1] / weights[0, 0]) == pytest.approx(math.exp(0.7), rel=1e-6)


def test_an_example_without_text_has_the_classifiers_own_vector_and_finite_gradients():
    own = torch.randn(2, 4, requires_grad=True)
    states, scores = torch.randn(2, 3, 4, requires_grad=True), torch.rand(2, 3, requires_grad=True)
    eligible = torch.tensor([[False] * 3, [True] * 3])
    weights = pooling_weights(scores, kept_tokens(scores, eligible, 0.0))
    assert weights[0].tolist() == [0, 0, 0]
    mixed = blend(own, pooled(states, weights), 0.25, eligible.any(1))
    assert torch.equal(mixed[0], own[0])
    mixed.square().sum().backward()
    for each in (own, states, scores):
        assert torch.isfinite(each.grad).all()
        assert each.grad[1].abs().sum() > 0
    assert not states.grad[0].any()
    assert not scores.grad[0].any()


def test_the_weights_have_a_gradient_to_the_scores_but_not_through_the_threshold():
    scores = torch.tensor([[0.2, 0.5, 0.9]], dtype=torch.float64, requires_grad=True)
    text = torch.ones(1, 3, dtype=torch.bool)
    weights = pooling_weights(scores, kept_tokens(scores, text, 0.3))
    weights[0, 1].backward()
    first = weights[0, 1].item()
    assert scores.grad[0].tolist() == pytest.approx([0, first * (1 - first), -first * (1 - first)])
