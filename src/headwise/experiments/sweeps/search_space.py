"""What tuning tries: a recipe, the keys that vary, and the seeds that each combination is trained with."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import isfinite, prod
from typing import Any

from headwise.errors import InputError, choices
from headwise.experiments.comparison.differences import covered
from headwise.experiments.recipe import Recipe, check_recipe
from headwise.experiments.recipe_files import parse_change, read_recipe, with_change
from headwise.experiments.sweeps.result_folder import NAMES_ONLY
from headwise.experiments.sweeps.sweep_file import label_of

MAX_VALUES = 1000
RANGE = ("low", "high", "log", "step")
EXPECTED = "expected a list of values, such as [0.1, 0.01], or a range, such as {low: 1e-5, high: 1e-3, log: true}"
# The weights of guides that the paper tries (arXiv 2204.02922, section 3.3).
PAPER = [0.1, 0.01, 0.001, 0.0001]
GRID, TPE, RANDOM = "grid", "tpe", "random"
SAMPLERS = (GRID, TPE, RANDOM)
# Trials of a space that cannot be counted, if the user does not say how many.
TRIALS = 20
LARGEST_GRID = 10_000

# How an axis of the search is written.
FORM = "KEY=VALUES, such as guides.mdg.weight=[0.1, 0.01]"


@dataclass(frozen=True)
class Axis:
    """A key, and what to try: values; or the numbers of a range, whole ones if both ends and the step are."""

    key: str
    values: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    step: float | None = None

    @property
    def count(self) -> int | None:
        """How many there are; None for a range without a step."""
        if self.values:
            return len(self.values)
        return None if self.step is None else int((self.high - self.low) / self.step + 1e-9) + 1

    @property
    def points(self) -> tuple[Any, ...]:
        """The values as Optuna stores them: lists and mappings as text; none of a range without a step."""
        if self.values:
            return tuple(
                json.dumps(each, default=str) if isinstance(each, list | dict) else each for each in self.values
            )
        return tuple(self._number(index) for index in range(self.count or 0))

    @property
    def examples(self) -> tuple[Any, ...]:
        """Values to check: all, or the ends of a range and the number after the first."""
        if self.values or self.count is None:
            return self.values or (self.low, self.high)
        return tuple(self._number(index) for index in (0, 1, self.count - 1))

    def suggest(self, trial: Any) -> Any:
        """The point of a trial of Optuna."""
        if self.values:
            return trial.suggest_categorical(self.key, list(self.points))
        last = self.high if self.count is None else self._number(self.count - 1)
        if all(isinstance(each, int) for each in (self.low, self.high, self.step or 1)):
            return trial.suggest_int(self.key, self.low, last, log=self.log, step=self.step or 1)
        return trial.suggest_float(self.key, self.low, last, log=self.log, step=self.step)

    def value(self, point: Any) -> Any:
        """The value of a point."""
        if self.values:
            return self.values[self.points.index(point)]
        return point if self.step is None else _rounded(point)

    def as_data(self) -> dict[str, Any]:
        """Plain data."""
        if self.values:
            return {"choices": list(self.values)}
        return {name: getattr(self, name) for name in RANGE}

    def _number(self, index: int) -> float:
        return _rounded(self.low + index * (self.step or 0))


def _rounded(number: float) -> float:
    """Without the noise of binary fractions: 0.3 for 0.1 + 0.2."""
    return number if isinstance(number, int) else float(f"{number:.12g}")


def parse_axis(key: str, value: Any) -> Axis:
    """What `KEY=VALUE` of vary means, VALUE being plain data."""
    where = f"vary={key}"
    if isinstance(value, dict):
        return _parse_range(key, value, where)
    if not isinstance(value, list):
        raise InputError(f"{where} is {value!r:.60}: {EXPECTED}.")
    if not value:
        raise InputError(f"{where} is empty, so there is nothing to try: give it values.")
    if len(value) > MAX_VALUES:
        raise InputError(f"{where} has {len(value)} values: expected at most {MAX_VALUES}; give fewer, or a range.")
    axis = Axis(key, tuple(value))
    most, count = Counter(axis.points).most_common(1)[0]
    if count > 1:
        raise InputError(f"{where} has {label_of(most)} twice: leave one out.")
    return axis


def _parse_range(key: str, value: dict[Any, Any], where: str) -> Axis:
    unknown = next((str(name) for name in value if name not in RANGE), None)
    if unknown is not None:
        raise InputError(f"{where}: unknown key {unknown!r} of a range: {choices(unknown, RANGE)}.")
    for name in ("low", "high", "step"):
        number = value.get(name)
        known = isinstance(number, int | float) and not isinstance(number, bool) and isfinite(number)
        if not known and (number is not None or name != "step"):
            raise InputError(f"{where}: {name} is {label_of(number)}: expected a number; {EXPECTED}.")
    axis = Axis(key, **value)
    if not isinstance(axis.log, bool):
        raise InputError(f"{where}: log is {label_of(axis.log)}: expected true or false.")
    if not axis.low < axis.high:
        raise InputError(f"{where}: low is {axis.low} and high is {axis.high}: expected low below high.")
    if axis.log and (axis.low <= 0 or axis.step is not None):
        got = "a step" if axis.step is not None else f"low {axis.low}"
        raise InputError(f"{where}: log needs a low above 0 and goes without a step; got {got}.")
    if axis.step is not None and not 0 < axis.step <= axis.high - axis.low:
        raise InputError(f"{where}: step is {axis.step}: expected above 0 and no more than high minus low.")
    return axis


@dataclass(frozen=True)
class Space:
    """All combinations that may be tried."""

    recipe: Recipe
    axes: tuple[Axis, ...]
    seeds: tuple[int, ...]

    @property
    def size(self) -> int | None:
        """How many combinations there are; None if they cannot be counted."""
        counts = [axis.count for axis in self.axes if axis.count is not None]
        return prod(counts) if len(counts) == len(self.axes) else None

    def points(self) -> list[dict[str, Any]]:
        """All combinations of a space that has a size, in an order that the recipe's seed decides."""
        keys = [axis.key for axis in self.axes]
        points = [dict(zip(keys, each, strict=True)) for each in product(*(axis.points for axis in self.axes))]
        random.Random(self.recipe.seed).shuffle(points)
        return points

    def values(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """The values of a recipe at a combination, by dotted key."""
        return {axis.key: axis.value(point[axis.key]) for axis in self.axes if axis.key in point}

    def recipe_with(self, changes: Mapping[str, Any]) -> Recipe:
        """The recipe with changes by dotted key."""
        return _changed(self.recipe, changes, describe(changes))

    def as_data(self) -> dict[str, Any]:
        """Plain data."""
        return {axis.key: axis.as_data() for axis in self.axes}

    def corners(self) -> Iterator[Recipe]:
        """Recipes that together have every value of every key, the other keys being at their first value."""
        first = {axis.key: axis.examples[0] for axis in self.axes}
        for axis in self.axes:
            for value in axis.examples:
                yield self.recipe_with(first | {axis.key: value})


def describe(values: Mapping[str, Any]) -> str:
    """Values by key, for people."""
    return ", ".join(f"{key} {label_of(value)}" for key, value in values.items())


def plan_space(
    name: str, *, vary: Sequence[str] = (), changes: Sequence[str] = (), seeds: Sequence[int] | None = None
) -> Space:
    """Read a recipe and check every value that is to be tried.

    Args:
        name: the file, or the name of a recipe of the package.
        vary: `KEY=VALUES`; if none, the weight of every guide of the recipe over the paper's grid.
        changes: `KEY=VALUE`, made to the recipe before all else.
        seeds: each combination is trained with all of them; default that of the recipe.
    """
    recipe = read_recipe(name, changes)
    axes = tuple(parse_axis(*parse_change(text, "vary", FORM)) for text in vary)
    if not vary:
        if not recipe.guides:
            raise InputError(
                f"{name} has no guides, whose weights would be tried: say what to try, such as "
                "vary=training.learning_rate=[1e-5,3e-5]."
            )
        axes = tuple(Axis(f"guides.{guide}.weight", tuple(PAPER)) for guide in recipe.guides)
    keys = [axis.key for axis in axes]
    for number, key in enumerate(keys):
        if covered(key, [*keys[:number], *keys[number + 1 :]]):
            raise InputError(f"vary={key} stands twice, or inside another key that varies: leave one of them out.")
        if key == "seed":
            raise InputError("vary=seed would choose the luckiest run: name the seeds to average over in seeds=1,2,3.")
        if key in NAMES_ONLY:
            raise InputError(f"vary={key} changes nothing: leave it out.")
    seeds = (recipe.seed,) if seeds is None else tuple(seeds)
    if len(set(seeds)) < len(seeds):
        raise InputError(f"seeds={','.join(map(str, seeds))}: a seed stands there twice; leave one out.")
    for axis in axes:
        for value in axis.examples:
            _changed(recipe, {axis.key: value}, f"vary={axis.key}, value {label_of(value)}")
    for seed in seeds:
        _changed(recipe, {"seed": seed}, f"seeds={seed}")
    return Space(recipe, axes, tuple(seeds))


def _changed(recipe: Recipe, changes: Mapping[str, Any], where: str) -> Recipe:
    data = recipe.as_data()
    for key, value in changes.items():
        data = with_change(data, key, value, f"vary={key}")
    return check_recipe(data, where)


@dataclass(frozen=True)
class Search:
    """How the combinations are chosen, how many are tried, and whether some stop early."""

    sampler: str
    trials: int
    prune: bool = True

    @classmethod
    def of(cls, space: Space, sampler: str | None, trials: int | None, *, prune: bool = True) -> Search:
        """Fill in defaults: a grid where the space is finite, and as many trials as it has points."""
        sampler = sampler or (TPE if space.size is None else GRID)
        if sampler not in SAMPLERS:
            raise InputError(f"sampler={sampler}: {choices(sampler, SAMPLERS)}.")
        if sampler != GRID:
            return cls(sampler, trials or TRIALS, prune)
        if space.size is None:
            endless = next(axis.key for axis in space.axes if axis.count is None)
            raise InputError(f"sampler=grid: {endless} is a range without a step: give it one, or choose tpe.")
        if space.size > LARGEST_GRID:
            raise InputError(f"the grid has {space.size} combinations: vary less, or choose sampler=tpe.")
        return cls(GRID, min(trials or space.size, space.size), prune)
