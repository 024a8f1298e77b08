"""Pruning curves and D-scores as plots and matrices: the numbers of the files, and intervals made the slow way."""

import json

import numpy as np
import pytest
import scipy.stats
import small_heads as made

from headwise.errors import InputError
from headwise.experiments.comparison.run_plots import dissociation_matrices, pruning_plots
from headwise.metrics.resampling import Interval, bootstrap_scores


@pytest.fixture
def run(tmp_path):
    return made.bare_run(tmp_path / "run")


def slow_values(curve, order, task, evaluated, step):
    """What the masks of one kind and step give, found one by one."""
    at = list(curve.metrics).index(evaluated)
    return [
        curve.values[index][at]
        for index, each in enumerate(curve.masks)
        if (each.order, each.step) == (order, step) and each.pruned_for in (None, task)
    ]


def by_name(plot):
    return {series["name"]: series for series in plot["series"]}


def test_every_task_has_its_heads_and_the_controls_from_left_to_right(run):
    assert pruning_plots(run) == dissociation_matrices(run) == []  # nothing was measured
    curve = made.write_heads(run, random=4)
    plots = pruning_plots(run)
    assert [plot["title"] for plot in plots] == ["one without some of its heads", "two without some of its heads"]
    for task, plot in zip(("one", "two"), plots, strict=True):
        assert (plot["x"], plot["y"]) == ("percent of all heads silenced", "accuracy on validation")
        series = by_name(plot)
        orders = {
            f"most important for {task}": "descending",
            f"least important for {task}": "ascending",
            "random": "random",
            "random, same layers": "layer-matched",
        }
        assert list(series) == list(orders)
        base = curve.values[0][list(curve.metrics).index(task)]
        for name, order in orders.items():
            # The steps were asked for as 50 and 25.
            expected = [base, *(np.mean(slow_values(curve, order, task, task, step)) for step in (1, 0))]
            assert series[name]["x"] == [0, 25, 50]
            assert series[name]["mean"] == pytest.approx(expected)
        for name, order in list(orders.items())[:2]:
            masks = {each.step: each.mask for each in curve.masks if (each.order, each.pruned_for) == (order, task)}
            assert series[name]["off"] == [[], *(np.flatnonzero(masks[step]).tolist() for step in (1, 0))]
        assert "off" not in series["random"]
        for name, order in list(orders.items())[2:]:  # intervals over masks
            assert series[name]["low"][0] is series[name]["high"][0] is None
            for place, step in ((1, 1), (2, 0)):
                values = slow_values(curve, order, task, task, step)
                assert len(values) == 4
                ends = scipy.stats.t.interval(0.95, 3, np.mean(values), scipy.stats.sem(values))
                assert (series[name]["low"][place], series[name]["high"][place]) == pytest.approx(ends)
        assert plot["shape"] == list(curve.shape)
        assert "40 examples" in plot["notes"][0]
        assert "means over 4 masks, with 95 % t intervals over masks" in plot["notes"][0]
    json.dumps(plots, allow_nan=False)


def test_intervals_of_ranked_heads_are_over_examples(run):
    curve = made.write_heads(run)
    most, least, *_ = pruning_plots(run)[0]["series"]
    assert (most["low"][0], most["high"][0]) == (least["low"][0], least["high"][0])  # all heads: one interval
    for series in (most, least):
        ends = zip(series["low"], series["mean"], series["high"], strict=True)
        assert all(low < mean < high for low, mean, high in ends)
    place = next(at for at, each in enumerate(curve.masks) if (each.order, each.step) == ("descending", 1))
    draws = bootstrap_scores("accuracy", curve.predictions["one"][[place]], curve.labels["one"], resamples=5000)
    low, high = Interval.of(draws).low[0], Interval.of(draws).high[0]
    assert (most["low"][1], most["high"][1]) == pytest.approx((low, high), abs=0.04)  # other draws, the same width


def test_without_controls_there_are_the_tasks_heads_alone(run):
    made.write_heads(run, tasks=("only",), controls=False, percent=(), number=(3,))
    (plot,) = pruning_plots(run)
    assert [series["name"] for series in plot["series"]] == ["most important for only"]
    assert (plot["x"], plot["series"][0]["x"]) == ("heads silenced", [0, 3])
    assert "random" not in plot["notes"][0]
    assert dissociation_matrices(run) == []  # there is one task


def test_what_is_left_of_every_task_in_percent(run):
    curve = made.write_heads(run)
    mean, first, second = dissociation_matrices(run)
    titles = [each["title"].partition(":")[0] for each in (mean, first, second)]
    assert titles == ["mean over all steps", "50 % of heads (4)", "25 % of heads (2)"]
    for step, matrix in enumerate((first, second)):
        assert matrix["columns"] == ["one", "two"]
        assert matrix["rows"] == ["without the heads of one", "without the heads of two"]
        for row, task in enumerate(("one", "two")):
            for column, evaluated in enumerate(("one", "two")):
                (value,) = slow_values(curve, "descending", task, evaluated, step)
                assert matrix["values"][row][column] == pytest.approx(100 * value / curve.values[0][column])
    assert np.allclose(mean["values"], (np.array(first["values"]) + second["values"]) / 2)
    written = json.loads((run / "heads" / "dissociation.json").read_text())["mean"]
    assert f"Mean D-score {written['row']['mean']:.1f} points" in mean["notes"][0]
    assert any(note.startswith("Against random masks p = ") for note in mean["notes"])
    holds = written["double_dissociation"][0]["holds"]
    assert ("Double dissociation: one and two." in mean["notes"]) is holds


def test_rows_are_the_tasks_whose_heads_were_pruned(run):
    made.write_heads(run, tasks=("one", "two", "three"), task=("three",), percent=(50.0,))
    names = [series["name"] for series in pruning_plots(run)[1]["series"]]  # of a task whose heads were not pruned
    assert (names[0], names[-1]) == ("most important for three", "random")
    (matrix,) = dissociation_matrices(run)  # of one step the mean says no more
    assert (matrix["rows"], matrix["columns"]) == (["without the heads of three"], ["one", "two", "three"])
    assert any(note.startswith("No score for one: its heads were not pruned") for note in matrix["notes"])


READERS = [(pruning_plots, "prune-curve", "counts"), (dissociation_matrices, "dissociation", "steps")]


@pytest.mark.parametrize(("read", "name", "part"), READERS)
def test_damaged_files_and_those_of_another_run_are_refused(run, read, name, part):
    made.write_heads(run)
    path = run / "heads" / f"{name}.json"
    whole = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in whole.items() if key != part}))
    with pytest.raises(InputError, match=rf"{name}.json is damaged .* measure it again"):
        read(run)
    path.write_text(json.dumps(whole | {"run": {"folder": "elsewhere", "record": "0"}}))
    with pytest.raises(InputError, match="was made for another run"):
        read(run)
