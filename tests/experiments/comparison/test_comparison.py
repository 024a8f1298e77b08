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
from headwise.reports.comparison_text import Style, text_tables

PAGE = Path(__file__).parents[3] / "docs" / "compare.md"
THREE = {**made.SYSTEMS, "mdg": {"guides": {"mdg": {"weight": 0.01}}}}
QUALITIES = {"plain": 0.6, "ag": 0.85, "mdg": 0.62}


def contents(folder):
    """By guides and seed, the results of the runs of a folder."""
    contents = [json.loads(path.read_text(encoding="utf-8")) for path in made.runs_of(folder)]
    return {
        ("+".join(each["recipe"]["guides"]) or "plain", each["recipe"]["seed"]): each["results"] for each in contents
    }


def compared(*paths, **options):
    return compare(paths, CompareOptions(**{"resamples": 400, **options}))


def rows_of(comparison):
    return {row.system: row for row in comparison.tables[0].rows}


def note(comparison, part):
    (found,) = (line for line in comparison.notes if part in line)
    return found


@pytest.fixture
def folder(tmp_path):
    return made.sweep(tmp_path / "results", {"system": THREE}, qualities=QUALITIES)


# -- numbers -----------------------------------------------------------------------------------------------------------


def test_a_sweep_is_compared_as_it_says_by_seed_and_by_example(folder):
    comparison, stored = compared(folder), contents(folder)
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
    # By example every seed is tested, and all together.
    outputs = {name: [stored[name, seed]["outputs"]["test"] for seed in (1, 2, 3)] for name in ("plain", "mdg")}
    gold = np.array(outputs["mdg"][0]["gold"])
    found = {name: [np.array(each["predictions"]) for each in outputs[name]] for name in outputs}  # [S,n]
    seeds = {
        seed: mcnemar(before, after, gold)
        for seed, before, after in zip((1, 2, 3), found["plain"], found["mdg"], strict=True)
    }
    test = rows["mdg"].by_example
    assert dict(test.mcnemar) == seeds
    assert test.mcnemar_p == pytest.approx(min(1, 2 * sorted(each.p for each in seeds.values())[1]))
    right = {name: np.mean([each == gold for each in found[name]], axis=0) for name in found}
    assert test.randomisation_p == paired_test(right["plain"], right["mdg"]).p
    assert (test.kind, test.examples) == ("classification", made.EXAMPLES)
    assert test.difference == pytest.approx(rows["mdg"].by_seed.difference)


@pytest.mark.parametrize(("kind", "metric"), [("classification", "macro_f1"), ("regression", "pearson")])
def test_the_bootstrap_draws_an_example_in_all_seeds(tmp_path, kind, metric):
    folder = made.sweep(tmp_path / "results", qualities={"plain": 0.5, "ag": 0.6}, kind=kind, examples=40)
    row, stored = rows_of(compared(folder, metric=metric, resamples=4000))["ag"], contents(folder)
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
    comparison, stored = compared(folder), contents(folder)
    assert comparison.tables[0].metric == "mrr"
    columns = {}
    for name in ("plain", "mdg+pdg"):
        seeds = [stored[name, seed]["outputs"]["test"]["per_query"] for seed in (1, 2, 3)]
        columns[name] = [np.mean([each[claim]["mrr"] for each in seeds]) for claim in sorted(seeds[0])]
    slow, test = paired_test(columns["plain"], columns["mdg+pdg"]), rows_of(comparison)["ag"].by_example
    assert (test.difference, test.randomisation_p) == pytest.approx((slow.difference, slow.p))
    assert (test.low, test.high) == pytest.approx((slow.low, slow.high), abs=0.02)
    assert test.mcnemar is None


def test_several_tasks_are_compared_by_their_mean_or_one_by_one(tmp_path):
    folder, tasks = made.folder_for(tmp_path / "results"), {"agree": "classification", "score": "regression"}
    values = {}
    for quality, size in ((0.5, 16), (0.7, 32)):
        for seed in (1, 2):
            recipe = made.recipe(
                seed=seed, task={"name": "joint"}, tasks={task: {} for task in tasks}, training__batch=size
            )
            content = made.joint_run(recipe, {task: (kind, quality) for task, kind in tasks.items()})
            made.write(folder, content)
            values[size, seed] = content["results"]["metrics"]["test"]
    key = "per_device_train_batch_size"
    options = {"by": (f"training.{key}",), "baseline": f"{key}=16"}
    mean = rows_of(compared(folder, **options))[f"{key}=32"]
    assert mean.scores.values == tuple(values[32, seed]["mean"] for seed in (1, 2))
    assert (mean.by_example.kind, mean.by_example.examples) == ("mean", 60 + 80)
    assert mean.by_example.difference == pytest.approx(mean.by_seed.difference)
    assert mean.by_example.low < mean.by_example.difference < mean.by_example.high
    one = rows_of(compared(folder, **options, metric="score/pearson"))[f"{key}=32"]
    assert one.scores.values == tuple(values[32, seed]["score/pearson"] for seed in (1, 2))
    assert (one.by_example.kind, one.by_example.examples) == ("regression", 80)
    tables = compared(folder, **options, all_metrics=True).tables
    assert [table.metric for table in tables][:2] == ["mean", "agree/accuracy"]
    with_mcnemar = [table.metric for table in tables if table.rows[1].by_example.mcnemar is not None]
    assert with_mcnemar == ["agree/accuracy"]


