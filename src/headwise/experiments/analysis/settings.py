"""What to analyse."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class AnalysisSettings:
    """Which examples are looked at, and how closely."""

    split: str = "test"
    limit: int | None = None
    """The first so many examples; None for all."""
    examples: int = 20
    """How many are kept with their maps, spread evenly over the split."""
    places: tuple[int, ...] = ()
    """These are kept in any case, by their places in the split, from 0."""
    file: Path | None = None
    """A file in the task's format whose rows are kept with their maps instead."""
    importance: int = 0
    """Examples over which the importance of heads is measured; 0 for none."""
    batch: int | None = None
