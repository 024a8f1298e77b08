"""One run of a sweep, from its recipe to its JSON, by whichever process an engine has."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from headwise.code_permission import allowing_code
from headwise.errors import HeadwiseError, InputError, choices
from headwise.experiments import record
from headwise.experiments.apply import Source, load_tasks
from headwise.experiments.head_studies.head_dissociation import NAME as DISSOCIATION
from headwise.experiments.head_studies.head_dissociation import dissociate
from headwise.experiments.head_studies.measure_curve import measure_curve
from headwise.experiments.head_studies.prune_curve import NAME as CURVE
from headwise.experiments.head_studies.prune_curve import CurveSettings
from headwise.experiments.joint_recipe import check_any_recipe
from headwise.experiments.joint_run import WORK
from headwise.experiments.outputs import read_outputs
from headwise.experiments.prepare import Place
from headwise.experiments.run import train
from headwise.experiments.sweeps.sweep_folder import FORMAT, ResultFolder
from headwise.training import Listener
from headwise.training.callbacks import AbandonRun, Watch

# What a sweep measures on the model of each run on several tasks, once it is trained.


RESAMPLES = 1000


def check_then(value: Any) -> Any:
    """`then: [prune-curve]` and `then: {prune-curve: {percent: [20]}}`; unknown names and options are refused."""
    if value is None:
        return {}
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        value = {name: None for name in value}
    if not isinstance(value, dict):
        raise ValueError("a list of what to measure, such as [prune-curve, dissociation]")
    given = {str(name): dict(options or {}) for name, options in value.items()}
    for name in given:
        if name not in (CURVE, DISSOCIATION):
            raise ValueError(f"something that can be measured: {choices(name, (CURVE, DISSOCIATION))}")
    settings_of(given)
    return given


def settings_of(then: dict[str, dict[str, Any]]) -> CurveSettings:
    """The settings of the pruning curve, which the D-scores need as well."""
    given = then.get(CURVE, {})
    options: dict[str, Any] = {name: tuple(each) if isinstance(each, list) else each for name, each in given.items()}
    known = CurveSettings.__dataclass_fields__
    for name in options:
        if name not in known:
            raise ValueError(f"{CURVE} has no option {name!r}: {choices(name, known)}")
    try:
        return CurveSettings(**options)
    except InputError as error:
        raise ValueError(str(error).rstrip(".")) from error


def measure_heads(
    run: Path, then: dict[str, dict[str, Any]], data: Path | None, *, network: bool, listener: Listener
) -> dict[str, Any]:
    """The pruning curve of a run, and its D-scores if asked for; plain data."""
    curve = measure_curve(load_tasks(run), settings_of(then), Source(data, network), listener=listener)
    found: dict[str, Any] = {CURVE: {**curve.as_dict(), "run": None}}  # its folder is but a place to work in
    if DISSOCIATION in then:
        resamples = int(then[DISSOCIATION].get("resamples", RESAMPLES))
        found[DISSOCIATION] = {**dissociate(curve, resamples=resamples).as_dict(), "run": None}
    return found


FINISHED, PRESENT, FAILED, INTERRUPTED, BUSY = "finished", "present", "failed", "interrupted", "busy"
ABANDONED = "abandoned"
# What depends on the machine and its load, and so belongs to the world and not to what happened.
TIMES = ("seconds_per_epoch", "seconds_per_step")


@dataclass(frozen=True)
class Assignment:
    """A run that somebody is to make: plain data, since it goes to other processes and machines."""

    key: str
    name: str
    """For people."""
    recipe: dict[str, Any]
    folder: str
    data: str | None = None
    cache: str | None = None
    network: bool = False
    threads: int = 1
    keep_model: bool = False
    then: dict[str, dict[str, Any]] | None = None
    engine: str = "local"
    allow_code: bool = False
    """Whether the recipe may name Python code: the permission of whoever gave the assignment."""

    def as_data(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Report:
    """What became of an assignment."""

    key: str
    state: str
    message: str = ""
    """What went wrong, or the main result."""
    content: dict[str, Any] | None = None
    """Of a run that was finished, what its JSON says."""


def perform(assignment: Assignment, listener: Listener, watch: Watch | None = None) -> Report:
    """Make a run, or go on with it, unless it is there or somebody else is at it; its errors are kept, not raised.

    The result does not depend on who makes it: the number of threads is that of the assignment, and nothing of the
    machine or of the time goes into what was asked and what happened. A run that `watch` abandons leaves nothing.
    """
    folder, key = ResultFolder(Path(assignment.folder)), assignment.key
    folder.open()
    torch.set_num_threads(assignment.threads)
    with folder.claimed(key) as mine:
        if folder.has(key):
            return Report(key, PRESENT)
        if not mine:
            return Report(key, BUSY)
        try:
            with allowing_code(assignment.allow_code):
                content = _content(assignment, folder, listener, watch)
        except KeyboardInterrupt:
            return Report(key, INTERRUPTED)
        except AbandonRun:
            shutil.rmtree(folder.work(key), ignore_errors=True)
            return Report(key, ABANDONED)
        except Exception as error:  # whatever it is, it must not stop the other runs
            return fail(assignment, error)
        if content is None:
            return Report(key, INTERRUPTED)
        folder.keep(key, content)
        folder.note(key, FINISHED, assignment.engine)
        _tidy(folder, key, keep_model=assignment.keep_model)
        return Report(key, FINISHED, main_result(content["happened"]), content)


def fail(assignment: Assignment, error: BaseException) -> Report:
    """Keep the error of a run."""
    message = " ".join(str(error).split()) or type(error).__name__
    said = message if isinstance(error, HeadwiseError) else f"unexpected {type(error).__name__}: {message}"
    happened = {"status": FAILED, "error": {"kind": type(error).__name__, "message": said}}
    asked = {"recipe": assignment.recipe, "seed": assignment.recipe.get("seed")}
    content = _composed(assignment, asked, happened, {})
    folder = ResultFolder(Path(assignment.folder))
    folder.keep_error(assignment.key, content)
    folder.note(assignment.key, FAILED, assignment.engine)
    return Report(assignment.key, FAILED, said)


def main_result(happened: Mapping[str, Any]) -> str:
    """The main metric of a run, in a few words."""
    metrics, primary = happened["metrics"], happened["primary"]
    split = next((name for name in ("test", "validation") if primary in (metrics.get(name) or {})), None)
    return "" if split is None else f"{split} {primary} {metrics[split][primary]:.4f}"


def _content(
    assignment: Assignment, folder: ResultFolder, listener: Listener, watch: Watch | None
) -> dict[str, Any] | None:
    """Train and put the JSON together; None if it was interrupted and can go on."""
    work, data = folder.work(assignment.key), None if assignment.data is None else Path(assignment.data)
    cache = None if assignment.cache is None else Path(assignment.cache)
    recipe = check_any_recipe(assignment.recipe, assignment.name)
    begin = time.perf_counter()
    begun = (work / record.NAME).is_file()
    result = train(recipe, Place(work, data, assignment.network, cache), resume=begun, listener=listener, watch=watch)
    if result.interrupted:
        return None
    seconds = time.perf_counter() - begin
    happened = {"status": FINISHED, **result.record["happened"], "outputs": read_outputs(work)}
    if assignment.then:
        happened["heads"] = measure_heads(work, assignment.then, data, network=assignment.network, listener=listener)
    asked = {name: each for name, each in result.record["asked"].items() if name not in ("data", "command")}
    return _composed(assignment, asked, happened, {"seconds": round(seconds, 3)})


def _composed(
    assignment: Assignment, asked: Mapping[str, Any], happened: dict[str, Any], times: dict[str, Any]
) -> dict[str, Any]:
    """The parts of a run's JSON; times are moved to the world, so that what happened is the same wherever it did."""
    for name in TIMES:
        if name in happened:
            times[name] = happened.pop(name)
    if "ssa" in happened:
        times["labelling"] = [epoch.get("seconds") for epoch in happened["ssa"]]
        happened["ssa"] = [
            {name: each for name, each in epoch.items() if name != "seconds"} for epoch in happened["ssa"]
        ]
    world = {**record.world(), "data": assignment.data, "engine": assignment.engine, "times": times}
    return {"format": FORMAT, "key": assignment.key, "asked": dict(asked), "happened": happened, "world": world}


def tidy_finished(folder: ResultFolder, *, keep_models: bool = False) -> None:
    """Tidy up after runs that were finished just before a kill; those that somebody is at are left to them."""
    for key in folder.half_tidied():
        with folder.claimed(key) as mine:
            if mine and folder.work(key).is_dir():
                _tidy(folder, key, keep_model=keep_models)


def _tidy(folder: ResultFolder, key: str, *, keep_model: bool) -> None:
    """Keep the model or remove it; either way nothing is left to go on with."""
    work, model = folder.work(key), folder.model(key)
    shutil.rmtree(work / WORK, ignore_errors=True)
    if keep_model and not model.exists():
        work.rename(model)
    else:
        shutil.rmtree(work, ignore_errors=True)
