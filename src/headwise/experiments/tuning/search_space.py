"""What is tried: a recipe, the keys that vary, and the seeds that each combination is trained with."""

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
from headwise.experiments.comparison.grouping import covered
from headwise.experiments.recipe import Recipe, check_recipe
from headwise.experiments.recipe_files import parse_change, read_recipe, with_change
from headwise.experiments.sweeps.plan import WORDS
from headwise.experiments.sweeps.sweep_file import label_of
from headwise.experiments.tuning.study import optuna

# What one key of a recipe may be: one of several values, or a number of a range.


MAX_VALUES = 1000
RANGE = ("low", "high", "log", "step")
HOW = "expected a list of values, such as [0.1, 0.01], or a range, such as {low: 1e-5, high: 1e-3, log: true}"


@dataclass(frozen=True)
class Choices:
    """A key, and the values to try."""

    key: str
    values: tuple[Any, ...]

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.values)

    @property
    def points(self) -> tuple[Any, ...]:
        """The values as Optuna keeps them: lists and mappings as text."""
        return tuple(json.dumps(each, default=str) if isinstance(each, list | dict) else each for each in self.values)

    @property
    def examples(self) -> tuple[Any, ...]:
        """Values whose being right means that all are."""
        return self.values

    def suggest(self, trial: Any) -> Any:
        """What a trial of Optuna takes."""
        return trial.suggest_categorical(self.key, list(self.points))

    def value(self, point: Any) -> Any:
        """What the recipe has for it."""
        return self.values[self.points.index(point)]

    def as_data(self) -> dict[str, Any]:
        """Plain data."""
        return {"choices": list(self.values)}


@dataclass(frozen=True)
class Range:
    """A key, and the numbers to try; whole ones if both ends are, and the step if there is one."""

    key: str
    low: float
    high: float
    log: bool = False
    step: float | None = None

    @property
    def count(self) -> int | None:
        """How many there are; None if nobody has said in which steps."""
        return None if self.step is None else int((self.high - self.low) / self.step + 1e-9) + 1

    @property
    def points(self) -> tuple[float, ...]:
        """All numbers of a range with steps."""
        return tuple(self._number(place) for place in range(self.count or 0))

    @property
    def examples(self) -> tuple[float, ...]:
        """Both ends, and with steps the number after the first."""
        return (self.low, self.high) if self.count is None else (self.low, self._number(1), self._top)

    def suggest(self, trial: Any) -> Any:
        """What a trial of Optuna takes."""
        if self._whole:
            return trial.suggest_int(self.key, self.low, self._top, log=self.log, step=self.step or 1)
        return trial.suggest_float(self.key, self.low, self._top, log=self.log, step=self.step)

    def value(self, point: Any) -> Any:
        """What the recipe has for it."""
        return point if self.step is None else _rounded(point)

    def as_data(self) -> dict[str, Any]:
        """Plain data."""
        return {"low": self.low, "high": self.high, "log": self.log, "step": self.step}

    @property
    def _whole(self) -> bool:
        return all(isinstance(each, int) for each in (self.low, self.high, self.step or 1))

    @property
    def _top(self) -> float:
        """The last number that the steps reach."""
        return self.high if self.count is None else self._number(self.count - 1)

    def _number(self, place: int) -> float:
        return _rounded(self.low + place * (self.step or 0))


Axis = Choices | Range


def axis_of(key: str, value: Any) -> Axis:
    """What `--vary KEY=VALUE` asks for, VALUE being plain data."""
    place = f"--vary {key}"
    if isinstance(value, dict):
        return _range(key, value, place)
    if not isinstance(value, list):
        raise InputError(f"{place} is {value!r:.60}: {HOW}.")
    axis = Choices(key, tuple(value))
    if not axis.values:
        raise InputError(f"{place} is empty, so there is nothing to try: give it values.")
    if axis.count > MAX_VALUES:
        raise InputError(f"{place} has {axis.count} values: expected at most {MAX_VALUES}; give fewer, or a range.")
    twice = next((each for each, count in Counter(axis.points).items() if count > 1), None)
    if twice is not None:
        raise InputError(f"{place} has {label_of(twice)} twice: leave one out.")
    return axis


