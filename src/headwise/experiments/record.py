"""The record of a run, headwise.json: its recipe, its results, and the environment in which it ran.

Runs of sweeps are records too (runs/KEY.json), with the outputs inside. This module loads no torch, so that commands
that only read records start fast.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise import __version__, documents
from headwise.disk import write_atomically
from headwise.errors import InputError, choices
from headwise.experiments.recipe import Recipe, check_recipe, new_training_names

if TYPE_CHECKING:
    import pandas

NAME = "headwise.json"
FORMAT = 2
AGAIN = "train again"
PACKAGES = ("torch", "transformers", "accelerate", "tokenizers", "safetensors", "numpy", "scikit-learn")
# Keys of a recipe that are for people and change no result.
LABEL_KEYS = ("name", "description", "report_to", "baseline")
# Systems in `results.baselines`, and what they are called.
MAJORITY, MEAN, FROZEN, FINE_TUNED = "majority", "mean", "frozen", "fine_tuned"
SYSTEMS = {
    MAJORITY: "most frequent class",
    MEAN: "mean",
    FROZEN: "logistic regression on frozen features",
    FINE_TUNED: "this run",
}


def environment() -> dict[str, Any]:
    """Versions and hardware, by kind and not by name."""
    import torch

    distributed = sys.modules.get("headwise.training.distributed")  # not imported: one process
    return {
        "headwise": __version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processes": 1 if distributed is None else distributed.count(),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "packages": {name: metadata.version(name) for name in PACKAGES},
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def write(folder: Path, content: Mapping[str, Any]) -> None:
    """Write a record."""
    text = json.dumps(documents.finite(content), indent=2, ensure_ascii=False, allow_nan=False)
    write_atomically(folder / NAME, text + "\n")


def read(folder: Path) -> dict[str, Any]:
    """The record of a run, finished or not; records of headwise 0.1 are read as well."""
    path = folder / NAME
    if not path.is_file():
        raise InputError(
            f"{folder} is not a run of headwise: it has no {NAME}; give the folder that `headwise train` wrote."
        )
    content = upgrade(documents.read(path, AGAIN))
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        version = content.get("format") if isinstance(content, dict) else content
        raise InputError(f"{path} has format {version!r:.60}: this headwise reads format {FORMAT}.")
    from headwise.experiments.record_schema import RunRecord

    return documents.check(content, RunRecord, path, AGAIN)


def upgrade(content: Any) -> Any:
    """A record of format 1 (asked, happened, world) in the present format; anything else stays as it is."""
    if not isinstance(content, dict) or content.get("format") != 1 or not isinstance(content.get("asked"), dict):
        return content
    asked = {key: value for key, value in content["asked"].items() if key != "seed"}
    recipe = asked.get("recipe")
    if isinstance(recipe, dict) and isinstance(recipe.get("training"), dict):
        try:
            asked["recipe"] = recipe | {"training": new_training_names(recipe["training"])}
        except ValueError:
            return content
    names = {"happened": "results", "world": "environment"}
    return {"format": FORMAT, **asked} | {new: content[old] for old, new in names.items() if old in content}


def finished(content: Mapping[str, Any]) -> bool:
    """Whether the run came to its end."""
    return content["results"] is not None


def finished_record(folder: Path) -> dict[str, Any]:
    """The record of a run that came to its end."""
    content = read(folder)
    if not finished(content):
        raise InputError(f"{folder} holds a run that is not finished: finish it first, by training with resume=True.")
    return content


def recipe_of(content: Mapping[str, Any], folder: Path) -> Recipe:
    """The recipe in the record of a run."""
    recipe = content["recipe"]
    if recipe.get("head") == "pooler":  # how headwise 0.1 called it
        recipe = {**recipe, "head": "cls"}
    try:
        return check_recipe(recipe, "recipe")
    except InputError as error:
        raise InputError(f"{folder / NAME}: {str(error).rstrip('.')}; correct it, or train again.") from error


def task_recipe(content: Mapping[str, Any], folder: Path, task: str | None = None) -> Recipe:
    """The recipe of one task of a run; of a run on several tasks it must be named, of a run on one it need not."""
    recipe = recipe_of(content, folder)
    if not recipe.several:
        if task is not None:
            raise InputError(f"task={task}: this run has one task only ({recipe.only.name}); do not give task.")
        return recipe
    names = list(recipe.tasks or {})
    if task is None:
        raise InputError(f"this run has several tasks ({', '.join(names)}), and one is needed: give task=NAME.")
    if task not in names:
        raise InputError(f"task={task}: {choices(task, names)}.")
    return recipe.single(task)


# -- baselines beside the scores ---------------------------------------------------------------------------------------


def baseline_names(*runs: Mapping[str, Any]) -> dict[str, str]:
    """The systems among the baselines of some results, and what they are called."""
    tasks = [each for results in runs for each in (results.get("baselines") or {}).values()]
    present = {system for each in tasks for systems in each["metrics"].values() for system in systems}
    return {system: name for system, name in SYSTEMS.items() if system in present}


def baseline_sentences(results: Mapping[str, Any]) -> list[str]:
    """For each task with baselines, its main metric beside theirs, on test or else on validation."""
    sentences = []
    for task, each in (results.get("baselines") or {}).items():
        split = "test" if "test" in each["metrics"] else "validation"
        scores = {system: metrics[each["primary"]] for system, metrics in each["metrics"][split].items()}
        shown = ", ".join(f"{SYSTEMS[system]} {value:.4f}" for system, value in reversed(scores.items()))
        used, whole, choice = each["examples"], each["of"], ""
        if any(used[name] < whole[name] for name in ("train", split)):
            choice = (
                f" (a seeded choice: learned from {used['train']} of {whole['train']} examples, all scored on "
                f"{used[split]} of {whole[split]})"
            )
        sentences.append(f"{task}, {each['primary']} on {split}: {shown}{choice}")
    return sentences


def below_frozen(content: Mapping[str, Any]) -> list[str]:
    """A sentence for each task on which the model is below the frozen probe on validation, with what to try."""
    sentences, recipe = [], content["recipe"]
    for task, each in (content["results"].get("baselines") or {}).items():
        scores = {system: metrics[each["primary"]] for system, metrics in each["metrics"]["validation"].items()}
        if FROZEN not in scores or scores[FINE_TUNED] >= scores[FROZEN]:
            continue
        training = recipe.get("training", {})
        rate, epochs, steps = (training.get(key) for key in ("learning_rate", "num_train_epochs", "max_steps"))
        length = f"num_train_epochs, now {epochs:g}" if steps is None and epochs else f"max_steps, now {steps}"
        head = f", another head (head, now {recipe['head']})" if "head" in recipe else ""
        sentences.append(
            f"{task}: the fine-tuned model has {each['primary']} {scores[FINE_TUNED]:.4f} on validation, below the "
            f"{scores[FROZEN]:.4f} of logistic regression on frozen features of the same encoder: try a higher "
            f"learning rate (training.learning_rate, now {rate}), longer training (training.{length}){head}"
        )
    return sentences


# -- finished runs as rows ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class StoredRun:
    """A finished run: a folder of `headwise train`, or runs/KEY.json of a sweep."""

    path: Path
    recipe: Mapping[str, Any]
    examples: str | None
    """A hash of all that it was trained, validated and tested on, as token ids."""
    metrics: Mapping[str, Mapping[str, float]]
    """By split, of those that were scored."""
    primary: str
    tasks: Mapping[str, str]
    """Of a run on several tasks, the main metric of each."""
    outputs: Mapping[str, Any]
    """What was answered to every example, by split, or by TASK/SPLIT; none of runs of an older headwise."""
    environment: Mapping[str, Any]
    seconds: tuple[float, ...]
    """Of each epoch."""
    baselines: Mapping[str, Any] = field(default_factory=dict)
    """By task, as `results.baselines`; none of runs without."""

    @property
    def seed(self) -> int:
        """The recipe's."""
        return int(self.recipe["seed"])

    @cached_property
    def identity(self) -> str:
        """The same text for the same recipe, whatever its name."""
        return canonical({key: value for key, value in self.recipe.items() if key not in LABEL_KEYS})

    def same_results(self, other: StoredRun) -> bool:
        """Whether another run has the same numbers and answers on the same examples."""
        return (self.examples, self.metrics, self.outputs) == (other.examples, other.metrics, other.outputs)


