"""Train the runs of a sweep: finished runs stay, missing ones are trained, errors are saved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headwise.data.task import FileTask
from headwise.errors import InputError
from headwise.experiments.recipe import Recipe
from headwise.experiments.sweeps import jobs
from headwise.experiments.sweeps.jobs import JobResult, JobSettings
from headwise.experiments.sweeps.result_folder import ResultFolder
from headwise.experiments.sweeps.sweep_file import PlannedRun, SweepPlan
from headwise.experiments.sweeps.worker_pool import Workers, run_jobs
from headwise.retrieval.retrieval_task import RetrievalTask
from headwise.training import Listener, find_encoder

MODEL = "model "


def missing_files(recipe: Recipe, settings: JobSettings, known: dict[str, str]) -> list[str]:
    """What a recipe needs and is not here, in a few words each; `known` keeps what was looked up before."""
    data, model = settings.data, recipe.model
    below = ", and no data=FOLDER was given" if data is None else f" below {data}"
    if model not in known:
        try:
            find_encoder(model, network=settings.network)
            known[model] = ""
        except InputError:
            known[model] = f"{MODEL}{model}"
    missing = [known[model]]
    for part in recipe.parts.values():
        task = part.build_task()
        if isinstance(task, RetrievalTask):
            here = data is not None and task.folder(data).exists()
            missing.append("" if here else f"the collection {task.collection}{below}")
        elif isinstance(task, FileTask) and task.hub is None:
            for split in ("train", "validation") if part.data.validation_fraction is None else ("train",):
                key = f"{task.name} {split} {task.files}"
                if key not in known:
                    own = task.files.own
                    names = [own[split]] if split in own else task.files.names.get(split, ())
                    here = split in task.available(data)
                    known[key] = "" if here else f"{split} of {task.name} ({' or '.join(names)}{below})"
                missing.append(known[key])
    return [each for each in missing if each]


def runs_with_files(
    runs: Sequence[PlannedRun], settings: JobSettings, *, available: bool, name: str
) -> list[PlannedRun]:
    """The runs whose files are here; if some are not, the sweep is refused unless only available runs are wanted."""
    known: dict[str, str] = {}
    missing = [missing_files(planned.recipe, settings, known) for planned in runs]
    here = [planned for planned, lacks in zip(runs, missing, strict=True) if not lacks]
    if len(here) == len(runs) or (available and here):
        return here
    every = list(dict.fromkeys(each for lacks in missing for each in lacks))
    models = ", ".join(each.removeprefix(MODEL) for each in every if each.startswith(MODEL))
    cache = "not in the local Hub cache: allow the network with download=True"
    lacks = [f"the models {models} ({cache})"] if models else []
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
        return jobs.INTERRUPTED in self.states.values()

    def as_data(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        counts, names = Counter(self.states.values()), self.plan.names
        return {
            "sweep": self.plan.sweep.name,
            "scale": self.plan.scale,
            "output": str(self.output),
            "points": len(self.plan.runs),
            "runs": len(self.states),
            **{state: counts[state] for state in (jobs.FINISHED, jobs.PRESENT, jobs.FAILED, jobs.INTERRUPTED)},
            "left_out": self.left_out,
            "errors": [{"key": key, "run": names[key], "error": error} for key, error in self.errors.items()],
        }


def run_sweep(
    plan: SweepPlan,
    settings: JobSettings,
    workers: Workers,
    progress: Listener,
    *,
    available: bool = False,
    stops: Callable[[], int] = lambda: 0,
) -> SweepResult:
    """Train all runs of a sweep that are not finished.

    Args:
        plan: the runs.
        settings: where they read and write.
        workers: the processes that train them; they set the number of threads.
        progress: shows how far it is, counted in runs.
        available: train only the runs whose files are here.
        stops: how often a stop was requested.
    """
    folder, name = ResultFolder(settings.output), plan.sweep.name
    folder.check()
    missing = [planned for planned in plan.unique if not folder.has(planned.key)]
    runs = runs_with_files(missing, settings, available=available, name=name)
    folder.open()
    jobs.tidy_finished(folder, keep_models=settings.keep_models)
    folder.save_manifest(plan.manifest())
    states = {planned.key: jobs.PRESENT for planned in plan.unique if planned not in missing}
    errors: dict[str, str] = {}
    notes: dict[str, str] = {}

    def show() -> None:
        progress.advance(sum(state != jobs.INTERRUPTED for state in states.values()), " | ".join(notes.values()))

    def over(result: JobResult) -> None:
        states[result.key] = result.state
        notes.pop(result.key, None)
        run, message = plan.names[result.key], result.message
        if result.state == jobs.FAILED:
            errors[result.key] = message
            progress.log(f"{run}: failed: {message}")
        elif result.state in (jobs.FINISHED, jobs.PRESENT):
            progress.log(f"{run}: {result.state}{f', {message}' if message else ''}")
        show()

    def note(key: str, text: str) -> None:
        notes[key] = text
        show()

    progress.start(name, len(states) + len(runs), len(states))
    for each in plan.notes:
        progress.log(each)
    settings = replace(settings, threads=workers.threads, engine=workers.name)
    then = plan.sweep.then or None
    queue = [settings.job(each.recipe, f"{name} ({each.name})", then=then) for each in runs]
    if queue:
        run_jobs(queue, workers, over=over, progress=note, stops=stops)
    for planned in runs:  # stopped before they started
        states.setdefault(planned.key, jobs.INTERRUPTED)
    progress.end()
    result = SweepResult(plan, settings.output, states, errors, len(missing) - len(runs))
    reporters = sorted({reporter for each in runs for reporter in each.recipe.report_to})
    if reporters and not result.interrupted:
        from headwise.training.run_trainer import report_summary

        totals = {f"sweep/{key}": value for key, value in result.as_data().items() if isinstance(value, int)}
        report_summary(reporters, f"{name}-summary", settings.output / "tensorboard", totals)
    return result
