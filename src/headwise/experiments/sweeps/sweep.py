"""A sweep: what is there stays, what is missing is made by an engine, what fails is kept as an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwise.code_permission import code_allowed
from headwise.data import build_task
from headwise.data.task import FileTask
from headwise.errors import InputError
from headwise.experiments.engines import Board, Engine, Monitor
from headwise.experiments.joint_recipe import JointRecipe
from headwise.experiments.recipe import Recipe
from headwise.experiments.sweeps.perform import (
    FAILED,
    FINISHED,
    INTERRUPTED,
    PRESENT,
    Assignment,
    Report,
    tidy_finished,
)
from headwise.experiments.sweeps.plan import Planned, SweepPlan
from headwise.experiments.sweeps.sweep_folder import ResultFolder
from headwise.retrieval.retrieval_task import RetrievalTask
from headwise.training import Listener, find_encoder

# Which files the runs of a sweep lack, told before any of them is started.


class Shelf:
    """What is here: models and data, each looked for once."""

    def __init__(self, data: Path | None, *, network: bool) -> None:
        """`data` is the folder of the user's files."""
        self._data = data
        self._network = network
        self._models: dict[str, bool] = {}
        self._files: dict[str, str | None] = {}

    def lacks(self, recipe: Recipe | JointRecipe) -> list[str]:
        """What a recipe needs and is not here, in a few words each."""
        parts = [recipe.single(task) for task in recipe.tasks] if isinstance(recipe, JointRecipe) else [recipe]
        missing = [] if self._has_model(recipe.model) else [f"model {recipe.model}"]
        return missing + [lack for part in parts for lack in self._lacking_files(part)]

    def _has_model(self, name: str) -> bool:
        if name not in self._models:
            try:
                find_encoder(name, network=self._network)
                self._models[name] = True
            except InputError:
                self._models[name] = False
        return self._models[name]

    def _lacking_files(self, recipe: Recipe) -> list[str]:
        task = build_task(recipe.task.name, recipe.task.options)
        if isinstance(task, RetrievalTask):
            folder = task.folder(self._data)
            here = self._data is not None and folder.exists()
            return [] if here else [f"the collection {task.collection}{self._below()}"]
        if not isinstance(task, FileTask) or task.hub is not None:
            return []
        wanted = ["train"] + ([] if recipe.data.validation_fraction is not None else ["validation"])
        return [lack for split in wanted if (lack := self._lacking(task, split))]

    def _lacking(self, task: FileTask, split: str) -> str | None:
        key = f"{task.name} {split} {task.places}"
        if key not in self._files:
            here = split in task.available(self._data)
            names = [task.places.own[split]] if split in task.places.own else list(task.places.names.get(split, ()))
            said = f"{split} of {task.name} ({' or '.join(names)}{self._below()})"
            self._files[key] = None if here else said
        return self._files[key]

    def _below(self) -> str:
        return ", and no --data was given" if self._data is None else f" below {self._data}"


def refuse_or_leave_out(runs: Iterable[Planned], shelf: Shelf, *, available: bool, name: str) -> tuple[Planned, ...]:
    """The runs whose files are here; if any are not, the sweep is refused unless the others are asked for."""
    runs = tuple(runs)
    lacking = {planned.key: shelf.lacks(planned.recipe) for planned in runs}
    here = tuple(planned for planned in runs if not lacking[planned.key])
    if len(here) == len(runs) or (available and here):
        return here
    missing = list(dict.fromkeys(lack for each in lacking.values() for lack in each))
    models = [each.removeprefix("model ") for each in missing if each.startswith("model ")]
    files = [each for each in missing if not each.startswith("model ")]
    said = ([f"the models {', '.join(models)} (not in the local Hub cache: add --download)"] if models else []) + files
    rest = ", or run the others with --available" if here else ""
    raise InputError(
        f"{name}: {len(runs) - len(here)} of {len(runs)} runs lack files: {'; '.join(said)}. Give the folder of your "
        f"files with --data{rest}."
    )


@dataclass(frozen=True)
class SweepPlace:
    """Where a sweep reads and writes."""

    output: Path
    data: Path | None = None
    cache: Path | None = None
    network: bool = False
    keep_models: bool = False
    available: bool = False
    """Make only the runs whose files are here."""


