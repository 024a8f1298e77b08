"""`headwise compare` refuses, in one sentence, what cannot be compared, and says in what it differs."""

import json
import shutil

import pytest
import small_results as made
from tiny_runs import assert_one_sentence


@pytest.fixture
def folder(tmp_path):
    return made.sweep(tmp_path / "results", qualities={"plain": 0.6, "ag": 0.7})


@pytest.fixture
def refused(headwise):
    def type_in(*words, parts):
        assert_one_sentence(headwise("compare", *words, "--resamples", 100), *parts)

    return type_in


@pytest.fixture
def fine(headwise):
    def type_in(*words):
        code, out, err = headwise("compare", *words, "--resamples", 100, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return type_in


def guided(folder, seed=2):
    return made.run_of(folder, guides=made.GUIDED, seed=seed)


# -- runs that differ --------------------------------------------------------------------------------------------------


def test_one_run_that_differs_from_the_other_seeds(refused, fine, folder):
    made.alter(guided(folder), recipe__training__epochs=5.0)
    parts = "the seeds of ag differ in training.num_train_epochs (3.0 and 5.0)", "--ignore"
    refused(folder, parts=parts)
    notes = fine(folder, "--ignore", "training.num_train_epochs")["notes"]
    assert any("training.num_train_epochs (3.0 and 5.0); passed over" in note for note in notes)


def test_systems_that_differ_in_more_than_the_sweep_says(refused, folder):
    for seed in (1, 2, 3):
        made.alter(guided(folder, seed), recipe__training__batch=8, recipe__data__max_length=64)
    refused(folder, parts=["the systems differ in", "(128 and 64) and in 1 other key", "--by ... or --within ..."])


def test_an_axis_that_nobody_named(refused, fine, tmp_path):
    axes = {"batch": {"8": {"training__batch": 8}, "16": {"training__batch": 16}}, "system": made.SYSTEMS}
    folder = made.sweep(tmp_path / "results", axes)
    refused(
        folder,
        parts=["plain has several runs of seed 1", "training.per_device_train_batch_size (8 and 16)", "--within"],
    )
    assert len(fine(folder, "--within", "batch")["tables"]) == 2
    assert len(fine(folder, "--only", "batch=8")["tables"]) == 1


def test_blocks_that_differ_in_more_than_their_axis(refused, tmp_path):
    sets = {"one": {"task__name": "one"}, "two": {"task__name": "two", "data__max_length": 64}}
    compare = {"by": "system", "baseline": "plain", "within": ["set"]}
    folder = made.sweep(tmp_path / "results", {"set": sets, "system": made.SYSTEMS}, compare=compare)
    manifest = folder / "sweeps" / "table.json"
    made.alter(manifest, axes__set__keys=["task"])
    refused(folder, parts=["the blocks differ in data.max_length (128 and 64)"])


def test_loose_files_that_differ_in_several_choices(refused, folder):
    made.alter(guided(folder), recipe__training__batch=8)
    refused(
        *made.runs_of(folder),
        parts=["the runs differ in guides, training.per_device_train_batch_size", "--by", "--within"],
    )


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("torch", {"environment__packages__torch": "2.10.0"}),
        ("transformers", {"environment__packages__transformers": "5.23.0"}),
        ("headwise", {"environment__headwise": "0.2.0"}),
        ("threads", {"environment__threads": 4}),
        ("processes", {"environment__processes": 2}),
        ("accelerator", {"environment__accelerator": "A100"}),
        ("precision", {"environment__precision": "bf16"}),
    ],
)
def test_another_world(refused, fine, folder, name, change):
    made.alter(guided(folder), **change)
    refused(folder, parts=[f"the runs differ in {name} (", str(next(iter(change.values()))), f"--ignore {name}"])
    assert any(f"{name} (" in note and "passed over" in note for note in fine(folder, "--ignore", name)["notes"])


def test_other_packages_do_not_matter(fine, folder):
    made.alter(guided(folder), environment__packages__numpy="1.0", environment__python="3.12")
    assert fine(folder)["runs"] == 6


def test_an_unknown_name_to_ignore(refused, folder):
    refused(folder, "--ignore", "torhc", parts=["--ignore torhc", "did you mean 'torch'"])


def test_other_training_examples(refused, fine, folder):
    made.alter(guided(folder), examples="fresh")
    refused(folder, parts=["the runs of seed 2 had different examples", "fresh", "--ignore examples"])
    assert fine(folder, "--ignore", "examples")["runs"] == 6


def test_other_test_examples(refused, folder):
    made.alter(guided(folder), results__outputs__test__examples="elsewhere")
    refused(folder, parts=["scored on different examples with seed 2", "elsewhere"])


def test_other_answers_under_the_same_hash(refused, folder):
    path = guided(folder)
    gold = json.loads(path.read_text(encoding="utf-8"))["results"]["outputs"]["test"]["gold"]
    made.alter(path, results__outputs__test__gold=[(label + 1) % 3 for label in gold])
    refused(folder, parts=[path.name, "different answers to find in test"])


