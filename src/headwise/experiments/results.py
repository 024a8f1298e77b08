"""Finished runs as files: those of a sweep, single ones, and folders of `headwise train`.

A folder of results holds headwise-sweep.json, which says in which format; runs/KEY.json for every finished run;
runs/KEY.error.json for every one that failed; and sweeps/NAME.json for every sweep, which says which runs belong to it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from headwise import documents
from headwise.errors import InputError
from headwise.experiments import record
from headwise.experiments.outputs import read_outputs
from headwise.experiments.record_schema import FailedRecord, StoredRecord
from headwise.experiments.sweeps.result_folder import FORMAT, MARK, NAMES_ONLY

RUNS = "runs"
SWEEPS = "sweeps"
FAILED = ".error.json"
FAILED_RUN = "failed"
AGAIN = "run it again, or leave it out"


@dataclass(frozen=True, eq=False)
class StoredRun:
    """A finished run."""

    path: Path
    recipe: Mapping[str, Any]
    seed: int
    examples: str | None
    """A hash of all that it was trained, validated and tested on, as token ids."""
    metrics: Mapping[str, Mapping[str, float]]
    """By split, of those that were scored."""
    primary: str
    tasks: Mapping[str, str]
    """Of a run on several tasks, the main metric of each."""
    outputs: Mapping[str, Any]
    """What was answered to every example, by split, or by TASK/SPLIT; none of runs of an older headwise."""
    world: Mapping[str, Any]
    seconds: tuple[float, ...]
    """Of each epoch."""

    @cached_property
    def identity(self) -> str:
        """The same text for the same recipe, whatever its name."""
        return canonical({key: value for key, value in self.recipe.items() if key not in NAMES_ONLY})

    def same_results(self, other: StoredRun) -> bool:
        """Whether another run came to the same numbers and answers on the same examples."""
        mine, theirs = ((run.examples, run.metrics, run.outputs) for run in (self, other))
        return mine == theirs


@dataclass(frozen=True)
class FailedRun:
    """A run that left an error."""

    path: Path
    reason: str


def canonical(value: Any) -> str:
    """Plain data as text, the same for equal data."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def read_stored(path: Path) -> StoredRun | FailedRun:
    """A run from its file, or from a folder of `headwise train`."""
    if path.is_dir():
        content = record.read(path)
        if not record.finished(content):
            raise InputError(f"{path} holds a run that is not finished: go on with `headwise train ... --resume`.")
        return _stored(path, content, read_outputs(path))
    content = read_json(path)
    if content.get("format") != FORMAT or not isinstance(content.get("asked"), dict):
        raise InputError(
            f"{path} does not hold a run in format {FORMAT}: expected runs/KEY.json of a folder of `headwise sweep`, "
            "or a folder of `headwise train`."
        )
    return _stored(path, content, None)


def read_json(path: Path) -> dict[str, Any]:
    """A file with one JSON object."""
    try:
        content = documents.parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} could not be read: {error.strerror or error}; check its name.") from error
    except ValueError as error:
        raise InputError(f"{path} is no JSON ({error}): make it again, or leave it out.") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} holds {content!r:.40}: expected a JSON object.")
    return content


def check_mark(folder: Path) -> None:
    """Refuse a folder of results that another version wrote in another way."""
    content = read_json(folder / MARK)
    if content.get("format") != FORMAT:
        raise InputError(
            f"{folder} has format {content.get('format')!r:.40}, written by headwise {content.get('headwise')!r:.40}: "
            f"this headwise reads format {FORMAT}; use that version, or run the sweep again in another folder."
        )


def run_files(folder: Path) -> dict[str, Path]:
    """The files of a folder of results by key; where a run failed once and finished later, the finished one."""
    found: dict[str, Path] = {}
    for path in sorted((folder / RUNS).glob("*.json")):
        failed = path.name.endswith(FAILED)
        key = path.name.removesuffix(FAILED if failed else ".json")
        if not key.startswith(".") and not (failed and key in found):
            found[key] = path
    return found


def _stored(path: Path, content: dict[str, Any], outputs: dict[str, Any] | None) -> StoredRun | FailedRun:
    """`outputs` are None where they stand in the record itself."""
    happened = content.get("happened")
    if isinstance(happened, dict) and happened.get("status") == FAILED_RUN:
        error = documents.check(content, FailedRecord, path, AGAIN)["happened"]["error"]
        return FailedRun(path, f"{error['kind']}: {error['message']}")
    documents.check(content, StoredRecord, path, AGAIN)
    asked, happened, world = content["asked"], content["happened"], content["world"]
    return StoredRun(
        path=path,
        recipe=dict(asked["recipe"]),
        seed=asked["recipe"]["seed"],
        examples=asked.get("examples"),
        metrics={split: _numbers(scores) for split, scores in happened["metrics"].items() if scores},
        primary=happened["primary"],
        tasks={task: each["primary"] for task, each in happened.get("tasks", {}).items()},
        outputs=(happened.get("outputs") or {}) if outputs is None else outputs,
        world=world,
        seconds=tuple(_seconds(happened, world)),
    )


def _numbers(scores: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in scores.items()}


def _seconds(happened: Mapping[str, Any], world: Mapping[str, Any]) -> list[float]:
    times = world.get("times") or happened
    return [float(each) for each in times.get("seconds_per_epoch") or []]
