"""`headwise compare` on what `headwise train` really leaves."""

import json

import pytest
from tiny_runs import record


@pytest.fixture
def trained(headwise, write_recipe, pairs, tmp_path):
    """Plain and guided, two seeds each, of two steps."""
    folders = []
    for guides in ({}, {"mdg": {"weight": 0.1}}):
        recipe = write_recipe(guides=guides, share_every=0, training__steps=2)
        for seed in (1, 2):
            folders.append(tmp_path / f"{'guided' if guides else 'plain'}-{seed}")
            code, _, err = headwise("train", recipe, "--data", pairs, "--output", folders[-1], "--set", f"seed={seed}")
            assert code == 0, err
    return folders


@pytest.mark.slow
def test_runs_of_train_are_compared(headwise, trained):
    code, out, err = headwise("compare", *trained, "--json")
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert (data["by"], data["baseline"], data["split"]) == (["guides"], "plain", "test")
    plain, guided = data["tables"][0]["rows"]
    scores = [record(folder)["results"]["metrics"]["test"]["accuracy"] for folder in trained]
    assert (plain["values"], guided["values"]) == (scores[:2], scores[2:])
    assert guided["by_example"]["examples"] == 21
    assert guided["by_example"]["difference"] == pytest.approx(guided["by_seed"]["difference"])
    assert plain["times"]["seconds"] > 0


def test_a_run_on_several_tasks_is_compared_with_its_control(headwise, with_iat):
    code, out, err = headwise("compare", with_iat, with_iat / "control", "--json")
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert (data["by"], data["baseline"]) == (["iat"], "without")
    control, iat = data["tables"][0]["rows"]
    assert control["values"] == [record(with_iat / "control")["results"]["metrics"]["test"]["mean"]]
    assert iat["by_example"]["kind"] == "mean"
    assert iat["by_example"]["examples"] == 21 + 15 + 9
    assert iat["by_example"]["difference"] == pytest.approx(iat["by_seed"]["difference"])
    code, out, _ = headwise("compare", with_iat, with_iat / "control", "--all-metrics")
    assert code == 0
    assert "One seed: no test by seed is possible" in out
