"""Whether guides help: against t-tests and Holm's correction written out, and every verdict by rows made for it."""

import json

import numpy as np
import pytest
import small_results as made
import yaml
from scipy import stats
from tiny_runs import assert_done, json_of

from headwise.experiments.comparison import CompareOptions, compare
from headwise.experiments.comparison.sweep_plots import size_plots, weight_plots
from headwise.experiments.comparison.verdicts import HELPS, HURTS, LIKE_CONTROL, NO_CONTROL, NOT_SHOWN
from headwise.experiments.sweeps.sweep_file import plan_sweep

GUIDES = {
    "plain": {},
    "guided": {"next": {"weight": 0.1}},
    "shuffled": {"next": {"weight": 0.1, "shuffle": True}},
}
SEEDS = 6
# Differences from seed to seed, with mean 0.
NOISE = np.array([0.004, -0.003, 0.001, -0.002, 0.003, -0.003])
OTHER = np.roll(NOISE, 2)


def stored(recipe, score):
    """A run with this score, and without the answers that it would follow from."""
    content = made.run(recipe)
    content["results"]["metrics"] = {"test": {"accuracy": float(score)}}
    del content["results"]["outputs"]
    return content


def written(folder, scores, **changes):
    """Runs without a sweep: by arm, the scores over seeds."""
    folder = made.folder_for(folder)
    for arm, values in scores.items():
        for seed, value in enumerate(values, 1):
            made.write(folder, stored(made.recipe(seed=seed, guides=GUIDES[arm], **changes), value))
    return folder


def arms(guided, control=None, plain=0.8):
    """Scores over seeds from mean gains over plain."""
    base = plain + 5 * NOISE
    scores = {"plain": base, "guided": base + guided + OTHER}
    return scores if control is None else scores | {"shuffled": base + control + NOISE}


def the_verdict(folder, **options):
    (verdict,) = compare([folder], CompareOptions(**options)).verdicts
    return verdict


@pytest.fixture
def swept(tmp_path):
    """A sweep with controls, planned for real, whose runs have the scores of a function of size, arm and seed."""

    def of(score, finished=lambda point: True, **changes):
        content = {
            "recipe": {"task": "pairs", "guides": GUIDES["guided"]},
            "sizes": [20, 40],
            "seeds": list(range(1, SEEDS + 1)),
            "controls": True,
        }
        path = tmp_path / "learning.yaml"
        path.write_text(yaml.safe_dump({**content, **changes}))
        plan, folder = plan_sweep(str(path)), made.folder_for(tmp_path / "results")
        for run in plan.unique:
            if finished(run.point):
                content = stored(run.recipe.as_data(), score(run.point))
                made.write(folder, content | {"key": run.key})
        (folder / "sweeps" / "learning.json").write_text(json.dumps(plan.manifest()))
        return folder

    return of


def gains(point):
    """The guide helps with 20 examples, and not with 40."""
    seed = int(point["seed"]) - 1
    gain = {"recipe": 0.02 if point["size"] == "20" else 0.001, "plain": 0.0, "shuffled": 0.002}[point["arm"]]
    noise = {"recipe": OTHER, "plain": 0 * NOISE, "shuffled": NOISE}[point["arm"]]
    return 0.8 + 0.001 * int(point["size"]) + 5 * NOISE[seed] + gain + noise[seed]


# -- statistics --------------------------------------------------------------------------------------------------------


def slow_holm(values):
    """The smallest of m times m, the next times m - 1, ...; none below one before it."""
    corrected, largest = {}, 0.0
    for rank, index in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        largest = max(largest, min(1.0, values[index] * (len(values) - rank)))
        corrected[index] = largest
    return [corrected[index] for index in range(len(values))]


