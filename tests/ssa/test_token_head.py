"""The token head, pooling by its scores, and the token loss: each against a slow reference."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from headwise.ssa.config import SSA
from headwise.ssa.model import IGNORED, TokenHead, kept_tokens, pool, token_loss


def lively(head):
    """Every weight away from what it starts with, so that nothing is zero or one by chance."""
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return head


def slowly(head, state, position):
    """The two numbers of one token, from the formula: z = V LayerNorm(gelu(U h + a)) + c."""
    inner = [
        sum(float(weight) * float(value) for weight, value in zip(row, state, strict=True)) + float(bias)
        for row, bias in zip(head.transform.weight, head.transform.bias, strict=True)
    ]
    curved = [0.5 * each * (1 + math.erf(each / math.sqrt(2))) for each in inner]
    mean = sum(curved) / len(curved)
    variance = sum((each - mean) ** 2 for each in curved) / len(curved)
    scaled = [(each - mean) / math.sqrt(variance + head.norm.eps) for each in curved]
    hidden = [
        each * float(weight) + float(bias)
        for each, weight, bias in zip(scaled, head.norm.weight, head.norm.bias, strict=True)
    ]
    decoder, bias = head.decoder, head.decoder_bias
    if head.positions is not None:
        decoder, bias = decoder[position], bias[position]
    return [
        sum(float(weight) * each for weight, each in zip(row, hidden, strict=True)) + float(add)
        for row, add in zip(decoder, bias, strict=True)
    ]


@pytest.mark.parametrize("positions", [None, 4])
def test_it_is_a_slow_loop_over_tokens(positions):
    head = lively(TokenHead(6, positions=positions).double()).requires_grad_(False)
    states, where = torch.randn(2, 3, 6, dtype=torch.float64), torch.tensor([[0, 1, 2], [3, 0, 1]])
    found = head(states, where)
    assert found.shape == (2, 3, 2)
    for example in range(2):
        for token in range(3):
            expected = slowly(head, states[example, token], int(where[example, token]))
            assert found[example, token].tolist() == pytest.approx(expected, abs=1e-10)


# -- pooling -------------------------------------------------------------------------------------------------------


def weights_of(values, kept):
    """The pooling weights, by pooling unit vectors."""
    return pool(torch.eye(values.shape[1], dtype=values.dtype).expand(len(values), -1, -1), values, kept)


def slow_pooling(values, scores, eligible, options):
    """One example, one token at a time."""
    text = [index for index in range(len(scores)) if eligible[index]]
    least = options.attention_threshold
    if least is None and text:
        least = sorted(scores[index] for index in text)[math.floor(options.attention_quantile * (len(text) - 1))]
    kept = [index for index in text if scores[index] >= least] or text
    total = sum(math.exp(values[index]) for index in kept)
    return [math.exp(values[index]) / total if index in kept else 0.0 for index in range(len(scores))]


@pytest.mark.parametrize(
    "options",
    [{"attention_threshold": 0.4}, {}, *({"attention_quantile": part} for part in (0, 0.25, 0.8, 1))],
    ids=str,
)
def test_pooling_is_the_slow_reference_on_random_input(options):
    options = SSA(**options)
    scores, values = torch.rand(6, 9, dtype=torch.float64), 5 * torch.randn(6, 9, dtype=torch.float64)
    eligible, states = torch.rand(6, 9) < 0.7, torch.randn(6, 9, 4, dtype=torch.float64)
    scores[0], eligible[1] = 0.1, False  # none reaches the threshold, and all are the quantile; no text
    kept = kept_tokens(scores, eligible, options)
    assert not kept[1].any()
    assert torch.equal(kept[0], eligible[0])
    for row in range(6):
        weights = slow_pooling(values[row].tolist(), scores[row].tolist(), eligible[row].tolist(), options)
        assert weights_of(values, kept)[row].tolist() == pytest.approx(weights, abs=1e-12)
        context = torch.tensor(weights, dtype=torch.float64) @ states[row]
        assert pool(states, values, kept)[row].tolist() == pytest.approx(context.tolist(), abs=1e-12)


def test_pooling_has_a_finite_gradient_to_the_scores_but_not_through_the_threshold():
    scores = torch.tensor([[0.2, 0.5, 0.9], [0.2, 0.5, 0.9]], dtype=torch.float64, requires_grad=True)
    text = torch.tensor([[True] * 3, [False] * 3])
    weights = weights_of(scores, kept_tokens(scores, text, SSA(attention_threshold=0.3)))
    (weights[0, 1] + weights[1].sum()).backward()
    first = weights[0, 1].item()
    assert scores.grad[0].tolist() == pytest.approx([0, first * (1 - first), -first * (1 - first)])
    assert scores.grad[1].tolist() == weights[1].tolist() == [0, 0, 0]  # an example without text


# -- the token loss ------------------------------------------------------------------------------------------------


def logits_for(*scores):
    """[1,T,2] logits whose second softmax entry is the score."""
    return torch.tensor([[[0.0, math.log(score / (1 - score))] for score in scores]])


def test_the_loss_by_hand():
    """-(log .8 + log .7 + (.25 log .6 + .75 log .4)) / 3; the last token is not labelled."""
    loss = token_loss(logits_for(0.8, 0.3, 0.6, 0.9), torch.tensor([[1.0, 0.0, 0.25, IGNORED]]))
    soft = 0.25 * math.log(0.6) + 0.75 * math.log(0.4)
    assert float(loss) == pytest.approx(-(math.log(0.8) + math.log(0.7) + soft) / 3, rel=1e-6)


def test_with_hard_labels_it_is_the_cross_entropy_over_all_labelled_tokens():
    """A flat mean over the batch, not a mean of the examples' means."""
    logits = torch.randn(4, 7, 2, requires_grad=True)
    labels = torch.randint(0, 2, (4, 7)).masked_fill(torch.rand(4, 7) < 0.4, -100)
    expected = cross_entropy(logits.flatten(0, 1), labels.flatten())
    actual = token_loss(logits, labels.float())
    torch.testing.assert_close(actual, expected)
    gradients = [torch.autograd.grad(each, logits)[0] for each in (actual, expected)]
    torch.testing.assert_close(*gradients)
    assert not gradients[0][labels == -100].any()


def test_without_a_labelled_token_the_loss_is_0_and_has_no_gradient():
    logits = torch.randn(2, 3, 2, requires_grad=True)
    loss = token_loss(logits, torch.full((2, 3), IGNORED))
    loss.backward()
    assert loss.item() == 0
    assert not logits.grad.any()
    sure_and_wrong = torch.tensor([[[60.0, -60.0], [-60.0, 60.0]]])
    assert float(token_loss(sure_and_wrong, torch.tensor([[1.0, 1.0]]))) == pytest.approx(60)