def test_holm_goes_over_all_blocks_and_metrics_of_one_kind(tmp_path):
    axes = {"set": {"one": {"task__name": "one"}, "two": {"task__name": "two"}}, "system": THREE}
    within = {"by": "system", "baseline": "plain", "within": ["set"]}
    folder = made.sweep(tmp_path / "results", axes, qualities=QUALITIES, compare=within)
    comparison = compared(folder, all_metrics=True)
    assert [dict(table.within) for table in comparison.tables[::4]] == [{"set": "one"}, {"set": "two"}]
    rows = [row for table in comparison.tables for row in table.rows[1:]]
    assert [table.metric for table in comparison.tables] == 2 * list(made.CLASSES)
    for kind in ("t", "permutation", "bootstrap"):
        assert [row.holm[kind] for row in rows] == pytest.approx(holm([row.p[kind] for row in rows]))
        assert len(rows) == 16
    tested = [row for row in rows if "mcnemar" in row.p]
    assert [row.holm["mcnemar"] for row in tested] == holm([row.p["mcnemar"] for row in tested])
    assert len(tested) == 4  # McNemar's test stands with accuracy alone
    comparison = compared(folder, only={"set": ("two",), "system": ("plain", "mdg")})
    assert [dict(table.within) for table in comparison.tables] == [{"set": "two"}]
    assert [row.system for row in comparison.tables[0].rows] == ["plain", "mdg"]
    comparison = compared(folder, by=("system", "set"), baseline="plain, one")
    assert [row.system for row in comparison.tables[0].rows][:3] == ["plain, one", "plain, two", "ag, one"]


def test_stars_go_by_the_corrected_t_test_or_by_the_raw_one(tmp_path):
    folder = made.sweep(tmp_path / "results", {"system": THREE}, qualities={"plain": 0.3, "ag": 0.9, "mdg": 0.8})
    for stars in ("holm", "raw"):
        comparison = compared(folder, stars=stars)
        for row in comparison.tables[0].rows[1:]:
            p = (row.holm if stars == "holm" else row.p)["t"]
            assert row.stars == ("**" if p < 0.01 else "*" if p < 0.05 else "")
            assert row.stars
        expected = "corrected by Holm for 2 tests" if stars == "holm" else "not corrected"
        assert any(expected in line for line in comparison.legend)
    assert comparison.tables[0].rows[0].stars == ""


# -- properties --------------------------------------------------------------------------------------------------------


def test_the_order_the_names_and_the_kind_of_files_do_not_matter(folder, tmp_path):
    first = compared(*made.runs_of(folder))
    moved = tmp_path / "moved"
    moved.mkdir()
    for number, path in enumerate(made.runs_of(folder)):
        shutil.copy(path, moved / f"{hash(path.name) % 1000}-{number}.json")
    paths = list(moved.iterdir())
    random.Random(2).shuffle(paths)
    assert compared(*paths) == first
    trained = [
        made.write_trained(tmp_path / "runs" / path.stem, json.loads(path.read_text(encoding="utf-8")))
        for path in paths
    ]
    assert compared(*trained) == first  # folders of `headwise train`
    for path in paths:  # records of headwise 0.1
        new = json.loads(path.read_text(encoding="utf-8"))
        asked = {"recipe": new["recipe"], "examples": new["examples"], "seed": new["recipe"]["seed"]}
        old = {"format": 1, "asked": asked, "happened": new["results"], "world": new["environment"]}
        path.write_text(json.dumps(old), encoding="utf-8")
    assert compared(*paths) == first
    repeated = compared(*paths, made.runs_of(folder)[0])
    assert repeated.tables == first.tables
    assert "1 file repeats" in note(repeated, "repeat")


# -- labels of systems -------------------------------------------------------------------------------------------------


SIZE = "per_device_train_batch_size"
LABELLED = [
    ([{"guides": {"mdg": {"weight": 0.1}}}, {"guides": {"mdg": {}}}], ["mdg (mdg.weight=0.1)", "mdg (default)"]),
    ([{"model": "a/same"}, {"model": "b/same"}], ["a/same", "b/same"]),
    ([{"training__batch": 8}, {"training__batch": 16}], [f"{SIZE}=8", f"{SIZE}=16"]),
    ([{}, {"ssa": {"model": "hybrid"}}], ["ssa", "without"]),
]


@pytest.mark.parametrize(("changes", "labels"), LABELLED)
def test_labels_consist_of_the_values_that_differ(tmp_path, changes, labels):
    folder = made.folder_for(tmp_path / "results")
    for number, change in enumerate(changes):
        for seed in (1, 2):
            made.write(folder, made.run(made.recipe(seed=seed, **change), 0.6 + 0.1 * number))
    comparison = compared(*made.runs_of(folder), baseline=labels[0])
    assert {row.system for row in comparison.tables[0].rows} == set(labels)


