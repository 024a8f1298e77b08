"""Tune a recipe: a process draws trials from a study of Optuna and trains them, beside others that do the same."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from math import isnan
from pathlib import Path
from statistics import fmean
from typing import Any

from headwise.disk import clear_drafts_of, save_content
from headwise.documents import read_checked
from headwise.errors import HeadwiseError, InputError, StateError
from headwise.experiments.recipe_files import recipe_text
from headwise.experiments.record_schema import TrialRecord
from headwise.experiments.sweeps.jobs import ABANDONED, BUSY, INTERRUPTED, Job, JobSettings, run_job, tidy_finished
from headwise.experiments.sweeps.jobs import FAILED as RUN_FAILED
from headwise.experiments.sweeps.result_folder import ResultFolder, writing
from headwise.experiments.sweeps.search_space import Search, Space, describe
from headwise.experiments.sweeps.study import (
    ERROR,
    FAILED,
    FINISHED,
    RETRIES,
    STATES,
    Storage,
    Study,
    died_too_often,
    identity,
    latest,
    optuna,
    sqlite_url,
    storage_errors,
)
from headwise.experiments.sweeps.sweep import missing_files
from headwise.experiments.sweeps.sweep_file import label_of
from headwise.text_formats import table_text
from headwise.training import Listener
from headwise.training import distributed as processes
from headwise.training.callbacks import AbandonRun, Watch

BEST, TRIALS, DATABASE = "best.yaml", "trials.csv", "study.db"
# No trial is pruned in the first of so many parts of a training.
SPARED = 3
# Seconds between two looks at the trials and runs of other processes.
TICK = 0.5
ONE_EVALUATION = "a run is evaluated only at its end, so no trial can be pruned: set training.eval_steps"


@dataclass(frozen=True)
class TrialRow:
    """One trial."""

    number: int
    state: str
    value: float | None
    """The mean over seeds of the main metric on validation; None unless it is finished."""
    parameters: dict[str, Any]
    steps: int | None
    """Of all its runs; of a pruned trial up to its end."""
    seconds: float | None
    runs: tuple[str, ...]
    """Keys of its runs, one for each seed."""
    evaluations: dict[int, float]
    """By step, the value that the trial would have had if it had ended there."""
    error: str | None


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
            "best": None if self.best is None else asdict(self.best) | {"recipe": str(self.output / BEST)},
            "trials": [asdict(row) for row in self.rows],
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
        study = Study(opened, name, space, search, settings.output / "locks")
        folder.open()
        tidy_finished(folder)
        interrupted = Tuner(study, space, replace(settings, engine="tune"), progress, prune=search.prune).run()
        rows = _rows(study, space)
        primary = next((trial.user_attrs["primary"] for trial in study.trials if "primary" in trial.user_attrs), None)
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


def _rows(study: Study, space: Space) -> tuple[TrialRow, ...]:
    """The trials, the best first."""
    dead = {trial.number for trial in died_too_often(study.trials)}
    rows = []
    for trial in latest(study.trials):
        state = STATES[trial.state.name]
        reason = f"its process died {RETRIES + 1} times." if trial.number in dead else "stopped."
        rows.append(
            TrialRow(
                number=trial.number,
                state=state,
                value=trial.value if state == FINISHED else None,
                parameters=space.values(trial.params or trial.system_attrs.get("fixed_params", {})),
                steps=trial.user_attrs.get("steps", trial.last_step),
                seconds=None if trial.duration is None else round(trial.duration.total_seconds(), 3),
                runs=tuple(trial.user_attrs.get("runs", ())),
                evaluations=dict(sorted(trial.intermediate_values.items())),
                error=trial.user_attrs.get(ERROR, reason) if state == FAILED else None,
            )
        )
    return tuple(sorted(rows, key=lambda row: (row.value is None, -(row.value or 0), row.number)))


class TrialFailed(Exception):
    """A run of a trial failed, or has no result to compare."""


class Tuner:
    """Trains the runs of trials, one after the other."""

    def __init__(self, study: Study, space: Space, settings: JobSettings, progress: Listener, *, prune: bool) -> None:
        """`prune`: whether a trial stops that falls behind."""
        self._study, self._space, self._settings, self._progress = study, space, settings, progress
        self._prune = prune
        self._said: set[str] = set()

    def run(self) -> bool:
        """Until enough trials are done; whether it was stopped before."""
        with writing(self._settings.output):
            self._study.alive.acquire()
        try:
            for trial in self._study.draw():
                if trial is None:
                    self._say_once("the remaining trials run in other processes: waiting for them")
                    time.sleep(TICK)
                else:
                    self._do_trial(trial)
        except KeyboardInterrupt:
            return True
        finally:
            self._study.alive.release()
        return False

    def _do_trial(self, trial: Any) -> None:
        """Train the runs of a trial and say how it ended.

        A process that takes this one for dead queues the trial again: then it is over here, and its runs are kept.
        """
        study, states, value = self._study, optuna().trial.TrialState, None
        with study.heartbeat(trial), suppress(optuna().exceptions.UpdateFinishedTrialError):
            try:
                value, primary = self._train_runs(trial)
                state, result = states.COMPLETE, f"validation {primary} {value:.4f}"
            except optuna().TrialPruned:
                state, result = states.PRUNED, f"pruned at step {study.trials[trial.number].last_step}"
            except TrialFailed as error:
                state, result = states.FAIL, f"failed: {error}"
                study.failed.add(identity(study.trials[trial.number]))
                trial.set_user_attr(ERROR, str(error))
            except BaseException:
                study.put_back(trial)
                raise
            study.optuna.tell(trial, value, state, skip_if_finished=True)
            self._progress.log(f"trial {trial.number}: {describe(trial.params)}: {result}")

    def _train_runs(self, trial: Any) -> tuple[float, str]:
        """Train the recipe with every seed, unless the runs exist; the mean of their best values on validation.

        Optuna gets the value that the trial would have so far after each evaluation. Returns the metric as well.
        """
        space, prune = self._space, self._prune
        reported = set(self._study.trials[trial.number].intermediate_values)  # of a trial that is resumed
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
            job = self._settings.job(recipe, f"{name} ({describe(point)})")
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
        return fmean(values), primary

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
