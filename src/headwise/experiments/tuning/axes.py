"""What one key of a recipe may be: one of several values, or a number of a range."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from math import isfinite
from typing import Any

from headwise.errors import InputError, choices
from headwise.experiments.sweeps.axes import label_of

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
