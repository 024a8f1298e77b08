"""The token head, with one decoder for all positions or one for each."""

import math

import pytest
import torch

from headwise.errors import InputError
from headwise.ssa.model import TokenHead


def lively(head):
    """Every weight away from what it starts with, so that nothing is zero or one by chance."""
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return head


def slowly(head, state, place):
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
        decoder, bias = decoder[place], bias[place]
    return [
        sum(float(weight) * each for weight, each in zip(row, hidden, strict=True)) + float(add)
        for row, add in zip(decoder, bias, strict=True)
    ]


@pytest.mark.parametrize("positions", [None, 4])
def test_it_is_a_slow_loop_over_tokens(positions):
    head = lively(TokenHead(6, positions=positions).double()).requires_grad_(False)
    states, places = torch.randn(2, 3, 6, dtype=torch.float64), torch.tensor([[0, 1, 2], [3, 0, 1]])
    found = head(states, places)
    assert found.shape == (2, 3, 2)
    for example in range(2):
        for token in range(3):
            expected = slowly(head, states[example, token], int(places[example, token]))
            assert found[example, token].tolist() == pytest.approx(expected, abs=1e-10)


def test_as_many_parameters_as_the_authors_have():
    """593 666 shared; theirs has 788 736 with 128 decoders, and no bias in these: 256 numbers fewer than ours."""
    count = [sum(each.numel() for each in TokenHead(768, positions=some).parameters()) for some in (None, 128)]
    assert count == [593_666, 788_736 + 2 * 128]


def test_fresh_weights():
    head = TokenHead(64, positions=50, spread=0.02)
    assert float(head.transform.weight.detach().std()) == pytest.approx(0.02, rel=0.05)
    assert float(head.decoder.detach().std()) == pytest.approx(0.02, rel=0.05)
    assert not head.transform.bias.any()
    assert not head.decoder_bias.any()


def test_without_positions_of_their_own_the_place_does_not_matter():
    head, states = lively(TokenHead(6)), torch.randn(1, 3, 6)
    assert torch.equal(head(states, torch.tensor([[0, 1, 2]])), head(states, torch.tensor([[2, 999, 0]])))


def test_only_the_decoders_of_places_that_were_there_learn():
    head = TokenHead(6, positions=5)
    head(torch.randn(1, 3, 6), torch.tensor([[0, 1, 3]])).sum().backward()
    assert head.decoder.grad.flatten(1).any(1).tolist() == [True, True, False, True, False]
    assert head.decoder_bias.grad.any(1).tolist() == [True, True, False, True, False]


def test_a_longer_text_than_there_are_decoders():
    head = TokenHead(6, positions=3)
    # A batch may be wider than that, as long as only padding is.
    assert head(torch.randn(1, 5, 6), torch.tensor([[0, 1, 2, 2, 2]])).shape == (1, 5, 2)
    with pytest.raises(InputError, match=r"4 tokens long.*each of 3 positions \(share_weight: false\).*max_length=3"):
        head(torch.randn(1, 5, 6), torch.tensor([[0, 1, 2, 3, 3]]))
