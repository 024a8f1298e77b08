"""What is tried: lists, ranges, the paper's grid; and what is refused."""

import random
import re
from itertools import product
from pathlib import Path

import optuna
import pytest

from headwise.errors import InputError
from headwise.experiments.sweeps.search_space import PAPER, Search, parse_axis, plan_space

ENDLESS = "training.learning_rate={low: 1e-5, high: 1e-2, log: true}"


def drawn(axis, count=60):
    """Values that Optuna draws at random."""
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    return [axis.value(axis.suggest(study.ask())) for _ in range(count)]


@pytest.fixture
def plan(write_recipe):
    def space(*vary, seeds=None, changes=(), **more):
        return plan_space(write_recipe(**more), vary=vary, seeds=seeds, changes=changes)

    return space


def test_the_default_is_the_papers_grid_for_every_guide_in_an_order_of_the_seed(plan):
    space = plan(changes=["training.num_train_epochs=5"])
    assert PAPER == [0.1, 0.01, 0.001, 0.0001]
    assert [axis.key for axis in space.axes] == ["guides.mdg.weight", "guides.pdg.weight"]
    expected = [dict(zip(space.points()[0], each, strict=True)) for each in product(PAPER, PAPER)]
    random.Random(1).shuffle(expected)
    assert space.points() == expected != plan(seed=2).points()
    assert (space.size, len(list(space.corners()))) == (16, 8)
    recipe = space.recipe_with(space.values({"guides.mdg.weight": 0.1, "guides.pdg.weight": 0.0001}))
    assert {name: options["weight"] for name, options in recipe.guides.items()} == {"mdg": 0.1, "pdg": 0.0001}
    assert recipe.training.num_train_epochs == 5
    assert [axis.key for axis in plan(guides=["first"]).axes] == ["guides.first.weight"]
    assert plan(seed=7).seeds == (7,)
    assert plan(seeds=[3, 4]).seeds == (3, 4)


def test_lists_and_mappings_are_values_too(plan):
    space = plan("guides.mdg.weight=[0.1, {share: 0.05}]", "training.freeze=[[], [embeddings]]")
    (weight, freeze) = space.axes
    assert set(map(str, drawn(weight))) == {"0.1", "{'share': 0.05}"}
    assert set(map(str, drawn(freeze))) == {"[]", "['embeddings']"}
    for point in space.points():
        recipe = space.recipe_with(space.values(point))
        assert list(recipe.training.freeze) == space.values(point)["training.freeze"]


def test_a_range_without_a_step(plan):
    space = plan(ENDLESS)
    assert space.size is None
    values = drawn(space.axes[0], 200)
    assert all(1e-5 <= value <= 1e-2 for value in values)
    assert 70 < sum(value < 10**-3.5 for value in values) < 130  # half of the draws, by the logarithm
    values = drawn(plan("training.per_device_train_batch_size={low: 2, high: 5}").axes[0])
    assert set(values) == {2, 3, 4, 5}
    assert all(isinstance(value, int) for value in values)


@pytest.mark.parametrize(
    ("low", "high", "step", "expected"),
    [(0.1, 0.5, 0.1, [0.1, 0.2, 0.3, 0.4, 0.5]), (0.0, 0.5, 0.2, [0.0, 0.2, 0.4]), (2, 9, 3, [2, 5, 8])],
)
def test_steps_can_be_counted(low, high, step, expected):
    axis = parse_axis("x", {"low": low, "high": high, "step": step})
    assert list(axis.points) == expected
    assert axis.count == len(expected)
    assert set(drawn(axis)) == set(expected)  # those that Optuna draws are the same, to the last bit


@pytest.mark.parametrize(
    ("vary", "parts"),
    [
        ("data.max_length", ["vary='data.max_length'", "KEY=VALUES"]),
        ("data.max_length=8", ["vary=data.max_length is 8", "list of values"]),
        ("data.max_length=[]", ["is empty"]),
        (f"data.max_length={list(range(1001))}", ["has 1001 values", "at most 1000"]),
        ("data.max_length=[8, 8]", ["has 8 twice"]),
        ("data.max_length=[8, 0]", ["value 0", "data.max_length"]),
        ("training.learning_rate={low: 1e-3}", ["high is null", "number"]),
        ("training.learning_rate={low: 2, high: 1}", ["low is 2", "low below high"]),
        ("training.learning_rate={low: 0, high: 1, log: true}", ["low above 0"]),
        ("training.learning_rate={low: 1, high: 2, log: 1}", ["log is 1", "true or false"]),
        ("training.learning_rate={low: 1, high: 2, step: 3}", ["step is 3"]),
        ("training.learning_rate={low: 1, high: 2, lgo: true}", ["'lgo'", "log"]),
        ("seed=[1, 2]", ["seeds="]),
        ("name=[a, b]", ["changes nothing"]),
    ],
)
def test_mistakes_are_refused_in_one_sentence(plan, vary, parts):
    with pytest.raises(InputError) as error:
        plan(vary)
    for part in parts:
        assert part in str(error.value)
    assert "\n" not in str(error.value)


def test_what_does_not_go_together_is_refused(plan, write_joint):
    assert plan_space(write_joint(), vary=["sampling=[proportional, annealed]"]).size == 2
    for call, reason in (
        (lambda: plan(guides={}), "has no guides.*vary="),
        (lambda: plan_space(write_joint()), "has no guides.*vary="),
        (lambda: plan(seeds=[3, 3]), "twice"),
        (lambda: plan(seeds=[2**32]), "seed"),
        (lambda: plan("data.max_length=[8]", "data=[{max_length: 8}]"), "stands twice"),
        (lambda: Search.of(plan(ENDLESS), "grid", None), r"training\.learning_rate is a range without a step"),
        (lambda: Search.of(plan(), "tep", None), "did you mean 'tpe'"),
        (lambda: Search.of(plan("share_every={low: 1, high: 1000000, step: 1}"), None, None), "1000000 combinations"),
    ):
        with pytest.raises(InputError, match=reason):
            call()


def test_samplers_and_numbers_of_trials(plan):
    finite, endless = plan(), plan(ENDLESS)
    assert Search.of(finite, None, None) == Search("grid", 16)
    assert Search.of(finite, None, 5) == Search("grid", 5)
    assert Search.of(finite, None, 500) == Search("grid", 16)
    assert Search.of(finite, "tpe", None) == Search("tpe", 20)
    assert Search.of(endless, None, None) == Search("tpe", 20)
    assert Search.of(endless, "random", 3, prune=False) == Search("random", 3, prune=False)


def test_what_the_page_shows_can_be_planned():
    page = (Path(__file__).parents[3] / "docs" / "tuning.md").read_text(encoding="utf-8")
    shown = re.findall(r"--vary '([^']*)'", page)
    assert [plan_space("sick", vary=[each]).size for each in shown] == [2, 4, None]