def test_other_claims_under_the_same_hash(refused, tmp_path):
    folder = made.sweep(tmp_path / "results", kind="ranking")
    made.alter(guided(folder), results__outputs__test__per_query={"x": {"mrr": 1.0, "recall@1": 1.0}})
    refused(folder, parts=["different answers to find in test"])


def test_a_score_that_is_not_that_of_the_answers(refused, folder):
    made.alter(guided(folder), results__metrics__test__accuracy=0.99)
    refused(folder, parts=[guided(folder).name, "says accuracy 0.9900 on test", "its answers give"])


def test_the_same_run_with_other_results(refused, folder, tmp_path):
    copy = tmp_path / "copy.json"
    shutil.copy(guided(folder), copy)
    made.alter(copy, results__metrics__test__accuracy=0.5)
    refused(folder, copy, parts=[str(guided(folder)), str(copy), "same recipe and seed but other results"])


# -- metrics and splits ------------------------------------------------------------------------------------------------


def test_mixed_main_metrics(refused, fine, folder):
    made.alter(guided(folder), results__primary="macro_f1")
    refused(folder, parts=["different main metrics (accuracy in ", "macro_f1 in ", "--metric"])
    assert fine(folder, "--metric", "macro_f1")["tables"][0]["metric"] == "macro_f1"


def test_an_unknown_metric(refused, folder):
    refused(folder, "--metric", "acuracy", parts=["has no acuracy on test", "did you mean 'accuracy'"])
    refused(folder, "--metric", "accuracy", "--all-metrics", parts=["--metric accuracy and --all-metrics"])


def test_a_split_that_is_not_there(refused, folder):
    refused(folder, "--split", "train", parts=["--split train", "validation"])
    made.alter(guided(folder), results__metrics__test=None)
    refused(folder, "--split", "test", parts=[guided(folder).name, "has no scores on test", "validation"])


def test_a_score_that_is_no_number(refused, folder):
    made.alter(guided(folder), results__metrics__test__accuracy=float("nan"))
    refused(folder, parts=[guided(folder).name, "is nan"])


def test_runs_without_a_metric_in_common(refused, folder):
    made.alter(guided(folder), results__metrics__test={"mrr": 0.5})
    refused(folder, "--all-metrics", parts=["no metric on test in common"])


# -- seeds, systems, sweeps --------------------------------------------------------------------------------------------


def test_seeds_that_are_missing(refused, fine, folder):
    guided(folder).unlink()
    parts = ["ag lacks 2 of 1, 2, 3", "1 of 6 runs of the sweep table are not there yet: start the sweep again"]
    refused(folder, parts=[*parts, "--common-seeds"])
    assert fine(folder, "--common-seeds")["tables"][0]["rows"][1]["seeds"] == [1, 3]


def test_loose_seeds_that_are_missing(refused, folder):
    guided(folder).unlink()
    refused(*made.runs_of(folder), parts=["mdg+pdg lacks 2 of 1, 2, 3", "add their runs", "--common-seeds"])


def test_seeds_that_do_not_meet(refused, folder):
    made.run_of(folder, guides={}, seed=1).unlink()
    for seed in (2, 3):
        guided(folder, seed).unlink()
    refused(folder, "--common-seeds", parts=["no seed is there for plain and another system"])


def test_a_system_without_any_run(refused, folder):
    for seed in (1, 2, 3):
        guided(folder, seed).unlink()
    refused(folder, parts=["there is one system only (plain)", "3 of 6 runs of the sweep table are not there yet"])


def test_a_system_without_any_run_beside_others(refused, tmp_path):
    systems = {**made.SYSTEMS, "mdg": {"guides": {"mdg": {}}}}
    folder = made.sweep(tmp_path / "results", {"system": systems})
    for seed in (1, 2, 3):
        guided(folder, seed).unlink()
    refused(folder, parts=["ag lacks 1, 2, 3 of 1, 2, 3", "--common-seeds"])


def test_nothing_finished(refused, folder):
    recipes = [json.loads(path.read_text(encoding="utf-8"))["recipe"] for path in made.runs_of(folder)]
    for path, recipe in zip(made.runs_of(folder), recipes, strict=True):
        path.unlink()
        made.write(folder, made.failed(recipe))
    refused(folder, parts=["no finished run", "6 failed", ".error.json"])


def test_runs_that_differ_in_nothing(refused, folder):
    paths = [made.run_of(folder, guides={}, seed=seed) for seed in (1, 2, 3)]
    refused(*paths, parts=["differ in nothing but their seed"])
    refused(*paths, "--by", "guides", parts=["one system only (plain)"])


@pytest.mark.parametrize("labels", [("plain", "without")])
def test_a_baseline_that_must_be_named(refused, fine, tmp_path, labels):
    systems = dict(zip(labels, ({"guides": {"mdg": {}}}, {"guides": {"pdg": {}}}), strict=True))
    folder = made.sweep(tmp_path / "results", {"system": systems}, compare={"by": "system"})
    refused(folder, parts=[f"name one of {labels[0]}, {labels[1]} with --baseline"])
    refused(folder, "--baseline", "tow", parts=["baseline tow", f"known: {labels[0]}, {labels[1]}"])
    assert fine(folder, "--baseline", labels[1])["baseline"] == labels[1]


