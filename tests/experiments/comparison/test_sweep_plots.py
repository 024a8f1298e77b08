"""Plots of sweeps: every point is the mean of the runs that stand there, with the interval of the t distribution."""

import itertools
import json
import shutil

import numpy as np
import pytest
import scipy.stats
import small_results as made

from headwise.errors import InputError
from headwise.experiments.comparison.sweep_plots import layer_plots, size_plots, time_tables, weight_plots

SIZES = {f"{part:g}": {"data__fraction": part} for part in (1.0, 0.2, 0.6)}
BY_SYSTEM = {"by": ["system"], "baseline": "plain", "within": ["size"]}


def slow_runs(folder, sweep, **point):
    """The records of all finished runs at a point, file by file."""
    found = {}
    for run in json.loads((folder / "sweeps" / f"{sweep}.json").read_text())["runs"]:
        path = folder / "runs" / f"{run['key']}.json"
        if path.exists() and all(run["point"][axis] == label for axis, label in point.items()):
            found[run["point"]["seed"]] = json.loads(path.read_text())
    return list(found.values())


def slow_scores(folder, sweep, **point):
    return [run["results"]["metrics"]["test"]["accuracy"] for run in slow_runs(folder, sweep, **point)]


def slow_interval(scores):
    """Mean and ends, by scipy."""
    mean = sum(scores) / len(scores)
    low, high = scipy.stats.t.interval(0.95, len(scores) - 1, mean, np.std(scores, ddof=1) / len(scores) ** 0.5)
    return mean, low, high


def points(series):
    return {x: values for x, *values in zip(*(series[key] for key in ("x", "mean", "low", "high")), strict=True)}


@pytest.fixture(scope="module")
def sizes(tmp_path_factory):
    """Two systems, three sizes in no order, four seeds; copy it before you write into it."""
    place = tmp_path_factory.mktemp("sizes") / "results"
    axes = {"system": made.SYSTEMS, "size": SIZES}
    qualities = {"plain": 0.6, "ag": 0.8}
    return made.sweep(place, axes, seeds=(1, 2, 3, 4), compare=BY_SYSTEM, name="small", qualities=qualities)


def test_scores_by_size(sizes):
    (plot,) = size_plots(sizes)
    assert (plot["title"], plot["x"], plot["y"]) == ("small", "part of the training set", "accuracy on test")
    assert plot["categories"] is None
    assert [each["name"] for each in plot["series"]] == ["plain", "ag"]
    for series in plot["series"]:
        assert series["x"] == [0.2, 0.6, 1.0]
        for size, found in points(series).items():
            expected = slow_scores(sizes, "small", system=series["name"], size=f"{size:g}")
            assert len(expected) == 4
            assert found == pytest.approx(slow_interval(expected), abs=1e-12)
    assert plot["notes"] == ["Means over 4 seeds with 95 % t intervals."]
    json.dumps(plot, allow_nan=False)
    assert layer_plots(sizes) == weight_plots(sizes) == []


def test_missing_runs_leave_gaps_and_are_counted(sizes, tmp_path):
    folder = shutil.copytree(sizes, tmp_path / "results")
    for run in json.loads((folder / "sweeps" / "small.json").read_text())["runs"]:
        point = run["point"]
        if point["system"] == "ag" and (point["size"] == "0.6" or (point["size"] == "1" and point["seed"] != "2")):
            (folder / "runs" / f"{run['key']}.json").unlink()
    recipe = json.loads((sizes / "runs" / f"{run['key']}.json").read_text())["recipe"]
    made.write(folder, made.failed(recipe))
    content = json.loads((folder / "sweeps" / "small.json").read_text())
    later = {**content, "name": "later", "runs": [{**run, "key": f"x{run['key']}"} for run in content["runs"]]}
    (folder / "sweeps" / "later.json").write_text(json.dumps(later))  # a sweep that has just begun is left out
    (plot,) = size_plots(folder)
    _, guided = plot["series"]
    assert guided["x"] == [0.2, 0.6, 1.0]
    assert points(guided)[0.6] == [None, None, None]
    (only,) = slow_scores(folder, "small", system="ag", size="1")
    assert points(guided)[1.0] == [only, None, None]
    assert plot["notes"] == [
        "Means over 1 to 4 seeds with 95 % t intervals; of one seed without.",
        "Not all systems have the same seeds, so their means are not quite comparable (size 1: ag 1 of 4; size 0.6: ag "
        "0 of 4).",
        "7 of 24 runs of the sweep small are not there yet: start the sweep again to finish them.",
        "1 failed run is left out.",
    ]


