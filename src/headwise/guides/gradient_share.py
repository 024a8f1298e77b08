"""Weights by gradient: a loss beside the task's gets a share of the task's gradient on the query/key projections.

The norm of a guide's gradient changes slowly, that of the task's by a factor of ten or more within a run. So the first
is measured rarely, by a backward pass for the guide alone. Its first measurement is an estimate that needs no such
pass: only through the layer that each map belongs to, which is nearly the same. The second is followed at every step
without any extra pass: hooks take the norm of the whole gradient in the backward pass that happens anyway. Small shares
are as good as orthogonal to the task's gradient; for larger ones the rare measurements say which part of the whole is
the task's.
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
# Where all shares together are at most this, the task's part of the whole gradient is computed, not measured.
SMALL_SHARES = 0.1
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
        self._exact = sum(rule.share for rule in rules.values()) > SMALL_SHARES
        self._coming = _Backward()
        self._seen: list[float] = []  # logarithms of the task's norm in the backward passes of this step
        self._step = 0
        # Since the last measurement of each loss: the sums of its weights and of the task's norms.
        self._sums: dict[str, tuple[float, float]] = {name: (0.0, 0.0) for name in rules}
        # Since somebody took the share of each loss: the sums of its norms in the loss and of the task's norms.
        self._settled: dict[str, tuple[float, float]] = {}

    def __getstate__(self) -> dict[str, Any]:
        """For copies: without the hooks of the last step."""
        return {**self.__dict__, "_coming": _Backward()}

    def weights(
        self,
        model: nn.Module,
        task: Tensor,
        losses: Mapping[str, Tensor],
        step: int,
        attention: Mapping[str, Mapping[int, Tensor]] | None = None,
    ) -> dict[str, float]:
        """The weights of these losses at this step; measures what is due.

        Args:
            model: the model that trains.
            task: the loss of its task.
            losses: by name.
            step: optimiser steps so far.
            attention: of each loss, the attention that it is computed from, by layer. The first measurement of such a
                loss is an estimate; see `_own_layer_norm` and `_like_the_first`.
        """
        self._observe()
        if step != self._step:
            self.collect()
        self._step = step
        due = [name for name in losses if name in self._rules and self._due(name, step)]
        if due and torch.is_grad_enabled() and task.requires_grad:
            # A batch without a target has the value 0 and says nothing about the guide's gradient.
            due = [name for name, some in zip(due, _any_nonzero([losses[name] for name in due]), strict=True) if some]
            self._measure(model, task, {name: losses[name] for name in due}, attention or {})
        self._coming.weights = {name: self.weight(name) for name in losses if name in self._rules}
        return self._coming.weights

    def _measure(
        self,
        model: nn.Module,
        task: Tensor,
        losses: Mapping[str, Tensor],
        attention: Mapping[str, Mapping[int, Tensor]],
    ) -> None:
        fresh = {name: attention[name] for name in losses if attention.get(name) and not self._measured[name][1]}
        followers = _like_the_first(fresh)
        leaders = {name: layers for name, layers in fresh.items() if name not in followers}
        own = {name: _own_layer_norm(model, losses[name], layers) for name, layers in leaders.items()}
        estimates = {name: norm for name, norm in own.items() if norm > _noise(losses[name])}
        exact = [name for name in losses if name not in followers and name not in estimates]
        # The first time the whole gradient is the task's, since the weights are 0.
        with_task = [task] if exact and self._exact and self._level is not None else []
        found = gradient_norms(model, [*(losses[name] for name in exact), *with_task])
        norms = estimates | dict(zip(exact, found, strict=False))
        self._coming.task = found[-1] if with_task else None
        for name, first in followers.items():
            mine, other = _attention_norms([losses[name], losses[first]], attention[name])
            norms[name] = norms[first] * mine / other if other else gradient_norms(model, [losses[name]])[0]
        for name, norm in norms.items():
            # A gradient that is rounding noise is none: it must not be scaled up to a share of the task's.
            window = self._rules[name].window
            norm = norm if norm > _noise(losses[name]) else 0.0
            self._account(name, norm)
            self._norms[name] = [*self._norms[name], norm][-window:]
            self._measured[name] = self._step, self._measured[name][1] + 1

    def account(self) -> None:
        """Settle the steps since the last measurements now, with the norms that these have shown."""
        for name, norms in self._norms.items():
            if norms:
                self._account(name, norms[-1])

    def _account(self, name: str, norm: float) -> None:
        """Settle the steps since this was last called for a loss, whose norm is this one now.

        In these steps its norm counts as the mean of that of its last measurement and this one.
        """
        weights, tasks = self._sums[name]
        if weights and tasks:
            losses, others = self._settled.get(name, (0.0, 0.0))
            self._settled[name] = losses + weights * (self._norms[name][-1] + norm) / 2, others + tasks
        self._sums[name] = 0.0, 0.0

    def weight(self, name: str) -> float:
        """The weight of a loss, by what is known so far."""
        norms = self._norms[name]
        if self._level is None or not any(norms):
            return 0.0
        return self._rules[name].share_at(self._step) * math.exp(self._level + self._trend) * len(norms) / sum(norms)

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

    def take_shares(self) -> dict[str, float]:
        """The realised shares of the steps that were settled since the last call, as ratios of sums over them.

        Single steps say little: late in training the task's gradient almost vanishes in some batches.
        """
        settled, self._settled = self._settled, {}
        return {name: losses / tasks for name, (losses, tasks) in settled.items()}

    def _observe(self) -> None:
        """Take over what the last backward pass has shown, if there was one."""
        norm, task, weights = self._coming.norm(), self._coming.task, self._coming.weights
        self._coming.detach()
        self._coming = _Backward()
        if norm is None or not 0 < norm < math.inf:
            return
        if task:
            self._task_part = task / norm
        elif self._level is None:  # weights were 0, so all of it is the task's
            task = norm
        task = task or norm * self._task_part
        self._seen.append(math.log(task))
        for name, weight in weights.items():
            before, tasks = self._sums[name]
            self._sums[name] = before + weight, tasks + task

    def state(self) -> dict[str, Any]:
        """For a checkpoint: plain numbers, fit for JSON."""
        auto = {
            name: {"norms": self._norms[name], "measured": list(self._measured[name]), "sums": list(self._sums[name])}
            for name in self._rules
        }
        return {"auto": auto, "task": [self._level, self._trend, self._task_part], "at": self._step}

    def load(self, state: Mapping[str, Any]) -> None:
        """Resume from a checkpoint of the same losses."""
        saved = state.get("auto", {})
        if set(saved) != set(self._rules):
            raise InputError(
                f"the saved state is of other guides: expected automatic weights {sorted(self._rules)}, got "
                f"{sorted(saved)}; attach the guides that were saved."
            )
        if "task" not in state or not all("sums" in each for each in saved.values()):
            raise InputError("the saved state of automatic weights is of an earlier version: start training again.")
        self._norms = {name: list(map(float, saved[name]["norms"])) for name in self._rules}
        self._measured = {name: (int(saved[name]["measured"][0]), int(saved[name]["measured"][1])) for name in saved}
        self._sums = {name: (float(saved[name]["sums"][0]), float(saved[name]["sums"][1])) for name in saved}
        self._level, self._trend, self._task_part = state["task"]
        self._step = int(state["at"])

    def _due(self, name: str, step: int) -> bool:
        at, count = self._measured[name]
        return count == 0 or step - at >= min(self._rules[name].every, FIRST_GAP * 2 ** min(count - 1, 30))


class _Backward:
    """What hooks see of one backward pass."""

    def __init__(self) -> None:
        self.task: float | None = None
        """The norm of the task's gradient in this step, if it was measured."""
        self.weights: dict[str, float] = {}
        """Of the losses beside it in this step."""
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
    norms = []
    for loss in losses:
        parts = _on_projections(loss, None, projections) if loss.requires_grad else []
        norms.append(_norm(_averaged(parts)))
    return norms


