"""What the user wants to be compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwise.errors import InputError, choices
from headwise.metrics.significance import RESAMPLES

SPLITS = ("test", "validation")
STARS = ("holm", "raw")


@dataclass(frozen=True)
class Asked:
    """All choices; those left out are taken from the sweep, or found out."""

    by: tuple[str, ...] = ()
    """Axes of the sweep or keys of the recipe that tell the systems apart."""
    within: tuple[str, ...] = ()
    """Axes or keys whose values are compared by themselves."""
    baseline: str | None = None
    """The label of the system that the others are compared with."""
    sweep: str | None = None
    """Which sweep of a folder that holds several."""
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of an axis or key, the labels to look at."""
    metric: str | None = None
    all_metrics: bool = False
    split: str | None = None
    ignore: tuple[str, ...] = ()
    """Keys of the recipe, or parts of the world, in which runs may differ."""
    common_seeds: bool = False
    """Leave out seeds that not all systems have."""
    stars: str = "holm"
    """Which p-values get stars: corrected by Holm, or raw."""
    resamples: int = RESAMPLES
    """Of the bootstrap."""

    def check(self) -> None:
        """Refuse what cannot be meant."""
        if self.split is not None and self.split not in SPLITS:
            raise InputError(f"--split {self.split}: {choices(self.split, SPLITS)}.")
        if self.stars not in STARS:
            raise InputError(f"--stars {self.stars}: {choices(self.stars, STARS)}.")
        if self.metric is not None and self.all_metrics:
            raise InputError(f"--metric {self.metric} and --all-metrics: one metric, or all; leave one of them out.")
        if both := [name for name in self.by if name in self.within]:
            raise InputError(f"{both[0]} is in both --by and --within: it tells systems apart, or blocks; choose one.")