def test_a_learning_curve_has_a_verdict_for_each_size_corrected_over_all(swept):
    found = compare([swept(gains)])
    assert (found.by, found.within, found.baseline) == (("arm",), ("size",), "plain")
    assert [[row.system for row in table.rows] for table in found.tables] == 2 * [["plain", "next", "next (shuffled)"]]
    assert [(each.within["size"], each.system) for each in found.verdicts] == [("20", "next"), ("40", "next")]
    expected = []
    for size in ("20", "40"):
        points = [{"size": size, "seed": str(seed)} for seed in range(1, SEEDS + 1)]
        own, *others = ([gains(point | {"arm": arm}) for point in points] for arm in ("recipe", "plain", "shuffled"))
        for other in others:
            test = stats.ttest_rel(own, other)
            interval = test.confidence_interval(0.95)
            expected.append((np.mean(own) - np.mean(other), interval.low, interval.high, test.pvalue))
    effects = [effect for each in found.verdicts for effect in (each.over_plain, each.over_control)]
    measured = [(effect.difference, *effect.interval, effect.p) for effect in effects]
    assert np.array(measured) == pytest.approx(np.array(expected))
    assert [effect.holm for effect in effects] == pytest.approx(slow_holm([row[3] for row in expected]))
    assert [each.verdict for each in found.verdicts] == [HELPS, NOT_SHOWN]


def test_the_detectable_effect_is_detected_in_80_percent_of_cases(tmp_path):
    folder = written(tmp_path / "results", arms(0.002, 0.0))
    verdict, deviation = the_verdict(folder), np.std(OTHER, ddof=1)
    limit = stats.t.ppf(0.975, SEEDS - 1)
    shift = verdict.over_plain.detectable / deviation * np.sqrt(SEEDS)
    power = stats.nct.sf(limit, SEEDS - 1, shift) + stats.nct.cdf(-limit, SEEDS - 1, shift)
    assert power == pytest.approx(0.8, abs=1e-3)


# -- verdicts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "verdict", "parts"),
    [
        (
            arms(0.019, 0.001),
            HELPS,
            ("next helps: +1.9 points over plain (95 % interval 1.6 to 2.2) and +1.8 over its shuffled control (",),
        ),
        (
            arms(0.001, 0.001),
            NOT_SHOWN,
            (
                "next is not shown to help: +0.1 points compared with plain (",
                "; an effect of 0.4 points would have been",
            ),
        ),
        (
            arms(0.019, 0.018),
            LIKE_CONTROL,
            (
                "next beats plain (+1.9 points, 95 %",
                "but not its shuffled control (+0.1,",
                "target is not shown to matter",
            ),
        ),
        (
            arms(0.019),
            NO_CONTROL,
            ("next beats plain: +1.9 points (", "no control: run the shuffled arm (controls: true)."),
        ),
        (arms(-0.03, 0.0), HURTS, ("next hurts: -3.0 points compared with plain (95 % interval -3.3 to -2.7).",)),
        # Without a control, too: what is not better than plain needs none.
        (arms(0.001), NOT_SHOWN, ("next is not shown to help",)),
        ({arm: values[:1] for arm, values in arms(0.05, 0.0).items()}, NOT_SHOWN, ("(no test: one seed,",)),
        (
            {"plain": np.array([0.5, 0.6]), "guided": np.array([0.75, 0.85]), "shuffled": np.array([0.5, 0.7])},
            NOT_SHOWN,
            ("+25.0 points", "the same difference for every seed)."),
        ),
    ],
)
def test_a_verdict_and_its_sentence(tmp_path, scores, verdict, parts):
    found = the_verdict(written(tmp_path / "results", scores))
    assert found.verdict == verdict
    for part in parts:
        assert part in found.sentence(), found.sentence()
    assert found.sentence().endswith(".")


def test_an_interval_without_0_is_not_enough_after_the_correction(tmp_path):
    scores = arms(0.0035, 0.003)
    raw = stats.ttest_rel(scores["guided"], scores["plain"]).pvalue
    assert 0.025 < raw < 0.05
    found = the_verdict(written(tmp_path / "results", scores))
    assert found.over_plain.interval[0] > 0
    assert found.verdict == NOT_SHOWN
    assert f", p {found.over_plain.holm:.2g} after Holm's correction)" in found.sentence()
    alone = the_verdict(written(tmp_path / "alone", arms(0.0035)))
    assert alone.over_plain.holm == pytest.approx(raw)
    assert alone.verdict == NO_CONTROL


