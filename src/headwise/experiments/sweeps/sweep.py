"""Train the runs of a sweep: finished runs stay, missing ones are trained, errors are saved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headwise.data.task import FileTask
from headwise.errors import InputError
from headwise.experiments.recipe import Recipe
from headwise.experiments.sweeps.jobs import (
    FAILED,
    FINISHED,
    INTERRUPTED,
    PRESENT,
    JobResult,
    JobSettings,
    tidy_finished,
)
from headwise.experiments.sweeps.result_folder import ResultFolder
from headwise.experiments.sweeps.sweep_file import PlannedRun, SweepPlan
from headwise.experiments.sweeps.worker_pool import Workers, run_jobs
from headwise.retrieval.retrieval_task import RetrievalTask
from headwise.training import Listener, find_encoder

MODEL = "model "


class FileCheck:
    """Finds models and data that recipes lack; each is looked for once."""

    def __init__(self, data: Path | None, *, network: bool) -> None:
        """`data` is the folder of the user's files."""
        self._data, self._network = data, network
        self._below = ", and no data=FOLDER was given" if data is None else f" below {data}"
        self._known: dict[str, str] = {}

    def missing(self, recipe: Recipe) -> list[str]:
        """What a recipe needs and is not here, in a few words each."""
        parts = list(recipe.parts.values())
        missing = [self._missing_model(recipe.model)]
        for part in parts:
            task = part.build_task()
            if isinstance(task, RetrievalTask):
                here = self._data is not None and task.folder(self._data).exists()
                missing.append("" if here else f"the collection {task.collection}{self._below}")
            elif isinstance(task, FileTask) and task.hub is None:
                splits = ["train"] + ([] if part.data.validation_fraction is not None else ["validation"])
                missing += [self._missing_split(task, split) for split in splits]
        return [each for each in missing if each]

    def _missing_model(self, name: str) -> str:
        if name not in self._known:
            try:
                find_encoder(name, network=self._network)
                self._known[name] = ""
            except InputError:
                self._known[name] = f"{MODEL}{name}"
        return self._known[name]

    def _missing_split(self, task: FileTask, split: str) -> str:
        key = f"{task.name} {split} {task.files}"
        if key not in self._known:
            here = split in task.available(self._data)
            names = [task.files.own[split]] if split in task.files.own else list(task.files.names.get(split, ()))
            self._known[key] = "" if here else f"{split} of {task.name} ({' or '.join(names)}{self._below})"
        return self._known[key]


def runs_with_files(
    runs: Iterable[PlannedRun], files: FileCheck, *, available: bool, name: str
) -> tuple[PlannedRun, ...]:
    """The runs whose files are here; if some are not, the sweep is refused unless only available runs are wanted."""
    runs = tuple(runs)
    missing = {planned.key: files.missing(planned.recipe) for planned in runs}
    here = tuple(planned for planned in runs if not missing[planned.key])
    if len(here) == len(runs) or (available and here):
        return here
    every = list(dict.fromkeys(each for lacks in missing.values() for each in lacks))
    models = ", ".join(each.removeprefix(MODEL) for each in every if each.startswith(MODEL))
    lacks = (
        [f"the models {models} (not in the local Hub cache: allow the network with download=True)"] if models else []
    )
    lacks += [each for each in every if not each.startswith(MODEL)]
    rest = ", or run the others with available=True" if here else ""
    raise InputError(
        f"{name}: {len(runs) - len(here)} of {len(runs)} runs lack files: {'; '.join(lacks)}. Give the folder of your "
        f"files with data=FOLDER{rest}."
    )


@dataclass(frozen=True)
class SweepResult:
    """The states of the runs, by key."""

    plan: SweepPlan
    output: Path
    states: dict[str, str]
    errors: dict[str, str]
    left_out: int
    """Runs whose files are not here."""

    @property
    def interrupted(self) -> bool:
        """Whether the sweep was stopped before its end."""
        return INTERRUPTED in self.states.values()

    def as_data(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        names = {planned.key: planned.name for planned in reversed(self.plan.runs)}
        counts = Counter(self.states.values())
        return {
            "sweep": self.plan.sweep.name,
            "scale": self.plan.scale,
            "output": str(self.output),
            "points": len(self.plan.runs),
            "runs": len(self.states),
            **{state: counts[state] for state in (FINISHED, PRESENT, FAILED, INTERRUPTED)},
            "left_out": self.left_out,
            "errors": [{"key": key, "run": names[key], "error": error} for key, error in self.errors.items()],
        }


def run_sweep(
    plan: SweepPlan,
    settings: JobSettings,
    workers: Workers,
    listener: Listener,
    *,
    available: bool = False,
    stops: Callable[[], int] = lambda: 0,
) -> SweepResult:
    """Train all runs of a sweep that are not finished.

    Args:
        plan: the runs.
        settings: where they read and write.
        workers: the processes that train them; they set the number of threads.
        listener: shows progress, counted in runs.
        available: train only the runs whose files are here.
        stops: how often a stop was requested.
    """
    folder = ResultFolder(settings.output)
    folder.check()
    missing = [planned for planned in plan.unique if not folder.has(planned.key)]
    files = FileCheck(settings.data, network=settings.network)
    runs = runs_with_files(missing, files, available=available, name=plan.sweep.name) if missing else ()
    folder.open()
    tidy_finished(folder, keep_models=settings.keep_models)
    folder.save_manifest(plan.manifest())
    names = {planned.key: planned.name for planned in reversed(plan.runs)}
    states = {planned.key: PRESENT for planned in plan.unique if planned not in missing}
    errors: dict[str, str] = {}
    notes: dict[str, str] = {}

    def show() -> None:
        listener.advance(sum(state != INTERRUPTED for state in states.values()), " | ".join(notes.values()))

    def over(result: JobResult) -> None:
        states[result.key] = result.state
        notes.pop(result.key, None)
        if result.state == FAILED:
            errors[result.key] = result.message
            listener.log(f"{names[result.key]}: failed: {result.message}")
        elif result.state in (FINISHED, PRESENT):
            listener.log(f"{names[result.key]}: {result.state}{f', {result.message}' if result.message else ''}")
        show()

    def progress(key: str, text: str) -> None:
        notes[key] = text
        show()

    listener.start(plan.sweep.name, len(states) + len(runs), len(states))
    settings = replace(settings, threads=workers.threads)
    jobs = [
        settings.job(
            planned.recipe, f"{plan.sweep.name} ({planned.name})", engine=workers.name, then=plan.sweep.then or None
        )
        for planned in runs
    ]
    if jobs:
        run_jobs(jobs, workers, over=over, progress=progress, stops=stops)
    for planned in runs:  # stopped before they started
        states.setdefault(planned.key, INTERRUPTED)
    listener.end()
    return SweepResult(plan, settings.output, states, errors, len(missing) - len(runs))
