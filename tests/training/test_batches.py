"""Which examples go together: of similar length, one task each, in an order that seed and epoch alone decide."""

import random
from types import SimpleNamespace

import numpy
import pytest
import torch
from accelerate import Accelerator, skip_first_batches
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader
from training.small_task import exact_model, examples, trainer_of
from transformers import Trainer

from headwise.errors import InputError
from headwise.training import Material, run_arguments
from headwise.training.multitask import SAMPLINGS, TaskBatches, exponent, parted, tasks_of_epoch
from headwise.training.run_trainer import WINDOW, LengthBuckets, PartOfBatches

LENGTHS = st.lists(st.integers(1, 500), max_size=300)
SEEDS = st.integers(0, 2**32 - 1)


def batches_of(lengths, batch, seed=0, epoch=0, **options):
    sampler = LengthBuckets(lengths, batch, seed, **options)
    sampler.set_epoch(epoch)
    return list(sampler)


def some_lengths(count, seed=1):
    return numpy.random.default_rng(seed).integers(5, 200, count).tolist()


# -- one task ----------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(LENGTHS, st.integers(1, 40), SEEDS, st.integers(0, 9), st.booleans())
def test_every_example_once_per_epoch_in_an_order_of_seed_and_epoch(lengths, batch, seed, epoch, by_length):
    found = batches_of(lengths, batch, seed, epoch, by_length=by_length)
    assert sorted(each for group in found for each in group) == list(range(len(lengths)))
    sampler = LengthBuckets(lengths, batch, seed, by_length=by_length)
    assert len(found) == len(sampler)
    assert all(len(group) == batch for group in found[:-1])  # only the last may be short
    assert all(type(each) is int for group in found for each in group)
    for earlier in range(epoch):  # batches read before do not matter, nor do other random numbers
        sampler.set_epoch(earlier)
        next(iter(sampler), None)
    torch.rand(1), random.random(), numpy.random.rand()
    sampler.set_epoch(epoch)
    assert list(sampler) == found


def test_little_is_padding_and_everything_changes_from_epoch_to_epoch():
    def padding(batches):
        return sum(max(lengths[each] for each in batch) - lengths[each] for batch in batches for each in batch)

    lengths = some_lengths(3000)
    mine, other = batches_of(lengths, 16), batches_of(lengths, 16, epoch=1)
    assert padding(mine) < padding(batches_of(lengths, 16, by_length=False)) / 7
    assert len({frozenset(batch) for batch in mine} & {frozenset(batch) for batch in other}) < 3
    assert mine != batches_of(lengths, 16, seed=1)
    lengths = some_lengths(16 * WINDOW)  # one window, so all is sorted, but training does not begin with short texts
    correlations = []
    for epoch in range(50):
        means = [numpy.mean([lengths[each] for each in batch]) for batch in batches_of(lengths, 16, epoch=epoch)]
        correlations.append(numpy.corrcoef(means, range(len(means)))[0, 1])
    assert abs(numpy.mean(correlations)) < 0.2


def test_accelerate_skips_the_batches_of_a_resumed_epoch():
    lengths = some_lengths(30)
    loader = DataLoader(list(range(30)), batch_sampler=LengthBuckets(lengths, 4, 5), collate_fn=list)
    rest = skip_first_batches(Accelerator(cpu=True).prepare(loader), 3)
    rest.batch_sampler.batch_sampler.set_epoch(3)
    assert list(rest) == batches_of(lengths, 4, 5, 3)[3:]


@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), st.integers(1, 5))
def test_processes_share_every_batch(sizes, processes):
    batches = [list(range(100 * number, 100 * number + size)) for number, size in enumerate(sizes)]
    parts = [list(PartOfBatches(batches, rank, processes)) for rank in range(processes)]
    assert {len(part) for part in parts} == {len(batches)}
    for number, batch in enumerate(batches):
        mine = [part[number] for part in parts]
        assert set().union(*map(set, mine)) == set(batch)
        if len(batch) >= processes:  # nothing twice, and sizes differ by one at most
            assert sorted(sum(mine, [])) == batch
            assert max(map(len, mine)) - min(map(len, mine)) <= 1
        else:  # all take the same steps, so some repeat the first example
            assert all(part == [batch[0]] for part in mine[len(batch) :])


# -- steps, epochs and warm-up -----------------------------------------------------------------------------------------


def arguments(count, **training):
    material = Material(None, {"only": SimpleNamespace(train=range(count))})
    return run_arguments({"warmup_steps": 0.1, "per_device_train_batch_size": 8, **training}, material, "folder")


def test_steps_of_a_run():
    assert arguments(17, num_train_epochs=3).max_steps == 9  # 3 batches, the last of one example
    assert arguments(17, num_train_epochs=3, gradient_accumulation_steps=2).max_steps == 6
    assert arguments(1000, num_train_epochs=None, max_steps=5).max_steps == 5
    assert arguments(17, num_train_epochs=0.01).max_steps == 1  # never none
    short = arguments(20, num_train_epochs=2, eval_steps=100, save_steps=100)
    assert (short.eval_steps, short.save_steps) == (6, 6)
    assert arguments(20, num_train_epochs=2).eval_steps == 3  # once per epoch
    for warmup, steps in ((0.0, 0), (0.1, 10), (0.999, 100), (1, 1), (25, 25)):
        options = {"per_device_train_batch_size": 1, "num_train_epochs": 1, "warmup_steps": warmup}
        assert arguments(100, **options).warmup_steps == steps


