"""Two real processes that share the work give what one gives: the same weights, the same parts in the log."""

import pytest
import torch
from training.small_task import by_hand, distance, exact_model, guided, parameters, summed_loss, trainer_of
from transformers import Trainer
from two_processes import leave, meet

import headwise as hw
from headwise.training.trainer import GuidedTrainer

pytestmark = pytest.mark.slow  # two processes, which take seconds to load their libraries

AUTO = hw.auto(0.3, window=2, every=1)
# name -> guides, what else the Trainer is told
RUNS = {
    "number": (hw.MDG(weight=0.3), {}),
    "auto": (hw.MDG(weight=AUTO), {}),
    "auto on two guides": (hw.MDG(weight=AUTO) + hw.PDG(weight=AUTO), {}),
    "label smoothing": (hw.MDG(weight=0.3), {"label_smoothing_factor": 0.1}),
    "own loss": (hw.MDG(weight=0.3), {"compute_loss_func": summed_loss}),
    "own loss, auto": (hw.MDG(weight=AUTO), {"compute_loss_func": summed_loss}),
    "own loss, not averaged": (
        hw.MDG(weight=0.3),
        {"compute_loss_func": summed_loss, "average_tokens_across_devices": False},
    ),
}
ACCUMULATED = {name: RUNS[name] for name in ("number", "label smoothing", "own loss", "own loss, not averaged")}


def run(name, folder, *, batch, **changes):
    guides, options = RUNS[name]
    model = guided(guides, share_every=2)
    trainer = trainer_of(GuidedTrainer, model, folder, per_device_train_batch_size=batch, **options, **changes)
    trainer.train()
    parts = [
        {key: value for key, value in entry.items() if key in ("loss", "task_loss") or key.startswith("guide/")}
        for entry in trainer.state.log_history
        if "loss" in entry
    ]
    return parameters(model), parts, hw.guides.guidance(model).state_dict()


def worker(rank, folder):
    """One of two processes."""
    meet(rank, folder)
    options = {"ddp_backend": "gloo"}
    found = {name: run(name, folder, batch=4, **options) for name in RUNS}
    for name in ACCUMULATED:
        found[f"{name}, accumulated"] = run(name, folder, batch=2, gradient_accumulation_steps=2, **options)
    plain = exact_model()
    trainer_of(Trainer, plain, folder, per_device_train_batch_size=4, max_steps=1, **options).train()
    found["plain Trainer"] = (parameters(plain), [], {})
    torch.save(found, f"{folder}/{rank}.pt")
    leave(folder)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """What each of the two processes has found."""
    folder = tmp_path_factory.mktemp("processes")
    torch.multiprocessing.spawn(worker, args=(str(folder),), nprocs=2)
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize("name", [*RUNS, *(f"{name}, accumulated" for name in ACCUMULATED)])
def test_two_processes_equal_one(both, tmp_path, name):
    expected, parts, state = run(name.removesuffix(", accumulated"), tmp_path, batch=8)
    for found, logged, kept in (each[name] for each in both):
        assert distance(found, expected) < 1e-9
        assert len(logged) == len(parts) == 3
        for mine, theirs in zip(logged, parts, strict=True):
            mine.pop("loss")  # the Trainer's own number: see below
            if "accumulated" in name:
                mine.pop("guide/mdg_share", None)  # of the first micro batch only
            assert mine == pytest.approx({key: theirs[key] for key in mine}, rel=1e-7)
            assert set(theirs) - set(mine) <= {"loss", "guide/mdg_share"}
        assert kept["step"] == state["step"] == 3
        for guide, balance in state["auto"].items():
            for pair, other in zip(kept["auto"][guide]["norms"], balance["norms"], strict=True):
                assert pair == pytest.approx(other, rel=1e-7)


def test_both_processes_log_and_end_the_same(both):
    first, second = both
    assert set(first) == set(second)
    for name in first:
        assert distance(first[name][0], second[name][0]) == 0.0
        assert first[name][1] == second[name][1]
        assert first[name][2] == second[name][2]


def test_the_guide_did_something(both):
    assert distance(both[0]["number"][0], by_hand(0.3)[0]) < 1e-9
    assert distance(both[0]["number"][0], by_hand(0.0)[0]) > 1e-4


def test_the_plain_trainers_gradients_grow_with_processes(both, tmp_path):
    """What the docstring of GuidedTrainer says of transformers 5.22."""
    name, before, once = "classifier.weight", parameters(exact_model()), exact_model()
    trainer_of(Trainer, once, tmp_path, max_steps=1).train()
    change = both[0]["plain Trainer"][0][name] - before[name]
    ratio = change.norm() / (parameters(once)[name] - before[name]).norm()
    assert float(ratio) == pytest.approx(2.0, rel=1e-6)
