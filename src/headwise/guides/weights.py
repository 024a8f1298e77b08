"""How much a guide counts: a number, a schedule over optimiser steps, or a share of the task's gradient."""

from __future__ import annotations

import copy
import math
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from headwise.errors import InputError


@dataclass(frozen=True)
class Piecewise:
    """A schedule over optimiser steps, from 0: straight lines between points (step, weight), level outside of them."""

    points: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        """Refuse points that are no schedule."""
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


@dataclass(frozen=True)
class Auto:
    """A weight set so that the guide's gradient on the query/key projections is a share of the task's.

    weight = share * (task's gradient norm) / (guide's gradient norm). The task's norm is followed at every step, which
    costs next to nothing. The guide's norm, which changes little, is a mean over its last `window` measurements: at the
    first step, 12 and 36 optimiser steps later, and then every `every` steps. The guide counts from the second step.
    With `decay` the share falls to 0 in a straight line over the first so many optimiser steps, and stays there.
    """

    share: float
    every: int = 50
    window: int = 1
    decay: int | None = None

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        _check_number("the share of auto", self.share)
        for name in ("every", "window"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise InputError(f"auto({name}={value!r}): expected a whole number of 1 or more.")
        if self.decay is not None and (type(self.decay) is not int or self.decay < 1):
            raise InputError(f"auto(decay={self.decay!r}): expected a whole number of steps, or None.")

    def share_at(self, step: int) -> float:
        """The share at this optimiser step."""
        return self.share if self.decay is None else self.share * max(0.0, 1 - step / self.decay)


Weight = float | Piecewise | Auto


def constant(value: float) -> Piecewise:
    """The same weight at every step."""
    return Piecewise(((0, value),))


def warm_up(value: float, steps: int) -> Piecewise:
    """From 0 to `value` over the first `steps` optimiser steps, then level."""
    return Piecewise(((0, 0.0), (_check_steps(steps), value)))


def decay(value: float, steps: int, *, start: int = 0, to: float = 0.0) -> Piecewise:
    """Level until `start`, then down to `to` over `steps` optimiser steps, then level."""
    return Piecewise(((start, value), (start + _check_steps(steps), to)))


def piecewise(*points: tuple[int, float]) -> Piecewise:
    """Straight lines between points (step, weight)."""
    return Piecewise(tuple(points))


def auto(share: float, *, every: int = 50, window: int = 1, decay: int | None = None) -> Auto:
    """Let the guide's gradient on the query/key projections be this share of the task's: see `Auto`."""
    return Auto(share, every, window, decay)


def checked_weight(weight: Any, guide: str) -> Weight:
    """A weight as a number, a schedule or an auto; also as plain data, as in a recipe: {share: ...}, {points: ...}."""
    if isinstance(weight, Piecewise | Auto):
        return weight
    if not isinstance(weight, Mapping):
        _check_number(f"weight of {guide}", weight)
        return float(weight)
    options = dict(weight)
    if "share" in options and set(options) <= {each.name for each in fields(Auto)}:
        return Auto(**options)
    if set(options) == {"value"}:
        return constant(options["value"])
    if set(options) == {"points"} and isinstance(options["points"], list | tuple):
        return Piecewise(tuple(tuple(each) if isinstance(each, list) else each for each in options["points"]))
    raise InputError(
        f"weight of {guide} is {options!r}: expected a number, {{share: 0.03}} or {{points: [[step, weight], ...]}}."
    )


def scaled(weight: Weight, factor: float) -> Weight:
    """A weight, `factor` times as strong."""
    if isinstance(weight, Auto):
        return replace(weight, share=weight.share * factor)
    if isinstance(weight, Piecewise):
        return Piecewise(tuple((step, value * factor) for step, value in weight.points))
    return weight * factor


def weight_at(weight: Weight, step: int) -> float | None:
    """The weight at an optimiser step; None for an automatic one, which is measured."""
    if isinstance(weight, Auto):
        return None if weight.share_at(step) > 0 else 0.0
    return weight.at(step) if isinstance(weight, Piecewise) else weight


def _check_number(what: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise InputError(f"{what} is {value!r}: expected a number of 0 or more, a schedule, or auto(share).")


def _check_steps(steps: Any) -> int:
    if type(steps) is not int or steps < 1:
        raise InputError(f"steps={steps!r}: expected a whole number of 1 or more.")
    return steps


class StepCounter:
    """Counts the steps of the optimiser that trains a model, in any loop, so that schedules mean optimiser steps.

    The count can be set, to resume.
    """

    def __init__(self, model: nn.Module, after_step: Callable[[], None]) -> None:
        """Start at 0, and call `after_step` after every step that counts."""
        self.count = 0
        self._model = model
        self._after_step = after_step
        self._optimiser: weakref.ref[Optimizer] | None = None
        self._other: weakref.ref[Optimizer] | None = None
        # torch calls such a hook for every optimiser of the process, so it must not keep an unused model alive. It
        # cannot remove itself either, since torch is iterating over the hooks: a dead one stays and does nothing.
        counter = weakref.ref(self)

        def stepped(optimiser: Optimizer, args: Any, kwargs: Any) -> None:
            alive = counter()
            if alive is not None:
                alive._stepped(optimiser)

        self._handle = register_optimizer_step_post_hook(stepped)

    def stop(self) -> None:
        """Stop counting."""
        self._handle.remove()

    def __deepcopy__(self, memo: dict[int, Any]) -> StepCounter:
        """The counter of a copied model continues from the same count with the optimiser of the copy."""
        twin = memo[id(self)] = object.__new__(StepCounter)
        StepCounter.__init__(twin, copy.deepcopy(self._model, memo), copy.deepcopy(self._after_step, memo))
        twin.count = self.count
        return twin

    def _stepped(self, optimiser: Optimizer) -> None:
        """With several optimisers on one model the first is counted, until another steps twice without it.

        That is a second training run, in a notebook say, where the optimiser of the first is still alive.
        """
        known = None if self._optimiser is None else self._optimiser()
        other = None if self._other is None else self._other()
        if known is not optimiser:
            trained = {id(parameter) for group in optimiser.param_groups for parameter in group["params"]}
            if not any(id(parameter) in trained for parameter in self._model.parameters()):
                return
            if known is not None and other is not optimiser:
                self._other = weakref.ref(optimiser)
                return
            self._optimiser = weakref.ref(optimiser)
        self.count += 2 if known is not None and known is not optimiser else 1
        self._other = None
        self._after_step()