@settings(max_examples=6, deadline=None)
@given(st.integers(1, 32), st.integers(1, 9), st.integers(1, 3))
def test_steps_are_those_that_the_trainer_would_have(tmp_path_factory, count, batch, accumulation):
    training = {
        "per_device_train_batch_size": batch,
        "gradient_accumulation_steps": accumulation,
        "num_train_epochs": 2,
    }
    folder = tmp_path_factory.mktemp("run")
    trainer = trainer_of(Trainer, exact_model(), folder, train_dataset=examples(count), max_steps=-1, **training)
    *_, steps = trainer.set_initial_training_values(trainer.args, trainer.get_train_dataloader())
    assert arguments(count, **training).max_steps == steps


# -- several tasks -----------------------------------------------------------------------------------------------------

# Examples of each task; one smaller than a batch, one that fills its last batch, two that do not.
SIZES = {"large": 45, "even": 24, "odd": 13, "tiny": 3}


def sampler(sizes=SIZES, **changes):
    options = {"batch": 8, "accumulation": 1, "sampling": "proportional", "epochs": 4, "seed": 5} | changes
    lengths = {name: (numpy.arange(size) * 7 % 11 + 3).tolist() for name, size in sizes.items()}
    return TaskBatches(lengths, **options)


def read(batches, epochs):
    """All micro-batches of some epochs, as (task, examples of the task)."""
    found = []
    for epoch in epochs:
        batches.set_epoch(epoch)
        for batch in batches:
            (task,) = {name for name, _ in batch}
            found.append((task, [example for _, example in batch]))
    return found


def of_task(found, task):
    return [examples for name, examples in found if name == task]


def test_proportional_gives_each_task_exactly_its_share():
    updates = [6, 3, 2, 1]
    orders = {tuple(tasks_of_epoch(updates, "proportional", epoch, 4, seed)) for epoch in (0, 1) for seed in (1, 2)}
    assert len(orders) == 4
    assert all(numpy.bincount(order).tolist() == updates for order in orders)
    with pytest.raises(InputError, match=r"sampling is 'anealed': did you mean 'annealed'\?"):
        tasks_of_epoch([1, 2], "anealed", 0, 1, seed=0)


def test_draws_are_in_proportion_to_a_power_of_the_size_that_is_annealed_from_1_to_a_fifth():
    updates = numpy.array([9000, 1000, 250])
    for sampling, epoch, power in (("square_root", 3, 0.5), ("annealed", 0, 1.0), ("annealed", 3, 0.2)):
        drawn = numpy.bincount(tasks_of_epoch(updates, sampling, epoch, 4, seed=3), minlength=3)
        share = updates**power / (updates**power).sum()
        # Four standard deviations of a binomial count; the next power's share is further off than that.
        spread = 4 * numpy.sqrt(updates.sum() * share * (1 - share))
        assert drawn.sum() == updates.sum()
        assert (abs(drawn - updates.sum() * share) < spread).all()
        other = updates ** (power - 0.1) / (updates ** (power - 0.1)).sum()
        assert (abs(drawn - updates.sum() * other) > spread).any()
    assert [round(exponent("annealed", epoch, 5), 6) for epoch in range(5)] == [1.0, 0.8, 0.6, 0.4, 0.2]
    assert exponent("annealed", 0, 1) == 1.0  # the authors' code divides by zero
    assert exponent("annealed", 7, 5) == pytest.approx(0.2)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("accumulation", [1, 3])
def test_every_pass_over_a_task_has_each_of_its_examples_once(sampling, accumulation):
    batches = sampler(sampling=sampling, accumulation=accumulation)
    found = read(batches, range(4))
    assert len(found) == 4 * len(batches)
    for (task, size), updates in zip(SIZES.items(), batches.updates, strict=True):
        seen, length = of_task(found, task), updates * accumulation
        for start in range(0, len(seen), length):  # passes end in the middle of epochs
            taken = [each for batch in seen[start : start + length] for each in batch]
            assert size < accumulation or len(set(taken)) == len(taken)
            if start + length <= len(seen):
                assert set(taken) == set(range(size))


def test_all_micro_batches_of_an_update_belong_to_one_task():
    whole = read(sampler(batch=12), [0, 1])
    for accumulation in (2, 3):
        parts = read(sampler(batch=12 // accumulation, accumulation=accumulation), [0, 1])
        assert len(parts) == accumulation * len(whole)
        for number, (task, update) in enumerate(whole):
            group = parts[number * accumulation : (number + 1) * accumulation]
            assert {name for name, _ in group} == {task}
            sizes = [len(batch) for _, batch in group]
            assert max(sizes) - min(sizes) <= 1
            # The same update as with the whole batch at once.
            assert sorted(set(each for _, batch in group for each in batch)) == sorted(update)
    assert parted([4, 7, 9, 2, 5], 2) == [[4, 7, 9], [2, 5]]
    assert parted([4, 7], 3) == [[4, 7]] * 3  # so that each of them weighs the same


def test_the_order_is_a_function_of_seed_and_epoch_alone_and_within_a_task_of_no_other_task():
    for sampling in SAMPLINGS:
        whole = read(sampler(sampling=sampling), range(4))
        one = sampler(sampling=sampling)
        for epoch in (2, 0, 3, 2):  # whatever was read before, or half of it
            assert read(one, [epoch]) == whole[epoch * len(one) : (epoch + 1) * len(one)]
            next(iter(one))
        assert read(sampler(sampling=sampling, seed=6), range(4)) != whole
    alone = of_task(read(sampler({"large": 45}), range(3)), "large")
    assert alone == of_task(read(sampler(), range(3)), "large")
