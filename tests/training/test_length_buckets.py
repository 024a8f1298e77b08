"""Batches of similar lengths: every example once, in an order that seed and epoch alone decide."""

import random

import numpy
import pytest
import torch
from accelerate import Accelerator, skip_first_batches
from accelerate.data_loader import BatchSamplerShard
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from headwise.training.trainer import WINDOW, LengthBuckets

LENGTHS = st.lists(st.integers(1, 500), max_size=300)
SIZES = st.integers(1, 40)
SEEDS = st.integers(0, 2**32 - 1)


def batches_of(lengths, batch, seed=0, epoch=0, **options):
    sampler = LengthBuckets(lengths, batch, seed, **options)
    sampler.set_epoch(epoch)
    return list(sampler)


def some_lengths(count, seed=1):
    return numpy.random.default_rng(seed).integers(5, 200, count).tolist()


def padding(lengths, batches):
    return sum(max(lengths[each] for each in batch) - lengths[each] for batch in batches for each in batch)


@settings(max_examples=60, deadline=None)
@given(LENGTHS, SIZES, SEEDS, st.integers(0, 9), st.booleans())
def test_every_example_once_per_epoch(lengths, batch, seed, epoch, by_length):
    found = batches_of(lengths, batch, seed, epoch, by_length=by_length)
    assert sorted(each for group in found for each in group) == list(range(len(lengths)))
    assert len(found) == len(LengthBuckets(lengths, batch, seed))
    assert all(len(group) == batch for group in found[:-1])  # only the last may be short
    assert all(type(each) is int for group in found for each in group)


@settings(max_examples=60, deadline=None)
@given(LENGTHS, SIZES, SEEDS, st.integers(0, 9))
def test_the_order_is_a_function_of_seed_and_epoch(lengths, batch, seed, epoch):
    sampler = LengthBuckets(lengths, batch, seed)
    for earlier in range(epoch):  # what was walked before does not matter, nor do other random numbers
        sampler.set_epoch(earlier)
        next(iter(sampler), None)
    torch.rand(1), random.random(), numpy.random.rand()
    sampler.set_epoch(epoch)
    assert list(sampler) == list(sampler) == batches_of(lengths, batch, seed, epoch)


@pytest.mark.parametrize("by_length", [True, False])
def test_seeds_and_epochs_differ(by_length):
    lengths = some_lengths(100)
    orders = [
        batches_of(lengths, 8, seed, epoch, by_length=by_length) for seed, epoch in [(0, 0), (0, 1), (1, 0), (1, 1)]
    ]
    assert all(orders[first] != orders[second] for first in range(4) for second in range(first))


def test_it_leaves_other_peoples_random_numbers_alone():
    torch.manual_seed(3)
    numpy.random.seed(3)
    expected = torch.rand(1), numpy.random.rand()
    torch.manual_seed(3)
    numpy.random.seed(3)
    batches_of(some_lengths(50), 8)
    assert (torch.rand(1), numpy.random.rand()) == expected


def test_little_is_padding():
    lengths = some_lengths(3000)
    mine = padding(lengths, batches_of(lengths, 16))
    shuffled = padding(lengths, batches_of(lengths, 16, by_length=False))
    assert mine < shuffled / 20


def test_company_changes_from_epoch_to_epoch():
    lengths = some_lengths(3000)
    company = [{frozenset(batch) for batch in batches_of(lengths, 16, epoch=epoch)} for epoch in range(2)]
    assert len(company[0] & company[1]) < 3


def test_long_and_short_batches_come_in_any_order():
    """Training must not begin with all short texts and end with all long ones."""
    lengths = some_lengths(16 * WINDOW)  # one window, so all is sorted
    means = [numpy.mean([lengths[each] for each in batch]) for batch in batches_of(lengths, 16)]
    assert abs(numpy.corrcoef(means, range(len(means)))[0, 1]) < 0.4


def test_without_length_it_is_a_plain_shuffle():
    lengths = some_lengths(203)
    order = [each for batch in batches_of(lengths, 8, by_length=False) for each in batch]
    assert order == numpy.random.default_rng([0, 0]).permutation(203).tolist()
    assert batches_of([7] * 203, 8, by_length=False) == batches_of(lengths, 8, by_length=False)


# -- through accelerate, as the Trainer does it --------------------------------------------------------------------


def prepared(lengths, batch=4, seed=5):
    sampler = LengthBuckets(lengths, batch, seed)
    loader = DataLoader(list(range(len(lengths))), batch_sampler=sampler, collate_fn=list)
    return Accelerator(cpu=True).prepare(loader)


def test_accelerate_walks_the_same_batches():
    lengths = some_lengths(30)
    loader = prepared(lengths)
    assert len(loader) == 8
    for epoch in (0, 1, 4):
        loader.set_epoch(epoch)
        assert list(loader) == batches_of(lengths, 4, 5, epoch)


@pytest.mark.parametrize("epoch", [0, 3])
def test_a_resumed_epoch_goes_on_where_it_was(epoch):
    lengths = some_lengths(30)
    rest = skip_first_batches(prepared(lengths), 3)
    # These lines are the Trainer's.
    if hasattr(rest, "set_epoch"):
        rest.set_epoch(epoch)
    underlying = getattr(getattr(rest, "batch_sampler", None), "batch_sampler", None)
    if hasattr(underlying, "set_epoch"):
        underlying.set_epoch(epoch)
    assert list(rest) == batches_of(lengths, 4, 5, epoch)[3:]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 90), SEEDS, st.integers(2, 3))
def test_several_processes_lose_no_example(count, seed, processes):
    """accelerate fills up what does not divide, but must not drop anything: a short batch in the middle would."""
    lengths = some_lengths(count, seed)
    shares = [
        list(BatchSamplerShard(LengthBuckets(lengths, 4, seed), processes, number)) for number in range(processes)
    ]
    assert len({len(share) for share in shares}) == 1
    assert {each for share in shares for batch in share for each in batch} == set(range(count))
    assert len(shares[0]) == -(-len(LengthBuckets(lengths, 4, seed)) // processes)
