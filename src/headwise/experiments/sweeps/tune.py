"""Tune a recipe: a process draws trials from a study of Optuna and trains them, beside others that do the same."""

from __future__ import annotations

import random
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from statistics import fmean
from typing import Any

from filelock import FileLock

from headwise.disk import clear_drafts_of, save_content
from headwise.documents import read_checked
from headwise.errors import HeadwiseError, InputError, StateError
from headwise.experiments.recipe_files import recipe_text
from headwise.experiments.record_schema import TrialRecord
from headwise.experiments.sweeps.jobs import ABANDONED, BUSY, INTERRUPTED, Job, JobSettings, run_job, tidy_finished
from headwise.experiments.sweeps.jobs import FAILED as RUN_FAILED
from headwise.experiments.sweeps.result_folder import ResultFolder, writing
from headwise.experiments.sweeps.search_space import GRID, TPE, Search, Space, describe
from headwise.experiments.sweeps.study import (
    ERROR,
    STATES,
    WORKER,
    Storage,
    TrialRow,
    died_too_often,
    identity,
    in_state,
    open_study,
    optuna,
    point_identity,
    queue_again,
    queue_dead_trials,
    sqlite_url,
    storage_errors,
    trial_rows,
    worker_lock,
)
from headwise.experiments.sweeps.sweep import missing_files
from headwise.experiments.sweeps.sweep_file import label_of
from headwise.experiments.text_formats import table_text
from headwise.training import Listener
from headwise.training import distributed as processes
from headwise.training.callbacks import AbandonRun, Watch

BEST, TRIALS, DATABASE = "best.yaml", "trials.csv", "study.db"
ENGINE = "tune"
# No trial is pruned in the first of so many parts of a training.
SPARED = 3
# Seconds between two looks at the trials and runs of other processes.
TICK = 0.5
ONE_EVALUATION = "a run is evaluated only at its end, so no trial can be pruned: set training.eval_steps"


