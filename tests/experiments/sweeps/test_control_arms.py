"""Sweeps with controls: which runs are added, what they share, and what is refused."""

from pathlib import Path

import pytest
import yaml

import headwise as hw
from headwise.errors import InputError
from headwise.experiments.sweeps.control_arms import ArmRun, before_shuffling, system_names
from headwise.experiments.sweeps.sweep_file import plan_sweep

NEXT = {"next": {"weight": 0.1}}
PAGE = Path(__file__).parents[3] / "docs" / "sweeps.md"
SWEEP = {
    "recipe": {"task": "pairs", "guides": NEXT},
    "grid": {"system": {"none": {"guides": {}}, "weak": None, "strong": {"guides.next.weight": 0.4}}},
    "sizes": [20, 30],
    "seeds": [1, 2],
    "compare": {"by": "system"},
}


@pytest.fixture
def plan(tmp_path):
    def of(only=(), set_=(), on=None, **changes):
        content = {key: value for key, value in (SWEEP | changes).items() if value is not ...}
        (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
        return plan_sweep(str(tmp_path / "sweep.yaml"), only=only, changes=set_, controls=on)

    return of


def without_guides(recipe):
    return {key: value for key, value in recipe.as_data().items() if key != "guides"}


def test_every_guided_point_gets_two_arms_that_differ_in_nothing_else(plan):
    before, found = plan(), plan(controls=True)
    assert [(run.point["system"], run.point["arm"]) for run in found.runs if run.point["size"] == "20"][::2] == [
        ("none", "recipe"),
        *(("weak", arm) for arm in ("recipe", "plain", "shuffled")),
        *(("strong", arm) for arm in ("recipe", "plain", "shuffled")),
    ]
    at = {tuple(run.point[axis] for axis in ("system", "size", "seed", "arm")): run for run in found.runs}
    for (system, size, seed, arm), run in at.items():
        own = at[system, size, seed, "recipe"]
        assert without_guides(run.recipe) == without_guides(own.recipe)
        if arm == "plain":
            assert run.recipe.guides == {}
        if arm == "shuffled":
            assert run.recipe.guides == {"next": {**own.recipe.guides["next"], "shuffle": True}}
            assert before_shuffling(run.recipe.guides) == own.recipe.guides
    # The plain arms of both weights are the point without guides: trained once for each size and seed.
    assert (len(found.runs), len(found.unique)) == (7 * 4, 5 * 4)
    assert before.axes.keys() == found.axes.keys() - {"arm"}
    # Finished runs of the sweep as it was are not repeated.
    assert [run.key for run in before.runs] == [run.key for run in found.runs if run.point["arm"] == "recipe"]
    assert plan(on=True).runs == found.runs


def test_changes_to_every_run_reach_the_arms(plan):
    found = plan(controls=True, set_=["guides.next.layers=0"], grid=..., compare=..., sizes=...)
    guides = [run.recipe.guides for run in found.runs if run.recipe.seed == 1]
    assert guides == [
        {"next": {"weight": 0.1, "layers": 0}},
        {},
        {"next": {"weight": 0.1, "layers": 0, "shuffle": True}},
    ]


def test_the_manifest_compares_by_arm_with_a_table_for_all_that_is_no_guide(plan):
    assert plan(controls=True).manifest()["compare"] == {"by": ["system", "arm"], "baseline": None, "within": ["size"]}
    grid = {"guides.next.weight": [0.1, 0.2], "training.num_train_epochs": [1, 2]}
    manifest = plan(controls=True, grid=grid, compare=..., layers=[0, 1]).manifest()
    assert manifest["compare"]["by"] == ["guides.next.weight", "layer", "arm"]
    assert manifest["compare"]["within"] == ["training.num_train_epochs", "size"]
    assert manifest["axes"]["arm"] == {"labels": ["recipe", "plain", "shuffled"], "keys": ["guides"]}
    assert plan().manifest()["compare"] == {"by": ["system"], "baseline": None, "within": []}


def test_only_guides_with_a_target_are_shuffled_and_the_notes_say_so(plan):
    @hw.guides.register_guide("aimed")
    class Aimed(hw.Guide):
        shuffle: bool = False

    systems = {"aimed": {"guides": {"aimed": {}, "mdg": {}}}, "mdg": {"guides": {"mdg": {}}}}
    try:
        found = plan(controls=True, grid={"system": systems}, sizes=..., seeds=[1])
    finally:
        hw.guides.GUIDES.remove("aimed")
    arms = {(run.point["system"], run.point["arm"]): run.recipe.guides for run in found.runs}
    assert arms["aimed", "shuffled"] == {"aimed": {"shuffle": True}, "mdg": {}}
    assert [arm for system, arm in arms if system == "mdg"] == ["recipe", "plain"]
    assert found.notes == (
        "aimed+mdg: the shuffled arm shuffles aimed only, since mdg has no target.",
        "mdg: no shuffled arm, since mdg has no target.",
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"recipe": {"task": "pairs", "guides": ["mdg", "pdg"]}, "grid": ...},
            "controls asks for the shuffled twin of a guide without targets (mdg, pdg)",
        ),
        ({"recipe": {"task": "pairs"}, "grid": ...}, "controls is for guides, and no run has any"),
        ({"grid": {"arm": {"a": None}}}, "there are two axes 'arm'"),
        ({"controls": "yes"}, "controls"),
        ({"only": ["arm=shufled"]}, "axis 'arm' has no point 'shufled'"),
    ],
)
def test_controls_that_cannot_be_are_refused_in_one_sentence(plan, changes, reason):
    with pytest.raises(InputError) as error:
        plan(**{"controls": True, "compare": ..., **changes})
    assert reason in str(error.value)
    assert "\n" not in str(error.value)


def test_a_guide_without_a_target_can_have_its_plain_arm(plan):
    recipe = {"task": "pairs", "guides": ["mdg"]}
    found = plan(controls=True, only=["arm=recipe,plain"], recipe=recipe, grid=..., sizes=..., compare=..., seeds=[1])
    assert [run.recipe.guides for run in found.runs] == [{"mdg": {}}, {}]


def test_systems_are_named_after_their_points():
    def names(*rows):
        return system_names([ArmRun(key, ("20",), system, arm, "1", guides) for key, system, arm, guides in rows])

    # One recipe: its guides, known from any finished run.
    assert names(("a", "", "recipe", ()), ("b", "", "plain", ()), ("c", "", "shuffled", ("next",))) == [
        "next",
        "plain",
        "next (shuffled)",
    ]
    # The plain arm that is a point anyway has its name.
    assert names(("a", "none", "recipe", ()), ("b", "weak", "recipe", ("next",)), ("a", "weak", "plain", ())) == [
        "none",
        "weak",
        "none",
    ]
    # Points that change more than guides have plain arms that differ.
    assert names(("a", "short", "plain", ()), ("b", "long", "plain", ())) == ["short (plain)", "long (plain)"]
    assert names(("a", "plain", "recipe", ()), ("b", "x", "plain", ())) == ["plain", "x (plain)"]


def test_the_sweep_of_the_page_is_one(tmp_path):
    (tmp_path / "curve.yaml").write_text(
        PAGE.read_text(encoding="utf-8").split("## Controls\n\n```yaml\n")[1].split("```")[0]
    )
    found = plan_sweep(str(tmp_path / "curve.yaml"))
    assert len(found.unique) == 3 * 3 * 8
    assert found.manifest()["compare"]["within"] == ["size"]