@dataclass(frozen=True)
class SweepOutcome:
    """What became of the runs, by key."""

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

    def count(self, state: str) -> int:
        """How many runs are in a state."""
        return sum(each == state for each in self.states.values())

    def as_data(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        names = {planned.key: planned.name for planned in reversed(self.plan.runs)}
        counts = {state: self.count(state) for state in (FINISHED, PRESENT, FAILED, INTERRUPTED)}
        failed = [{"key": key, "run": names[key], "error": error} for key, error in self.errors.items()]
        return {
            "sweep": self.plan.sweep.name,
            "scale": self.plan.scale,
            "output": str(self.output),
            "points": len(self.plan.runs),
            "runs": len(self.states),
            **counts,
            "left_out": self.left_out,
            "errors": failed,
        }


def run_sweep(
    plan: SweepPlan, place: SweepPlace, engine: Engine, listener: Listener, *, stops: Callable[[], int] = lambda: 0
) -> SweepOutcome:
    """Make all runs of a sweep that are not there yet.

    Args:
        plan: the runs.
        place: where.
        engine: who makes them.
        listener: shows progress, counted in runs.
        stops: how often somebody asked to stop.
    """
    folder = ResultFolder(place.output)
    folder.check()
    shelf = Shelf(place.data, network=place.network)
    wanted = tuple(planned for planned in plan.unique if not folder.has(planned.key))
    runs = refuse_or_leave_out(wanted, shelf, available=place.available, name=plan.sweep.name) if wanted else ()
    folder.open()
    tidy_finished(folder, keep_models=place.keep_models)
    folder.keep_manifest(plan.manifest())
    progress = _Progress(plan, listener, len(plan.unique) - len(wanted) + len(runs))
    for planned in plan.unique:
        if planned not in wanted:
            progress.states[planned.key] = PRESENT
    progress.begin()
    assignments = [_assignment(planned, plan, place, engine) for planned in runs]
    if assignments:
        engine.run(Board(assignments, Monitor(progress.over, progress.going_on, stops)))
    for planned in runs:  # stopped before their turn
        progress.states.setdefault(planned.key, INTERRUPTED)
    listener.end()
    return SweepOutcome(plan, place.output, progress.states, progress.errors, len(wanted) - len(runs))


def _assignment(planned: Planned, plan: SweepPlan, place: SweepPlace, engine: Engine) -> Assignment:
    def absolute(path: Path | None) -> str | None:
        return None if path is None else str(path.expanduser().resolve())

    return Assignment(
        key=planned.key,
        name=f"{plan.sweep.name} ({planned.name})",
        recipe=planned.recipe.as_data(),
        folder=str(place.output.expanduser().resolve()),
        data=absolute(place.data),
        cache=absolute(place.cache),
        network=place.network,
        threads=getattr(engine, "threads", 1),
        keep_model=place.keep_models,
        then=plan.sweep.then or None,
        engine=engine.name,
        allow_code=code_allowed(),
    )


@dataclass
class _Progress:
    """Counts runs, and shows what is going on."""

    plan: SweepPlan
    listener: Listener
    total: int
    states: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    _notes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Names for people."""
        self._names = {planned.key: planned.name for planned in reversed(self.plan.runs)}

    def begin(self) -> None:
        """Show what there is already."""
        self.listener.start(self.plan.sweep.name, self.total, len(self.states))

    def over(self, report: Report) -> None:
        """A run is over."""
        self.states[report.key] = report.state
        self._notes.pop(report.key, None)
        if report.state == FAILED:
            self.errors[report.key] = report.message
            self.listener.tell(f"{self._names[report.key]}: failed: {report.message}")
        elif report.state in (FINISHED, PRESENT):
            result = f", {report.message}" if report.message else ""
            self.listener.tell(f"{self._names[report.key]}: {report.state}{result}")
        self._show()

    def going_on(self, key: str, text: str) -> None:
        """A run is so far."""
        self._notes[key] = text
        self._show()

    def _show(self) -> None:
        done = sum(state != INTERRUPTED for state in self.states.values())
        self.listener.advance(done, " | ".join(self._notes.values()))
