"""Tables of sweeps: what an epoch takes."""

import json

import numpy as np
import pytest
import scipy.stats
import small_results as made

from headwise.experiments.comparison.sweep_plots import time_tables

AXES = {"set": {"one": {"task__name": "one"}, "two": {"task__name": "two"}}, "system": made.SYSTEMS}
COMPARE = {"by": ["system"], "baseline": "plain", "within": ["set"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two sets, two systems, three seeds, each run with times of its own."""
    place = made.sweep(
        tmp_path_factory.mktemp("tables") / "results", AXES, compare=COMPARE, qualities={"plain": 0.4, "ag": 0.9}
    )
    for number, path in enumerate(made.runs_of(place)):
        made.alter(path, environment__times={"seconds_per_epoch": [10.0 + number, 12.0 + number**1.5]})
    return place


def slow_seconds(folder, **point):
    found = []
    for run in json.loads((folder / "sweeps" / "table.json").read_text())["runs"]:
        if all(run["point"][axis] == label for axis, label in point.items()):
            times = json.loads((folder / "runs" / f"{run['key']}.json").read_text())["environment"]["times"]
            found.append(sum(times["seconds_per_epoch"]) / 2)
    return found


def test_seconds_of_an_epoch_and_their_ratio(folder):
    (table,) = time_tables(folder)
    assert table["columns"] == ["set", "system", "seeds", "seconds", "95 % interval", "× baseline"]
    assert [row[:3] for row in table["rows"]] == [
        [name, system, "3"] for name in ("one", "two") for system in ("plain", "ag")
    ]
    for name, system, _, mean, interval, ratio in table["rows"]:
        seconds, base = slow_seconds(folder, set=name, system=system), slow_seconds(folder, set=name, system="plain")
        assert len(seconds) == 3
        low, high = scipy.stats.t.interval(0.95, 2, np.mean(seconds), scipy.stats.sem(seconds))
        assert (mean, interval) == (f"{np.mean(seconds):.2f}", f"{low:.2f} to {high:.2f}")
        assert ratio == f"{np.mean(seconds) / np.mean(base):.2f}"
    assert any("depend on the machine" in note for note in table["notes"])


def test_without_times_there_is_no_table(tmp_path):
    place = made.sweep(tmp_path / "results", AXES, compare=COMPARE, seeds=(1,))
    for path in made.runs_of(place):
        made.alter(path, environment__times={"seconds_per_epoch": []})
    assert time_tables(place) == []


def test_without_a_baseline_there_is_no_ratio(tmp_path):
    systems = {"first": made.SYSTEMS["ag"], "second": {"guides": {"mdg": {"weight": 1.0}}}}
    place = made.sweep(tmp_path / "results", {"system": systems}, seeds=(1,), compare={})
    (table,) = time_tables(place)
    assert table["rows"] == [["first", "1", "11.00", "–", "–"], ["second", "1", "11.00", "–", "–"]]
