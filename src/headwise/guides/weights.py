"""How much a guide counts: a number, a schedule over optimiser steps, or a share of the task's gradient."""

from __future__ import annotations

import copy
import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from headwise.attention import Projection, query_key_projections
from headwise.errors import InputError, StateError

# How hard a loss pulls on the projections that decide where attention goes.


def gradient_norms(model: nn.Module, losses: Sequence[Tensor]) -> list[float]:
    """The gradient norm of each loss on the query and key projections; the graph stays usable.

    In data-parallel training the gradients are averaged over the processes first, so that all get the same numbers.
    """
    projections = query_key_projections(model)
    if not projections:
        raise StateError(
            "no query or key projection is trainable, so no guide can change where attention goes: unfreeze them (or "
            "give them adapters), or use a number as weight."
        )
    return [_norm(_gradient(loss, projections)) for loss in losses]


def anywhere(values: Sequence[Tensor]) -> list[bool]:
    """Which values are not 0 in some process of data-parallel training: all must decide alike, or one waits forever."""
    sizes = torch.stack([value.detach().abs().float() for value in values])
    return [bool(size != 0) for size in _averaged([sizes])[0]]


def _gradient(loss: Tensor, projections: Sequence[Projection]) -> list[Tensor]:
    parameters = [projection.parameter for projection in projections]
    if not loss.requires_grad:
        return [torch.zeros((), device=loss.device)]
    try:
        gradients = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
    except RuntimeError as error:
        raise StateError(_reason(str(error))) from error
    parts = [
        projection.part(gradient)
        for projection, gradient in zip(projections, gradients, strict=True)
        if gradient is not None
    ]
    return _averaged(parts) if parts else [torch.zeros((), device=loss.device)]


def _reason(error: str) -> str:
    if "donated" in error:
        return (
            "gradient shares cannot be measured on a compiled model: use a number as weight, or measure before "
            "torch.compile."
        )
    if "second time" in error or "freed" in error:
        return "the graph of the last forward pass is gone: ask for the gradient share between forward and backward."
    return f"the gradient share cannot be measured: {error}"


def _averaged(parts: list[Tensor]) -> list[Tensor]:
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return parts
    flat = torch.cat([part.flatten() for part in parts])
    torch.distributed.all_reduce(flat)
    return [flat / torch.distributed.get_world_size()]


def _norm(parts: list[Tensor]) -> float:
    return float(torch.stack([part.double().square().sum() for part in parts]).sum().sqrt())


# Count optimiser steps in anybody's loop, so that schedules mean steps even under gradient accumulation.


class StepCounter:
    """Counts the steps of the optimiser that trains a model; the count can be set, to resume."""

    def __init__(self, model: nn.Module, then: Callable[[], None]) -> None:
        """Start at 0, and call `then` after every step that counts."""
        self.count = 0
        self._model = model
        self._then = then
        self._optimiser: weakref.ref[Optimizer] | None = None
        self._rival: weakref.ref[Optimizer] | None = None
        self._listen()

    def stop(self) -> None:
        """Count no more."""
        self._handle.remove()

    def __deepcopy__(self, memo: dict[int, Any]) -> StepCounter:
        """The counter of a copied model goes on from the same count with the copy's own optimiser."""
        twin = object.__new__(StepCounter)
        memo[id(self)] = twin
        twin.count, twin._optimiser, twin._rival = self.count, None, None
        twin._model = copy.deepcopy(self._model, memo)
        twin._then = copy.deepcopy(self._then, memo)
        twin._listen()
        return twin

    def _listen(self) -> None:
        # torch calls such a hook for every optimiser of the process, so it must not keep a forgotten model alive. It
        # cannot take itself away either, since torch is walking through the hooks: a dead one stays and does nothing.
        counter = weakref.ref(self)

        def stepped(optimiser: Optimizer, args: Any, kwargs: Any) -> None:
            alive = counter()
            if alive is not None:
                alive._stepped(optimiser)

        self._handle = register_optimizer_step_post_hook(stepped)

    def _stepped(self, optimiser: Optimizer) -> None:
        known = None if self._optimiser is None else self._optimiser()
        if known is optimiser:
            self._rival = None
            self._count(1)
        elif self._trains(optimiser):
            self._other_stepped(optimiser, first=known is None)

    def _other_stepped(self, optimiser: Optimizer, *, first: bool) -> None:
        """With several optimisers on one model the first gives the beat, until another steps twice without it.

        That is a second training run, in a notebook say, where the optimiser of the first is still alive.
        """
        rival = None if self._rival is None else self._rival()
        if first or rival is optimiser:
            self._optimiser, self._rival = weakref.ref(optimiser), None
            self._count(1 if first else 2)
        else:
            self._rival = weakref.ref(optimiser)

    def _count(self, steps: int) -> None:
        self.count += steps
        self._then()

    def _trains(self, optimiser: Optimizer) -> bool:
        trained = {id(parameter) for group in optimiser.param_groups for parameter in group["params"]}
        return any(id(parameter) in trained for parameter in self._model.parameters())


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


# The memory of `auto` weights: what was measured, and the weight that follows from it.


class Balance:
    """Measurements for one guide with an automatic weight."""

    def __init__(self, rule: Auto) -> None:
        """Start without measurements."""
        self._rule = rule
        self._norms: list[tuple[float, float]] = []  # (task, guide)
        self._measured_at = 0

    def due(self, step: int) -> bool:
        """Whether to measure at this optimiser step."""
        return len(self._norms) < self._rule.window or step - self._measured_at >= self._rule.every

    def note(self, step: int, task: float, guide: float) -> None:
        """Remember a measurement."""
        self._norms = [*self._norms, (task, guide)][-self._rule.window :]
        self._measured_at = step

    @property
    def weight(self) -> float:
        """Share * task norm / guide norm over the remembered measurements; 0 if the guide has no gradient at all."""
        task = sum(norm for norm, _ in self._norms)
        guide = sum(norm for _, norm in self._norms)
        return self._rule.share * task / guide if guide > 0 else 0.0

    def state(self) -> dict[str, Any]:
        """What a checkpoint must keep."""
        return {"norms": [list(pair) for pair in self._norms], "measured_at": self._measured_at}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self._norms = [(float(task), float(guide)) for task, guide in state["norms"]]
        self._measured_at = int(state["measured_at"])
