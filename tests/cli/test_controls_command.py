"""A learning curve with controls, from the sweep file to the verdicts."""

import pytest
from small_sweeps import finished_counts, results, write_sweep
from tiny_runs import assert_done, assert_one_sentence, json_of

SIZES = (16, 32)


@pytest.mark.slow
def test_a_sweep_with_controls_is_trained_resumed_and_judged(headwise, encoder, pairs, tmp_path):
    guided = {"next": {"weight": 0.1}, "mdg": {"weight": 0.1}}
    options = {"grid": None, "compare": None, "sizes": list(SIZES), "recipe__guides": guided, "recipe__share_every": 0}
    path, out = write_sweep(tmp_path / "s.yaml", encoder, **options), tmp_path / "out"
    words = ("sweep", path, "--data", pairs, "--output", out, "--workers", 1)
    assert_done(headwise(*words))
    assert len(before := results(out)) == 4
    shown, err = assert_done(headwise(*words, "--controls"))
    assert "12 runs: 8 made now, 4 already there" in shown
    assert "next+mdg: the shuffled arm shuffles next only, since mdg has no target." in err
    runs = results(out)
    assert {key: runs[key] for key in before} == before
    assert set(finished_counts(out).values()) == {1}

    by_arm = {}
    for run in runs.values():
        recipe = run["recipe"]
        arm = (
            "shuffled" if (recipe["guides"].get("next") or {}).get("shuffle") else "guided" if recipe["guides"] else ""
        )
        by_arm.setdefault((recipe["data"]["limit"]["train"], recipe["seed"]), {})[arm] = run
    assert len(by_arm) == 4
    for arms in by_arm.values():
        assert set(arms) == {"guided", "shuffled", ""}
        # The same examples; and other targets, from the first step on.
        assert len({run["examples"] for run in arms.values()}) == 1
        first = {arm: arms[arm]["results"]["guides"]["next"]["first"] for arm in ("guided", "shuffled")}
        assert first["guided"] != first["shuffled"]
        first = {arm: arms[arm]["results"]["guides"]["mdg"]["first"] for arm in ("guided", "shuffled")}
        assert first["guided"] == first["shuffled"]  # the same model, batch and dropout

    shown, _ = assert_done(headwise("compare", out, "--resamples", 200))
    found = json_of(headwise("compare", out, "--json", "--resamples", 200))
    assert [each["within"] for each in found["verdicts"]] == [{"size": str(size)} for size in SIZES]
    for table, verdict in zip(found["tables"], found["verdicts"], strict=True):
        mean = {row["system"]: row["mean"] for row in table["rows"]}
        assert list(mean) == ["plain", "next+mdg", "next+mdg (shuffled)"]
        assert verdict["difference"] == pytest.approx(mean["next+mdg"] - mean["plain"])
        assert verdict["control"]["difference"] == pytest.approx(mean["next+mdg"] - mean["next+mdg (shuffled)"])
        assert f"size {table['within']['size']}: {verdict['sentence']}" in shown
    assert_done(headwise("figure", "sizes", out, "--output", tmp_path / "sizes.svg"))
    text = (tmp_path / "sizes.svg").read_text(encoding="utf-8")
    assert all(name in text for name in mean)


def test_the_shuffled_twin_of_a_guide_without_a_target_is_refused(headwise, encoder, pairs, tmp_path):
    path, out = write_sweep(tmp_path / "s.yaml", encoder), tmp_path / "out"
    result = headwise("sweep", path, "--controls", "--data", pairs, "--output", out)
    assert_one_sentence(result, "the shuffled twin of a guide without targets (mdg, pdg)", "--only arm=recipe,plain")
    assert not out.exists()
    shown, _ = assert_done(headwise("sweep", path, "--controls", "--only", "arm=recipe,plain", "--dry-run"))
    assert "6 points, 4 different runs" in shown
