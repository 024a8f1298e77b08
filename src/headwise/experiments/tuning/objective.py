"""One trial: train its recipe with every seed, unless the runs are there, and tell Optuna how it stands all along."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from statistics import fmean
from typing import Any

from headwise.code_permission import code_allowed
from headwise.errors import HeadwiseError
from headwise.experiments.documents import read_checked
from headwise.experiments.joint_recipe import JointRecipe
from headwise.experiments.recipe import Recipe
from headwise.experiments.record_schema import TrialRecord
from headwise.experiments.sweeps.folder import ResultFolder
from headwise.experiments.sweeps.perform import ABANDONED, BUSY, FAILED, INTERRUPTED, Assignment, Report, perform
from headwise.experiments.sweeps.plan import run_key
from headwise.experiments.tuning.library import optuna, storage_errors
from headwise.experiments.tuning.space import Space, words
from headwise.training import Listener
from headwise.training.watching import AbandonRun

# The part of a training, as one of so many, that no trial is pruned in.
SPARED = 3
# Seconds until it is looked again whether somebody else has finished a run.
LOOK_AGAIN = 0.5
ENGINE = "tune"
ONE_EVALUATION = "a run is evaluated only at its end, so no trial can be pruned: set training.evaluate_every"


class TrialFailed(Exception):
    """A run of a trial failed, or has no result that could be compared."""


@dataclass(frozen=True)
class TunePlace:
    """Where tuning reads and writes."""

    output: Path
    data: Path | None = None
    cache: Path | None = None
    network: bool = False
    threads: int = 1

    def assignment(self, recipe: Recipe | JointRecipe, name: str) -> Assignment:
        """A run for whoever makes those of sweeps, too."""
        data, cache = (None if path is None else str(path.expanduser().resolve()) for path in (self.data, self.cache))
        return Assignment(
            key=run_key(recipe),
            name=name,
            recipe=recipe.as_data(),
            folder=str(self.output.expanduser().resolve()),
            data=data,
            cache=cache,
            network=self.network,
            threads=self.threads,
            engine=ENGINE,
            allow_code=code_allowed(),
        )


class TrialRuns:
    """The runs of one trial, one after the other."""

    def __init__(
        self, study: Any, trial: Any, listener: Listener, *, prune: bool, remark: Callable[[str], None]
    ) -> None:
        """`trial` is one of Optuna, maybe begun and put back before; `remark` tells what is worth telling once."""
        self._trial, self._listener, self._prune, self._remark = trial, listener, prune, remark
        known = study.get_trials(deepcopy=False)[trial.number].intermediate_values
        self._reported: set[int] = set(known)
        self._values: list[float] = []
        """The best of each run that is finished."""
        self._before = 0
        """Their steps."""

    def value(self, space: Space, place: TunePlace) -> float:
        """Make all runs that are not there; the mean of their best values on validation."""
        values = space.values(space.suggest(self._trial))
        keys = []
        for seed in space.seeds:
            try:
                recipe = space.recipe_with(values | {"seed": seed})
            except HeadwiseError as error:
                raise TrialFailed(str(error)) from error
            assignment = place.assignment(recipe, f"trial {self._trial.number} ({words(values)})")
            happened = self._happened(assignment)
            keys.append(assignment.key)
            self._take_in(happened)
        primary = happened["primary"]
        for name, each in {"runs": keys, "steps": self._before, "primary": primary, "values": self._values}.items():
            self._trial.set_user_attr(name, each)
        return fmean(self._values)

    def watch(self, step: int, total: int, best: float) -> None:
        """Report the value that the trial would have if it ended now, and abandon it if others did better by then."""
        at = self._before + step
        if self._prune and step == total and not any(each > self._before for each in self._reported):
            self._remark(ONE_EVALUATION)
        self._report(at, best)
        if self._prune and step < total and step * SPARED >= total and self._hopeless():
            raise AbandonRun

    def _happened(self, assignment: Assignment) -> dict[str, Any]:
        """What happened in a run that is made now, or was made before."""
        report = perform(assignment, self._listener, self.watch)
        while report.state == BUSY:
            time.sleep(LOOK_AGAIN)
            report = perform(assignment, self._listener, self.watch)
        _raise(report)
        if report.content is not None:
            happened: dict[str, Any] = report.content["happened"]
            return happened
        path = ResultFolder(Path(assignment.folder)).result(report.key)
        kept: dict[str, Any] = read_checked(path, TrialRecord, "remove it, and the same command makes it again")
        return kept["happened"]  # type: ignore[no-any-return]

    def _take_in(self, happened: Mapping[str, Any]) -> None:
        """Note the result of a run, and report the evaluations of one that somebody else has made."""
        primary, best = happened["primary"], None
        for each in happened["evaluations"]:
            value = each[f"eval_{primary}"]
            best = value if best is None else max(best, value)
            self._report(self._before + each["step"], best)
        value = (happened["metrics"].get("validation") or {}).get(primary)
        if value is None or isnan(value):
            raise TrialFailed(f"validation {primary} is {value}: there is nothing to compare by.")
        self._values.append(value)
        self._before += happened["steps"]

    def _report(self, at: int, best: float) -> None:
        if at in self._reported:
            return
        self._reported.add(at)
        # Another process may have taken us for dead, or the database be gone for a moment: the run is worth its end.
        with suppress(optuna().exceptions.UpdateFinishedTrialError, *storage_errors()):
            self._trial.report(fmean([*self._values, best]), at)

    def _hopeless(self) -> bool:
        with suppress(*storage_errors()):
            return bool(self._trial.should_prune())
        return False


def _raise(report: Report) -> None:
    """Tell Optuna of a run that has not come to its end."""
    if report.state == ABANDONED:
        raise optuna().TrialPruned
    if report.state == INTERRUPTED:
        raise KeyboardInterrupt
    if report.state == FAILED:
        raise TrialFailed(report.message)
