"""What is tried: a recipe, the keys that vary, and the seeds that each combination is trained with."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from headwise.errors import InputError
from headwise.experiments.comparison.differences import covered
from headwise.experiments.files import parse_change, read_any_recipe, with_change
from headwise.experiments.joint_recipe import JointRecipe, check_any_recipe
from headwise.experiments.recipe import Recipe
from headwise.experiments.sweeps.axes import label_of
from headwise.experiments.sweeps.plan import WORDS
from headwise.experiments.tuning.axes import Axis, axis_of

# The values among which the paper looks for the weights of its guides (arXiv 2204.02922, section 3.3).
PAPER = [0.1, 0.01, 0.001, 0.0001]
Point = dict[str, Any]


@dataclass(frozen=True)
class Space:
    """All that may be tried."""

    recipe: Recipe | JointRecipe
    axes: tuple[Axis, ...]
    seeds: tuple[int, ...]
    default: bool = False
    """Whether the user left it to us what to vary."""

    @property
    def size(self) -> int | None:
        """How many combinations there are; None if they cannot be counted."""
        counts = [axis.count for axis in self.axes if axis.count is not None]
        return prod(counts) if len(counts) == len(self.axes) else None

    def points(self) -> list[Point]:
        """All combinations of a space that has a size, in an order that the recipe's seed decides."""
        names = [axis.key for axis in self.axes]
        found = [dict(zip(names, each, strict=True)) for each in product(*(axis.points for axis in self.axes))]
        random.Random(self.recipe.seed).shuffle(found)
        return found

    def suggest(self, trial: Any) -> Point:
        """The combination of a trial of Optuna."""
        return {axis.key: axis.suggest(trial) for axis in self.axes}

    def values(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """What the recipe has at a combination, by dotted key."""
        return {axis.key: axis.value(point[axis.key]) for axis in self.axes if axis.key in point}

    def recipe_with(self, changes: Mapping[str, Any]) -> Recipe | JointRecipe:
        """The recipe with changes by dotted key."""
        return _changed(self.recipe, changes, words(changes))

    def as_data(self) -> dict[str, Any]:
        """Plain data."""
        return {axis.key: axis.as_data() for axis in self.axes}

    def corners(self) -> Iterator[Recipe | JointRecipe]:
        """Recipes that together have every value of every key, the other keys being at their first value."""
        first = {axis.key: axis.examples[0] for axis in self.axes}
        for axis in self.axes:
            for value in axis.examples:
                yield self.recipe_with(first | {axis.key: value})


def plan_space(
    name: str, *, vary: Sequence[str] = (), changes: Sequence[str] = (), seeds: Sequence[int] | None = None
) -> Space:
    """Read a recipe and check every value that is to be tried.

    Args:
        name: file, or a name of `headwise list recipes`.
        vary: `KEY=VALUES`; if none, the weight of every guide of the recipe over the paper's grid.
        changes: `KEY=VALUE`, made to the recipe before all else.
        seeds: each combination is trained with all of them; default that of the recipe.
    """
    recipe = read_any_recipe(name, changes)
    axes = tuple(axis_of(key, values) for key, values in map(_parsed, vary)) or _weights(recipe, name)
    _check_keys([axis.key for axis in axes])
    chosen = tuple(seeds) if seeds is not None else (recipe.seed,)
    if len(set(chosen)) < len(chosen):
        raise InputError(f"--seeds {','.join(map(str, chosen))}: a seed stands there twice; leave one out.")
    space = Space(recipe, axes, chosen, default=not vary)
    for axis in axes:
        for value in axis.examples:
            _changed(recipe, {axis.key: value}, f"--vary {axis.key}, value {label_of(value)}")
    for seed in chosen:
        _changed(recipe, {"seed": seed}, f"--seeds {seed}")
    return space


def words(point: Mapping[str, Any]) -> str:
    """A combination for people."""
    return ", ".join(f"{key} {label_of(value)}" for key, value in point.items())


def _parsed(text: str) -> tuple[str, Any]:
    try:
        return parse_change(text)
    except InputError as error:
        said = str(error).replace("--set", "--vary", 1)
        example = "KEY=VALUES, such as guides.mdg.weight=[0.1, 0.01]"
        raise InputError(said.replace("KEY=VALUE, such as training.epochs=1", example)) from error


def _weights(recipe: Recipe | JointRecipe, name: str) -> tuple[Axis, ...]:
    guides = recipe.guides if isinstance(recipe, Recipe) else {}
    if not guides:
        raise InputError(
            f"{name} has no guides, whose weights would be tried: say what to try, such as "
            "--vary 'training.learning_rate=[1e-5, 3e-5]'."
        )
    return tuple(axis_of(f"guides.{guide}.weight", list(PAPER)) for guide in guides)


def _check_keys(keys: Sequence[str]) -> None:
    for number, key in enumerate(keys):
        others = [*keys[:number], *keys[number + 1 :]]
        if covered(key, others):
            raise InputError(f"--vary {key} stands twice, or inside another key that varies: leave one of them out.")
        if key == "seed":
            raise InputError("--vary seed would choose the luckiest run: name the seeds to average over with --seeds.")
        if key in WORDS:
            raise InputError(f"--vary {key} decides nothing: leave it out.")


def _changed(recipe: Recipe | JointRecipe, changes: Mapping[str, Any], place: str) -> Recipe | JointRecipe:
    data = recipe.as_data()
    for key, value in changes.items():
        data = with_change(data, key, value, f"--vary {key}")
    return check_any_recipe(data, place)
