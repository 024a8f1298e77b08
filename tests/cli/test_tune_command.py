"""`headwise tune`: its output, its mistakes, and that it can be stopped, killed and started twice."""

import json
import shlex
import signal
import socket
import sys
from collections import Counter

import pytest
import yaml
from small_sweeps import differences, finished_counts, results
from small_tunes import QUICK, trials_of
from tiny_runs import Process, assert_done, assert_one_sentence, json_of, small

STEP = "headwise.training.callbacks.Clock.on_step_end"
# Two runs of twelve steps, with a checkpoint now and then.
SAVED = {**QUICK, "training__checkpoint_every": 4}
TWO = ("--vary", "training.learning_rate=[3e-3, 1e-3]")


@pytest.fixture
def words(write_recipe, pairs, tmp_path):
    """A command, but for what varies."""

    def command(*more, output="out", **changes):
        return ["tune", write_recipe(**{**SAVED, **changes}), "--data", pairs, "--output", tmp_path / output, *more]

    return command


def test_the_trials_and_the_best_recipe_which_can_be_trained(headwise, words, tmp_path):
    folder = "it's 100% {odd}? #1"
    out, err = assert_done(headwise(*words(*TWO, output=folder)))
    lines = out.splitlines()
    assert lines[0].split() == ["trial", "validation", "accuracy", "training.learning_rate", "steps"]
    values = [float(line.split()[1]) for line in lines[1:3]]
    assert values == sorted(values, reverse=True)
    assert lines[3] == "2 trials: 2 finished"
    rate = lines[1].split()[2]
    assert lines[4].startswith(f"best: training.learning_rate {rate}; train it with: headwise train ")
    assert "trial 0: step 3: validation" in err
    out, err = assert_done(headwise(*words(*TWO, "--json", output=folder)))
    result = json.loads(out)
    assert (result["metric"], result["split"], result["finished"], result["wanted"]) == ("accuracy", "validation", 2, 2)
    assert "step 3" not in err  # nothing was trained
    assert result["best"]["recipe"] == str(tmp_path / folder / "best.yaml")
    assert result["best"]["value"] == max(trial["value"] for trial in result["trials"])
    command = shlex.split(lines[4].partition("train it with: ")[2])
    run = json_of(headwise(*command[1:], "--output", tmp_path / "best", "--json"))
    assert run["recipe"]["name"] == "small-best"
    assert run["results"]["metrics"]["validation"]["accuracy"] == result["best"]["value"]
    code, out, err = headwise("compare", tmp_path / folder, "--json", "--baseline", "learning_rate=0.001")
    assert (code, bool(json.loads(out))) == (0, True), err


def test_a_dry_run(headwise, write_recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = headwise("tune", write_recipe(), "--dry-run")
    assert (code, err) == (0, "")
    assert "guides.mdg.weight" in out
    assert "[0.1, 0.01, 0.001, 0.0001]" in out
    assert out.splitlines()[-1] == "16 trials (grid) of 16 combinations, 1 seed each, in tunes/small"
    code, out, _ = headwise("tune", write_recipe(), "--dry-run", "--json", "--trials", 3, "--seeds", "1,2")
    plan = json.loads(out)
    assert (plan["trials"], plan["combinations"], plan["seeds"]) == (3, 16, [1, 2])
    code, out, _ = headwise(
        "tune", write_recipe(), "--dry-run", "--vary", "training.max_grad_norm={low: 0.5, high: 1.0}"
    )
    assert "20 trials (tpe) of endless combinations" in out
    assert not (tmp_path / "tunes").exists()


def test_without_a_finished_trial_there_is_no_best_one(headwise, words, tmp_path):
    wrong = ("--vary", "data.max_length=[400, 500]")
    code, out, _ = headwise(*words(*wrong))
    assert code == 1
    assert "2 trials: 2 failed" in out
    assert sum(line.startswith("failed: trial ") and "max_length" in line for line in out.splitlines()) == 2
    assert not (tmp_path / "out" / "best.yaml").exists()
    code, out, _ = headwise(*words(*wrong, "--json"))
    result = json.loads(out)
    assert (code, result["best"], result["failed"]) == (1, None, 2)


# -- stopped, killed, started twice ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, encoder, pairs):
    """The folder of the same study that nobody disturbs."""
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "recipe.yaml").write_text(yaml.safe_dump(small(encoder, **SAVED)), encoding="utf-8")
    command = ["tune", folder / "recipe.yaml", "--data", pairs, "--output", folder / "out", *TWO]
    assert_done(Process(folder / "p", *command).result())
    return folder / "out"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_same_command_resumes_a_study(headwise, words, undisturbed, tmp_path, number):
    """Stopped or killed in the sixth step of the second run."""
    process = Process(tmp_path / "p", *words(*TWO), at=(STEP, 18, number))
    code, out, err = process.result()
    if number == signal.SIGKILL:
        assert code == -number
        assert [trial.state.name for trial in trials_of(tmp_path / "out", "small")] == ["COMPLETE", "RUNNING"]
    else:
        assert code == 130, err
        assert err.splitlines()[-1] == "headwise: stopped; the same command resumes"
        assert "1 finished, 1 waiting" in out
    assert len(results(tmp_path / "out")) == 1
    out, err = assert_done(headwise(*words(*TWO)))
    step = 6 if number == signal.SIGTERM else 4  # a kill costs the steps since the last checkpoint
    assert f"trial 2: resuming from step {step} of 12" in err
    assert "2 trials: 2 finished" in out
    assert differences(tmp_path / "out", undisturbed) == []
    assert list((tmp_path / "out" / "unfinished").iterdir()) == []
    # What Optuna knows of the second trial is what it would have known.
    mine, theirs = (
        {tuple(trial.params.values()): trial.intermediate_values for trial in trials_of(folder, "small") if trial.value}
        for folder in (tmp_path / "out", undisturbed)
    )
    assert mine == theirs


