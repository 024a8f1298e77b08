"""The token loss: by hand, against torch's own cross-entropy, and where nothing is labelled."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from headwise.ssa.model import IGNORED, token_loss


def logits_for(*scores):
    """[1,T,2] logits whose second softmax entry is the score."""
    return torch.tensor([[[0.0, math.log(score / (1 - score))] for score in scores]])


def test_by_hand():
    """-(log .8 + log .7 + (.25 log .6 + .75 log .4)) / 3; the last token is not labelled."""
    loss = token_loss(logits_for(0.8, 0.3, 0.6, 0.9), torch.tensor([[1.0, 0.0, 0.25, IGNORED]]))
    soft = 0.25 * math.log(0.6) + 0.75 * math.log(0.4)
    assert float(loss) == pytest.approx(-(math.log(0.8) + math.log(0.7) + soft) / 3, rel=1e-6)


@pytest.mark.parametrize("kind", [torch.float32, torch.int64])
def test_with_hard_labels_it_is_the_cross_entropy_over_all_labelled_tokens(kind):
    logits = torch.randn(4, 7, 2, requires_grad=True)
    labels = torch.randint(0, 2, (4, 7)).masked_fill(torch.rand(4, 7) < 0.4, -100)
    expected = cross_entropy(logits.flatten(0, 1), labels.flatten())
    found = token_loss(logits, labels.to(kind))
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(each, logits)[0] for each in (found, expected)]
    torch.testing.assert_close(*gradients)
    assert not gradients[0][labels == -100].any()


def test_long_texts_weigh_more():
    """A flat mean over the batch, not a mean of the examples' means."""
    logits = torch.cat([logits_for(0.9, 0.9, 0.9), logits_for(0.5, 0.5, 0.5)])
    labels = torch.tensor([[1.0, 1.0, 1.0], [1.0, IGNORED, IGNORED]])
    assert float(token_loss(logits, labels)) == pytest.approx(-(3 * math.log(0.9) + math.log(0.5)) / 4, rel=1e-6)


def test_without_a_labelled_token_it_is_nothing_and_has_no_gradient():
    logits = torch.randn(2, 3, 2, requires_grad=True)
    loss = token_loss(logits, torch.full((2, 3), IGNORED))
    loss.backward()
    assert loss.item() == 0
    assert not logits.grad.any()


def test_it_is_finite_where_the_head_is_sure_and_wrong():
    logits = torch.tensor([[[60.0, -60.0], [-60.0, 60.0]]])
    assert float(token_loss(logits, torch.tensor([[1.0, 1.0]]))) == pytest.approx(60)
