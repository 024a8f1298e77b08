"""One run of a sweep or of a tuning trial: from its recipe to its JSON file, in any process."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from headwise.errors import HeadwiseError, InputError, choices
from headwise.experiments import record
from headwise.experiments.apply import Source, load_tasks
from headwise.experiments.head_studies.curve_masks import CurveSettings
from headwise.experiments.head_studies.head_dissociation import dissociate
from headwise.experiments.head_studies.head_files import CURVE, DISSOCIATION
from headwise.experiments.head_studies.prune_curve import measure_curve
from headwise.experiments.outputs import read_outputs
from headwise.experiments.prepare import RunPaths
from headwise.experiments.recipe import Recipe, check_recipe
from headwise.experiments.run import WORK, train
from headwise.experiments.sweeps.result_folder import NAMES_ONLY, ResultFolder
from headwise.limits import allowing_code, code_allowed
from headwise.training import Listener, Silence
from headwise.training.callbacks import AbandonRun, Watch

# Of the dissociation of heads.
RESAMPLES = 1000
FINISHED, PRESENT, FAILED, INTERRUPTED, BUSY = "finished", "present", "failed", "interrupted", "busy"
ABANDONED = "abandoned"
# Results that depend on the machine and its load: they stand with the environment.
TIMES = ("seconds_per_epoch", "seconds_per_step")
# What a run was given, besides its environment.
INPUTS = ("recipe", "examples", "marks", "knowledge")
# Seconds between two reports of a run's progress.
PROGRESS_EVERY = 0.5


@dataclass(frozen=True)
class JobSettings:
    """Where runs read and write."""

    output: Path
    """The folder of results."""
    data: Path | None = None
    cache: Path | None = None
    network: bool = False
    threads: int = 1
    """Of each run. More change the last bits, so results are compared at the same number."""
    keep_models: bool = False
    engine: str = "local"
    """What trains the runs: for their environment and the log."""

    def job(self, recipe: Recipe, name: str, *, then: dict[str, dict[str, Any]] | None = None) -> Job:
        """The job that trains a recipe; paths become absolute, and permissions are those of this process."""
        output, data, cache = (path and path.expanduser().resolve() for path in (self.output, self.data, self.cache))
        settings = replace(self, output=output or self.output, data=data, cache=cache)
        return Job(run_key(recipe, then), name, recipe.as_data(), settings, then, code_allowed())


@dataclass(frozen=True)
class Job:
    """A run to be trained: plain data, since it goes to other processes and machines."""

    key: str
    name: str
    """For people."""
    recipe: dict[str, Any]
    settings: JobSettings
    then: dict[str, dict[str, Any]] | None = None
    """What to measure on the trained model; see `check_then`."""
    allow_code: bool = False
    """Whether the recipe may name Python code: the permission of the process that created the job."""


def run_key(recipe: Recipe, then: Mapping[str, Any] | None = None) -> str:
    """A hash of all that decides a run; its name and description do not."""
    content: dict[str, Any] = {name: value for name, value in recipe.as_data().items() if name not in NAMES_ONLY}
    if then:
        content |= {"then": dict(then)}
    text = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class JobResult:
    """How a job ended."""

    key: str
    state: str
    message: str = ""
    """The error, or the main result."""
    content: dict[str, Any] | None = None
    """Of a run that this job finished, its JSON."""


def run_job(job: Job, progress: Listener, watch: Watch | None = None) -> JobResult:
    """Train a run, or resume it, unless it is finished or another process trains it; errors are saved, not raised.

    A run that `watch` abandons leaves nothing.
    """
    folder, key = ResultFolder(job.settings.output), job.key
    folder.open()
    torch.set_num_threads(job.settings.threads)
    with folder.claimed(key) as mine:
        if folder.has(key):
            return JobResult(key, PRESENT)
        if not mine:
            return JobResult(key, BUSY)
        try:
            with allowing_code(job.allow_code):
                content = _train(job, folder.unfinished(key), progress, watch)
        except KeyboardInterrupt:
            return JobResult(key, INTERRUPTED)
        except AbandonRun:
            shutil.rmtree(folder.unfinished(key), ignore_errors=True)
            return JobResult(key, ABANDONED)
        except Exception as error:  # whatever it is, it must not stop the other runs
            return fail_job(job, error)
        if content is None:
            return JobResult(key, INTERRUPTED)
        folder.save(key, content)
        folder.log(key, FINISHED, job.settings.engine)
        _tidy(folder, key, keep_model=job.settings.keep_models)
    results = content["results"]
    metrics, primary = results["metrics"], results["primary"]
    split = next((name for name in ("test", "validation") if primary in (metrics.get(name) or {})), None)
    return JobResult(key, FINISHED, f"{split} {primary} {metrics[split][primary]:.4f}" if split else "", content)


def fail_job(job: Job, error: BaseException) -> JobResult:
    """Save the error of a run."""
    message = " ".join(str(error).split()) or type(error).__name__
    message = message if isinstance(error, HeadwiseError) else f"unexpected {type(error).__name__}: {message}"
    results = {"status": FAILED, "error": {"kind": type(error).__name__, "message": message}}
    folder = ResultFolder(job.settings.output)
    folder.save_error(job.key, _content(job, {"recipe": job.recipe}, results, {}))
    folder.log(job.key, FAILED, job.settings.engine)
    return JobResult(job.key, FAILED, message)


def _train(job: Job, work: Path, progress: Listener, watch: Watch | None) -> dict[str, Any] | None:
    """Train, measure heads and build the JSON; None if it was interrupted and can be resumed."""
    settings, start = job.settings, time.perf_counter()
    place = RunPaths(work, settings.data, settings.network, settings.cache)
    resume = (work / record.NAME).is_file()
    result = train(check_recipe(job.recipe, job.name), place, resume=resume, progress=progress, watch=watch)
    if result.interrupted:
        return None
    times = {"seconds": round(time.perf_counter() - start, 3)}
    results = {"status": FINISHED, **result.record["results"], "outputs": read_outputs(work)}
    if job.then:
        source = Source(settings.data, settings.network)
        curve = measure_curve(load_tasks(work), _curve_settings(job.then), source, progress=progress)
        results["heads"] = {CURVE: {**curve.as_dict(), "run": None}}  # its folder is removed
        if DISSOCIATION in job.then:
            scores = dissociate(curve, resamples=int(job.then[DISSOCIATION].get("resamples", RESAMPLES)))
            results["heads"][DISSOCIATION] = {**scores, "run": None}
    inputs = {name: each for name, each in result.record.items() if name in INPUTS}
    return _content(job, inputs, results, times)


def _content(job: Job, inputs: Mapping[str, Any], results: dict[str, Any], times: dict[str, Any]) -> dict[str, Any]:
    """The parts of a run's JSON; times move to the environment, so that `results` is the same on every machine."""
    for name in TIMES:
        if name in results:
            times[name] = results.pop(name)
    if "ssa" in results:
        times["labelling"] = [epoch.get("seconds") for epoch in results["ssa"]]
        results["ssa"] = [{name: each for name, each in epoch.items() if name != "seconds"} for epoch in results["ssa"]]
    data = job.settings.data
    environment = {**record.environment(), "data": data and str(data), "engine": job.settings.engine, "times": times}
    return {"format": record.FORMAT, "key": job.key, **inputs, "results": results, "environment": environment}


