"""How much a guide counts: a number, a schedule over optimiser steps, or a share of the task's gradient."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from headwise.errors import InputError


@dataclass(frozen=True)
class Schedule:
    """A weight that depends on the optimiser step (counted from 0)."""

    def at(self, step: int) -> float:
        """The weight at this step."""
        raise NotImplementedError

    def scaled(self, factor: float) -> Schedule:
        """The same schedule, `factor` times as strong."""
        raise NotImplementedError


@dataclass(frozen=True)
class Constant(Schedule):
    """Always the same."""

    value: float

    def __post_init__(self) -> None:
        """Check."""
        _check_number("weight", self.value)

    def at(self, step: int) -> float:
        """The weight at this step."""
        return self.value

    def scaled(self, factor: float) -> Constant:
        """The same schedule, `factor` times as strong."""
        return Constant(self.value * factor)


@dataclass(frozen=True)
class Piecewise(Schedule):
    """Straight lines between points (step, weight); before the first and after the last point, level."""

    points: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        """Check."""
        if not all(isinstance(point, tuple) and len(point) == 2 for point in self.points):
            raise InputError(f"piecewise weight {self.points!r}: expected points (step, weight).")
        steps = [step for step, _ in self.points]
        if not steps or steps != sorted(set(steps)) or steps[0] < 0:
            raise InputError(
                f"piecewise weight {self.points!r}: expected points (step, weight) with steps that rise from 0 or more."
            )
        for _, value in self.points:
            _check_number("weight", value)

    def at(self, step: int) -> float:
        """The weight at this step."""
        before = self.points[0]
        for point in self.points:
            if step < point[0]:
                if point is before:
                    return point[1]
                part = (step - before[0]) / (point[0] - before[0])
                return before[1] + part * (point[1] - before[1])
            before = point
        return before[1]

    def scaled(self, factor: float) -> Piecewise:
        """The same schedule, `factor` times as strong."""
        return Piecewise(tuple((step, value * factor) for step, value in self.points))


@dataclass(frozen=True)
class Auto:
    """A weight set so that the guide's gradient on the query/key projections is a share of the task's.

    weight = share * (task's gradient norm) / (guide's gradient norm), both summed over the last `window` measurements.
    Measured on each of the first `window` training batches, then on one batch every `every` optimiser steps.
    """

    share: float
    every: int = 50
    window: int = 4

    def __post_init__(self) -> None:
        """Check."""
        _check_number("the share of auto", self.share)
        for name in ("every", "window"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"auto({name}={value!r}): expected a whole number of 1 or more.")

    def scaled(self, factor: float) -> Auto:
        """The same, `factor` times as strong."""
        return replace(self, share=self.share * factor)


Weight = float | Schedule | Auto


def constant(value: float) -> Constant:
    """The same weight at every step."""
    return Constant(value)


def warm_up(value: float, steps: int) -> Piecewise:
    """From 0 to `value` over the first `steps` optimiser steps, then level."""
    return Piecewise(((0, 0.0), (_steps(steps), value)))


def decay(value: float, steps: int, *, start: int = 0, to: float = 0.0) -> Piecewise:
    """Level until `start`, then down to `to` over `steps` optimiser steps, then level."""
    return Piecewise(((start, value), (start + _steps(steps), to)))


def piecewise(*points: tuple[int, float]) -> Piecewise:
    """Straight lines between points (step, weight)."""
    return Piecewise(tuple(points))


def auto(share: float, *, every: int = 50, window: int = 4) -> Auto:
    """Let the guide's gradient on the query/key projections be this share of the task's: see `Auto`."""
    return Auto(share, every, window)


def checked_weight(weight: Any, guide: str) -> Weight:
    """A weight as a number, a schedule or an auto; also as plain data, which is how a file holds the last two."""
    if isinstance(weight, Schedule | Auto):
        return weight
    if isinstance(weight, Mapping):
        return _from_data(weight, guide)
    _check_number(f"weight of {guide}", weight)
    return float(weight)


def scaled(weight: Weight, factor: float) -> Weight:
    """A weight, `factor` times as strong."""
    return weight.scaled(factor) if isinstance(weight, Schedule | Auto) else weight * factor


def _from_data(data: Mapping[str, Any], guide: str) -> Weight:
    for kind in (Auto, Piecewise, Constant):
        known = [each.name for each in fields(kind)]
        if known[0] in data and set(data) <= set(known):
            options = dict(data)
            if kind is Piecewise:
                if not isinstance(data["points"], list | tuple):
                    break
                options["points"] = tuple(tuple(each) if isinstance(each, list) else each for each in data["points"])
            return kind(**options)
    raise InputError(
        f"weight of {guide} is {dict(data)!r}: expected a number, {{share: 0.03}} or {{points: [[step, weight], ...]}}."
    )


def _check_number(what: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise InputError(f"{what} is {value!r}: expected a number of 0 or more, a schedule, or auto(share).")


def _steps(steps: Any) -> int:
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise InputError(f"steps={steps!r}: expected a whole number of 1 or more.")
    return steps