def _own_layer_norm(model: nn.Module, loss: Tensor, attention: Mapping[int, Tensor]) -> float:
    """The gradient norm of a loss on the projections, each only through the attention of its own layer.

    What a layer's projections do to the attention of later layers is left out; it is small beside what they do to
    their own. 0 where this says nothing: layers that share weights, and losses that do not depend on attention so.
    """
    projections = query_key_projections(model)
    layers = {layer: tensor for layer, tensor in attention.items() if tensor.requires_grad}
    if not loss.requires_grad or not layers or not layers.keys() <= {each.module for each in projections}:
        return 0.0
    slopes = torch.autograd.grad(loss, list(layers.values()), retain_graph=True, allow_unused=True)
    parts = []
    for (layer, tensor), slope in zip(layers.items(), slopes, strict=True):
        if slope is not None:
            parts += _on_projections(tensor, slope, [each for each in projections if each.module == layer])
    return _norm(_averaged(parts))


def _on_projections(output: Tensor, slope: Tensor | None, projections: Sequence[Projection]) -> list[Tensor]:
    """The gradients of an output on the parts of the projections that are query and key; the graph stays usable."""
    parameters = [projection.parameter for projection in projections]
    try:
        gradients = torch.autograd.grad(output, parameters, slope, retain_graph=True, allow_unused=True)
    except RuntimeError as error:
        reason = f"the gradient share cannot be measured: {error}"
        if "donated" in str(error):
            reason = (
                "gradient shares cannot be measured on a compiled model: use a number as weight, or measure before "
                "torch.compile."
            )
        elif "second time" in str(error) or "freed" in str(error):
            reason = (
                "the graph of the last forward pass is gone: ask for the gradient share between forward and backward."
            )
        raise StateError(reason) from error
    pairs = zip(projections, gradients, strict=True)
    return [each.part(gradient) for each, gradient in pairs if gradient is not None]


def _noise(loss: Tensor) -> float:
    """A gradient norm that may be nothing but rounding."""
    return torch.finfo(loss.dtype).eps * abs(float(loss.detach()))


def _like_the_first(attention: Mapping[str, Mapping[int, Tensor]]) -> dict[str, str]:
    """Losses that are computed from the same attention as another one, with the first of them.

    From attention down to the projections the backward pass is the same linear map for all of these losses. So the
    norms of their gradients on attention, which cost next to nothing, show how the norms on the projections compare:
    close enough for the steps until every loss is measured alone.
    """
    first: dict[tuple[int, ...], str] = {}
    followers = {}
    for name, layers in attention.items():
        key = tuple(map(id, layers.values()))
        if key and all(tensor.requires_grad for tensor in layers.values()) and first.setdefault(key, name) != name:
            followers[name] = first[key]
    return followers


def _attention_norms(losses: Sequence[Tensor], attention: Mapping[int, Tensor]) -> list[float]:
    """The gradient norm of each loss on the attention that it is computed from.

    Processes have the attention of different examples, so their squared norms add up. They are averaged here, which
    is the same but for a factor that all losses share.
    """
    tensors = list(attention.values())
    gradients = [torch.autograd.grad(loss, tensors, retain_graph=True, allow_unused=True) for loss in losses]
    squares = [_norm([part for part in parts if part is not None]) ** 2 for parts in gradients]
    return _averaged([torch.tensor(squares, dtype=torch.float64)])[0].sqrt().tolist()


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
