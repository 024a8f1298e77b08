"""Comparisons of runs written by hand, against the same numbers computed the slow way."""

import json
import random
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import small_results as made
from scipy import stats

from headwise.experiments.comparison import CompareOptions, compare
from headwise.metrics.significance import (
    detectable_effect,
    holm,
    mcnemar,
    paired_by_seed,
    paired_test,
    smallest_permutation_p,
)
from headwise.reports.comparison_text import Style, columns_of

PAGE = Path(__file__).parents[3] / "docs" / "compare.md"
QUICK = {"resamples": 400}
THREE = {**made.SYSTEMS, "mdg": {"guides": {"mdg": {"weight": 0.01}}}}
QUALITIES = {"plain": 0.6, "ag": 0.85, "mdg": 0.62}


def contents(folder):
    """By guides and seed, the records of a folder."""
    found = {}
    for path in made.runs_of(folder):
        content = json.loads(path.read_text(encoding="utf-8"))
        recipe = content["recipe"]
        found["+".join(recipe["guides"]) or "plain", recipe["seed"]] = content["results"]
    return found


def rows_of(comparison, number=0):
    return {row.system: row for row in comparison.tables[number].rows}


@pytest.fixture
def folder(tmp_path):
    return made.sweep(tmp_path / "results", {"system": THREE}, qualities=QUALITIES)


# -- numbers -----------------------------------------------------------------------------------------------------------


def test_a_sweep_is_compared_as_it_says(folder):
    comparison, stored = compare([folder], CompareOptions(**QUICK)), contents(folder)
    assert (comparison.by, comparison.baseline, comparison.split, comparison.runs) == (("system",), "plain", "test", 9)
    (table,) = comparison.tables
    assert (table.metric, dict(table.within)) == ("accuracy", {})
    assert [row.system for row in table.rows] == ["plain", "ag", "mdg"]
    values = {
        name: [stored[name, seed]["metrics"]["test"]["accuracy"] for seed in (1, 2, 3)] for name in ("plain", "mdg")
    }
    rows = rows_of(comparison)
    assert rows["plain"].scores.values == tuple(values["plain"])
    assert rows["plain"].by_seed is None
    assert rows["plain"].by_example is None
    test = rows["mdg"].by_seed
    assert test == paired_by_seed(values["plain"], values["mdg"])
    assert test.t_test_p == pytest.approx(stats.ttest_rel(values["mdg"], values["plain"]).pvalue)


def test_by_example_every_seed_is_tested_and_all_together(folder):
    row, stored = rows_of(compare([folder], CompareOptions(**QUICK)))["mdg"], contents(folder)
    outputs = {name: [stored[name, seed]["outputs"]["test"] for seed in (1, 2, 3)] for name in ("plain", "mdg")}
    seeds = {
        seed: mcnemar(np.array(a["predictions"]), np.array(b["predictions"]), np.array(a["gold"]))
        for seed, a, b in zip((1, 2, 3), outputs["plain"], outputs["mdg"], strict=True)
    }
    test = row.by_example
    assert dict(test.mcnemar) == seeds
    assert test.mcnemar_p == pytest.approx(min(1, 2 * sorted(each.p for each in seeds.values())[1]))
    right = {
        name: np.mean([np.array(each["predictions"]) == np.array(each["gold"]) for each in outputs[name]], axis=0)
        for name in outputs
    }
    assert test.randomisation_p == paired_test(right["plain"], right["mdg"]).p
    assert (test.kind, test.examples) == ("classification", made.EXAMPLES)
    assert test.difference == pytest.approx(row.by_seed.difference)


@pytest.mark.parametrize(("kind", "metric"), [("classification", "macro_f1"), ("regression", "pearson")])
def test_the_bootstrap_draws_an_example_in_all_seeds(tmp_path, kind, metric):
    folder = made.sweep(tmp_path / "results", qualities={"plain": 0.5, "ag": 0.6}, kind=kind, examples=40)
    row, stored = rows_of(compare([folder], CompareOptions(metric=metric, resamples=4000)))["ag"], contents(folder)
    chance, drawn = random.Random(1), []
    for _ in range(800):
        drawn_examples = chance.choices(range(40), k=40)
        means = [
            np.mean(
                [made.slow_metric(metric, stored[name, seed]["outputs"]["test"], drawn_examples) for seed in (1, 2, 3)]
            )
            for name in ("plain", "mdg+pdg")
        ]
        drawn.append(means[1] - means[0])
    low, high = np.quantile(drawn, [0.025, 0.975])
    test = row.by_example
    assert (test.low, test.high) == pytest.approx((low, high), abs=0.15 * (high - low))
    share = min(np.mean(np.array(drawn) <= 0), np.mean(np.array(drawn) >= 0))
    assert test.bootstrap_p == pytest.approx(2 * share, abs=0.06)
    assert (test.mcnemar_p is None) == (kind == "regression")
    assert test.randomisation_p is None


