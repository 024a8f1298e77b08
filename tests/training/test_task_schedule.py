"""Whose turn it is, and which of its examples: a function of seed and epoch alone."""

import numpy
import pytest

from headwise.errors import InputError
from headwise.training.multitask import SAMPLINGS, TaskBatches, exponent, parted, tasks_of_epoch

# Examples of each task; one smaller than a batch, one that fills its last batch, two that do not.
SIZES = {"large": 45, "even": 24, "odd": 13, "tiny": 3}


def lengths(size):
    return (numpy.arange(size) * 7 % 11 + 3).tolist()


def sampler(sizes=SIZES, **changes):
    options = {"batch": 8, "accumulation": 1, "sampling": "proportional", "epochs": 4, "seed": 5} | changes
    return TaskBatches({name: lengths(size) for name, size in sizes.items()}, **options)


def walked(batches, epochs):
    """All micro-batches of some epochs, as (task, examples of the task)."""
    starts = numpy.cumsum([0, *SIZES.values()])
    found = []
    for epoch in epochs:
        batches.set_epoch(epoch)
        for batch in batches:
            task = int(numpy.searchsorted(starts, batch[0], side="right")) - 1
            assert all(starts[task] <= example < starts[task + 1] for example in batch)
            found.append((list(SIZES)[task], [example - int(starts[task]) for example in batch]))
    return found


def of_task(found, task):
    return [examples for name, examples in found if name == task]


# -- whose turn --------------------------------------------------------------------------------------------------------


def test_proportional_gives_each_task_exactly_its_share():
    order = tasks_of_epoch([6, 3, 2, 1], "proportional", 0, 4, seed=1)
    assert numpy.bincount(order).tolist() == [6, 3, 2, 1]
    orders = {
        tuple(tasks_of_epoch([6, 3, 2, 1], "proportional", epoch, 4, seed)) for epoch in (0, 1) for seed in (1, 2)
    }
    assert len(orders) == 4


@pytest.mark.parametrize(
    ("sampling", "epoch", "power"), [("square_root", 3, 0.5), ("annealed", 0, 1.0), ("annealed", 3, 0.2)]
)
def test_draws_go_by_a_power_of_the_size(sampling, epoch, power):
    updates = numpy.array([9000, 1000, 250])
    drawn = numpy.bincount(tasks_of_epoch(updates, sampling, epoch, 4, seed=3), minlength=3)
    share = updates**power / (updates**power).sum()
    # Four standard deviations of a binomial count; the next power's share is further off than that.
    spread = 4 * numpy.sqrt(updates.sum() * share * (1 - share))
    assert drawn.sum() == updates.sum()
    assert (abs(drawn - updates.sum() * share) < spread).all()
    other = updates ** (power - 0.1) / (updates ** (power - 0.1)).sum()
    assert (abs(drawn - updates.sum() * other) > spread).any()


def test_draws_are_independent_not_shuffled():
    counts = {tuple(numpy.bincount(tasks_of_epoch([5, 5], "annealed", 0, 2, seed), minlength=2)) for seed in range(20)}
    assert len(counts) > 1


def test_the_power_is_annealed_from_1_to_a_fifth():
    assert [round(exponent("annealed", epoch, 5), 6) for epoch in range(5)] == [1.0, 0.8, 0.6, 0.4, 0.2]
    assert [exponent("annealed", epoch, 2) for epoch in (0, 1)] == [1.0, pytest.approx(0.2)]
    assert exponent("annealed", 0, 1) == 1.0  # the authors' code divides by zero
    assert exponent("annealed", 7, 5) == pytest.approx(0.2)
    assert {exponent("square_root", epoch, 5) for epoch in range(5)} == {0.5}
    assert len(list(sampler(sampling="annealed", epochs=1))) == len(sampler())


def test_an_unknown_sampling_is_refused():
    with pytest.raises(InputError, match=r"sampling is 'anealed': did you mean 'annealed'\?"):
        tasks_of_epoch([1, 2], "anealed", 0, 1, seed=0)


