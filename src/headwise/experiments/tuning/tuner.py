"""A process at work on a study: it draws trials and runs them, one after the other, beside others that do the same."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from headwise.experiments.tuning.objective import TrialFailed, TrialRuns, TunePlace
from headwise.experiments.tuning.search import GRID, Search
from headwise.experiments.tuning.space import Point, Space, words
from headwise.experiments.tuning.storage import Storage
from headwise.experiments.tuning.trials import (
    ERROR,
    TICKET,
    WITHDRAWN,
    WORKER,
    given_up,
    in_state,
    of_point,
    put_back,
    superfluous,
    ticket,
)
from headwise.experiments.tuning.workers import Worker
from headwise.training import Listener

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