def tidy_finished(folder: ResultFolder, *, keep_models: bool = False) -> None:
    """Tidy up after runs that were finished just before a kill; those that another process holds are left to it."""
    for work in (folder.path / "unfinished").iterdir():
        if folder.has(work.name):
            with folder.claimed(work.name) as mine:
                if mine and work.is_dir():
                    _tidy(folder, work.name, keep_model=keep_models)


def _tidy(folder: ResultFolder, key: str, *, keep_model: bool) -> None:
    """Keep the model of a finished run or remove it; either way nothing is left to resume."""
    work, model = folder.unfinished(key), folder.path / "models" / key
    shutil.rmtree(work / WORK, ignore_errors=True)
    if keep_model and not model.exists():
        work.rename(model)
    else:
        shutil.rmtree(work, ignore_errors=True)


class SendProgress(Silence):
    """Progress that sends what is done to the parent process, now and then."""

    def __init__(self, send: Callable[[str], None]) -> None:
        """`send` takes a few words; messages of many runs at once are left out."""
        self._send, self._what, self._total, self._last = send, "", 0, 0.0

    def start(self, what: str, total: int, done: int = 0) -> None:
        """Send at once."""
        self._what, self._total, self._last = what, total, 0.0
        self.advance(done)

    def advance(self, done: int, note: str = "") -> None:
        """Send, unless it was done a moment ago."""
        if time.monotonic() - self._last >= PROGRESS_EVERY:
            self._last = time.monotonic()
            with suppress(OSError):  # the parent process has died
                self._send(f"{self._what} {done}/{self._total}")


# -- measures of heads on each trained model ---------------------------------------------------------------------------


def check_then(value: Any) -> Any:
    """`then: [prune-curve]` and `then: {prune-curve: {percent: [20]}}`; unknown names and options are refused."""
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        value = {name: None for name in value}
    if not isinstance(value, dict | None):
        raise ValueError("a list of what to measure, such as [prune-curve, dissociation]")
    then = {str(name): dict(options or {}) for name, options in (value or {}).items()}
    for name in then:
        if name not in (CURVE, DISSOCIATION):
            raise ValueError(f"something that can be measured: {choices(name, (CURVE, DISSOCIATION))}")
    _curve_settings(then)
    return then


def _curve_settings(then: Mapping[str, Mapping[str, Any]]) -> CurveSettings:
    """The settings of the pruning curve, which the D-scores need as well."""
    options: dict[str, Any] = dict(then.get(CURVE, {}))
    options |= {name: tuple(each) for name, each in options.items() if isinstance(each, list)}
    known = CurveSettings.__dataclass_fields__
    for name in options:
        if name not in known:
            raise ValueError(f"{CURVE} has no option {name!r}: {choices(name, known)}")
    try:
        return CurveSettings(**options)
    except InputError as error:
        raise ValueError(str(error).rstrip(".")) from error
