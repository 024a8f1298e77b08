"""`headwise heads dissociation` and `similarity`: do the tasks of a run need heads of their own?"""

import csv
import json

import pytest
from tiny_runs import assert_one_sentence

TASKS = ["signs", "single", "number"]
CURVE = ("--percent", 50, 25)


@pytest.fixture
def ask(headwise, joint, tmp_path):
    def type_in(command, *words):
        return headwise("heads", command, joint, "--output", tmp_path / "found", *words)

    return type_in


@pytest.fixture
def answer(ask):
    def type_in(command, *words):
        code, out, err = ask(command, "--json", *words)
        assert code == 0, err
        return json.loads(out)

    return type_in


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# -- dissociation ------------------------------------------------------------------------------------------------------


def test_without_a_curve_it_is_measured_first_and_kept(ask, answer, tmp_path, monkeypatch):
    first = answer("dissociation", *CURVE, "--resamples", 50)
    assert names(tmp_path / "found") == [
        "dissociation.csv",
        "dissociation.json",
        "prune-curve.csv",
        "prune-curve.json",
        "prune-curve.safetensors",
    ]
    monkeypatch.setattr("headwise.experiments.head_studies.head_dissociation.measure_curve", None)
    code, out, err = ask("dissociation", "--json", "--resamples", 50, "--overwrite")
    assert code == 0, err
    assert json.loads(out) == first
    assert f"with the curve in {tmp_path / 'found'}: descending, pruned 50 % (4), 25 % (2)" in err


def test_the_files_say_what_was_printed(answer, tmp_path):
    found = answer("dissociation", *CURVE, "--resamples", 50, "--seed", 4)
    assert (found["tasks"], found["resamples"], found["seed"]) == (TASKS, 50, 4)
    assert [(each["percent"], each["heads"]) for each in found["steps"]] == [(50, 4), (25, 2)]
    written = json.loads((tmp_path / "found" / "dissociation.json").read_text())
    assert {**written, "files": found["files"]} == {"format": 1, "kind": "dissociation", **found}
    with (tmp_path / "found" / "dissociation.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * 3 * 4
    (row,) = [each for each in rows if (each["percent"], each["variant"], each["task"]) == ("25.0", "column", "single")]
    assert float(row["score"]) == found["steps"][1]["column"]["tasks"]["single"]


def test_the_curve_of_the_other_command_is_taken(ask, answer):
    curve = answer("prune-curve", *CURVE, "--exact", "--split", "test", "--limit", 12)
    found = answer("dissociation", "--resamples", 20)
    assert (found["exact"], found["split"], set(found["examples"].values())) == (True, "test", {12})
    assert found["base"] == curve["base"]
    for step, matrix in zip(found["steps"], curve["matrix"]["descending"], strict=True):
        for row, values in zip(step["retained"], matrix, strict=True):
            expected = [value / base if base > 0 else None for value, base in zip(values, curve["base"], strict=True)]
            assert row == pytest.approx(expected)


def test_the_tables_show_scores_intervals_and_controls(ask, answer):
    answer("prune-curve", *CURVE)
    code, out, err = ask("dissociation", "--resamples", 50)
    assert code == 0, err
    found = answer("dissociation", "--resamples", 50, "--overwrite")
    text = " ".join(out.split())
    for variant in ("reference", "row", "column"):
        parts = [
            part[variant]["mean"]
            for part in (found["mean"], *(found["mean"]["interval"][end] for end in ("low", "high")))
        ]
        assert "{:.1f} [{:.1f}, {:.1f}]".format(*parts) in text
    assert "double dissociation of signs and single:" in out
    p = found["mean"]["null"]["random"]["p"]["row"]["mean"]
    assert f"{p:.3f}" in text


def test_other_options_than_those_of_the_curve_are_refused(ask, answer, tmp_path):
    answer("prune-curve", *CURVE, "--no-controls")
    before = (tmp_path / "found" / "prune-curve.json").read_bytes()
    result = ask("dissociation", "--percent", 20)
    assert_one_sentence(result, "was measured with --percent 50 25, not --percent 20: leave that out")
    # What no curve can have is refused as such.
    assert_one_sentence(ask("dissociation", "--percent", 0), "--percent 0.0: expected a number above 0 and below 100")
    assert_one_sentence(ask("dissociation", "--exact"), "was measured with --one-shot, not --exact")
    assert_one_sentence(ask("dissociation", "--limit", 3), "was measured with no limit, not --limit 3")
    assert (tmp_path / "found" / "prune-curve.json").read_bytes() == before
    assert "dissociation.json" not in names(tmp_path / "found")


def test_a_damaged_curve_and_one_of_another_run_are_refused(ask, answer, headwise, joint, tmp_path):
    answer("prune-curve", "--percent", 25, "--no-controls")
    path = tmp_path / "found" / "prune-curve.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "run": {"folder": "elsewhere", "record": "0"}}))
    assert_one_sentence(ask("dissociation"), "was made for another run (elsewhere)")
    path.write_text("{")
    assert_one_sentence(ask("dissociation"), "prune-curve.json is damaged")
    assert "dissociation.json" not in names(tmp_path / "found")


def test_one_task_is_refused(headwise, finished, tmp_path):
    for command, what in (("dissociation", "a D-score compares tasks"), ("similarity", "similarity compares tasks")):
        result = headwise("heads", command, finished, "--output", tmp_path / "found")
        assert_one_sentence(result, what, "one only (pairs)")
    assert list(tmp_path.iterdir()) == []


# -- similarity --------------------------------------------------------------------------------------------------------


def test_similarity_stands_beside_the_d_scores_if_they_are_there(ask, answer, tmp_path):
    alone = answer("similarity", "--examples", 20)
    assert {tuple(pair["tasks"]): pair["d_score"] for pair in alone["pairs"]} == {
        ("signs", "single"): None,
        ("signs", "number"): None,
        ("single", "number"): None,
    }
    assert alone["gradients"]["examples"] == [20, 20, 20]
    assert {"layer 0", "layer 1", "embeddings"} <= set(alone["gradients"]["groups"])
    retained = answer("dissociation", *CURVE, "--resamples", 10)["mean"]["retained"]
    code, out, err = ask("similarity", "--examples", 20, "--overwrite")
    assert code == 0, err
    written = json.loads((tmp_path / "found" / "similarity.json").read_text())
    for pair in written["pairs"]:
        one, other = map(TASKS.index, pair["tasks"])
        expected = 50 * (retained[one][other] - retained[one][one] + retained[other][one] - retained[other][other])
        assert pair["d_score"] == pytest.approx(expected)
        assert f"{pair['d_score']:.1f}" in out
        assert f"{pair['gradient_cosine']:.3f}" in out
    assert "gradient of single: 20/20" in err.splitlines()


def test_d_scores_that_are_damaged_are_left_out(ask, tmp_path):
    (tmp_path / "found").mkdir()
    (tmp_path / "found" / "dissociation.json").write_text("{")
    code, _, err = ask("similarity", "--examples", 10)
    assert code == 0
    assert "without D-scores: " in err
    assert "dissociation.json is damaged" in err