def test_rankings_are_tested_claim_by_claim(tmp_path):
    folder = made.sweep(tmp_path / "results", qualities={"plain": 0.5, "ag": 0.62}, kind="ranking")
    comparison, stored = compare([folder], CompareOptions(**QUICK)), contents(folder)
    assert comparison.tables[0].metric == "mrr"
    columns = {}
    for name in ("plain", "mdg+pdg"):
        seeds = [stored[name, seed]["outputs"]["test"]["per_query"] for seed in (1, 2, 3)]
        columns[name] = [np.mean([each[claim]["mrr"] for each in seeds]) for claim in sorted(seeds[0])]
    slow, test = paired_test(columns["plain"], columns["mdg+pdg"]), rows_of(comparison)["ag"].by_example
    assert (test.difference, test.randomisation_p) == pytest.approx((slow.difference, slow.p))
    assert (test.low, test.high) == pytest.approx((slow.low, slow.high), abs=0.02)
    assert test.mcnemar is None


TASKS = {"agree": "classification", "score": "regression"}


def joint(folder, quality, seed, **changes):
    recipe = made.recipe(seed=seed, tasks={task: {} for task in TASKS}, **changes)
    del recipe["task"]
    recipe["task"] = {"name": "joint"}
    content = made.joint_run(recipe, {task: (kind, quality) for task, kind in TASKS.items()})
    return made.write(folder, content), content["results"]


def test_several_tasks_are_compared_by_their_mean_or_one_by_one(tmp_path):
    folder = made.folder_for(tmp_path / "results")
    stored = {
        (name, seed): joint(folder, quality, seed, training__batch=batch)[1]
        for name, quality, batch in (("16", 0.5, 16), ("32", 0.7, 32))
        for seed in (1, 2)
    }
    options = {"by": ("training.per_device_train_batch_size",), "baseline": "per_device_train_batch_size=16", **QUICK}
    mean = rows_of(compare([folder], CompareOptions(**options)))["per_device_train_batch_size=32"]
    assert mean.scores.values == tuple(stored["32", seed]["metrics"]["test"]["mean"] for seed in (1, 2))
    assert (mean.by_example.kind, mean.by_example.examples) == ("mean", 60 + 80)
    assert mean.by_example.difference == pytest.approx(mean.by_seed.difference)
    assert mean.by_example.low < mean.by_example.difference < mean.by_example.high
    one = rows_of(compare([folder], CompareOptions(**options, metric="score/pearson")))[
        "per_device_train_batch_size=32"
    ]
    assert one.scores.values == tuple(stored["32", seed]["metrics"]["test"]["score/pearson"] for seed in (1, 2))
    assert (one.by_example.kind, one.by_example.examples) == ("regression", 80)
    tables = compare([folder], CompareOptions(**options, all_metrics=True)).tables
    assert [table.metric for table in tables][:2] == ["mean", "agree/accuracy"]
    with_mcnemar = [table.metric for table in tables if table.rows[1].by_example.mcnemar is not None]
    assert with_mcnemar == ["agree/accuracy"]


def test_holm_goes_over_all_blocks_and_metrics_of_one_kind(tmp_path):
    axes = {"set": {"one": {"task__name": "one"}, "two": {"task__name": "two"}}, "system": THREE}
    within = {"by": "system", "baseline": "plain", "within": ["set"]}
    folder = made.sweep(tmp_path / "results", axes, qualities=QUALITIES, compare=within)
    comparison = compare([folder], CompareOptions(all_metrics=True, **QUICK))
    assert [dict(table.within) for table in comparison.tables[::4]] == [{"set": "one"}, {"set": "two"}]
    rows = [row for table in comparison.tables for row in table.rows[1:]]
    assert [table.metric for table in comparison.tables] == 2 * list(made.CLASSES)
    for kind in ("t", "permutation", "bootstrap"):
        assert [row.holm[kind] for row in rows] == pytest.approx(holm([row.p[kind] for row in rows]))
        assert len(rows) == 16
    tested = [row for row in rows if "mcnemar" in row.p]
    assert [row.holm["mcnemar"] for row in tested] == holm([row.p["mcnemar"] for row in tested])
    assert len(tested) == 4  # McNemar's test stands with accuracy alone
    comparison = compare([folder], CompareOptions(only={"set": ("two",), "system": ("plain", "mdg")}, **QUICK))
    assert [dict(table.within) for table in comparison.tables] == [{"set": "two"}]
    assert [row.system for row in comparison.tables[0].rows] == ["plain", "mdg"]
    comparison = compare([folder], CompareOptions(by=("system", "set"), baseline="plain, one", **QUICK))
    assert [row.system for row in comparison.tables[0].rows][:3] == ["plain, one", "plain, two", "ag, one"]


