"""How much a guide counts: a number, a schedule over optimiser steps, or a share of the task's gradient."""

from __future__ import annotations

import copy
import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from headwise.attention import query_key_projections
from headwise.errors import InputError, StateError


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

    weight = share * (task's gradient norm) / (guide's gradient norm), both summed over the last `window` measurements.
    Measured on each of the first `window` training batches, then on one batch every `every` optimiser steps.
    """

    share: float
    every: int = 50
    window: int = 4

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        _check_number("the share of auto", self.share)
        for name in ("every", "window"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise InputError(f"auto({name}={value!r}): expected a whole number of 1 or more.")


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


def auto(share: float, *, every: int = 50, window: int = 4) -> Auto:
    """Let the guide's gradient on the query/key projections be this share of the task's: see `Auto`."""
    return Auto(share, every, window)


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
        return None if weight.share > 0 else 0.0
    return weight.at(step) if isinstance(weight, Piecewise) else weight


def _check_number(what: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise InputError(f"{what} is {value!r}: expected a number of 0 or more, a schedule, or auto(share).")


def _check_steps(steps: Any) -> int:
    if type(steps) is not int or steps < 1:
        raise InputError(f"steps={steps!r}: expected a whole number of 1 or more.")
    return steps


@dataclass
class Balance:
    """The measurements of one guide, or of another loss beside the task's, with an automatic weight."""

    rule: Auto
    norms: list[tuple[float, float]] = field(default_factory=list)
    """Gradient norms of the task and of the guide."""
    measured_at: int = 0

    @property
    def weight(self) -> float:
        """Share * task norm / guide norm over the last measurements; 0 if the guide has no gradient at all."""
        task, guide = map(sum, zip(*self.norms, strict=True)) if self.norms else (0.0, 0.0)
        return self.rule.share * task / guide if guide > 0 else 0.0

    def due(self, step: int) -> bool:
        """Whether it is time to measure."""
        return len(self.norms) < self.rule.window or step - self.measured_at >= self.rule.every

    def add(self, task: float, norm: float, value: Tensor, step: int) -> None:
        """Add the gradient norms of the task and of the guide, whose value is `value`."""
        # A gradient that is rounding noise is none: it must not be scaled up to a share of the task's.
        noise = torch.finfo(value.dtype).eps * abs(float(value.detach()))
        self.norms = [*self.norms, (task, norm if norm > noise else 0.0)][-self.rule.window :]
        self.measured_at = step

    def state(self) -> dict[str, Any]:
        """The measurements for a checkpoint: plain numbers, fit for JSON."""
        return {"norms": [list(pair) for pair in self.norms], "measured_at": self.measured_at}

    def load(self, state: Mapping[str, Any]) -> None:
        """Resume from the measurements of a checkpoint."""
        self.norms = [(float(task), float(guide)) for task, guide in state["norms"]]
        self.measured_at = int(state["measured_at"])


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
    parameters, norms = [projection.parameter for projection in projections], []
    for loss in losses:
        gradients: Sequence[Tensor | None] = ()
        if loss.requires_grad:
            try:
                gradients = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
            except RuntimeError as error:
                reason = f"the gradient share cannot be measured: {error}"
                if "donated" in str(error):
                    reason = (
                        "gradient shares cannot be measured on a compiled model: use a number as weight, or measure "
                        "before torch.compile."
                    )
                elif "second time" in str(error) or "freed" in str(error):
                    reason = (
                        "the graph of the last forward pass is gone: ask for the gradient share between forward and "
                        "backward."
                    )
                raise StateError(reason) from error
        pairs = zip(projections, gradients, strict=False)  # no gradients at all without a graph
        parts = _averaged([projection.part(gradient) for projection, gradient in pairs if gradient is not None])
        squares = [part.double().square().sum() for part in parts]
        norms.append(float(torch.stack(squares).sum().sqrt()) if squares else 0.0)
    return norms


def any_nonzero(values: Sequence[Tensor]) -> list[bool]:
    """Which values are not 0 in some process of data-parallel training: all must agree, or one waits forever."""
    sizes = torch.stack([value.detach().abs().float() for value in values])
    return [bool(size != 0) for size in _averaged([sizes])[0]]


def _averaged(parts: list[Tensor]) -> list[Tensor]:
    if not parts or not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return parts
    flat = torch.cat([part.flatten() for part in parts])
    torch.distributed.all_reduce(flat)
    return [flat / torch.distributed.get_world_size()]


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