@pytest.mark.slow
def test_two_processes_share_the_work(words, tmp_path):
    """Each recipe is trained once, both end with the same result, and both train some."""
    vary = ("--vary", "training.weight_decay=[0.0, 0.1, 0.2, 0.3]", "--no-prune", "--json")
    processes = [Process(tmp_path / f"p{number}", *words(*vary)) for number in range(2)]
    ends = [process.result() for process in processes]
    assert [code for code, _, _ in ends] == [0, 0], ends
    first, second = (json.loads(out) for _, out, _ in ends)
    assert first == second
    assert first["finished"] == 4
    assert len({json.dumps(trial["parameters"]) for trial in first["trials"]}) == 4
    assert set(finished_counts(tmp_path / "out").values()) == {1}
    stored = trials_of(tmp_path / "out", "small")
    assert Counter(trial.state.name for trial in stored)["COMPLETE"] == 4
    assert len({trial.user_attrs["worker"] for trial in stored}) == 2


# -- mistakes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "parts"),
    [
        ([], ["no guides", "--vary"]),
        ([*TWO, "--seeds", "a"], ["--seeds a"]),
        ([*TWO, "--study", "a/b"], ["--study 'a/b'"]),
        ([*TWO, "--data", "/nowhere", "--set", "model=no/such"], ["lacks files", "model no/such", "train of pairs"]),
    ],
)
def test_mistakes_are_refused_in_one_sentence(headwise, words, tmp_path, more, parts):
    assert_one_sentence(headwise(*words(*more)), *parts)
    assert not (tmp_path / "out").exists()


def test_a_launcher_and_a_folder_with_other_files_are_refused(headwise, words, monkeypatch, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").touch()
    assert_one_sentence(headwise(*words(*TWO)), "holds other files", "--output")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert_one_sentence(headwise(*words(*TWO)), "one process", "launcher has started 2")


def test_storages_that_cannot_be_used(headwise, words, tmp_path):
    (tmp_path / "text.db").write_text("no database, but long enough to be looked at " * 40)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = free.getsockname()[1]
    for url, parts in {
        "nonsense": ["no such kind of database", "sqlite:///"],
        "sqlite://": ["memory", "name a file"],
        f"sqlite:///{tmp_path}/no/folder/x.db": ["there is no folder"],
        f"sqlite:///{tmp_path}/text.db": ["cannot be used", "not a database"],
        f"postgresql://me:secret@127.0.0.1:{closed}/x": ["can be reached at 127.0.0.1", "me:***@"],
    }.items():
        result = headwise(*words(*TWO, "--storage", url))
        assert_one_sentence(result, *parts)
        assert "secret" not in result[2]
    assert not (tmp_path / "out").exists()
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"oracle+cx_oracle://me:secret@127.0.0.1:{server.getsockname()[1]}/x"
        result = headwise(*words(*TWO, "--storage", url))
    assert_one_sentence(result, "driver cx_oracle is not installed")
    assert "secret" not in result[2]


def test_without_optuna(headwise, words, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert_one_sentence(headwise(*words(*TWO)), "pip install 'headwise[tune]'")
    assert not (tmp_path / "out").exists()
    assert headwise(*words(*TWO, "--dry-run"))[0] == 0
