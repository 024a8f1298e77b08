"""Tuning with real Optuna, real SQLite and real, tiny runs."""

import csv
import json
from itertools import product

import optuna
import pytest
from small_sweeps import finished_counts, results
from small_tunes import FOUR, HOPELESS, RATES, SHORT, Lines, trials_of

from headwise.errors import InputError
from headwise.experiments.recipe_files import read_recipe
from headwise.experiments.sweeps.jobs import run_key


def value(run):
    return run["results"]["metrics"]["validation"][run["results"]["primary"]]


def rate(run):
    return run["recipe"]["training"]["learning_rate"]


@pytest.mark.slow
def test_every_combination_of_a_grid_is_trained_once(tuned, tmp_path):
    """Every combination once, in two calls; the best is the best, and a third call has nothing to do."""
    folder = tmp_path / "out"
    first = tuned(*FOUR, prune=False, trials=1)
    result = tuned(*FOUR, prune=False)
    assert first.rows[0] in result.rows
    runs = results(folder)
    points = [tuple(row.parameters.values()) for row in result.rows]
    assert sorted(points) == sorted(product([3e-3, 1e-3], [0.0, 0.1]))
    assert finished_counts(folder) == dict.fromkeys(runs, 1)
    # Against the runs themselves, not against what was reported to Optuna.
    assert result.best.value == max(map(value, runs.values())) > min(map(value, runs.values()))
    assert {row.runs[0]: row.value for row in result.rows} == {key: value(run) for key, run in runs.items()}
    assert [row.value for row in result.rows] == sorted(map(value, runs.values()), reverse=True)

    best = read_recipe(str(folder / "best.yaml"))
    assert best.name == "small-best"
    assert run_key(best) == result.best.runs[0]
    with (folder / "trials.csv").open(encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    assert ",".join(table[0]) == "number,state,value,training.learning_rate,training.weight_decay,steps,seconds"
    assert {int(row["number"]): float(row["value"]) for row in table} == {row.number: row.value for row in result.rows}
    assert {(row["state"], row["steps"]) for row in table} == {("finished", "12")}

    before = (folder / "log.jsonl").read_bytes()
    assert tuned(*FOUR, prune=False).rows == result.rows
    # A new study finds the runs there, and takes over their evaluations.
    other = tuned(*FOUR, study="other", storage=f"sqlite:///{tmp_path}/other.db")
    assert (folder / "log.jsonl").read_bytes() == before
    taken, made = ({row.runs: (row.value, row.evaluations) for row in each.rows} for each in (other, result))
    assert taken == made
    evaluations = next(iter(runs.values()))["results"]["evaluations"]
    assert [each["step"] for each in evaluations] == list(result.rows[0].evaluations) == [3, 6, 9, 12]


@pytest.mark.slow
def test_a_hopeless_trial_is_pruned(tuned, tmp_path):
    result = tuned(RATES)
    states = {row.parameters["training.learning_rate"]: row for row in result.rows}
    pruned = states.pop(HOPELESS)
    assert {row.state for row in states.values()} == {"finished"}
    assert (pruned.number, pruned.state, pruned.value) == (2, "pruned", None)
    # At the first evaluation after a third of the steps, and not before.
    assert list(pruned.evaluations) == [3, 6]
    assert pruned.steps == 6
    assert max(pruned.evaluations.values()) < min(row.evaluations[6] for row in states.values())
    runs = results(tmp_path / "out")
    assert sorted(map(rate, runs.values())) == sorted(states)
    assert list((tmp_path / "out" / "unfinished").iterdir()) == []
    assert not list((tmp_path / "out" / "runs").glob("*.error.json"))
    (stored,) = (trial for trial in trials_of(tmp_path / "out") if trial.state.name == "PRUNED")
    assert stored.intermediate_values == pruned.evaluations
    before = (tmp_path / "out" / "log.jsonl").read_bytes()
    assert tuned(RATES).rows == result.rows
    assert (tmp_path / "out" / "log.jsonl").read_bytes() == before
    progress = Lines()
    tuned(RATES, trials=1, study="short", training__evaluate_every=2, training__steps=2, progress=progress)
    assert sum("no trial can be pruned" in line for line in progress.lines) == 1


@pytest.mark.slow
def test_a_range_is_not_drawn_twice_and_what_is_drawn_depends_on_the_seed(tuned, tmp_path):
    vary = "training.learning_rate={low: 1e-4, high: 1e-2, log: true}"
    first = tuned(vary, trials=1, **SHORT)
    result = tuned(vary, trials=3, **SHORT)
    rates = [row.parameters["training.learning_rate"] for row in result.rows]
    assert len(set(rates)) == len(rates) == len(results(tmp_path / "out")) == 3
    assert all(1e-4 <= each <= 1e-2 for each in rates)
    assert first.rows[0] in result.rows
    again = tuned(vary, trials=1, study="again", **SHORT)
    assert again.rows[0].parameters == first.rows[0].parameters


@pytest.mark.slow
def test_seeds_are_averaged(tuned, tmp_path):
    result = tuned("training.learning_rate=[3e-3]", seeds=[1, 2])
    runs = results(tmp_path / "out")
    assert {run["recipe"]["seed"] for run in runs.values()} == {1, 2}
    (row,) = result.rows
    by_seed = {run["recipe"]["seed"]: run for run in runs.values()}
    values = [value(by_seed[seed]) for seed in (1, 2)]
    assert values[0] != values[1]
    assert row.value == pytest.approx(sum(values) / 2)
    assert [runs[key]["recipe"]["seed"] for key in row.runs] == [1, 2]
    assert row.steps == 24
    # What the trial would be worth if it ended there: the mean of the first seed's best and the second's so far.
    accuracies = [each["eval_accuracy"] for each in by_seed[2]["results"]["evaluations"]]
    so_far = [max(accuracies[: index + 1]) for index in range(4)]
    assert list(row.evaluations) == [3, 6, 9, 12, 15, 18, 21, 24]
    assert list(row.evaluations.values())[4:] == pytest.approx([(values[0] + each) / 2 for each in so_far])
    assert read_recipe(str(tmp_path / "out" / "best.yaml")).seed == 1


def test_a_failed_trial_does_not_stop_the_others(tuned, tmp_path):
    vary = "data.max_length=[24, 400]"  # more than the encoder has places for, which only it knows
    result = tuned(vary, **SHORT)
    assert {row.parameters["data.max_length"]: row.state for row in result.rows} == {24: "finished", 400: "failed"}
    (error,) = result.errors.values()
    assert "400" in error
    assert result.best.parameters == {"data.max_length": 24}
    (kept,) = (tmp_path / "out" / "runs").glob("*.error.json")
    assert json.loads(kept.read_text(encoding="utf-8"))["results"]["status"] == "failed"
    # The next call tries it again, once, and nothing else.
    again = tuned(vary, **SHORT)
    assert len(again.rows) == 2
    assert sorted(trial.state.name for trial in trials_of(tmp_path / "out")) == ["COMPLETE", "FAIL", "FAIL"]
    assert len(results(tmp_path / "out")) == 1


# -- the same study ----------------------------------------------------------------------------------------------------


def test_another_study_of_the_same_name_is_refused(tuned, tmp_path):
    one = tuned(RATES, trials=1, **SHORT)
    words = {"description": "better words", "training__learning_rate": 1e-4, "name": "other"}  # or keys that vary
    assert tuned(RATES, trials=1, prune=False, **SHORT, **words).rows == one.rows
    before = {path: path.read_bytes() for path in (tmp_path / "out" / "runs").iterdir()}
    recipe = {"training__batch": 8, "data": {"max_length": 20}}
    for vary, changes, parts in (
        (RATES, recipe, ["another recipe", "data.max_length is 24", "1 other key"]),
        ("training.learning_rate=[3e-3]", {}, ["another space", "training.learning_rate"]),
        (RATES, {"seeds": [1, 2]}, ['seeds is "1" there and "1,2" here']),
        (RATES, {"sampler": "random", "trials": 2}, ['sampler is "grid" there and "random" here']),
    ):
        with pytest.raises(InputError) as error:
            tuned(vary, **SHORT, **changes)
        for part in ("study 'quick'", "study=NAME", *parts):
            assert part in str(error.value)
    assert {path: path.read_bytes() for path in (tmp_path / "out" / "runs").iterdir()} == before
    assert len(trials_of(tmp_path / "out")) == 1


def test_a_study_of_another_program_is_refused(tuned, tmp_path):
    url = f"sqlite:///{tmp_path}/theirs.db"
    optuna.create_study(study_name="quick", storage=url).optimize(lambda trial: 1.0, n_trials=1)
    optuna.create_study(study_name="empty", storage=url)
    for name in ("quick", "empty"):  # the second one minimises
        with pytest.raises(InputError, match="not created by headwise"):
            tuned(RATES, study=name, storage=url)
    assert not (tmp_path / "out").exists()