def _range(key: str, value: dict[Any, Any], place: str) -> Range:
    unknown = next((str(name) for name in value if name not in RANGE), None)
    if unknown is not None:
        raise InputError(f"{place}: unknown key {unknown!r} of a range: {choices(unknown, RANGE)}.")
    for name in ("low", "high", "step"):
        number = value.get(name)
        if not _is_number(number) and (number is not None or name != "step"):
            raise InputError(f"{place}: {name} is {label_of(number)}: expected a number; {HOW}.")
    axis = Range(key, **value)
    if not isinstance(axis.log, bool):
        raise InputError(f"{place}: log is {label_of(axis.log)}: expected true or false.")
    if not axis.low < axis.high:
        raise InputError(f"{place}: low is {axis.low} and high is {axis.high}: expected low below high.")
    if axis.log and (axis.low <= 0 or axis.step is not None):
        wrong = "a step" if axis.step is not None else f"low {axis.low}"
        raise InputError(f"{place}: log goes with a low above 0 and without a step; got {wrong}.")
    if axis.step is not None and not 0 < axis.step <= axis.high - axis.low:
        raise InputError(f"{place}: step is {axis.step}: expected above 0 and no more than high minus low.")
    return axis


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _rounded(number: float) -> float:
    """Without the noise of binary fractions: 0.3 for 0.1 + 0.2."""
    return number if isinstance(number, int) else float(f"{number:.12g}")


# The values among which the paper looks for the weights of its guides (arXiv 2204.02922, section 3.3).
PAPER = [0.1, 0.01, 0.001, 0.0001]
Point = dict[str, Any]


@dataclass(frozen=True)
class Space:
    """All that may be tried."""

    recipe: Recipe
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

    def recipe_with(self, changes: Mapping[str, Any]) -> Recipe:
        """The recipe with changes by dotted key."""
        return _changed(self.recipe, changes, words(changes))

    def as_data(self) -> dict[str, Any]:
        """Plain data."""
        return {axis.key: axis.as_data() for axis in self.axes}

    def corners(self) -> Iterator[Recipe]:
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
    recipe = read_recipe(name, changes)
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
        raise InputError(said.replace("KEY=VALUE, such as training.num_train_epochs=1", example)) from error


def _weights(recipe: Recipe, name: str) -> tuple[Axis, ...]:
    guides = recipe.guides
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


def _changed(recipe: Recipe, changes: Mapping[str, Any], place: str) -> Recipe:
    data = recipe.as_data()
    for key, value in changes.items():
        data = with_change(data, key, value, f"--vary {key}")
    return check_recipe(data, place)


# How the next combination is chosen, how many are tried, and which are given up early.


GRID, TPE, RANDOM = "grid", "tpe", "random"
SAMPLERS = (GRID, TPE, RANDOM)
# Trials of a space that cannot be counted, if nobody says how many.
TRIALS = 20
LARGEST_GRID = 10_000


@dataclass(frozen=True)
class Search:
    """How to look for the best."""

    sampler: str
    trials: int
    prune: bool = True

    @classmethod
    def of(cls, space: Space, sampler: str | None, trials: int | None, *, prune: bool = True) -> Search:
        """Fill in what was left out: a grid where the space is finite, and as many trials as it has points."""
        chosen = sampler or (TPE if space.size is None else GRID)
        if chosen not in SAMPLERS:
            raise InputError(f"--sampler {chosen}: {choices(chosen, SAMPLERS)}.")
        if chosen != GRID:
            return cls(chosen, trials or TRIALS, prune)
        if space.size is None:
            endless = next(axis.key for axis in space.axes if axis.count is None)
            raise InputError(f"--sampler grid: {endless} is a range without a step: give it one, or choose tpe.")
        if space.size > LARGEST_GRID:
            raise InputError(f"the grid has {space.size} combinations: vary less, or choose --sampler tpe.")
        return cls(GRID, min(trials or space.size, space.size), prune)

    def pruner(self) -> Any:
        """Prune what is worse than the median at the same step, once some trials are there to compare with."""
        pruners = optuna().pruners
        startup = min(5, max(2, self.trials // 4))
        return pruners.MedianPruner(n_startup_trials=startup) if self.prune else pruners.NopPruner()

    def sampler_of(self, seed: int, count: int) -> Any:
        """Draws one trial; each has its own random numbers, so that a second call does not repeat the first one's.

        A grid comes from a queue and needs none: Optuna's own sampler takes a point whose trial was stopped for done,
        and lets two processes draw the same one.
        """
        samplers = optuna().samplers
        number = random.Random(f"{seed} {count}").randrange(2**32)
        return samplers.TPESampler(seed=number) if self.sampler == TPE else samplers.RandomSampler(seed=number)
