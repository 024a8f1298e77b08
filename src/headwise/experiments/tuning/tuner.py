"""A process at work on a study: it draws trials and runs them, one after the other, beside others that do the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import isnan
from pathlib import Path
from statistics import fmean
from typing import Any

from headwise.code_permission import code_allowed
from headwise.documents import read_checked
from headwise.errors import HeadwiseError
from headwise.experiments.recipe import Recipe
from headwise.experiments.record_schema import TrialRecord
from headwise.experiments.sweeps.perform import ABANDONED, BUSY, FAILED, INTERRUPTED, Assignment, Report, perform
from headwise.experiments.sweeps.plan import run_key
from headwise.experiments.sweeps.sweep_folder import ResultFolder
from headwise.experiments.tuning.search_space import GRID, Point, Search, Space, words
from headwise.experiments.tuning.study import (
    ERROR,
    TICKET,
    WITHDRAWN,
    WORKER,
    Storage,
    Worker,
    given_up,
    in_state,
    of_point,
    optuna,
    put_back,
    storage_errors,
    superfluous,
    ticket,
)
from headwise.training import Listener
from headwise.training.callbacks import AbandonRun

# One trial: train its recipe with every seed, unless the runs are there, and tell Optuna how it stands all along.


# The part of a training, as one of so many, that no trial is pruned in.
SPARED = 3
# Seconds until it is looked again whether somebody else has finished a run.
LOOK_AGAIN = 0.5
ENGINE = "tune"
ONE_EVALUATION = "a run is evaluated only at its end, so no trial can be pruned: set training.eval_steps"


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

    def assignment(self, recipe: Recipe, name: str) -> Assignment:
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
            happened: dict[str, Any] = report.content["results"]
            return happened
        path = ResultFolder(Path(assignment.folder)).result(report.key)
        kept: dict[str, Any] = read_checked(path, TrialRecord, "remove it, and the same command makes it again")
        return kept["results"]  # type: ignore[no-any-return]

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


# Seconds between two looks at the trials of others.
TICK = 0.5


@dataclass
class Tuner:
    """This process at work on a study."""

    study: Any
    storage: Storage
    space: Space
    place: TunePlace
    search: Search
    listener: Listener
    failed: set[str] = field(default_factory=set)
    """Tickets of trials that failed here: they are tried again by the next call, not by this one."""
    told: set[str] = field(default_factory=set)
    trial: Any = None
    overtaken: bool = False
    """Whether the trial was finished by somebody who took us for dead."""

    def run(self) -> bool:
        """Until enough is done; whether it was stopped before."""
        self.worker = Worker(self.place.output)
        with self.worker.at_work():
            try:
                while (more := self._step()) is not None:
                    if not more:
                        self._remark("the remaining trials are at work in other processes: waiting for them")
                        time.sleep(TICK)
            except KeyboardInterrupt:
                return True
        return False

    def _step(self) -> bool | None:
        """Do a trial: True; False if all that is left is at work elsewhere, None if nothing is left."""
        with self.storage.turn:
            self.worker.bury(self.study)
            if (more := self._more()) is True:
                self._do_one()
            return more

    def _more(self) -> bool | None:
        trials = self.study.get_trials(deepcopy=False)
        over = len(in_state(trials, "COMPLETE", "PRUNED")) + len(self.failed | {ticket(e) for e in given_up(trials)})
        running = len(in_state(trials, "RUNNING"))
        if over >= self.search.trials:
            return None
        if over + running >= self.search.trials:
            return False
        if in_state(trials, "WAITING") or self.search.sampler != GRID:
            return True
        point = self._missing(trials)
        if point is None:
            return False if running else None
        self.study.enqueue_trial(point, user_attrs={TICKET: of_point(point)})
        return True

    def _missing(self, trials: list[Any]) -> Point | None:
        """A point of the grid that nobody has done."""
        taken = {ticket(trial) for trial in trials if trial.state.name != "FAIL"} | self.failed
        taken |= {ticket(trial) for trial in given_up(trials)}
        return next((point for point in self.space.points() if of_point(point) not in taken), None)

    def _do_one(self) -> None:
        """Let Optuna draw a trial and run it; the turn is over as soon as it is drawn."""
        self.trial, self.overtaken = None, False
        count = len(self.study.get_trials(deepcopy=False))
        self.study.sampler = self.search.sampler_of(self.space.recipe.seed, count)
        try:
            self.study.optimize(self._objective, n_trials=1, catch=(TrialFailed, _Withdrawn))
        except BaseException as error:
            if self.overtaken and isinstance(error, Exception):
                return  # what was done is kept in the folder, where the next one finds it
            if self.trial is not None:
                self._put_back()
            raise
        self._tell()

    def _objective(self, trial: Any) -> float:
        self.trial = trial
        trial.set_user_attr(WORKER, self.worker.name)
        trials = self.study.get_trials(deepcopy=False)
        if superfluous(trials[trial.number], trials, self.search.trials):
            trial.set_user_attr(WITHDRAWN, True)
            raise _Withdrawn
        self.storage.turn.over()
        named = _Named(self.listener, f"trial {trial.number}")
        runs = TrialRuns(self.study, trial, named, prune=self.search.prune, remark=self._remark)
        try:
            return runs.value(self.space, self.place)
        except TrialFailed as error:
            self.failed.add(ticket(trials[trial.number]))
            trial.set_user_attr(ERROR, str(error))
            raise
        finally:
            self.overtaken = self._frozen().state.name != "RUNNING"

    def _frozen(self) -> Any:
        return self.study.get_trials(deepcopy=False)[self.trial.number]

    def _put_back(self) -> None:
        if self._frozen().state.name == "FAIL":
            put_back(self.study, self._frozen())

    def _remark(self, text: str) -> None:
        if text not in self.told:
            self.told.add(text)
            self.listener.tell(text)

    def _tell(self) -> None:
        trial = self._frozen()
        if WITHDRAWN in trial.user_attrs:
            return
        result = {
            "COMPLETE": f"validation {trial.user_attrs.get('primary')} {trial.value or 0:.4f}",
            "PRUNED": f"pruned at step {trial.last_step}",
            "FAIL": f"failed: {trial.user_attrs.get(ERROR)}",
        }
        self.listener.tell(f"trial {trial.number}: {words(trial.params)}: {result[trial.state.name]}")


class _Withdrawn(Exception):
    """Somebody else does it, or has done it."""


@dataclass(frozen=True)
class _Named:
    """A listener that says which trial it is."""

    listener: Listener
    name: str

    def start(self, what: str, total: int, done: int = 0) -> None:
        self.listener.start(self.name, total, done)

    def advance(self, done: int, note: str = "") -> None:
        self.listener.advance(done, note)

    def tell(self, message: str) -> None:
        self.listener.tell(f"{self.name}: {message}")

    def end(self) -> None:
        self.listener.end()
