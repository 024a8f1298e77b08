"""From sweep files to runs: what is combined, what is changed, and which mistakes are refused."""

import json
from itertools import product

import pytest
import yaml

from headwise.errors import InputError
from headwise.experiments.sweeps.jobs import run_key
from headwise.experiments.sweeps.sweep_file import plan_sweep, read_sweep

RECIPE = {"task": "pairs", "guides": {"mdg": {"weight": 0.1}, "pdg": {"weight": 0.2}}}
SWEEP = {
    "recipe": RECIPE,
    "set": {"training.num_train_epochs": 1},
    "grid": {"system": {"plain": {"guides": {}}, "ag": None}, "data.max_length": [8, 16]},
    "seeds": [1, 2, 3],
}


@pytest.fixture
def write(tmp_path):
    def to(name="sweep.yaml", **changes):
        content = {key: value for key, value in (SWEEP | changes).items() if value is not ...}
        (tmp_path / name).write_text(yaml.safe_dump(content, sort_keys=False))
        return str(tmp_path / name)

    return to


@pytest.fixture
def plan(write):
    def of(scale=None, only=(), seeds_=None, set_=(), **changes):
        return plan_sweep(write(**changes), scale=scale, only=only, seeds=seeds_, changes=set_)

    return of


def test_every_combination_is_a_run_with_all_its_changes(plan):
    found = plan(compare={"by": "system", "baseline": "plain", "within": ["data.max_length"]})
    points = [tuple(run.point.values()) for run in found.runs]
    assert points == list(product(("plain", "ag"), ("8", "16"), ("1", "2", "3")))
    assert len(found.unique) == 12
    for run in found.runs:
        assert list(run.point) == ["system", "data.max_length", "seed"]
        assert run.recipe.training.num_train_epochs == 1
        assert run.recipe.data.max_length == int(run.point["data.max_length"])
        assert run.recipe.seed == int(run.point["seed"])
        assert set(run.recipe.guides) == (set() if run.point["system"] == "plain" else {"mdg", "pdg"})
    manifest = found.manifest()
    assert manifest == json.loads(json.dumps(manifest))
    assert manifest["axes"]["system"] == {"labels": ["plain", "ag"], "keys": ["guides"]}
    assert manifest["axes"]["seed"] == {"labels": ["1", "2", "3"], "keys": ["seed"]}
    assert manifest["compare"] == {"by": ["system"], "baseline": "plain", "within": ["data.max_length"]}
    assert len(manifest["runs"]) == 12


def test_sizes_are_parts_or_numbers(plan):
    found = plan(sizes=[0.5, 1.0, 30], grid=..., seeds=...)
    data = [run.recipe.data for run in found.runs]
    assert [run.point["size"] for run in found.runs] == ["0.5", "1", "30"]
    assert [(each.fraction, each.limit) for each in data] == [(0.5, {}), (1.0, {}), (1.0, {"train": 30})]


def test_layers_change_the_guides_and_plain_runs_are_trained_once(plan):
    found = plan(layers=[0, 2, "last:1"], grid={"system": {"plain": {"guides": {}}, "mdg": {"guides": ["mdg"]}}})
    guided = [run.recipe.guides for run in found.runs if run.point["system"] == "mdg" and run.point["seed"] == "1"]
    assert guided == [{"mdg": {"layers": [0]}}, {"mdg": {"layers": [2]}}, {"mdg": {"layers": "last:1"}}]
    assert (len(found.runs), len(found.unique)) == (2 * 3 * 3, 3 + 3 * 3)


def test_combinations_can_be_skipped_and_chosen(plan):
    skipped = plan(skip=[{"system": "ag", "data.max_length": 16}, {"seed": [2, 3]}])
    assert [tuple(run.point.values())[:2] for run in skipped.runs] == [("plain", "8"), ("plain", "16"), ("ag", "8")]
    only = plan(only=["system=plain", "data.max_length=8,16"], seeds_=[7], set_=["head=relu"])
    assert [(run.point["system"], run.recipe.seed, run.recipe.head) for run in only.runs] == [("plain", 7, "relu")] * 2


