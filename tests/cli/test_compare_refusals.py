"""`headwise compare` refuses, in one sentence, what cannot be compared, and says in what it differs."""

import json
import shutil

import pytest
import small_results as made
from tiny_runs import assert_one_sentence

SETS = {"one": {"task__name": "one"}, "two": {"task__name": "two"}}
BATCHES = {"8": {"training__batch": 8}, "16": {"training__batch": 16}}
WITHIN = {"by": "system", "baseline": "plain", "within": ["set"]}


@pytest.fixture
def folder(tmp_path):
    return made.sweep(tmp_path / "results", qualities={"plain": 0.6, "ag": 0.7})


@pytest.fixture
def refused(headwise):
    def compare(*words, parts):
        assert_one_sentence(headwise("compare", *words, "--resamples", 100), *parts)

    return compare


@pytest.fixture
def fine(headwise):
    def compare(*words):
        code, out, err = headwise("compare", *words, "--resamples", 100, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return compare


def guided(folder, seed=2):
    return made.run_of(folder, guides=made.GUIDED, seed=seed)


# What one run differs in, the sentence about it, and what lets it pass.
CHANGES = [
    (
        {"recipe__training__epochs": 5.0},
        "the seeds of ag differ in training.num_train_epochs (3.0 and 5.0)",
        "training",
    ),
    ({"environment__packages__torch": "2.10.0"}, 'the runs differ in torch ("2.', "torch"),
    ({"environment__processes": 2}, "the runs differ in processes (", "processes"),
    ({"examples": "fresh"}, "the runs of seed 2 had different examples", "examples"),
    ({"results__outputs__test__examples": "elsewhere"}, "scored on different examples with seed 2", None),
    ({"results__outputs__test__gold": [1] * made.EXAMPLES}, "different answers to find in test", None),
    ({"results__metrics__test__accuracy": 0.99}, "says accuracy 0.9900 on test, but its answers give", None),
    ({"results__metrics__test__accuracy": float("nan")}, "is nan", None),
    ({"results__primary": "macro_f1"}, "different main metrics (accuracy in ", None),
    ({"results__metrics__test": {"mrr": 0.5}}, "has no accuracy on test", None),
    ({"format": 7}, "does not hold a run in format 2", None),
    ({"results__metrics__test__accuracy": "high"}, "is damaged", None),
    ({"results__outputs__test__predictions": [1]}, "is damaged", None),
]


@pytest.mark.parametrize(("change", "sentence", "ignore"), CHANGES)
def test_one_run_that_differs_from_the_others(refused, fine, folder, change, sentence, ignore):
    made.alter(guided(folder), **change)
    refused(folder, parts=[sentence])
    if ignore is not None:
        assert any("; passed over" in note for note in fine(folder, "--ignore", ignore)["notes"])


def test_other_packages_and_another_name_do_not_matter(fine, folder):
    made.alter(guided(folder), environment__packages__numpy="1.0", environment__python="3.12", recipe__name="other")
    assert fine(folder)["runs"] == 6


def test_options_that_name_nothing(refused, folder):
    for words, parts in (
        (("--ignore", "torhc"), ["--ignore torhc", "did you mean 'torch'"]),
        (("--metric", "acuracy"), ["has no acuracy on test", "did you mean 'accuracy'"]),
        (("--metric", "accuracy", "--all-metrics"), ["--metric accuracy and --all-metrics"]),
        (("--split", "train"), ["--split train", "validation"]),
        (("--by", "sytem"), ["--by sytem", "did you mean 'system'"]),
        (("--within", "description"), ["--within description", "no such axis"]),
        (("--by", "seed"), ["--by seed"]),
        (("--by", "system", "--within", "system"), ["in both --by ... and --within ..."]),
        (("--only", "system=plian"), ["--only system=plian", "did you mean 'plain'"]),
        (("--only", "system"), ["AXIS=LABEL"]),
        (("--stars", "many"), ["--stars many", "holm, raw"]),
        (("--baseline", "tow"), ["baseline tow", "known: ag, plain"]),
    ):
        refused(folder, *words, parts=parts)


def test_systems_and_blocks_that_differ_in_more_than_the_sweep_says(refused, folder, tmp_path):
    for seed in (1, 2, 3):
        made.alter(guided(folder, seed), recipe__training__batch=8, recipe__data__max_length=64)
    refused(folder, parts=["the systems differ in", "(128 and 64) and in 1 other key", "--by ... or --within ..."])
    sets = {**SETS, "two": {"task__name": "two", "data__max_length": 64}}
    blocks = made.sweep(tmp_path / "blocks", {"set": sets, "system": made.SYSTEMS}, compare=WITHIN)
    made.alter(blocks / "sweeps" / "table.json", axes__set__keys=["task"])
    refused(blocks, parts=["the blocks differ in data.max_length (128 and 64)"])


def test_an_axis_that_nobody_named(refused, fine, tmp_path):
    folder = made.sweep(tmp_path / "results", {"batch": BATCHES, "system": made.SYSTEMS})
    size = "training.per_device_train_batch_size"
    refused(folder, parts=["plain has several runs of seed 1", f"{size} (8 and 16)", "--within"])
    assert len(fine(folder, "--within", "batch")["tables"]) == 2
    assert len(fine(folder, "--only", "batch=8")["tables"]) == 1
    refused(*made.runs_of(folder), parts=[f"the runs differ in guides, {size}", "--by", "--within"])
    folder = made.sweep(tmp_path / "silent", {"batch": BATCHES, "system": made.SYSTEMS}, compare={})
    refused(folder, parts=["the sweep table does not say what to compare", "batch, system", "--by"])


def test_the_same_run_with_other_results(refused, folder, tmp_path):
    copy = tmp_path / "copy.json"
    shutil.copy(guided(folder), copy)
    made.alter(copy, results__metrics__test__accuracy=0.5)
    refused(folder, copy, parts=[str(guided(folder)), str(copy), "same recipe and seed but other results"])


# -- seeds, systems, sweeps --------------------------------------------------------------------------------------------


def test_seeds_that_are_missing(refused, fine, folder):
    guided(folder).unlink()
    parts = ["ag lacks 2 of 1, 2, 3", "1 of 6 runs of the sweep table are not there yet: start the sweep again"]
    refused(folder, parts=[*parts, "--common-seeds"])
    assert fine(folder, "--common-seeds")["tables"][0]["rows"][1]["seeds"] == [1, 3]
    refused(*made.runs_of(folder), parts=["mdg+pdg lacks 2 of 1, 2, 3", "add their runs", "--common-seeds"])
    guided(folder, 3).unlink()
    made.run_of(folder, guides={}, seed=1).unlink()
    refused(folder, "--common-seeds", parts=["no seed is there for plain and another system"])
    guided(folder, 1).unlink()
    refused(folder, parts=["there is one system only (plain)", "4 of 6 runs of the sweep table are not there yet"])


def test_a_system_without_any_run_beside_others(refused, tmp_path):
    folder = made.sweep(tmp_path / "results", {"system": {**made.SYSTEMS, "mdg": {"guides": {"mdg": {}}}}})
    for seed in (1, 2, 3):
        guided(folder, seed).unlink()
    refused(folder, parts=["ag lacks 1, 2, 3 of 1, 2, 3", "--common-seeds"])


def test_nothing_finished_and_nothing_that_differs(refused, folder):
    plain = [made.run_of(folder, guides={}, seed=seed) for seed in (1, 2, 3)]
    refused(*plain, parts=["differ in nothing but their seed"])
    for path in made.runs_of(folder):
        recipe = json.loads(path.read_text(encoding="utf-8"))["recipe"]
        path.unlink()
        made.write(folder, made.failed(recipe))
    refused(folder, parts=["no finished run", "6 failed", ".error.json"])


def test_a_baseline_that_must_be_named_or_is_the_one_without_guides(refused, fine, tmp_path):
    systems = {"plain": {"guides": {"mdg": {}}}, "without": {"guides": {"pdg": {}}}}
    folder = made.sweep(tmp_path / "two", {"system": systems}, compare={"by": "system"})
    refused(folder, parts=["name one of plain, without with --baseline"])
    systems = {"left": {"guides": {"mdg": {}}}, "right": {"guides": {}}}
    assert fine(made.sweep(tmp_path / "one", {"system": systems}, compare={"by": "system"}))["baseline"] == "right"


def test_a_block_without_the_baseline(refused, tmp_path):
    folder = made.sweep(tmp_path / "results", {"set": SETS, "system": made.SYSTEMS}, compare=WITHIN)
    manifest = folder / "sweeps" / "table.json"
    runs = json.loads(manifest.read_text(encoding="utf-8"))["runs"]
    runs = [run for run in runs if (run["point"]["set"], run["point"]["system"]) != ("two", "plain")]
    made.alter(manifest, runs=runs)
    refused(folder, parts=["set two: there is no plain to compare with"])


def test_several_sweeps_in_one_folder(refused, fine, folder):
    made.sweep(folder, {"system": {"plain": {"guides": {}}, "pdg": {"guides": {"pdg": {}}}}}, name="other")
    refused(folder, parts=["holds several sweeps (other, table)", "--sweep"])
    refused(folder, "--sweep", "tabel", parts=["--sweep tabel", "did you mean 'table'"])
    refused(folder, guided(folder), "--sweep", "table", parts=["name that folder alone"])
    assert [row["system"] for row in fine(folder, "--sweep", "other")["tables"][0]["rows"]] == ["plain", "pdg"]


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [{"axes": 3}, {"axes__system__labels": ["plain"]}, {"format": 99}])
def test_damaged_manifests_and_those_of_other_versions(refused, folder, change):
    made.alter(folder / "sweeps" / "table.json", **change)
    refused(folder, parts=["table.json has format 99" if "format" in change else "table.json is damaged"])


def test_files_and_folders_that_hold_no_run(refused, folder, tmp_path):
    path = tmp_path / "run.json"
    for text, part in ((b"[]", "expected a JSON object"), (b"{}", "does not hold a run"), (b"\xff", "is no JSON")):
        path.write_bytes(text)
        refused(path, parts=[str(path), part])
    refused(tmp_path / "nowhere.json", parts=["nowhere.json could not be read"])
    refused(folder / "runs", parts=["holds neither the results of a sweep"])
    run = made.write_trained(tmp_path / "run", json.loads(guided(folder).read_text(encoding="utf-8")))
    made.alter(run / "headwise.json", results=None)
    refused(run, parts=["not finished", "--resume"])
    made.alter(folder / "headwise-sweep.json", format=2, headwise="9.0")
    refused(folder, parts=["has format 2", "headwise '9.0'", "reads format 1"])