def test_blocks_are_plots_and_sizes_may_be_numbers_or_both(tmp_path):
    numbers = {label: {"data__limit__train": int(label)} for label in ("100", "20")}
    axes = {"set": {"one": {"task__name": "one"}, "two": {"task__name": "two"}}, "system": made.SYSTEMS}
    compare = {"by": ["system"], "within": ["set", "size"]}
    folder = made.sweep(tmp_path / "results", axes | {"size": numbers}, seeds=(1, 2), compare=compare, name="counts")
    made.sweep(
        folder,
        axes | {"size": {"0.5": {"data__fraction": 0.5, "data__limit__train": 80}, **numbers}},
        compare=compare,
        name="mixed",
    )
    counted, other, *mixed = size_plots(folder)
    assert [counted["title"], other["title"]] == ["counts: set one", "counts: set two"]
    assert (counted["x"], counted["series"][0]["x"]) == ("training examples", [20, 100])
    expected = slow_scores(folder, "counts", set="two", system="ag", size="100")
    assert points(other["series"][1])[100][0] == pytest.approx(sum(expected) / 2)
    assert [(each["categories"], each["series"][0]["x"]) for each in mixed] == [(["0.5", "100", "20"], [0, 1, 2])] * 2
    assert [each["title"] for each in size_plots(folder, "mixed")] == ["mixed: set one", "mixed: set two"]


def layered(place, labels):
    """A sweep over layers as `headwise sweep` leaves it: plain runs stand at every layer, and are trained once."""
    folder, rows = made.folder_for(place), []
    for (system, changes), label, seed in itertools.product(made.SYSTEMS.items(), labels, (1, 2, 3)):
        guides = {name: {**options, "layers": label} for name, options in changes["guides"].items()}
        content = made.run(made.recipe(seed=seed, guides=guides), 0.5 + 0.1 * len(label) * bool(guides))
        made.write(folder, content)
        rows.append({"key": content["key"], "point": {"system": system, "layer": label, "seed": str(seed)}})
    labels_of = {"system": list(made.SYSTEMS), "layer": list(labels), "seed": ["1", "2", "3"]}
    keys = {"system": ["guides"], "layer": ["guides"], "seed": ["seed"]}
    manifest = {
        "format": 1,
        "name": "figure3",
        "title": "By layer",
        "axes": {axis: {"labels": labels_of[axis], "keys": keys[axis]} for axis in keys},
        "compare": {"by": ["system"], "baseline": "plain", "within": ["layer"]},
        "runs": rows,
    }
    (folder / "sweeps" / "figure3.json").write_text(json.dumps(manifest))
    return folder


def test_scores_by_layer_with_plain_runs_as_a_level_line(tmp_path):
    folder = layered(tmp_path / "results", ["0", "3", "11"])
    (plot,) = layer_plots(folder)
    plain, guided = plot["series"]
    assert plot["title"] == "By layer"
    assert plain["x"] == guided["x"] == [0, 3, 11]
    assert len(set(plain["mean"])) == 1
    for layer, found in points(guided).items():
        scores = slow_scores(folder, "figure3", system="ag", layer=f"{layer:g}")
        assert found == pytest.approx(slow_interval(scores))
    assert size_plots(folder) == weight_plots(folder) == []
    (plot,) = layer_plots(layered(tmp_path / "named", ["all", "last"]))
    assert (plot["categories"], plot["series"][1]["x"]) == (["all", "last"], [0, 1])


def weighted(*sizes):
    """An axis: without guides, then guides of these weights."""
    points = {"none": {"guides": {}}}
    for size in sizes:
        points[json.dumps(size)] = {"guides": {name: {"weight": size} for name in ("mdg", "pdg")}}
    return points


