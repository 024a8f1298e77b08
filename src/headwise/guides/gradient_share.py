"""Weights by gradient: a loss beside the task's gets a share of the task's gradient on the query/key projections.

The norm of a guide's gradient changes slowly, that of the task's by a factor of ten or more within a run. So the first
is measured rarely, by a backward pass for the guide alone. The second is followed at every step without any extra pass:
hooks take the norm of the whole gradient in the backward pass that happens anyway, and the rare measurements say which
part of it is the task's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from headwise.attention import Projection, query_key_projections
from headwise.errors import InputError, StateError
from headwise.guides.weights import Auto

# Steps from the first measurement to the second; then twice as many each time, up to `every`.
FIRST_GAP = 12
# Parts of each new norm in the running level and in its trend (Holt's exponential smoothing): early in a run the task's
# norm grows by several percent per step, and without a trend the level would always be too low.
LEVEL, TREND = 0.4, 0.1


class Balance:
    """The automatic weights of some losses beside the task's.

    weight = share * (task's norm) / (norm of this loss), where the logarithm of the task's norm is followed by
    exponential smoothing with a trend, and the norm of the loss is a mean over its last measurements. Until a first
    step has shown the task's norm, weights are 0.
    """

    def __init__(self, rules: Mapping[str, Auto]) -> None:
        """Rules by the names of the losses."""
        self._rules = dict(rules)
        self._norms: dict[str, list[float]] = {name: [] for name in rules}
        self._measured: dict[str, tuple[int, int]] = {name: (0, 0) for name in rules}  # at which step, how often so far
        self._level: float | None = None  # of the logarithm of the task's norm
        self._trend = 0.0
        # The part of the whole gradient's norm that is the task's; shares are as good as orthogonal to it.
        self._task_part = 1 / math.sqrt(1 + sum(rule.share**2 for rule in rules.values()))
        self._coming = _Backward()
        self._seen: list[float] = []  # logarithms of the task's norm in the backward passes of this step
        self._step = 0

    def __getstate__(self) -> dict[str, Any]:
        """For copies: without the hooks of the last step."""
        return {**self.__dict__, "_coming": _Backward()}

    def weights(self, model: nn.Module, task: Tensor, losses: Mapping[str, Tensor], step: int) -> dict[str, float]:
        """The weights of these losses at this step; measures what is due."""
        self._observe()
        if step != self._step:
            self.collect()
        self._step = step
        due = [name for name in losses if name in self._rules and self._due(name, step)]
        if due and torch.is_grad_enabled() and task.requires_grad:
            # A batch without a target has the value 0 and says nothing about the guide's gradient.
            due = [name for name, some in zip(due, _any_nonzero([losses[name] for name in due]), strict=True) if some]
            # The first time the whole gradient is the task's, since the weights are 0.
            exact = [task] if due and self._level is not None else []
            norms = gradient_norms(model, [*(losses[name] for name in due), *exact]) if due else []
            self._coming.task = norms[-1] if exact else None
            for name, norm in zip(due, norms, strict=False):
                # A gradient that is rounding noise is none: it must not be scaled up to a share of the task's.
                noise = torch.finfo(losses[name].dtype).eps * abs(float(losses[name].detach()))
                window = self._rules[name].window
                self._norms[name] = [*self._norms[name], norm if norm > noise else 0.0][-window:]
                self._measured[name] = step, self._measured[name][1] + 1
        return {name: self.weight(name) for name in losses if name in self._rules}

    def weight(self, name: str) -> float:
        """The weight of a loss, by what is known so far."""
        norms = self._norms[name]
        if self._level is None or not any(norms):
            return 0.0
        return self._rules[name].share * math.exp(self._level + self._trend) * len(norms) / sum(norms)

    def follow(self, model: nn.Module, total: Tensor) -> None:
        """Take the norm of the whole gradient in the coming backward pass of the total loss."""
        if total.requires_grad and torch.is_grad_enabled():
            self._coming.attach(model, total)

    def collect(self) -> None:
        """End a step: use what its backward passes have shown. Of several processes, all must call it."""
        self._observe()
        if not self._seen:
            return
        new = sum(self._seen) / len(self._seen)
        self._seen = []
        if self._level is None:
            self._level = new
            return
        expected = self._level + self._trend
        self._level = expected + LEVEL * (new - expected)
        self._trend += TREND * (self._level - expected)

    def _observe(self) -> None:
        """Take over what the last backward pass has shown, if there was one."""
        norm, task = self._coming.norm(), self._coming.task
        self._coming.detach()
        self._coming = _Backward()
        if norm is None or not 0 < norm < math.inf:
            return
        if task:
            self._task_part = task / norm
        elif self._level is None:  # weights were 0, so all of it is the task's
            task = norm
        self._seen.append(math.log(task or norm * self._task_part))

    def state(self) -> dict[str, Any]:
        """For a checkpoint: plain numbers, fit for JSON."""
        auto = {name: {"norms": self._norms[name], "measured": list(self._measured[name])} for name in self._rules}
        return {"auto": auto, "task": [self._level, self._trend, self._task_part], "at": self._step}

    def load(self, state: Mapping[str, Any]) -> None:
        """Resume from a checkpoint of the same losses."""
        saved = state.get("auto", {})
        if set(saved) != set(self._rules):
            raise InputError(
                f"the saved state is of other guides: expected automatic weights {sorted(self._rules)}, got "
                f"{sorted(saved)}; attach the guides that were saved."
            )
        if "task" not in state:
            raise InputError("the saved state of automatic weights is of an earlier version: start training again.")
        self._norms = {name: list(map(float, saved[name]["norms"])) for name in self._rules}
        self._measured = {name: (int(saved[name]["measured"][0]), int(saved[name]["measured"][1])) for name in saved}
        self._level, self._trend, self._task_part = state["task"]
        self._step = int(state["at"])

    def _due(self, name: str, step: int) -> bool:
        at, count = self._measured[name]
        rule = self._rules[name]
        return count == 0 or step - at >= min(rule.every, FIRST_GAP * 2 ** min(count - 1, 30))


class _Backward:
    """What hooks see of one backward pass."""

    def __init__(self) -> None:
        self.task: float | None = None
        """The norm of the task's gradient in this step, if it was measured."""
        self._factor: Tensor | None = None
        self._parts: list[Tensor] = []
        self._handles: list[Any] = []

    def attach(self, model: nn.Module, total: Tensor) -> None:
        """Add hooks to the total loss and to the projections."""

        def loss_seen(gradient: Tensor) -> None:
            # Of accumulation, and of the scale of half precision. What came before was not the pass of this loss.
            self._factor, self._parts = gradient.detach(), []

        def weights_seen(gradient: Tensor, projection: Projection) -> None:
            if self._factor is None or len(self._parts) == len(projections):
                return  # a pass of some other loss, before or after
            part = projection.part(gradient.detach())
            # The norm of a mean over processes needs the whole gradients; otherwise their norms are enough.
            self._parts.append(part.clone() if _several() else torch.linalg.vector_norm(part).reshape(1))

        projections = query_key_projections(model)
        self._handles = [total.register_hook(loss_seen)]
        for each in projections:
            self._handles.append(each.parameter.register_hook(partial(weights_seen, projection=each)))

    def norm(self) -> float | None:
        """Of the gradient of the total loss on the projections."""
        if self._factor is None or not self._parts or not bool(self._factor):
            return None
        return _norm(_averaged(self._parts)) / abs(float(self._factor))

    def detach(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()


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
        norms.append(_norm(_averaged([each.part(gradient) for each, gradient in pairs if gradient is not None])))
    return norms


def _norm(parts: Sequence[Tensor]) -> float:
    squares = [part.double().square().sum() for part in parts]
    return float(torch.stack(squares).sum().sqrt()) if squares else 0.0


def _any_nonzero(values: Sequence[Tensor]) -> list[bool]:
    """Which values are not 0 in some process of data-parallel training: all must agree, or one waits forever."""
    sizes = torch.stack([value.detach().abs().float() for value in values])
    return [bool(size != 0) for size in _averaged([sizes])[0]]


def _averaged(parts: list[Tensor]) -> list[Tensor]:
    if not parts or not _several():
        return parts
    flat = torch.cat([part.flatten() for part in parts])
    torch.distributed.all_reduce(flat)
    return [flat / torch.distributed.get_world_size()]


def _several() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()
