"""`headwise heads dissociation` and `similarity`: do the tasks of a run need different heads?"""

import json

import pytest
from tiny_runs import assert_done, assert_one_sentence

TASKS = ["signs", "single", "number"]
CURVE = ("--percent", 50, 25)


def test_without_a_curve_it_is_measured_first_and_kept(study, studied, tmp_path, monkeypatch):
    folder = tmp_path / "found"
    found = studied("dissociation", *CURVE, "--resamples", 50, "--seed", 4)
    files = ["dissociation.csv", "dissociation.json", "prune-curve.csv", "prune-curve.json", "prune-curve.safetensors"]
    assert sorted(path.name for path in folder.iterdir()) == files
    assert (found["tasks"], found["resamples"], found["seed"]) == (TASKS, 50, 4)
    assert [(each["percent"], each["heads"]) for each in found["steps"]] == [(50, 4), (25, 2)]
    written = json.loads((folder / "dissociation.json").read_text())
    assert {**written, "files": found["files"]} == {"format": 1, "kind": "dissociation", **found}
    assert len((folder / "dissociation.csv").read_text().splitlines()) == 1 + 3 * 3 * 4
    monkeypatch.setattr("headwise.experiments.head_studies.head_dissociation.measure_curve", None)
    out, err = assert_done(study("dissociation", "--resamples", 50, "--seed", 4, "--overwrite"))
    assert f"with the curve in {folder}: descending, pruned 50 % (4), 25 % (2)" in err
    assert json.loads((folder / "dissociation.json").read_text()) == written
    text = " ".join(out.split())
    for variant in ("reference", "row", "column"):
        interval = found["mean"]["interval"]
        parts = [part[variant]["mean"] for part in (found["mean"], interval["low"], interval["high"])]
        assert "{:.1f} [{:.1f}, {:.1f}]".format(*parts) in text
    assert "double dissociation of signs and single:" in out
    assert f"{found['mean']['null']['random']['p']['row']['mean']:.3f}" in text


def test_the_curve_of_the_other_command_is_used(studied):
    curve = studied("prune-curve", *CURVE, "--exact", "--split", "test", "--limit", 12)
    found = studied("dissociation", "--resamples", 20)
    assert (found["exact"], found["split"], set(found["examples"].values())) == (True, "test", {12})
    assert found["base"] == curve["base"]
    for step, matrix in zip(found["steps"], curve["matrix"]["descending"], strict=True):
        for row, values in zip(step["retained"], matrix, strict=True):
            expected = [value / base if base > 0 else None for value, base in zip(values, curve["base"], strict=True)]
            assert row == pytest.approx(expected)


def test_curves_that_do_not_fit_are_refused(study, studied, tmp_path):
    studied("prune-curve", *CURVE, "--no-controls")
    path = tmp_path / "found" / "prune-curve.json"
    before = path.read_bytes()
    result = study("dissociation", "--percent", 20)
    assert_one_sentence(result, "was measured with --percent 50 25, not --percent 20: leave that out")
    # What no curve can have is refused as such.
    assert_one_sentence(study("dissociation", "--percent", 0), "--percent 0.0: expected a number above 0 and below 100")
    assert_one_sentence(study("dissociation", "--exact"), "was measured with --one-shot, not --exact")
    assert_one_sentence(study("dissociation", "--limit", 3), "was measured with no limit, not --limit 3")
    assert path.read_bytes() == before
    path.write_text(json.dumps({**json.loads(before), "run": {"folder": "elsewhere", "record": "0"}}))
    assert_one_sentence(study("dissociation"), "was made for another run (elsewhere)")
    path.write_text("{")
    assert_one_sentence(study("dissociation"), "prune-curve.json is damaged")
    path.unlink()
    for name in ("prune-curve.json", "dissociation.json"):
        path.with_name(name).mkdir()
        assert_one_sentence(study("dissociation"), f"{name} is a folder")
        path.with_name(name).rmdir()


# -- similarity --------------------------------------------------------------------------------------------------------


def test_similarity_stands_beside_the_d_scores_if_they_are_there(study, studied, tmp_path):
    alone = studied("similarity", "--examples", 20)
    assert {tuple(pair["tasks"]): pair["d_score"] for pair in alone["pairs"]} == {
        ("signs", "single"): None,
        ("signs", "number"): None,
        ("single", "number"): None,
    }
    assert alone["gradients"]["examples"] == [20, 20, 20]
    assert {"layer 0", "layer 1", "embeddings"} <= set(alone["gradients"]["groups"])
    retained = studied("dissociation", *CURVE, "--resamples", 10)["mean"]["retained"]
    out, err = assert_done(study("similarity", "--examples", 20, "--overwrite"))
    written = json.loads((tmp_path / "found" / "similarity.json").read_text())
    for pair in written["pairs"]:
        one, other = map(TASKS.index, pair["tasks"])
        expected = 50 * (retained[one][other] - retained[one][one] + retained[other][one] - retained[other][other])
        assert pair["d_score"] == pytest.approx(expected)
        assert f"{pair['d_score']:.1f}" in out
        assert f"{pair['gradient_cosine']:.3f}" in out
    assert "gradient of single: 20/20" in err.splitlines()
    (tmp_path / "found" / "dissociation.json").write_text("{")
    _, err = assert_done(study("similarity", "--examples", 10, "--overwrite"))
    assert "without D-scores: " in err
    assert "dissociation.json is damaged" in err