def test_stars_go_by_the_corrected_t_test_or_by_the_raw_one(tmp_path):
    folder = made.sweep(tmp_path / "results", {"system": THREE}, qualities={"plain": 0.3, "ag": 0.9, "mdg": 0.8})
    for stars in ("holm", "raw"):
        comparison = compare([folder], CompareOptions(stars=stars, **QUICK))
        for row in comparison.tables[0].rows[1:]:
            p = (row.holm if stars == "holm" else row.p)["t"]
            assert row.stars == ("**" if p < 0.01 else "*" if p < 0.05 else "")
            assert row.stars
        assert any(
            ("corrected by Holm for 2 tests" if stars == "holm" else "not corrected") in line
            for line in comparison.legend
        )
    assert comparison.tables[0].rows[0].stars == ""


# -- properties --------------------------------------------------------------------------------------------------------


def test_the_order_the_names_and_the_kind_of_files_do_not_matter(folder, tmp_path):
    first = compare(made.runs_of(folder), CompareOptions(**QUICK))
    moved = tmp_path / "moved"
    moved.mkdir()
    for number, path in enumerate(made.runs_of(folder)):
        shutil.copy(path, moved / f"{hash(path.name) % 1000}-{number}.json")
    paths = list(moved.iterdir())
    random.Random(2).shuffle(paths)
    assert compare(paths, CompareOptions(**QUICK)) == first
    trained = [
        made.write_trained(tmp_path / "runs" / path.stem, json.loads(path.read_text(encoding="utf-8")))
        for path in paths
    ]
    assert compare(trained, CompareOptions(**QUICK)) == first  # folders of `headwise train`
    for path in paths:  # records of headwise 0.1
        new = json.loads(path.read_text(encoding="utf-8"))
        asked = {"recipe": new["recipe"], "examples": new["examples"], "seed": new["recipe"]["seed"]}
        old = {"format": 1, "asked": asked, "happened": new["results"], "world": new["environment"]}
        path.write_text(json.dumps(old), encoding="utf-8")
    assert compare(paths, CompareOptions(**QUICK)) == first
    repeated = compare([*paths, made.runs_of(folder)[0]], CompareOptions(**QUICK))
    assert repeated.tables == first.tables
    assert "1 file repeats" in note(repeated, "repeat")


# -- labels of systems -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "labels"),
    [
        (
            [{"guides": {"mdg": {"weight": 0.1}}}, {"guides": {"mdg": {}}}],
            ["mdg (mdg.weight=0.1)", "mdg (default)"],
        ),
        ([{"model": "a/same"}, {"model": "b/same"}], ["a/same", "b/same"]),
        (
            [{"training__batch": 8}, {"training__batch": 16}],
            ["per_device_train_batch_size=8", "per_device_train_batch_size=16"],
        ),
        ([{}, {"ssa": {"model": "hybrid"}}], ["ssa", "without"]),
    ],
)
def test_labels_consist_of_the_values_that_differ(tmp_path, changes, labels):
    folder = made.folder_for(tmp_path / "results")
    for number, change in enumerate(changes):
        for seed in (1, 2):
            made.write(folder, made.run(made.recipe(seed=seed, **change), 0.6 + 0.1 * number))
    comparison = compare(made.runs_of(folder), CompareOptions(baseline=labels[0], **QUICK))
    assert {row.system for row in comparison.tables[0].rows} == set(labels)


# -- notes -------------------------------------------------------------------------------------------------------------


def note(comparison, part):
    (found,) = (line for line in comparison.notes if part in line)
    return found


def test_one_seed_is_tested_by_example_only(tmp_path):
    folder = made.sweep(tmp_path / "results", seeds=(7,), qualities={"plain": 0.5, "ag": 0.9})
    comparison = compare([folder], CompareOptions(**QUICK))
    row = rows_of(comparison)["ag"]
    assert "no test by seed is possible" in note(comparison, "One seed")
    assert set(row.p) == {"mcnemar", "bootstrap", "randomisation"}
    assert row.p["mcnemar"] == row.by_example.mcnemar[7].p
    assert row.stars == ""
    assert any("No stars" in line for line in comparison.legend)


def test_the_split_is_test_if_all_have_it(folder):
    comparison = compare([folder], CompareOptions(**QUICK))
    assert note(comparison, "Scores") == "Scores on test."
    assert "with 3 seeds this test cannot go below p = 0.25" in note(comparison, "Permutation test")
    made.alter(made.runs_of(folder)[0], results__metrics__test=None)
    comparison = compare([folder], CompareOptions(**QUICK))
    assert comparison.split == "validation"
    assert "Not all runs have scores on test" in note(comparison, "validation")
    assert "Not all" not in note(compare([folder], CompareOptions(split="validation", **QUICK)), "validation")