def test_a_scale_replaces_keys_and_a_base_or_recipe_is_found_beside_the_file(plan, write, tmp_path):
    scaled = plan("small", scales={"small": {"seeds": [5], "grid": {"head": ["cls", "relu"]}}})
    assert [run.recipe.head for run in scaled.runs] == ["cls", "relu"]
    assert scaled.manifest()["scale"] == "small"
    write("below.yaml", title="below", scales={"small": {"seeds": [8]}})
    built, _ = read_sweep(write("above.yaml", base="below.yaml", seeds=[9], recipe=..., grid=...))
    assert (built.title, built.seeds, built.recipe) == ("below", (9,), RECIPE)
    small, _ = read_sweep(write("above.yaml", base="below.yaml", recipe=...), "small")
    assert small.seeds == (8,)
    (tmp_path / "own.yaml").write_text("task: sentences")
    for recipe, task in (("own.yaml", "sentences"), ("sick", "sick")):
        assert plan(recipe=recipe, grid=...).runs[0].recipe.task.name == task


def test_the_key_is_that_of_what_decides_the_run(plan):
    first, second = plan().runs[:2]
    again = plan(recipe=RECIPE | {"name": "other", "description": "of the same"}).runs[0]
    assert again.key == first.key != second.key
    assert run_key(first.recipe, {"prune-curve": {}}) != first.key


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"grid": {}}, "the grid is empty"),
        ({"grid": {"system": {}}}, "the axis 'system' is empty"),
        ({"grid": {"data.max_length": [0]}}, "data.max_length is 0"),
        ({"sedes": [1]}, "unknown key 'sedes'"),
        ({"grid": {"system": {"a": 3}}}, "expected changes by key"),
        ({"grid": {"system": 3}}, "expected a list of values for this key, or named points"),
        ({"grid": {"data.max_length": [8, 8]}}, "has the point '8' twice"),
        ({"grid": {"seed": [1]}}, "two axes 'seed'"),
        ({"skip": [{"sistem": "ag"}]}, "unknown axis 'sistem': did you mean 'system'"),
        ({"skip": [{"system": ["plain", "ag"]}]}, "leave no run"),
        ({"compare": {"by": "sistem"}}, "compare: unknown axis 'sistem'"),
        ({"compare": {"by": "system", "baseline": "none"}}, "has no point 'none'"),
        ({"compare": {"by": "seed"}}, "seeds are averaged over"),
        ({"compare": {"baseline": "plain"}}, "key 'compare.by' is missing: add it."),
        ({"sizes": [1.5]}, "sizes has 1.5"),
        ({"layers": [0], "recipe": {"task": "pairs"}, "grid": ...}, "layers is for guides, and no run has any"),
        ({"then": ["prune-curve"]}, "then is for recipes with several tasks"),
        ({"then": {"prune-curve": {"percents": [20]}}}, "has no option 'percents'"),
        ({"then": {"prune-curve": {"percent": [200]}}}, "percent"),
        ({"then": "prune-curve"}, "a list of what to measure"),
        ({"then": ["prune"]}, "something that can be measured: did you mean 'prune-curve'"),
        ({"recipe": ...}, "key 'recipe' is missing"),
        ({"scales": {"small": 3}}, "expected names with keys of a sweep"),
        ({"base": 3}, "expected the name of a sweep or of a file"),
        ({"base": "table17"}, "no sweep of the package"),
        ({"scale": "small"}, "scale=small: it has none"),
        ({"only": ["system"]}, "expected AXIS=LABEL"),
        ({"only": ["system=agg"]}, "no point 'agg'"),
        ({"sizes": list(range(2, 3000))}, "35,976 combinations: expected at most 10,000"),
    ],
)
def test_a_mistake_is_refused_in_one_sentence(plan, changes, reason):
    with pytest.raises(InputError) as error:
        plan(**changes)
    assert reason in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("base: two.yaml", r"its base is cyclic \(one.yaml -> two.yaml -> one.yaml\)"),
        ("recipe: sick\ngrid: &grid\n  system: {plain: *grid}\n", "contains itself"),
        ("- 1", "a sweep is a list of keys"),
        ("a: [", "not valid YAML"),
    ],
)
def test_files_that_are_no_sweeps_are_refused(tmp_path, text, reason):
    (tmp_path / "one.yaml").write_text(text)
    (tmp_path / "two.yaml").write_text("base: one.yaml")
    with pytest.raises(InputError, match=reason):
        plan_sweep(str(tmp_path / "one.yaml"))
