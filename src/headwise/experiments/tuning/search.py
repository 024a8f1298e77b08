"""How the next combination is chosen, how many are tried, and which are given up early."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from headwise.errors import InputError, choices
from headwise.experiments.tuning.library import optuna
from headwise.experiments.tuning.space import Space

GRID, TPE, RANDOM = "grid", "tpe", "random"
SAMPLERS = (GRID, TPE, RANDOM)
# Trials of a space that cannot be counted, if nobody says how many.
TRIALS = 20
LARGEST_GRID = 10_000


@dataclass(frozen=True)
class Search:
    """How to look for the best."""

    sampler: str
    trials: int
    prune: bool = True

    @classmethod
    def of(cls, space: Space, sampler: str | None, trials: int | None, *, prune: bool = True) -> Search:
        """Fill in what was left out: a grid where the space is finite, and as many trials as it has points."""
        chosen = sampler or (TPE if space.size is None else GRID)
        if chosen not in SAMPLERS:
            raise InputError(f"--sampler {chosen}: {choices(chosen, SAMPLERS)}.")
        if chosen != GRID:
            return cls(chosen, trials or TRIALS, prune)
        if space.size is None:
            endless = next(axis.key for axis in space.axes if axis.count is None)
            raise InputError(f"--sampler grid: {endless} is a range without a step: give it one, or choose tpe.")
        if space.size > LARGEST_GRID:
            raise InputError(f"the grid has {space.size} combinations: vary less, or choose --sampler tpe.")
        return cls(GRID, min(trials or space.size, space.size), prune)

    def pruner(self) -> Any:
        """Prune what is worse than the median at the same step, once some trials are there to compare with."""
        pruners = optuna().pruners
        startup = min(5, max(2, self.trials // 4))
        return pruners.MedianPruner(n_startup_trials=startup) if self.prune else pruners.NopPruner()

    def sampler_of(self, seed: int, count: int) -> Any:
        """Draws one trial; each has its own random numbers, so that a second call does not repeat the first one's.

        A grid comes from a queue and needs none: Optuna's own sampler takes a point whose trial was stopped for done,
        and lets two processes draw the same one.
        """
        samplers = optuna().samplers
        number = random.Random(f"{seed} {count}").randrange(2**32)
        return samplers.TPESampler(seed=number) if self.sampler == TPE else samplers.RandomSampler(seed=number)