# -- notes -------------------------------------------------------------------------------------------------------------


def test_one_seed_is_tested_by_example_only(tmp_path):
    folder = made.sweep(tmp_path / "results", seeds=(7,), qualities={"plain": 0.5, "ag": 0.9})
    comparison = compared(folder)
    row = rows_of(comparison)["ag"]
    assert "no test by seed is possible" in note(comparison, "One seed")
    assert set(row.p) == {"mcnemar", "bootstrap", "randomisation"}
    assert row.p["mcnemar"] == row.by_example.mcnemar[7].p
    assert row.stars == ""
    assert any("No stars" in line for line in comparison.legend)


def test_the_split_is_test_if_all_have_it(folder):
    comparison = compared(folder)
    assert note(comparison, "Scores") == "Scores on test."
    assert "with 3 seeds this test cannot go below p = 0.25" in note(comparison, "Permutation test")
    made.alter(made.runs_of(folder)[0], results__metrics__test=None)
    comparison = compared(folder)
    assert comparison.split == "validation"
    assert "Not all runs have scores on test" in note(comparison, "validation")
    assert "Not all" not in note(compared(folder, split="validation"), "validation")


def test_failed_and_missing_runs_are_in_the_notes(tmp_path):
    folder = made.sweep(tmp_path / "results")
    for guides in ({}, made.GUIDED):
        path = made.run_of(folder, guides=guides, seed=3)
        recipe = json.loads(path.read_text(encoding="utf-8"))["recipe"]
        path.unlink()
    made.write(folder, made.failed(recipe, "a tensor\nis too large"))
    comparison = compared(folder)
    assert comparison.tables[0].rows[0].seeds == (1, 2)  # still balanced
    assert "2 of 6 runs of the sweep table are not there yet: start the sweep again" in note(comparison, "not there")
    failed = note(comparison, "failed")
    assert failed.startswith("1 failed run is left out")
    assert ".error.json (RuntimeError: a tensor is too large)" in failed
    made.write(folder, made.run(recipe))  # it is finished later
    made.write(folder, made.run({**recipe, "guides": {}}))
    assert not any("failed" in line for line in compared(folder).notes)


def test_common_seeds_are_those_that_all_have(folder):
    made.run_of(folder, guides=made.GUIDED, seed=2).unlink()
    comparison = compared(folder, common_seeds=True)
    assert {row.seeds for row in comparison.tables[0].rows} == {(1, 3)}
    assert "seeds 2 left out" in note(comparison, "left out")
    for seed in (1, 3):
        made.run_of(folder, guides=made.GUIDED, seed=seed).unlink()
    comparison = compared(folder, common_seeds=True)
    assert [row.system for row in comparison.tables[0].rows] == ["plain", "mdg"]
    assert "ag left out, without any run" in note(comparison, "left out")


def test_runs_without_answers_have_no_tests_by_example(folder):
    made.alter(made.runs_of(folder)[0], results__outputs={})
    comparison = compared(folder)
    assert "not all runs keep the answers" in note(comparison, "No tests by example for accuracy")
    assert set(rows_of(comparison)["ag"].p) == {"t", "permutation"}


def test_seeds_with_different_examples_are_tested_one_by_one(tmp_path):
    """As where each seed holds out another part of the training set."""
    folder = made.folder_for(tmp_path / "results")
    for guides, quality in (({}, 0.5), (made.GUIDED, 0.8)):
        for seed in (1, 2, 3):
            made.write(folder, made.run(made.recipe(seed=seed, guides=guides), quality, draw=seed))
    comparison = compared(folder)
    test = rows_of(comparison)["mdg+pdg"].by_example
    assert "each has its tests" in note(comparison, "different examples")
    assert (test.low, test.high) == (None, None)
    assert test.mcnemar_p == pytest.approx(min(1, 2 * sorted(each.p for each in test.mcnemar.values())[1]))
    alone = [
        rows_of(compared(*(made.run_of(folder, seed=seed, guides=guides) for guides in ({}, made.GUIDED))))
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
    comparison = compared(folder)
    assert "no t-test" in note(comparison, "same for every seed")
    assert set(rows_of(comparison)["mdg+pdg"].p) == {"permutation"}


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_page_has_every_column(folder):
    page = PAGE.read_text(encoding="utf-8")
    (table,) = text_tables(compared(folder), Style())
    for heading in table.headings[2:]:
        assert f"\n| {heading} | " in page


def test_the_page_is_right_about_few_seeds():
    rows = re.findall(r"^\| (\d+) \| ([\d.]+) \| ([\d.]+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [int(row[0]) for row in rows] == [2, 3, 5, 6, 8, 10]
    for count, smallest, effect in rows:
        assert f"{smallest_permutation_p(int(count)):.2g}" == smallest
        assert detectable_effect(int(count)) == pytest.approx(float(effect), abs=0.0501)