# -- which examples ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize(("accumulation", "by_length"), [(1, True), (3, True), (2, False)])
def test_every_pass_over_a_task_has_each_of_its_examples_once(sampling, accumulation, by_length):
    batches = sampler(sampling=sampling, accumulation=accumulation, by_length=by_length)
    found = walked(batches, range(4))
    assert len(found) == 4 * len(batches)
    passes_cut = 0
    for (task, size), updates in zip(SIZES.items(), batches.updates, strict=True):
        seen = of_task(found, task)
        passes, left = divmod(len(seen), updates * accumulation)
        for number in range(passes):
            taken = [
                each for batch in seen[number * updates * accumulation :][: updates * accumulation] for each in batch
            ]
            if size < accumulation:  # no micro-batch is empty
                assert set(taken) == set(range(size))
            else:
                assert sorted(taken) == list(range(size))
        if left and size >= accumulation:  # the beginning of one more pass
            taken = [each for batch in seen[-left:] for each in batch]
            assert len(set(taken)) == len(taken)
        passes_cut += bool(left)
    assert passes_cut == 0 if sampling == "proportional" else passes_cut > 0 or accumulation > 1


def test_passes_differ_and_epochs_end_in_the_middle_of_them():
    batches = sampler(sampling="square_root")
    seen = of_task(walked(batches, range(4)), "tiny")
    assert len(seen) > 4  # more often than its share
    first = of_task(walked(batches, [0]), "large")
    second = of_task(walked(batches, [1]), "large")
    assert 0 < len(first) < batches.updates[0]  # its pass goes on in the next epoch
    rest = batches.updates[0] - len(first)
    assert sorted(each for batch in first + second[:rest] for each in batch) == list(range(45))
    proportional = sampler(by_length=False)
    assert of_task(walked(proportional, [0]), "large") != of_task(walked(proportional, [1]), "large")


@pytest.mark.parametrize("accumulation", [2, 3])
def test_all_micro_batches_of_an_update_belong_to_one_task(accumulation):
    whole = walked(sampler(batch=12), [0, 1])
    parts = walked(sampler(batch=12 // accumulation, accumulation=accumulation), [0, 1])
    assert len(parts) == accumulation * len(whole)
    for number, (task, examples) in enumerate(whole):
        group = parts[number * accumulation : (number + 1) * accumulation]
        assert {name for name, _ in group} == {task}
        sizes = [len(batch) for _, batch in group]
        assert max(sizes) - min(sizes) <= 1
        # The same update as with the whole batch at once.
        assert sorted(set(each for _, batch in group for each in batch)) == sorted(examples)


def test_an_update_with_fewer_examples_than_micro_batches():
    assert parted([4, 7, 9, 2, 5], 2) == [[4, 7, 9], [2, 5]]
    assert parted([4, 7], 3) == [[4, 7]] * 3  # so that each of them weighs the same


def test_batches_are_of_similar_length():
    def width(batches):
        return sum(max(lengths(SIZES[task])[each] for each in batch) * len(batch) for task, batch in batches)

    assert width(walked(sampler(), range(4))) < 0.9 * width(walked(sampler(by_length=False), range(4)))


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_the_order_is_a_function_of_seed_and_epoch_alone(sampling):
    walk = walked(sampler(sampling=sampling), range(4))
    one = sampler(sampling=sampling)
    per_epoch = len(one)
    for epoch in (2, 0, 3, 2):  # whatever was walked before, or half of it
        assert walked(one, [epoch]) == walk[epoch * per_epoch : (epoch + 1) * per_epoch]
        next(iter(one))
    assert walked(sampler(sampling=sampling, seed=6), range(4)) != walk


def test_a_tasks_order_does_not_depend_on_its_company():
    company = of_task(walked(sampler(), range(3)), "large")
    alone = sampler({"large": 45})
    mine = []
    for epoch in range(3):
        alone.set_epoch(epoch)
        mine += list(alone)
    assert mine == company
    assert len({str(of_task(walked(sampler(seed=seed), [0]), "even")) for seed in (1, 2, 3)}) == 3
