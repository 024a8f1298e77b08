"""How long an epoch takes, and how that compares with the baseline."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from headwise.experiments.comparison.grouping import Group, Seeds
from headwise.metrics import SeedScores


@dataclass(frozen=True)
class Times:
    """Seconds for an epoch: of each seed the mean over its epochs, of these the mean and standard deviation."""

    seconds: float
    deviation: float | None
    """None with one seed."""
    ratio: float | None
    """To the baseline; None for a baseline that took no time."""

    def as_data(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)


def times_of(group: Group, baseline: str) -> dict[str, Times]:
    """For every system of a block; nothing if a run of it or of the baseline has no times."""
    base = _mean(group.systems[baseline])
    if base is None:
        return {}
    found = {system: _mean(seeds) for system, seeds in group.systems.items()}
    return {
        system: Times(each.mean, each.deviation, each.mean / base.mean if base.mean else None)
        for system, each in found.items()
        if each is not None
    }


def _mean(seeds: Seeds) -> SeedScores | None:
    if not all(run.seconds for run in seeds.values()):
        return None
    return SeedScores.of([float(np.mean(run.seconds)) for run in seeds.values()])
