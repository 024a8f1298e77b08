"""Two real processes that share the work give what one gives with the double batch: weights, labels, log, resumption.

The command in two processes is tested by tests/cli/test_processes_command.py.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_runs import IAT, log, record, small, small_joint, write_data
from training.small_task import by_hand, distance, exact_model, guided, parameters, summed_loss, trainer_of
from training.supervised_task import SOFT, build, build_model, labellings, labels_of, watched
from transformers import Trainer
from two_processes import leave, meet

import headwise as hw
from headwise.errors import InputError
from headwise.experiments.prepare import RunPaths
from headwise.experiments.recipe import check_recipe
from headwise.experiments.run import train
from headwise.training.checkpoints import StopOnRequest
from headwise.training.class_weights import WeightedCrossEntropy
from headwise.training.trainer import GuidedTrainer

pytestmark = pytest.mark.slow  # two processes, which take seconds to load their libraries

AUTO = hw.auto(0.3, window=2, every=1)
# name -> guides, what else the Trainer gets
TRAINERS = {
    "number": (hw.MDG(weight=0.3), {}),
    "auto on two guides": (hw.MDG(weight=AUTO) + hw.PDG(weight=AUTO), {}),
    "two passes": (hw.Consistency(by="heads") + hw.HeadDropout(p=0.3) + hw.MDG(weight=0.3), {}),
    "label smoothing": (hw.MDG(weight=0.3), {"label_smoothing_factor": 0.1}),
    "own loss, accumulated": (hw.MDG(weight=0.3), {"compute_loss_func": summed_loss}),
    "class weights, accumulated": (hw.MDG(weight=0.3), {"compute_loss_func": WeightedCrossEntropy((0.5, 3.0, 1.0))}),
    "own loss, not averaged": (
        hw.MDG(weight=0.3),
        {"compute_loss_func": summed_loss, "average_tokens_across_devices": False},
    ),
}
# A model that stays as it is: only then one process and two, whose batches differ, predict the same.
STILL = {"learning_rate": 0.0, "num_train_epochs": 4}
MOVING = {"save_strategy": "steps", "save_steps": 2, "num_train_epochs": 3}
LABELLED = {"probe": ({**SOFT, "label_rule": "probe", "max_passes": 2}, STILL), "moving": (SOFT, MOVING)}
# Measured at every step.
OFTEN = {name: {"weight": {"share": 0.3, "every": 1, "window": 2}} for name in ("mdg", "pdg")}
# name -> the recipe with a batch of so many, the folder of its data, and the steps. 48 examples: batches are full.
RUNS = {
    "guides": (lambda encoder, batch: small(encoder, training__batch=batch, guides=OFTEN), "pairs", 12),
    "accumulated": (
        lambda encoder, batch: small(
            encoder,
            training__batch=batch,
            training__accumulation=2,
            training__label_smoothing=0.1,
            guides={"pmi": {"weight": 5.0, "pattern": {"minimum": 1}}, "next": {"weight": 0.5}},
            head="relu",
        ),
        "pairs",
        6,
    ),
    # Token labels and the last batches of small tasks do not divide evenly between two processes.
    "ssa": (
        lambda encoder, batch: small(
            encoder, training__batch=batch, training__epochs=3, ssa={"label_rule": "soft", "precision": "fp32"}
        ),
        "pairs",
        18,
    ),
    "tasks": (
        lambda encoder, batch: small_joint(encoder, training__batch=batch, training__accumulation=3),
        "several",
        10,
    ),
    "iat": (lambda encoder, batch: small_joint(encoder, training__batch=batch, iat=IAT), "several", None),
}
EXACT, UNEVEN = ("guides", "accumulated"), ("ssa", "tasks")
# In the middle of the second epoch.
STOP = 8


def train_guided(name, folder, *, batch, **changes):
    guides, options = TRAINERS[name]
    model = guided(guides, share_every=2)
    if "accumulated" in name and batch == 4:
        batch, changes = 2, {**changes, "gradient_accumulation_steps": 2}
    trainer = trainer_of(GuidedTrainer, model, folder, per_device_train_batch_size=batch, **options, **changes)
    trainer.train()
    entries = [entry for entry in trainer.state.log_history if "loss" in entry]
    parts = [{key: each[key] for key in each if key == "task_loss" or key.startswith("guide/")} for each in entries]
    return parameters(model), parts, hw.guides.guidance(model).state_dict()


def train_labelled(name, folder, *, batch, start=None, **changes):
    options, more = LABELLED[name]
    model = build_model(options)
    trainer = build(model, f"{folder}/{name}", kind=GuidedTrainer, per_device_train_batch_size=batch, **more, **changes)
    labels = []
    watched(trainer, lambda epoch: labels.append(labels_of(trainer)))
    trainer.train(resume_from_checkpoint=None if start is None else f"{folder}/{name}/checkpoint-{start}")
    return labels, labellings(trainer), parameters(model)


def train_recipe(name, root, output, *, batch, **options):
    root, (make, data, _) = Path(root), RUNS[name]
    recipe = check_recipe(make(str(root / "encoder"), batch), "test")
    return train(recipe, RunPaths(root / output / name, root / data, cache=root / "cache"), **options)


def stopped_and_resumed(rank, root):
    """Only one process receives a signal."""
    original = StopOnRequest.on_step_end

    def signalled(self, args, state, control, **kwargs):
        self.requested = self.requested or (rank == 1 and state.global_step == STOP)
        original(self, args, state, control, **kwargs)

    StopOnRequest.on_step_end = signalled
    stopped = train_recipe("guides", root, "stopped", batch=4)
    StopOnRequest.on_step_end = original
    again = train_recipe("guides", root, "stopped", batch=4, resume=True)
    return (stopped.interrupted, stopped.steps), again.record


def worker(rank, root):
    """One of two processes."""
    meet(rank, root)
    options = {"batch": 4, "ddp_backend": "gloo"}
    results = {name: train_guided(name, root, **options) for name in TRAINERS}
    results |= {name: train_labelled(name, root, **options) for name in LABELLED}
    results["resumed"] = train_labelled("moving", root, start=4, **options)
    plain = exact_model()
    trainer_of(Trainer, plain, root, per_device_train_batch_size=4, max_steps=1, ddp_backend="gloo").train()
    results["plain Trainer"] = parameters(plain)
    for name in (*EXACT, *UNEVEN):
        train_recipe(name, root, "two", batch=4)
    results["stopped"] = stopped_and_resumed(rank, root)
    with pytest.raises(InputError) as caught:
        train_recipe("iat", root, "refused", batch=4)
    results["refused"] = str(caught.value)
    torch.save(results, f"{root}/{rank}.pt")
    leave(root)


def alone(rank, root):
    """The one process that the two are compared with."""
    torch.set_num_threads(1)
    for name in EXACT:
        train_recipe(name, root, "one", batch=8)
    results = {name: train_guided(name, root, batch=8) for name in TRAINERS}
    results["probe"] = train_labelled("probe", f"{root}/alone", batch=3)
    results["by hand"], results["start"] = by_hand(0.3)[0], parameters(exact_model())
    plain = exact_model()
    trainer_of(Trainer, plain, root, max_steps=1).train()
    results["plain Trainer"] = parameters(plain)
    torch.save(results, f"{root}/alone.pt")


@pytest.fixture(scope="module")
def root(tmp_path_factory, encoder, several):
    """A folder with data, and with the runs of two processes."""
    folder = tmp_path_factory.mktemp("processes")
    write_data(folder / "pairs", sizes=(48, 24, 21))
    shutil.copytree(several, folder / "several")
    shutil.copytree(encoder, folder / "encoder")
    config = json.loads((folder / "encoder" / "config.json").read_text())
    # One process draws other random numbers than two do; attention dropout is a function of seed, step and example.
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.2}
    (folder / "encoder" / "config.json").write_text(json.dumps(config))
    with pytest.MonkeyPatch.context() as patch:
        # Kernels without vector instructions: how sums are rounded then does not depend on the processor or the batch.
        patch.setenv("ATEN_CPU_CAPABILITY", "default")  # read when torch is imported, so both start from nothing
        torch.multiprocessing.start_processes(worker, args=(str(folder),), nprocs=2, start_method="spawn")
        torch.multiprocessing.start_processes(alone, args=(str(folder),), nprocs=1, start_method="spawn")
    return folder


@pytest.fixture(scope="module")
def both(root):
    """What each of the two processes has found."""
    return [torch.load(root / f"{rank}.pt") for rank in range(2)]


@pytest.fixture(scope="module")
def one(root):
    return torch.load(root / "alone.pt")


@pytest.mark.parametrize("name", TRAINERS)
def test_two_processes_equal_one(both, one, name):
    expected, parts, state = one[name]
    (first, logged, kept), second = both[0][name], both[1][name]
    assert distance(first, second[0]) == 0.0
    assert (logged, kept) == second[1:]
    assert distance(first, expected) < 1e-9
    assert len(logged) == len(parts) == 3
    for mine, theirs in zip(logged, parts, strict=True):
        if "accumulated" in name:
            mine.pop("guide/mdg_share", None)  # of the first micro batch only
        assert mine == pytest.approx({key: theirs[key] for key in mine}, rel=1e-7)
        assert set(theirs) - set(mine) <= {"guide/mdg_share"}
    assert kept["step"] == state["step"] == 3
    for guide, balance in state["auto"].items():
        for pair, other in zip(kept["auto"][guide]["norms"], balance["norms"], strict=True):
            assert pair == pytest.approx(other, rel=1e-7)


def test_gradients_of_the_plain_trainer_grow_with_processes(both, one):
    """What the docstring of GuidedTrainer says of transformers 5.22."""
    assert distance(both[0]["number"][0], one["by hand"]) < 1e-9
    name = "classifier.weight"
    changes = [each["plain Trainer"][name] - one["start"][name] for each in (both[0], one)]
    assert float(changes[0].norm() / changes[1].norm()) == pytest.approx(2.0, rel=1e-6)


def test_token_labels_are_those_of_one_process(both, one):
    expected, statistics, _ = one["probe"]
    for labels, theirs, _ in (each["probe"] for each in both):
        assert len(labels) == len(expected) == 4
        for mine, other in zip(labels, expected, strict=True):
            assert mine == pytest.approx(other, abs=1e-5)
        for entry, other in zip(theirs, statistics, strict=True):
            same = [key for key in other if key != "kept"]  # accelerate shows some examples twice
            assert [entry[key] for key in same] == pytest.approx([other[key] for key in same], abs=1e-5)


def test_token_labels_are_resumed_together(both):
    """From the middle of the second epoch, with its labels."""
    for name in ("moving", "resumed"):
        (first, _, one), (second, _, other) = (each[name] for each in both)
        assert first == second
        assert distance(one, other) == 0.0
    (whole, _, weights), (rest, _, resumed) = both[0]["moving"], both[0]["resumed"]
    assert rest == whole[1:]
    assert len({tuple(each) for each in whole}) == 3
    assert distance(resumed, weights) == 0.0


@pytest.mark.parametrize("name", UNEVEN)
def test_uneven_parts_take_all_steps(root, name):
    assert record(root / "two" / name)["results"]["steps"] == RUNS[name][2]


@pytest.mark.parametrize("name", EXACT)
def test_a_run_of_two_is_one_with_the_double_batch(root, name):
    one, two = root / "one" / name, root / "two" / name
    expected, weights = (
        {key: value for file in sorted(each.glob("*.safetensors")) for key, value in load_file(file).items()}
        for each in (one, two)
    )
    # The biases of keys shift all scores of a query alike: their gradient is rounding, which Adam makes steps of.
    compared = [each for each in expected if not each.endswith("key.bias")]
    assert max(float((weights[each] - expected[each]).abs().max()) for each in compared) < 1e-6
    before, after = (record(folder)["results"] for folder in (one, two))
    assert (after["steps"], after["best_step"]) == (RUNS[name][2], before["best_step"])
    for split, scores in before["metrics"].items():
        assert after["metrics"][split] == pytest.approx(scores, abs=1e-6)
    assert [each["step"] for each in after["evaluations"]] == [each["step"] for each in before["evaluations"]]
    assert (record(one)["environment"]["processes"], record(two)["environment"]["processes"]) == (1, 2)
    first, second = (
        [{key: each[key] for key in each if "loss" in key or "guide/" in key} for each in log(folder) if "loss" in each]
        for folder in (one, two)
    )
    assert len(first) == len(second) == RUNS[name][2]
    for mine, theirs in zip(first, second, strict=True):
        assert mine == pytest.approx(theirs, rel=2e-4)


def test_they_stop_together_and_resume_exactly(root, both):
    for stopped, content in (each["stopped"] for each in both):
        assert stopped == (True, (STOP, 12))
        assert content == record(root / "stopped" / "guides")
    whole, again = (load_file(root / output / "guides" / "model.safetensors") for output in ("two", "stopped"))
    assert all(torch.equal(whole[name], again[name]) for name in whole)
    before, after = (record(root / output / "guides")["results"] for output in ("two", "stopped"))
    assert (after["evaluations"], after["guides"]) == (before["evaluations"], before["guides"])


def test_what_one_process_must_do(root, both):
    for each in both:
        assert "iat trains in one process, and 2 were started: leave the launcher out" in each["refused"]
    assert not (root / "refused" / "iat").exists()


def test_one_process_does_not_resume_the_run_of_two(root):
    unfinished = root / "half" / "guides"
    shutil.copytree(root / "two" / "guides", unfinished)
    content = record(unfinished) | {"results": None}
    content["recipe"]["training"]["per_device_train_batch_size"] = 8  # as if it had been trained with this batch
    (unfinished / "headwise.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="holds a run of 2 processes, and here is 1: resume with as many"):
        train_recipe("guides", root, "half", batch=8, resume=True)