def test_failed_and_missing_runs_are_in_the_notes(tmp_path):
    folder = made.sweep(tmp_path / "results")
    for guides in ({}, made.GUIDED):
        path = made.run_of(folder, guides=guides, seed=3)
        recipe = json.loads(path.read_text(encoding="utf-8"))["recipe"]
        path.unlink()
    made.write(folder, made.failed(recipe, "a tensor\nis too large"))
    comparison = compare([folder], CompareOptions(**QUICK))
    assert comparison.tables[0].rows[0].seeds == (1, 2)  # still balanced
    assert "2 of 6 runs of the sweep table are not there yet: start the sweep again" in note(comparison, "not there")
    failed = note(comparison, "failed")
    assert failed.startswith("1 failed run is left out")
    assert ".error.json (RuntimeError: a tensor is too large)" in failed
    made.write(folder, made.run(recipe))  # it is finished later
    made.write(folder, made.run({**recipe, "guides": {}}))
    assert not any("failed" in line for line in compare([folder], CompareOptions(**QUICK)).notes)


def test_common_seeds_are_those_that_all_have(folder):
    made.run_of(folder, guides=made.GUIDED, seed=2).unlink()
    comparison = compare([folder], CompareOptions(common_seeds=True, **QUICK))
    assert {row.seeds for row in comparison.tables[0].rows} == {(1, 3)}
    assert "seeds 2 left out" in note(comparison, "left out")
    for seed in (1, 3):
        made.run_of(folder, guides=made.GUIDED, seed=seed).unlink()
    comparison = compare([folder], CompareOptions(common_seeds=True, **QUICK))
    assert [row.system for row in comparison.tables[0].rows] == ["plain", "mdg"]
    assert "ag left out, without any run" in note(comparison, "left out")


def test_runs_without_answers_have_no_tests_by_example(folder):
    made.alter(made.runs_of(folder)[0], results__outputs={})
    comparison = compare([folder], CompareOptions(**QUICK))
    assert "not all runs keep the answers" in note(comparison, "No tests by example for accuracy")
    assert set(rows_of(comparison)["ag"].p) == {"t", "permutation"}


def test_seeds_with_different_examples_are_tested_one_by_one(tmp_path):
    """As where each seed holds out another part of the training set."""
    folder = made.folder_for(tmp_path / "results")
    for guides, quality in (({}, 0.5), (made.GUIDED, 0.8)):
        for seed in (1, 2, 3):
            made.write(folder, made.run(made.recipe(seed=seed, guides=guides), quality, draw=seed))
    comparison = compare([folder], CompareOptions(**QUICK))
    test = rows_of(comparison)["mdg+pdg"].by_example
    assert "each has its tests" in note(comparison, "different examples")
    assert (test.low, test.high) == (None, None)
    assert test.mcnemar_p == pytest.approx(min(1, 2 * sorted(each.p for each in test.mcnemar.values())[1]))
    alone = [
        rows_of(
            compare(
                [made.run_of(folder, seed=seed, guides=guides) for guides in ({}, made.GUIDED)], CompareOptions(**QUICK)
            )
        )
        for seed in (1, 2, 3)
    ]
    tests = [each["mdg+pdg"].by_example for each in alone]
    assert test.bootstrap_p == pytest.approx(2 * sorted(each.bootstrap_p for each in tests)[1])
    assert test.difference == pytest.approx(np.mean([each.difference for each in tests]))


def test_a_difference_that_is_the_same_for_every_seed_has_no_t_test(tmp_path):
    folder = made.folder_for(tmp_path / "results")
    for guides, value in (({}, 0.5), (made.GUIDED, 0.625)):
        for seed in (1, 2):
            content = made.run(made.recipe(seed=seed, guides=guides))
            content["results"] |= {"metrics": {"test": {"accuracy": value}}, "outputs": {}}
            made.write(folder, content)
    comparison = compare([folder], CompareOptions(**QUICK))
    assert "no t-test" in note(comparison, "same for every seed")
    assert set(rows_of(comparison)["mdg+pdg"].p) == {"permutation"}


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_page_has_every_column(folder):
    page = PAGE.read_text(encoding="utf-8")
    for column in columns_of(compare([folder], CompareOptions(**QUICK)).tables[0], Style())[2:]:
        assert f"\n| {column.heading} | " in page


def test_the_page_is_right_about_few_seeds():
    rows = re.findall(r"^\| (\d+) \| ([\d.]+) \| ([\d.]+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [int(row[0]) for row in rows] == [2, 3, 5, 6, 8, 10]
    for count, smallest, effect in rows:
        assert f"{smallest_permutation_p(int(count)):.2g}" == smallest
        assert detectable_effect(int(count)) == pytest.approx(float(effect), abs=0.0501)