def test_scores_and_seconds_by_weight(tmp_path):
    axis = weighted({"share": 0.1}, {"share": 0.01})
    folder = made.sweep(tmp_path / "results", {"weight": axis}, compare={"by": "weight", "baseline": "none"})
    scores, seconds = weight_plots(folder)
    assert scores["x"] == seconds["x"] == "gradient share of the guides"
    assert (scores["y"], seconds["y"]) == ("accuracy on test", "seconds of an epoch")
    (series,) = scores["series"]
    assert (series["name"], series["x"]) == ("mdg+pdg", [0, 0.01, 0.1])
    expected = slow_scores(folder, "table", weight='{"share": 0.01}')
    assert points(series)[0.01] == pytest.approx(slow_interval(expected))
    assert seconds["series"][0]["mean"] == [11.0] * 3
    axis = weighted({"share": 0.1}, 0.01)  # weights without a common scale are categories
    folder = made.sweep(tmp_path / "mixed", {"weight": axis}, compare={"by": "weight", "baseline": "none"})
    plot = weight_plots(folder)[0]
    assert (plot["x"], plot["categories"]) == ("weight of the guides", ["none", '{"share": 0.1}', "0.01"])
    assert plot["series"][0]["x"] == [0, 1, 2]
    systems = {**made.SYSTEMS, "mdg": {"guides": {"mdg": {"weight": 0.5}}}}  # other guides are no other weights
    assert weight_plots(made.sweep(tmp_path / "guides", {"system": systems})) == []


def test_what_is_no_folder_of_results_is_refused(sizes, tmp_path):
    with pytest.raises(InputError, match=r"there is no folder .*gone.*results of a sweep"):
        size_plots(tmp_path / "gone")
    with pytest.raises(InputError, match=r"has no headwise-sweep.json: expected a folder with the results"):
        size_plots(tmp_path)
    run = made.write_trained(tmp_path / "run", made.run(made.recipe()))
    with pytest.raises(InputError, match="is a single run: expected"):
        size_plots(run)
    with pytest.raises(InputError, match="holds no such sweep"):
        size_plots(sizes, "smal")
    folder = shutil.copytree(sizes, tmp_path / "results")
    made.alter(made.runs_of(folder)[0], environment__threads=4)
    with pytest.raises(InputError, match="the runs differ in threads"):
        size_plots(folder)
    made.runs_of(folder)[0].write_text("{")
    with pytest.raises(InputError, match="is no JSON"):
        size_plots(folder)


def test_seconds_of_an_epoch_and_their_ratio(tmp_path):
    axes = {"set": {"one": {"task__name": "one"}, "two": {"task__name": "two"}}, "system": made.SYSTEMS}
    compare = {"by": ["system"], "baseline": "plain", "within": ["set"]}
    folder = made.sweep(tmp_path / "results", axes, compare=compare)
    for number, path in enumerate(made.runs_of(folder)):
        made.alter(path, environment__times={"seconds_per_epoch": [10.0 + number, 12.0 + number**1.5]})
    (table,) = time_tables(folder)
    assert table["columns"] == ["set", "system", "seeds", "seconds", "95 % interval", "× baseline"]
    expected = [[name, system, "3"] for name in ("one", "two") for system in ("plain", "ag")]
    assert [row[:3] for row in table["rows"]] == expected
    for name, system, _, mean, interval, ratio in table["rows"]:
        seconds, base = (
            [np.mean(run["environment"]["times"]["seconds_per_epoch"]) for run in slow_runs(folder, "table", **point)]
            for point in ({"set": name, "system": system}, {"set": name, "system": "plain"})
        )
        _, low, high = slow_interval(seconds)
        assert (mean, interval) == (f"{np.mean(seconds):.2f}", f"{low:.2f} to {high:.2f}")
        assert ratio == f"{np.mean(seconds) / np.mean(base):.2f}"
    for path in made.runs_of(folder):
        made.alter(path, environment__times={"seconds_per_epoch": []})
    assert time_tables(folder) == []


def test_one_seed_has_no_interval_and_without_a_baseline_there_is_no_ratio(tmp_path):
    systems = {"first": made.SYSTEMS["ag"], "second": {"guides": {"mdg": {"weight": 1.0}}}}
    folder = made.sweep(tmp_path / "results", {"system": systems, "size": SIZES}, seeds=(1,), compare={})
    rows = time_tables(folder)[0]["rows"]
    assert rows[0] == ["first, 1", "1", "11.00", "–", "–"]
    (plot,) = size_plots(folder)
    assert plot["series"][0]["low"] == plot["series"][0]["high"] == [None] * 3
    assert plot["notes"] == ["One seed: nothing is known about other seeds, so there is no interval."]
