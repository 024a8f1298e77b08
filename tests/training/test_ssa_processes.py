"""Two real processes that share the probing find the labels that one finds, and both have all of them."""

import pytest
import torch
from training.small_task import distance, parameters
from training.supervised_task import SOFT, build, build_model, labels_of, told, watched
from transformers import Trainer
from two_processes import leave, meet

from headwise.training.trainer import GuidedTrainer

pytestmark = pytest.mark.slow  # two processes, which take seconds to load their libraries

# A model that stays as it is: only then one process and two, whose batches differ, have the same one to ask.
STILL = {"learning_rate": 0.0, "num_train_epochs": 4}
MOVING = {"save_strategy": "steps", "save_steps": 2, "num_train_epochs": 3}
# name -> Trainer, options of SSA, TrainingArguments
RUNS = {
    "probe": (GuidedTrainer, {**SOFT, "label_rule": "probe", "max_passes": 2}, STILL),
    "reference": (Trainer, {**SOFT, "label_rule": "reference", "sampler": "reference"}, STILL),
    "soft": (Trainer, {**SOFT, "probes_per_example": 2, "shuffle_labels": True}, STILL),
    "moving": (GuidedTrainer, SOFT, MOVING),
}


def run(name, folder, *, batch, start=None, **changes):
    kind, options, more = RUNS[name]
    model = build_model(options)
    trainer = build(model, f"{folder}/{name}", kind=kind, per_device_train_batch_size=batch, **more, **changes)
    found = []
    watched(trainer, lambda epoch: found.append(labels_of(trainer)))
    trainer.train(resume_from_checkpoint=None if start is None else f"{folder}/{name}/checkpoint-{start}")
    return found, told(trainer), parameters(model)


def worker(rank, folder):
    """One of two processes."""
    meet(rank, folder)
    options = {"ddp_backend": "gloo", "batch": 4}
    found = {name: run(name, folder, **options) for name in RUNS}
    found["resumed"] = run("moving", folder, start=4, **options)
    torch.save(found, f"{folder}/{rank}.pt")
    leave(folder)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """What each of the two processes has found."""
    folder = tmp_path_factory.mktemp("processes")
    torch.multiprocessing.spawn(worker, args=(str(folder),), nprocs=2)
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize("name", ["probe", "reference", "soft"])
@pytest.mark.parametrize("batch", [3, 8])
def test_the_labels_are_those_of_one_process(both, tmp_path, name, batch):
    expected, statistics, _ = run(name, tmp_path, batch=batch)
    for found, theirs, _ in (each[name] for each in both):
        assert len(found) == len(expected) == 4
        for mine, other in zip(found, expected, strict=True):
            assert mine == pytest.approx(other, abs=1e-5)
        for entry, other in zip(theirs, statistics, strict=True):
            same = [key for key in other if key != "kept"]  # accelerate shows some examples twice
            assert [entry[key] for key in same] == pytest.approx([other[key] for key in same], abs=1e-5)
    assert len({tuple(each) for each in expected}) == 4


@pytest.mark.parametrize("name", ["moving", "resumed"])
def test_both_processes_have_the_same_labels_and_weights(both, name):
    (first, _, one), (second, _, other) = (each[name] for each in both)
    assert first == second
    assert distance(one, other) == 0.0
    assert len({tuple(each) for each in first}) == len(first)


def test_they_go_on_together(both):
    """From the middle of the second epoch, with its labels."""
    for each in both:
        (whole, statistics, weights), (rest, again, found) = each["moving"], each["resumed"]
        assert rest == whole[1:]
        assert distance(found, weights) == 0.0
        assert len(again) == len(statistics) == 3
