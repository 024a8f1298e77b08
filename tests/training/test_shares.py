"""Shares of a batch: all of it, each example once, and together the gradient of the whole."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader

from headwise.training.batches import LengthBuckets, TaskBatches
from headwise.training.distributed import SHARE, SharedCollator, SharedData, Shares, weighed_gradients

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=90)


def shares_of(sampler, processes, sizes=None):
    """For each batch, what the processes do of it."""
    found = [list(Shares(sampler, rank, processes, sizes)) for rank in range(processes)]
    assert {len(each) for each in found} == {len(sampler)}
    return list(zip(*found, strict=True))


def own(share):
    return share.places if share.items else []


@settings(max_examples=60, deadline=None)
@given(LENGTHS, st.integers(1, 9), st.integers(2, 5), st.integers(0, 3), st.booleans())
def test_together_they_are_the_batches_of_one_process(lengths, batch, processes, epoch, by_length):
    sampler = LengthBuckets(lengths, batch * processes, seed=1, by_length=by_length)
    sampler.set_epoch(epoch)
    shares = shares_of(sampler, processes)
    whole = list(sampler)
    assert [sorted(place for share in each for place in own(share)) for each in shares] == [sorted(it) for it in whole]
    assert sorted(place for each in shares for share in each for place in own(share)) == list(range(len(lengths)))
    for each, places in zip(shares, whole, strict=True):
        sizes = [len(own(share)) for share in each]
        assert max(sizes) - min(sizes) <= 1
        assert max(sizes) <= batch
        assert all(share.places and set(share.places) <= set(places) for share in each)
        assert [share.weight for share in each] == pytest.approx([processes * size / len(places) for size in sizes])
        assert all(share.item_weight == 1.0 for share in each)


@settings(max_examples=30, deadline=None)
@given(LENGTHS, LENGTHS, st.integers(1, 3), st.integers(1, 3))
def test_all_shares_of_a_batch_belong_to_one_task(first, second, batch, accumulation):
    lengths = {"a": first, "b": second}
    options = {"accumulation": accumulation, "sampling": "proportional", "epochs": 1, "seed": 3}
    sampler = TaskBatches(lengths, batch=2 * batch, **options)
    for each in shares_of(sampler, 2):
        assert len({place < len(first) for share in each for place in share.places}) == 1


def test_items_of_several_examples():
    """Claims of 2, 3 and 4 pairs: what is a mean over pairs counts by pairs, what is one over claims by claims."""
    (each,) = shares_of(LengthBuckets([1, 2, 3], 3, seed=0), 2, sizes=[2, 3, 4])
    pairs = [sum((2, 3, 4)[place] for place in share.places) for share in each]
    assert sum(pairs) == 9
    assert [share.weight for share in each] == pytest.approx([2 * count / 9 for count in pairs])
    assert [share.weight * share.item_weight for share in each] == pytest.approx([2 * 2 / 3, 2 * 1 / 3])


def test_a_share_goes_into_its_batch_and_out_of_order_nothing():
    data = [{"x": float(number)} for number in range(7)]
    sampler = LengthBuckets([1] * 7, 4, seed=0)
    loader = DataLoader(
        SharedData(data),
        batch_sampler=Shares(sampler, 1, 2),
        collate_fn=SharedCollator(lambda items: {"x": torch.tensor([item["x"] for item in items])}),
    )
    assert len(loader) == 2
    for batch, places in zip(loader, sampler, strict=True):
        assert batch["x"].tolist() == places[1::2] == batch[SHARE].places


@pytest.mark.parametrize("count", [1, 2, 5, 7, 12])
@pytest.mark.parametrize("processes", [2, 3, 4])
def test_the_mean_of_weighed_gradients_is_that_of_the_whole_batch(count, processes):
    torch.manual_seed(count)
    model, inputs, targets = torch.nn.Linear(3, 1), torch.randn(count, 3), torch.randn(count, 1)
    wanted = torch.autograd.grad(mse_loss(model(inputs), targets), list(model.parameters()))
    measured, accumulated = [], []
    (each,) = shares_of(LengthBuckets([1] * count, count, seed=0), processes)
    for share in each:
        model.zero_grad()
        with weighed_gradients(model, share.weight):
            loss = mse_loss(model(inputs[share.places]), targets[share.places])
            measured.append(torch.autograd.grad(loss, list(model.parameters()), retain_graph=True))
            loss.backward()
        accumulated.append([parameter.grad.clone() for parameter in model.parameters()])
    for found in (measured, accumulated):
        for place, gradient in enumerate(wanted):
            mean = torch.stack([parts[place] for parts in found]).mean(0)
            torch.testing.assert_close(mean, gradient, rtol=1e-5, atol=1e-6)


def test_afterwards_gradients_are_as_before():
    model = torch.nn.Linear(2, 1)
    with pytest.raises(ZeroDivisionError), weighed_gradients(model, 0.0):
        raise ZeroDivisionError
    model(torch.ones(1, 2)).sum().backward()
    assert model.weight.grad.tolist() == [[1.0, 1.0]]