@dataclass(frozen=True)
class TuneResult:
    """The trials of a study so far."""

    study: str
    storage: str
    output: Path
    wanted: int
    primary: str | None
    rows: tuple[TrialRow, ...]
    """The best first, then those without a value by number."""
    interrupted: bool

    @property
    def best(self) -> TrialRow | None:
        """The trial with the largest value; of equal ones the first."""
        return self.rows[0] if self.rows and self.rows[0].value is not None else None

    @property
    def errors(self) -> dict[str, str]:
        """By trial, each error once."""
        failed = {row.error: row for row in reversed(self.rows) if row.error is not None}
        return {f"trial {row.number}": error for error, row in reversed(failed.items())}

    def count(self, state: str) -> int:
        """How many trials are in a state."""
        return sum(row.state == state for row in self.rows)

    def as_data(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {
            "study": self.study,
            "storage": self.storage,
            "output": str(self.output),
            "metric": self.primary,
            "split": "validation",
            "wanted": self.wanted,
            **{state: self.count(state) for state in STATES.values()},
            "best": None if self.best is None else self.best.as_data() | {"recipe": str(self.output / BEST)},
            "trials": [row.as_data() for row in self.rows],
        }


def tune(
    space: Space,
    settings: JobSettings,
    search: Search,
    progress: Listener,
    *,
    name: str,
    storage: str | None = None,
) -> TuneResult:
    """Continue a study until enough trials are finished or pruned; write best.yaml and trials.csv.

    Args:
        space: the combinations.
        settings: where runs read and write.
        search: how combinations are chosen.
        progress: shows how far it is.
        name: of the study.
        storage: URL of a database; default a file of SQLite in the output folder.
    """
    optuna()  # which may not be installed
    if processes.launched() > 1:
        raise InputError(
            f"tuning runs in one process, and a launcher has started {processes.launched()}: start the command without "
            "it, and once more for each process that should help."
        )
    folder = ResultFolder(settings.output)
    folder.check()
    # Refused before the first trial: files that every trial would fail for.
    known: dict[str, str] = {}
    missing = dict.fromkeys(each for recipe in space.corners() for each in missing_files(recipe, settings, known))
    if missing:
        raise InputError(
            f"{space.recipe.name} lacks files: {'; '.join(missing)}. Give the folder of your files with data=FOLDER, "
            "or allow the network with download=True."
        )
    if storage is None:
        folder.open()
    opened = Storage(storage or sqlite_url(settings.output / DATABASE), settings.output)
    try:
        study = open_study(opened, name, space, search)
        folder.open()
        tidy_finished(folder)
        interrupted = Tuner(study, opened, space, settings, search, progress).run()
        rows, primary = trial_rows(study, space)
    except storage_errors() as error:
        reason = " ".join(str(error.__cause__ or error).split())[:200].rstrip(".")
        raise StateError(
            f"the study in {opened.name} cannot be reached any more ({reason}): finished runs are kept, and tuning "
            "again resumes it."
        ) from error
    finally:
        opened.close()
    result = TuneResult(name, opened.name, settings.output, search.trials, primary, rows, interrupted)
    with writing(settings.output), folder.lock():  # processes that tune together end at the same time
        for file in (BEST, TRIALS):
            clear_drafts_of(settings.output / file)
        if result.best is not None:
            recipe = space.recipe_with(result.best.parameters | {"name": f"{space.recipe.name}-best"})
            save_content(settings.output / BEST, recipe_text(recipe))
        keys = [axis.key for axis in space.axes]
        table: list[list[Any]] = [["number", "state", "value", *keys, "steps", "seconds"]]
        for row in sorted(result.rows, key=lambda each: each.number):
            values = [label_of(row.parameters[key]) if key in row.parameters else "" for key in keys]
            table.append([row.number, row.state, row.value, *values, row.steps, row.seconds])
        save_content(settings.output / TRIALS, table_text(table))
    return result


class TrialFailed(Exception):
    """A run of a trial failed, or has no result to compare."""


class Tuner:
    """A process that draws trials and trains them, one after the other."""

    def __init__(
        self, study: Any, storage: Storage, space: Space, settings: JobSettings, search: Search, progress: Listener
    ) -> None:
        """Several processes may tune the same study at once."""
        self._study, self._space, self._settings, self._search = study, space, settings, search
        self._progress = progress
        self._locks, self._worker = settings.output / "locks", uuid.uuid4().hex
        # Held while a trial is drawn.
        self._drawing = storage.lock or FileLock(self._locks / "study.lock")
        self._failed: set[str] = set()  # combinations that failed here: the next call tries them again, this one not
        self._said: set[str] = set()
        self._trial: Any = None

    def run(self) -> bool:
        """Until enough trials are done; whether it was stopped before."""
        with writing(self._settings.output):
            alive = worker_lock(self._locks, self._worker)
            alive.acquire()
        try:
            while (more := self._step()) is not None:
                if not more:
                    self._say_once("the remaining trials run in other processes: waiting for them")
                    time.sleep(TICK)
        except KeyboardInterrupt:
            return True
        finally:
            alive.release()
        return False

    def _step(self) -> bool | None:
        """Do a trial: True; False if all that is left runs elsewhere, None if nothing is left."""
        with writing(self._settings.output):
            self._drawing.acquire()
        try:
            queue_dead_trials(self._study, self._locks, self._worker)
            more = self._more()
            if more:
                self._do_trial()
            return more
        finally:
            self._drawing.release()

    def _more(self) -> bool | None:
        """Whether a trial can be drawn; a point of the grid is queued for it."""
        trials, wanted = self._study.get_trials(deepcopy=False), self._search.trials
        over_and_out = self._failed | {identity(trial) for trial in died_too_often(trials)}
        over = len(in_state(trials, "COMPLETE", "PRUNED")) + len(over_and_out)
        running = len(in_state(trials, "RUNNING"))
        if over >= wanted:
            return None
        if over + running >= wanted:
            return False
        if in_state(trials, "WAITING") or self._search.sampler != GRID:
            return True
        taken = {identity(trial) for trial in trials if trial.state.name != "FAIL"} | over_and_out
        point = next((each for each in self._space.points() if point_identity(each) not in taken), None)
        if point is None:
            return False if running else None
        # Optuna's GridSampler counts a stopped trial as done, and lets two processes draw the same point.
        self._study.enqueue_trial(point)
        return True

    def _do_trial(self) -> None:
        """Let Optuna draw a trial and run it; other processes may draw as soon as it is drawn."""
        self._trial = None
        count, samplers = len(self._study.get_trials(deepcopy=False)), optuna().samplers
        # Another seed for each trial, so that a second call does not repeat the numbers of the first.
        seed = random.Random(f"{self._space.recipe.seed} {count}").randrange(2**32)
        sampler = samplers.TPESampler if self._search.sampler == TPE else samplers.RandomSampler
        self._study.sampler = sampler(seed=seed)
        try:
            self._study.optimize(self._objective, n_trials=1, catch=(TrialFailed,))
        except BaseException as error:
            # A process that takes this one for dead has queued the trial; its runs are kept for the next one.
            frozen = None if self._trial is None else self._frozen()
            if frozen is not None and self._overtaken and isinstance(error, Exception):
                return
            if frozen is not None and frozen.state.name == "FAIL":
                queue_again(self._study, frozen, died=False)
            raise
        trial = self._frozen()
        result = {
            "COMPLETE": f"validation {trial.user_attrs.get('primary')} {trial.value or 0:.4f}",
            "PRUNED": f"pruned at step {trial.last_step}",
            "FAIL": f"failed: {trial.user_attrs.get(ERROR)}",
        }[trial.state.name]
        self._progress.log(f"trial {trial.number}: {describe(trial.params)}: {result}")

    def _objective(self, trial: Any) -> float:
        self._trial, self._overtaken = trial, False
        trial.set_user_attr(WORKER, self._worker)
        self._drawing.release()
        try:
            return self._train_runs(trial)
        except TrialFailed as error:
            self._failed.add(identity(self._frozen()))
            trial.set_user_attr(ERROR, str(error))
            raise
        finally:
            self._overtaken = self._frozen().state.name != "RUNNING"

    def _train_runs(self, trial: Any) -> float:
        """Train the recipe with every seed, unless the runs exist; the mean of their best values on validation.

        Optuna gets the value that the trial would have so far after each evaluation.
        """
        space, prune = self._space, self._search.prune
        reported = set(self._frozen().intermediate_values)  # of a trial that is resumed
        keys: list[str] = []
        values: list[float] = []  # the best of each finished run
        before = 0  # the steps of finished runs

        def report(step: int, best: float) -> None:
            if before + step in reported:
                return
            reported.add(before + step)
            # Another process may take this one for dead, or the database be away for a moment: training continues.
            with suppress(optuna().exceptions.UpdateFinishedTrialError, *storage_errors()):
                trial.report(fmean([*values, best]), before + step)

        def watch(step: int, total: int, best: float) -> None:
            """Report, and abandon the run if other trials did better by then."""
            if prune and step == total and not any(each > before for each in reported):
                self._say_once(ONE_EVALUATION)
            report(step, best)
            if prune and step < total and step * SPARED >= total:
                with suppress(*storage_errors()):
                    if trial.should_prune():
                        raise AbandonRun

        point = space.values({axis.key: axis.suggest(trial) for axis in space.axes})
        name = f"trial {trial.number}"
        for seed in space.seeds:
            try:
                recipe = space.recipe_with(point | {"seed": seed})
            except HeadwiseError as error:
                raise TrialFailed(str(error)) from error
            job = self._settings.job(recipe, f"{name} ({describe(point)})", engine=ENGINE)
            results = self._run(job, _Named(self._progress, name), watch)
            primary, best = results["primary"], float("-inf")
            for each in results["evaluations"]:  # also of a run that another process has trained
                best = max(best, each[f"eval_{primary}"])
                report(each["step"], best)
            value = (results["metrics"].get("validation") or {}).get(primary)
            if value is None or isnan(value):
                raise TrialFailed(f"validation {primary} is {value}: there is nothing to compare by.")
            values.append(value)
            keys.append(job.key)
            before += results["steps"]
        attributes = {"runs": keys, "steps": before, "primary": primary, "values": values}
        for attribute, content in attributes.items():
            trial.set_user_attr(attribute, content)
        return fmean(values)

    def _run(self, job: Job, progress: Listener, watch: Watch) -> dict[str, Any]:
        """The results of a run that is trained now, or exists."""
        while (result := run_job(job, progress, watch)).state == BUSY:
            time.sleep(TICK)
        if result.state == ABANDONED:
            raise optuna().TrialPruned
        if result.state == INTERRUPTED:
            raise KeyboardInterrupt
        if result.state == RUN_FAILED:
            raise TrialFailed(result.message)
        path = ResultFolder(self._settings.output).result(job.key)
        content = result.content or read_checked(path, TrialRecord, "remove it, and tune again to train it again")
        return dict(content["results"])

    def _frozen(self) -> Any:
        return self._study.get_trials(deepcopy=False)[self._trial.number]

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._progress.log(text)


@dataclass(frozen=True)
class _Named:
    """Progress that names the trial."""

    progress: Listener
    name: str

    def start(self, what: str, total: int, done: int = 0) -> None:
        self.progress.start(self.name, total, done)

    def advance(self, done: int, note: str = "") -> None:
        self.progress.advance(done, note)

    def log(self, message: str) -> None:
        self.progress.log(f"{self.name}: {message}")

    def end(self) -> None:
        self.progress.end()
