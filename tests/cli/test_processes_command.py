"""`accelerate launch -m headwise train` with two processes: the result of one with the double batch, reported once."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file
from tiny_runs import FORKS, assert_done, assert_one_sentence, outcome, record, small, type_in_here, write_data

from headwise.disk import folder_lock
from headwise.training.checkpoints import marked

pytestmark = pytest.mark.slow  # each starts three processes, which take seconds to load their libraries

# --multi_gpu stands for several processes also where there is no GPU: --cpu would start one only.
STEP = "headwise.training.callbacks.Clock.on_step_end"
LAUNCH = ["launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no"]
LAUNCH += ["--dynamo_backend", "no", "--main_process_port", "0", "-m", "headwise"]


@pytest.fixture(scope="module")
def still(tmp_path_factory, encoder):
    """The tiny encoder without dropout, of which two processes draw other random numbers than one."""
    folder = tmp_path_factory.mktemp("still") / "encoder"
    shutil.copytree(encoder, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


@pytest.fixture
def launch(tmp_path):
    """Type a command for two processes; get the exit code, stdout and stderr."""

    def type_in(*words):
        program = Path(sys.executable).with_name("accelerate")
        command = [str(program), *LAUNCH, *map(str, words)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, cwd=tmp_path)
        return done.returncode, done.stdout, done.stderr

    return type_in


@pytest.fixture
def recipe(tmp_path, still):
    def write(batch):
        path = tmp_path / f"batch{batch}.yaml"
        path.write_text(yaml.safe_dump(small(still, training__batch=batch)), encoding="utf-8")
        return path

    return write


def test_two_processes_are_one_with_the_double_batch(launch, headwise, recipe, tmp_path):
    data = write_data(tmp_path / "data", sizes=(41, 24, 21))  # the last batch of 8 has one example
    out, err = assert_done(launch("train", recipe(4), "--data", data, "--output", "two", "--json"))
    found = json.loads(out)  # one result, of one process
    assert {name: value for name, value in found.items() if name != "output"} == record(tmp_path / "two")
    assert err.count("step 12: validation") == 1
    assert "Warning" not in err
    assert headwise("train", recipe(8), "--data", data, "--output", tmp_path / "one")[0] == 0
    one, two = record(tmp_path / "one"), record(tmp_path / "two")
    assert (one["environment"]["processes"], two["environment"]["processes"]) == (1, 2)
    for name in ("steps", "best_step", "examples"):
        assert two["results"][name] == one["results"][name]
    assert two["results"]["steps"] == 12
    for split, scores in one["results"]["metrics"].items():
        assert two["results"]["metrics"][split] == pytest.approx(scores, abs=1e-6)
    for mine, theirs in zip(two["results"]["evaluations"], one["results"]["evaluations"], strict=True):
        assert mine == pytest.approx(theirs, abs=1e-6)
    expected, weights = (load_file(tmp_path / run / "model.safetensors") for run in ("one", "two"))
    for name, value in expected.items():
        if not name.endswith("key.bias"):  # which attention is indifferent to, so that its gradient is rounding
            assert float((weights[name] - value).abs().max()) < 1e-6, name
    assert {path.name for path in (tmp_path / "two").iterdir()} == {path.name for path in (tmp_path / "one").iterdir()}


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def one_of_two(rank, port, words, out, err, at=None):
    """Type a command as a launcher would."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "CUDA_VISIBLE_DEVICES": ""}
    place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": 1}
    os.environ.update({name: str(value) for name, value in place.items()})
    type_in_here(words, out, err, at)


@pytest.fixture
def both(tmp_path):
    """Type a command in two processes without a launcher, which has its own exit code and prints much."""

    def type_in(*words, at=None):
        said, port = [(tmp_path / f"out{rank}", tmp_path / f"err{rank}") for rank in range(2)], free_port()
        started = [
            FORKS.Process(target=one_of_two, args=(rank, port, [*map(str, words)], *map(str, said[rank]), at))
            for rank in range(2)
        ]
        for each in started:
            each.start()
        for each in started:
            each.join(120)
        return [
            (each.exitcode, *(path.read_text() for path in paths)) for each, paths in zip(started, said, strict=True)
        ]

    return type_in


def test_a_mistake_is_reported_once_and_nothing_is_written(both, recipe, tmp_path):
    data = write_data(tmp_path / "data")
    (data / "validation.tsv").write_text("sentence1\tlabel\n")
    first, second = both("train", recipe(4), "--data", data, "--output", tmp_path / "run")
    assert_one_sentence(first, "validation.tsv", "sentence2")
    assert second == (2, "", "")
    assert not (tmp_path / "run").exists()


def test_the_first_process_takes_the_lock_for_both(both, recipe, pairs, tmp_path):
    words = ["train", recipe(4), "--data", pairs, "--output", tmp_path / "run"]
    with folder_lock(tmp_path / "run"):
        first, second = both(*words)
        assert_one_sentence(first, f"in use by process {os.getpid()} ")
        assert second == (1, "", "")  # the reason is that of the first
    assert [code for code, _, _ in both(*words)] == [0, 0]
    assert not [path for path in (tmp_path / "run").iterdir() if path.name.startswith(".")]


def test_a_damaged_checkpoint_of_two_processes(both, recipe, pairs, tmp_path):
    """The first process reads the files, and both resume from the one before."""
    words, run = ["train", recipe(4), "--data", pairs, "--output"], tmp_path / "run"
    assert [code for code, _, _ in both(*words, tmp_path / "whole")] == [0, 0]
    assert [code for code, _, _ in both(*words, run, at=(STEP, 9, signal.SIGINT))] == [130, 130]
    assert [path.name for path in marked(run / "unfinished")] == ["checkpoint-9", "checkpoint-8"]
    damaged = run / "unfinished" / "checkpoint-9" / "rng_state_1.pth"
    damaged.unlink()
    (first, _, err), (second, _, more) = both(*words, run, "--resume")
    assert (first, second) == (0, 0), err + more
    assert err.count("checkpoint-9 is damaged (rng_state_1.pth is missing): resuming from checkpoint-8") == 1
    assert "damaged" not in more
    assert outcome(run) == outcome(tmp_path / "whole")
