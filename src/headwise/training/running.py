"""Means since the last log, which survive a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from headwise.training import processes


class RunningMeans:
    """Sums numbers by name until their means are taken; tensors stay on their device until then."""

    def __init__(self) -> None:
        """Start empty."""
        self._sums: dict[str, Tensor | float] = {}
        self._counts: dict[str, int] = {}

    def __len__(self) -> int:
        """How many numbers there are means of."""
        return len(self._counts)

    def note(self, numbers: Mapping[str, Tensor | float], weight: float = 1.0) -> None:
        """Add one value of each; `weight` is that of this process in the mean over processes."""
        for name, number in numbers.items():
            self._sums[name] = self._sums.get(name, 0.0) + (number if weight == 1.0 else weight * number)
            self._counts[name] = self._counts.get(name, 0) + 1

    def take(self) -> dict[str, float]:
        """The means, over all processes of data-parallel training; what comes next is counted anew."""
        means = {name: float(total) / self._counts[name] for name, total in self._sums.items()}
        self._sums, self._counts = {}, {}
        return _averaged_over_processes(means)

    def state(self) -> dict[str, Any]:
        """Plain data, fit for JSON."""
        return {name: [float(total), self._counts[name]] for name, total in self._sums.items()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        for name, (total, count) in state.items():
            self._sums[name], self._counts[name] = total, count


def add_to_log(means: RunningMeans, logs: Any, state: Any) -> None:
    """Add the means to a training log of the Trainer; other logs stay as they are."""
    if not len(means) or logs is None or "loss" not in logs:
        return
    parts = means.take()
    logs.update(parts)
    if state.log_history:
        state.log_history[-1].update(parts)


def _averaged_over_processes(parts: dict[str, float]) -> dict[str, float]:
    """The mean of each number over all processes of data-parallel training."""
    totals = processes.summed(list(parts.values()))
    return {name: total / processes.count() for name, total in zip(parts, totals, strict=True)}
