"""The memory of `auto` weights: what was measured, and the weight that follows from it."""

from __future__ import annotations

from typing import Any

from headwise.guides.weights import Auto


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
