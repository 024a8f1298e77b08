"""Small studies for the tests of tuning: a run takes half a second, and its learning rate decides what it learns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest

from headwise.experiments.sweeps.jobs import JobSettings
from headwise.experiments.sweeps.search_space import Search, plan_space
from headwise.experiments.sweeps.study import sqlite_url
from headwise.experiments.sweeps.tune import TuneResult, tune

# Twelve steps with four evaluations.
QUICK = {
    "guides": {},
    "training__epochs": None,
    "training__steps": 12,
    "training__batch": 16,
    "training__head_learning_rate_multiplier": 1.0,  # so that trials learn steadily at these rates
    "training__evaluate_every": 3,
    "training__checkpoint_every": 100,
    "training__learning_rate": 3e-3,
}
# At this rate nothing is learned; the recipe's seed lets it come last.
HOPELESS = 1e-9
RATES = f"training.learning_rate=[{HOPELESS}, 3e-3, 2e-3]"
SHORT = {"training__steps": 2, "training__evaluate_every": 1}
FOUR = ("training.learning_rate=[3e-3, 1e-3]", "training.weight_decay=[0.0, 0.1]")


class Lines:
    """Progress that keeps what is logged."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def start(self, what: str, total: int, done: int = 0) -> None:
        pass

    def advance(self, done: int, note: str = "") -> None:
        pass

    def log(self, message: str) -> None:
        self.lines.append(message)

    def end(self) -> None:
        pass


@pytest.fixture
def tuned(write_recipe: Callable[..., str], pairs: str, tmp_path: Path) -> Callable[..., TuneResult]:
    """Tune a quick recipe without the command line."""

    def run(
        *vary: str,
        output: str = "out",
        trials: int | None = None,
        sampler: str | None = None,
        prune: bool = True,
        seeds: list[int] | None = None,
        study: str = "quick",
        storage: str | None = None,
        progress: Any = None,
        **changes: Any,
    ) -> TuneResult:
        space = plan_space(write_recipe(**{**QUICK, **changes}), vary=vary, seeds=seeds)
        search = Search.of(space, sampler, trials, prune=prune)
        place = JobSettings(tmp_path / output, Path(pairs))
        return tune(space, place, search, progress or Lines(), name=study, storage=storage)

    return run


def trials_of(folder: Path, study: str = "quick") -> list[Any]:
    """The trials as Optuna has them, in the file of a folder."""
    storage = optuna.storages.RDBStorage(sqlite_url(folder / "study.db"))
    try:
        return list(optuna.load_study(study_name=study, storage=storage).trials)
    finally:
        storage.remove_session()
        storage.engine.dispose()