def test_the_one_without_guides_is_the_baseline(fine, tmp_path):
    systems = {"left": {"guides": {"mdg": {}}}, "right": {"guides": {}}}
    folder = made.sweep(tmp_path / "results", {"system": systems}, compare={"by": "system"})
    assert fine(folder)["baseline"] == "right"


def test_a_block_without_the_baseline(refused, tmp_path):
    axes = {"set": {"one": {"task__name": "one"}, "two": {"task__name": "two"}}, "system": made.SYSTEMS}
    compare = {"by": "system", "baseline": "plain", "within": ["set"]}
    folder = made.sweep(tmp_path / "results", axes, compare=compare)
    manifest = folder / "sweeps" / "table.json"
    content = json.loads(manifest.read_text(encoding="utf-8"))
    content["runs"] = [
        run for run in content["runs"] if (run["point"]["set"], run["point"]["system"]) != ("two", "plain")
    ]
    manifest.write_text(json.dumps(content), encoding="utf-8")
    refused(folder, parts=["set two: there is no plain to compare with"])


def test_several_sweeps_in_one_folder(refused, fine, folder):
    made.sweep(folder, {"system": {"plain": {"guides": {}}, "pdg": {"guides": {"pdg": {}}}}}, name="other")
    refused(folder, parts=["holds several sweeps (other, table)", "--sweep"])
    refused(folder, "--sweep", "tabel", parts=["--sweep tabel", "did you mean 'table'"])
    refused(folder, guided(folder), "--sweep", "table", parts=["name that folder alone"])
    assert [row["system"] for row in fine(folder, "--sweep", "other")["tables"][0]["rows"]] == ["plain", "pdg"]


def test_a_sweep_that_does_not_say_what_to_compare(refused, fine, tmp_path):
    axes = {"batch": {"8": {"training__batch": 8}, "16": {"training__batch": 16}}, "system": made.SYSTEMS}
    folder = made.sweep(tmp_path / "results", axes, compare={})
    refused(folder, parts=["the sweep table does not say what to compare", "batch, system", "--by"])
    assert fine(folder, "--by", "system", "--within", "batch")["baseline"] == "plain"


def test_unknown_axes_and_labels(refused, folder):
    refused(folder, "--by", "sytem", parts=["--by sytem", "did you mean 'system'"])
    refused(folder, "--within", "description", parts=["--within description", "no such axis"])
    refused(folder, "--by", "seed", parts=["--by seed"])
    refused(folder, "--by", "system", "--within", "system", parts=["in both --by ... and --within ..."])
    refused(folder, "--only", "system=plian", parts=["--only system=plian", "did you mean 'plain'"])
    refused(folder, "--only", "system", parts=["AXIS=LABEL"])
    refused(folder, "--stars", "many", parts=["--stars many", "holm, raw"])


# -- files -------------------------------------------------------------------------------------------------------------


def test_a_folder_of_another_version(refused, folder):
    made.alter(folder / "headwise-sweep.json", format=2, headwise="9.0")
    refused(folder, parts=["has format 2", "headwise '9.0'", "reads format 1"])


def test_a_manifest_of_another_version(refused, folder):
    made.alter(folder / "sweeps" / "table.json", format=99)
    refused(folder, parts=["table.json has format 99"])


def test_a_run_of_another_version(refused, folder):
    made.alter(guided(folder), format=7)
    refused(folder, parts=[guided(folder).name, "format 2"])


@pytest.mark.parametrize(
    ("text", "part"),
    [("[]", "expected a JSON object"), ("{}", "does not hold a run"), ("\xff", "is no JSON")],
)
def test_files_that_hold_no_run(refused, tmp_path, text, part):
    path = tmp_path / "run.json"
    path.write_bytes(text.encode("latin-1"))
    refused(path, parts=[str(path), part])


@pytest.mark.parametrize(
    "change",
    [
        {"results__metrics__test__accuracy": "high"},
        {"recipe": {}},
        {"results__outputs__test__predictions": [1]},
    ],
)
def test_damaged_runs(refused, folder, change):
    path = guided(folder)
    made.alter(path, **change)
    refused(folder, parts=[path.name, "is damaged"])


@pytest.mark.parametrize("change", [{"axes": 3}, {"runs": [{"key": "x"}]}, {"axes__system__labels": ["plain"]}])
def test_damaged_manifests(refused, folder, change):
    made.alter(folder / "sweeps" / "table.json", **change)
    refused(folder, parts=["table.json is damaged"])


def test_places_that_hold_nothing(refused, folder, tmp_path):
    refused(tmp_path / "nowhere.json", parts=["nowhere.json could not be read"])
    refused(tmp_path, parts=["holds neither the results of a sweep"])
    refused(folder / "runs", parts=["holds neither the results"])


def test_a_run_of_train_that_is_not_finished(refused, folder, tmp_path):
    content = json.loads(guided(folder).read_text(encoding="utf-8"))
    path = made.write_trained(tmp_path / "run", content)
    made.alter(path / "headwise.json", results=None)
    refused(path, parts=["not finished", "--resume"])
