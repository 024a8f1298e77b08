"""Runs in two real processes: each gives what one process gives with the double batch, and goes on where it stopped."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from small_collection import write_collection
from tiny_runs import IAT, log, record, small, small_joint, write_data
from two_processes import leave, meet

from headwise.errors import InputError
from headwise.experiments.prepare import Place
from headwise.experiments.recipe import check_recipe
from headwise.experiments.run import WORK, train
from headwise.training.checkpoints import StopOnRequest

# The command itself is tried in two processes by tests/cli/test_processes_command.py.
pytestmark = pytest.mark.slow

# Measured at every step.
OFTEN = {name: {"weight": {"share": 0.3, "every": 1, "window": 2}} for name in ("mdg", "pdg")}
RETRIEVAL = {"name": "retrieval", "collection": "papers", "negatives": 3, "loss": "list"}
# name -> the recipe with a batch of so many, and the folder of its data. 48 examples: all batches are full.
RUNS = {
    "guides": (
        lambda encoder, batch: small(encoder, training__batch=batch, guides=OFTEN),
        "pairs",
    ),
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
    ),
    "ssa": (
        lambda encoder, batch: small(
            encoder,
            training__batch=batch,
            training__epochs=3,
            guides=OFTEN,
            ssa={"label_rule": "soft", "precision": "fp32"},
        ),
        "pairs",
    ),
    "list": (
        lambda encoder, batch: small(
            encoder,
            training__batch=batch // 2,
            training__accumulation=2,
            guides=OFTEN,
            task=RETRIEVAL,
        ),
        ".",
    ),
    "tasks": (
        lambda encoder, batch: small_joint(encoder, training__batch=batch, training__accumulation=3),
        "several",
    ),
}
# Token labels, claims and the last batches of small tasks do not divide evenly between two processes.
EXACT = ("guides", "accumulated")
STEPS = {"guides": 12, "accumulated": 6, "ssa": 18, "list": 4, "tasks": 10}
# Names in the log that must be the same.
PARTS = ("loss", "task_loss", "guide/", "ssa/")
# In the middle of the second epoch.
STOP = 8


# Recipes that only one process trains, and the key that says so.
REFUSED = {
    "iat": (
        lambda encoder, batch: small_joint(encoder, training__batch=batch, iat=IAT),
        "several",
    ),
}


def run(name, root, output, *, batch, **options):
    root, (build, data) = Path(root), (RUNS | REFUSED)[name]
    recipe = check_recipe(build(str(root / "encoder"), batch), "test")
    return train(recipe, Place(root / output / name, root / data, cache=root / "cache"), **options)


def ask(rank):
    """One process is asked to stop, and the other is not."""
    original = StopOnRequest.on_step_end

    def asked(self, args, state, control, **kwargs):
        self.requested = self.requested or (rank == 1 and state.global_step == STOP)
        original(self, args, state, control, **kwargs)

    StopOnRequest.on_step_end = asked
    return original


def sentence(name, root):
    with pytest.raises(InputError) as caught:
        run(name, root, "refused", batch=4)
    return str(caught.value)


def worker(rank, root):
    """One of two processes."""
    meet(rank, root)
    for name in RUNS:
        run(name, root, "two", batch=4)
    original = ask(rank)
    stopped = run("guides", root, "stopped", batch=4)
    StopOnRequest.on_step_end = original
    again = run("guides", root, "stopped", batch=4, resume=True)
    torch.save(
        {
            "stopped": (stopped.interrupted, stopped.steps),
            "again": (again.interrupted, again.record),
            "refused": {name: sentence(name, root) for name in REFUSED},
        },
        f"{root}/{rank}.pt",
    )
    leave(root)


def alone(rank, root):
    """The one process that the two are compared with."""
    torch.set_num_threads(1)
    for name in RUNS:
        run(name, root, "one", batch=8)


@pytest.fixture(scope="module")
def root(tmp_path_factory, encoder, several):
    """A folder with data, and with the runs of two processes."""
    folder = tmp_path_factory.mktemp("shared")
    write_data(folder / "pairs", sizes=(48, 24, 21))
    write_collection(folder / "papers", train=14, test=4)
    with (folder / "papers" / "qrels" / "train.tsv").open("a") as file:  # so that claims differ in their pairs
        file.writelines(f"t{number}\tt{number}-no0\t1\n" for number in range(0, 14, 3))
    shutil.copytree(several, folder / "several")
    shutil.copytree(encoder, folder / "encoder")
    config = json.loads((folder / "encoder" / "config.json").read_text())
    # One process draws other random numbers than two do.
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "encoder" / "config.json").write_text(json.dumps(config))
    with pytest.MonkeyPatch.context() as patch:
        # Kernels without vector instructions: how sums are rounded then does not depend on the processor or the batch.
        patch.setenv("ATEN_CPU_CAPABILITY", "default")  # read when torch is imported, so both start from nothing
        torch.multiprocessing.start_processes(worker, args=(str(folder),), nprocs=2, start_method="spawn")
        torch.multiprocessing.start_processes(alone, args=(str(folder),), nprocs=1, start_method="spawn")
    return folder


def told(root):
    """What each of the two processes has to say."""
    return [torch.load(root / f"{rank}.pt") for rank in range(2)]


def parameters(folder, indifferent):
    """All weights but those that a softmax is indifferent to: their gradient is rounding, which Adam makes steps of.

    The biases of keys shift all scores of a query alike, and the last bias those of all candidates of a claim.
    """
    files = sorted(Path(folder).glob("*.safetensors"))
    found = {name: value for file in files for name, value in load_file(file).items()}
    return {name: value for name, value in found.items() if not name.endswith(indifferent)}


@pytest.mark.parametrize("name", sorted(set(RUNS) - set(EXACT)))
def test_two_processes_take_the_steps_of_one(root, name):
    one, two = (record(root / folder / name)["results"] for folder in ("one", "two"))
    assert one["steps"] == two["steps"] == STEPS[name]
    assert [each["step"] for each in two["evaluations"]] == [each["step"] for each in one["evaluations"]]


@pytest.mark.parametrize("name", EXACT)
def test_two_processes_train_as_one_with_the_double_batch(root, name):
    one, two = root / "one" / name, root / "two" / name
    indifferent = ("key.bias", "classifier.bias") if name == "list" else ("key.bias",)
    expected, found = parameters(one, indifferent), parameters(two, indifferent)
    assert set(found) == set(expected)
    assert max(float((found[each] - expected[each]).abs().max()) for each in found) < 1e-6
    before, after = (record(folder)["results"] for folder in (one, two))
    assert (after["steps"], after["best_step"]) == (STEPS[name], before["best_step"])
    for split, scores in before["metrics"].items():
        assert after["metrics"][split] == pytest.approx(scores, abs=1e-6)
    assert [each["step"] for each in after["evaluations"]] == [each["step"] for each in before["evaluations"]]
    assert (record(one)["environment"]["processes"], record(two)["environment"]["processes"]) == (1, 2)


@pytest.mark.parametrize("name", EXACT)
def test_the_log_is_that_of_one_process_too(root, name):
    first, second = (
        [
            {key: value for key, value in entry.items() if key.startswith(PARTS)}
            for entry in log(root / folder / name)
            if "loss" in entry
        ]
        for folder in ("one", "two")
    )
    assert len(first) == len(second) == STEPS[name]
    for mine, theirs in zip(first, second, strict=True):
        assert mine == pytest.approx(theirs, rel=2e-4)


def test_they_stop_together_and_go_on_exactly(root):
    """Only one of them was asked to stop."""
    for each in told(root):
        assert (each["stopped"], each["again"][0]) == ((True, (STOP, 12)), False)
    whole, stopped = (load_file(root / output / "guides" / "model.safetensors") for output in ("two", "stopped"))
    assert all(torch.equal(whole[name], stopped[name]) for name in whole)
    before, after = (record(root / output / "guides")["results"] for output in ("two", "stopped"))
    assert after["evaluations"] == before["evaluations"]
    assert after["guides"] == before["guides"]


def test_both_processes_tell_the_same_record(root):
    first, second = (each["again"][1] for each in told(root))
    assert first == second == record(root / "stopped" / "guides")
    assert not (root / "stopped" / "guides" / WORK).exists()


@pytest.mark.parametrize("name", REFUSED)
def test_what_one_process_must_do(root, name):
    for each in told(root):
        assert f"{name} trains in one process, and 2 were started: leave the launcher out" in each["refused"][name]
    assert not (root / "refused" / name).exists()


def test_one_process_does_not_go_on_with_the_run_of_two(root):
    unfinished = root / "half" / "guides"
    shutil.copytree(root / "two" / "guides", unfinished)
    content = record(unfinished) | {"results": None}
    # As if it had been trained with the batch that is asked for now.
    content["recipe"]["training"]["per_device_train_batch_size"] = 8
    (unfinished / "headwise.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="holds a run of 2 processes, and here is 1: resume with as many"):
        run("guides", root, "half", batch=8, resume=True)