@dataclass(frozen=True)
class FailedRun:
    """A run of a sweep that ended with an error."""

    path: Path
    reason: str


def canonical(value: Any) -> str:
    """Plain data as text, the same for equal data."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def read_stored(path: Path) -> StoredRun | FailedRun:
    """A run from its file, or from a folder of `headwise train`."""
    from headwise.experiments.outputs import read_outputs
    from headwise.experiments.record_schema import FailedRecord, StoredRecord

    outputs, again = None, "run it again, or leave it out"
    if path.is_dir():
        content, outputs = finished_record(path), read_outputs(path)
    else:
        content = upgrade(read_json(path))
        if content.get("format") != FORMAT or not isinstance(content.get("recipe"), dict):
            raise InputError(
                f"{path} does not hold a run in format {FORMAT}: expected runs/KEY.json of a sweep's folder, or the "
                "folder of a training run."
            )
    results = content.get("results")
    if isinstance(results, dict) and results.get("status") == "failed":
        error = documents.check(content, FailedRecord, path, again)["results"]["error"]
        return FailedRun(path, f"{error['kind']}: {error['message']}")
    documents.check(content, StoredRecord, path, again)
    results, where = content["results"], content["environment"]
    scored = {split: scores for split, scores in results["metrics"].items() if scores}
    seconds = (where.get("times") or results).get("seconds_per_epoch") or []
    return StoredRun(
        path=path,
        recipe=dict(content["recipe"]),
        examples=content.get("examples"),
        metrics={split: {name: float(value) for name, value in scores.items()} for split, scores in scored.items()},
        primary=results["primary"],
        tasks={task: each["primary"] for task, each in results.get("tasks", {}).items()},
        outputs=(results.get("outputs") or {}) if outputs is None else outputs,
        environment=where,
        seconds=tuple(float(each) for each in seconds),
        baselines=results.get("baselines") or {},
    )


def read_json(path: Path) -> dict[str, Any]:
    """A file with one JSON object."""
    try:
        content = documents.parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} could not be read: {error.strerror or error}; check its name.") from error
    except ValueError as error:
        raise InputError(f"{path} is no JSON ({error}): write it again, or leave it out.") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} holds {content!r:.40}: expected a JSON object.")
    return content


def runs_frame(runs: Iterable[StoredRun | Path | str]) -> pandas.DataFrame:
    """One row per run: what it was (path, name, model, task, guides, seed) and its metrics as SPLIT/METRIC.

    A run is a folder of `headwise train`, a file `runs/KEY.json` of a sweep, or a run that was read. Failed runs are
    left out.
    """
    import pandas

    read = (run if isinstance(run, StoredRun) else read_stored(Path(run)) for run in runs)
    return pandas.DataFrame(
        {
            "path": str(run.path),
            "name": run.recipe.get("name", ""),
            "model": run.recipe.get("model", ""),
            "task": run.recipe.get("task", {}).get("name") or ",".join(run.recipe.get("tasks", {})),
            "guides": ",".join(run.recipe.get("guides", {})),
            "ssa": run.recipe.get("ssa") is not None,
            "seed": run.seed,
            "primary": run.primary,
            "seconds": sum(run.seconds),
            **{f"{split}/{name}": value for split, each in run.metrics.items() for name, value in each.items()},
        }
        for run in read
        if isinstance(run, StoredRun)
    )
