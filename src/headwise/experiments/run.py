"""A recipe becomes a trained model and a record of how it came about."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from headwise.errors import DiskError, InputError
from headwise.experiments import record
from headwise.experiments.job import Job
from headwise.experiments.joint_prepare import prepare_joint
from headwise.experiments.joint_recipe import JointRecipe
from headwise.experiments.joint_run import JointJob
from headwise.experiments.prepare import Place, prepare
from headwise.experiments.recipe import Recipe
from headwise.experiments.single_run import SingleJob
from headwise.training import Listener, Silence
from headwise.training.checkpoints import MARK

WORK = "unfinished"


@dataclass(frozen=True)
class Result:
    """The record of a run, and whether it was interrupted before its end."""

    record: dict[str, Any]
    interrupted: bool
    steps: tuple[int, int]
    """Done, of how many."""


def train(
    recipe: Recipe | JointRecipe,
    place: Place,
    *,
    resume: bool = False,
    command: tuple[str, ...] = (),
    listener: Listener | None = None,
) -> Result:
    """Train as the recipe says and leave a model, a record and a model card in `place.output`.

    Args:
        recipe: what to do.
        place: where.
        resume: go on with an unfinished run in the output folder.
        command: the command line, for the record.
        listener: shows progress.
    """
    listener = listener or Silence()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError(
            "headwise train runs in one process: for several, guide the model in a script of your own and launch that "
            "(docs/training.md)."
        )
    done = check_output(recipe, place, resume=resume)
    if done is not None:
        shutil.rmtree(place.output / WORK, ignore_errors=True)  # a kill may have left it
        steps = done["happened"]["steps"]
        return Result(done, interrupted=False, steps=(steps, steps))
    job = _job(recipe, place, listener)
    asked = record.asked(recipe, place.data, job.fingerprint, list(command), knowledge=job.knowledge)
    if resume:
        _check_same(record.read(place.output)["asked"], asked, place.output)
    begun = place.output.exists()
    with _saving(place.output):
        place.output.mkdir(parents=True, exist_ok=True)
        record.write(place.output, record.compose(asked, None))
        (place.output / WORK).mkdir(exist_ok=True)
    try:
        outcome = job.fit(place.output / WORK, listener)
    except DiskError:
        raise
    except Exception:
        if not begun and not list(
            (place.output / WORK).rglob(MARK)
        ):  # nothing to go on with, so nothing is left behind
            shutil.rmtree(place.output, ignore_errors=True)
        raise
    steps = (outcome.steps, outcome.total_steps)
    if outcome.interrupted:
        return Result(record.read(place.output), interrupted=True, steps=steps)
    with _saving(place.output):
        content = job.finish(outcome, asked, place.output, listener)
        record.write(place.output, content)  # last, since it says that all is there
        shutil.rmtree(place.output / WORK, ignore_errors=True)
    return Result(content, interrupted=False, steps=steps)


def _job(recipe: Recipe | JointRecipe, place: Place, listener: Listener) -> Job:
    if isinstance(recipe, JointRecipe):
        return JointJob.of(prepare_joint(recipe, place, listener))
    return SingleJob(prepare(recipe, place, listener))


def check_output(recipe: Recipe | JointRecipe, place: Place, *, resume: bool) -> dict[str, Any] | None:
    """Refuse a folder that holds something else; return the record of a run that is already finished."""
    output = place.output
    if output.exists() and not output.is_dir():
        raise InputError(f"{output} is a file: choose a folder with --output.")
    draft = f".{record.NAME}.new"  # a kill in the very first moment may leave it
    if not output.is_dir() or all(path.name == draft for path in output.iterdir()):
        if resume:
            raise InputError(f"{output} holds no run to resume: leave --resume away, or name its folder with --output.")
        return None
    if not (output / record.NAME).is_file():
        raise InputError(f"{output} holds other files: choose another folder with --output.")
    content = record.read(output)
    if content["asked"]["recipe"] != recipe.as_data():
        raise InputError(
            f"{output} holds another run ({content['asked']['recipe']['name']}, seed {content['asked']['seed']}): "
            "choose another folder with --output."
        )
    if not resume:
        state = "a finished" if record.finished(content) else "an unfinished"
        raise InputError(
            f"{output} holds {state} run of this recipe: add --resume to go on with it, or choose another folder with "
            "--output."
        )
    return content if record.finished(content) else None


def _check_same(before: dict[str, Any], now: dict[str, Any], output: Path) -> None:
    """Refuse to go on with other examples, or with other knowledge about them."""
    if before.get("examples") != now["examples"]:
        raise InputError(
            f"{output} holds a run on other examples: give the --data that it began with, or choose another folder "
            "with --output."
        )
    if before.get("knowledge") != now.get("knowledge"):
        raise InputError(
            f"{output} holds a run with other knowledge: a file, a model or a package that it comes from has changed; "
            "bring that back, or choose another folder with --output."
        )


@contextmanager
def _saving(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise DiskError(
            f"{folder} could not be written ({reason}): make room or choose another folder, then add --resume."
        ) from error