def test_only_recipes_that_differ_in_nothing_but_guides_are_judged(tmp_path):
    folder = written(tmp_path / "results", {"plain": arms(0.02)["plain"]})
    for seed, value in enumerate(arms(0.02)["guided"], 1):
        recipe = made.recipe(seed=seed, guides=GUIDES["guided"], training__learning_rate=1e-3)
        made.write(folder, stored(recipe, value))
    options = CompareOptions(by=("guides", "training.learning_rate"), baseline="plain, learning_rate=1e-05")
    assert compare([folder], options).verdicts == ()


def test_a_sweep_with_controls_knows_which_points_have_none(swept):
    systems = {"mdg": {"guides": {"mdg": {}}}, "next": None}
    folder = swept(gains, grid={"system": systems}, sizes=[20], compare={"by": "system"})
    found = compare([folder])
    assert [row.system for row in found.tables[0].rows] == ["plain", "mdg", "next", "next (shuffled)"]
    assert [(each.system, each.verdict) for each in found.verdicts] == [("mdg", NO_CONTROL), ("next", HELPS)]
    assert found.verdicts[0].sentence().endswith("no shuffled arm of it, as a guide without a target has none.")


def test_a_control_that_is_not_finished_is_missed_by_its_name(swept, headwise):
    folder = swept(gains, finished=lambda point: point["arm"] != "shuffled" or point["seed"] != "2")
    code, out, err = headwise("compare", folder)
    assert (code, out) == (2, "")
    assert "next (shuffled) lacks 2 of 1, 2, 3, 4, 5, 6" in err
    found = compare([folder], CompareOptions(common_seeds=True))
    assert [each.verdict for each in found.verdicts] == [HELPS, NOT_SHOWN]
    assert len(found.tables[0].rows[0].seeds) == SEEDS - 1


# -- what is printed ---------------------------------------------------------------------------------------------------


def test_every_format_has_the_verdicts(swept, headwise, tmp_path):
    folder = swept(gains)
    sentences = [each.sentence() for each in compare([folder]).verdicts]
    shown, _ = assert_done(headwise("compare", folder))
    lines = shown.splitlines()
    for size, sentence in zip(("20", "40"), sentences, strict=True):
        table = next(number for number, line in enumerate(lines) if f"size {size}: accuracy on test" in line)
        assert lines[table - 1] == f"size {size}: {sentence}"
    assert "corrected by Holm for 4 tests" in " ".join(lines)
    first, second = json_of(headwise("compare", folder, "--json"))["verdicts"]
    assert (first["verdict"], second["verdict"]) == ("helps", "not shown to help")
    assert first["interval"][0] < first["difference"] < first["interval"][1]
    assert first["control"]["interval"][0] < first["control"]["difference"] < first["control"]["interval"][1]
    assert 0 < second["detectable"] < 0.02
    assert first["sentence"] == sentences[0]
    for ending, part in {"md": "next helps: \\+2", "tex": "next helps: +2", "csv": ",helps,next (shuffled),"}.items():
        path = tmp_path / f"table.{ending}"
        assert_done(headwise("compare", folder, "--output", path))
        assert part in path.read_text(encoding="utf-8") or part.replace("\\", "") in path.read_text(encoding="utf-8")
    raw, _ = assert_done(headwise("compare", folder, "--no-percent"))
    assert "next helps: +0.0200 over plain (95 % interval 0.0" in raw


def test_plots_have_a_line_for_each_arm(swept):
    (sizes,) = size_plots(swept(gains))
    assert [each["name"] for each in sizes["series"]] == ["next", "plain", "next (shuffled)"]
    assert all(each["x"] == [20, 40] for each in sizes["series"])


def test_weights_have_verdicts_of_their_own_against_one_plain_arm(swept):
    folder = swept(gains, grid={"guides.next.weight": [0.1, 0.2]}, sizes=[20])
    found = compare([folder])
    assert [row.system for row in found.tables[0].rows] == ["plain", "0.1", "0.1 (shuffled)", "0.2", "0.2 (shuffled)"]
    assert [each.sentence().split(":")[0] for each in found.verdicts] == ["next 0.1 helps", "next 0.2 helps"]
    (weights,) = (plot for plot in weight_plots(folder) if plot["y"] == "accuracy on test")
    assert {each["name"]: each["x"] for each in weights["series"]} == {
        "plain": [0.1, 0.2],
        "next": [0.1, 0.2],
        "next (shuffled)": [0.1, 0.2],
    }
