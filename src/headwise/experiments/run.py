"""A recipe becomes a trained model and a record of how it came about."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from headwise.disk import write_atomically
from headwise.errors import DiskError, InputError
from headwise.experiments import record
from headwise.experiments.card import model_card
from headwise.experiments.happened import summarise
from headwise.experiments.prepare import Place, Prepared, fingerprint, prepare
from headwise.experiments.recipe import Recipe
from headwise.experiments.scoring import scorer
from headwise.tasks.retrieval.task import RetrievalTask
from headwise.training import (
    KnowledgeCollator,
    Listener,
    Material,
    Outcome,
    ReportProgress,
    Settings,
    Silence,
    fit,
    save_classifier,
)
from headwise.training.checkpoints import newest
from headwise.training.listwise import by_claim
from headwise.training.relabelling import Probing
from headwise.training.saving import prepare_reranker

WORK = "unfinished"


@dataclass(frozen=True)
class Result:
    """The record of a run, and whether it was interrupted before its end."""

    record: dict[str, Any]
    interrupted: bool
    steps: tuple[int, int]
    """Done, of how many."""


def train(
    recipe: Recipe,
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
    prepared = prepare(recipe, place, listener)
    asked = record.asked(recipe, place.data, fingerprint(prepared.encoded), list(command), knowledge=prepared.knowledge)
    if resume:
        _check_same(record.read(place.output)["asked"], asked, place.output)
    begun = place.output.exists()
    with _saving(place.output):
        place.output.mkdir(parents=True, exist_ok=True)
        record.write(place.output, record.compose(asked, None))
        (place.output / WORK).mkdir(exist_ok=True)
    try:
        outcome = _fit(prepared, place.output / WORK, listener)
    except DiskError:
        raise
    except Exception:
        if not begun and newest(place.output / WORK) is None:  # nothing to go on with, so nothing is left behind
            shutil.rmtree(place.output, ignore_errors=True)
        raise
    steps = (outcome.steps, outcome.total_steps)
    if outcome.interrupted:
        return Result(record.read(place.output), interrupted=True, steps=steps)
    content = record.compose(asked, summarise(prepared, outcome, listener))
    with _saving(place.output):
        _save(prepared, outcome, content, place.output)
    return Result(content, interrupted=False, steps=steps)


def check_output(recipe: Recipe, place: Place, *, resume: bool) -> dict[str, Any] | None:
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


def settings_of(recipe: Recipe) -> Settings:
    """The recipe's choices for training."""
    training = recipe.training
    names = set(Settings.__dataclass_fields__) & set(type(training).model_fields)
    chosen = {name: getattr(training, name) for name in names}
    return Settings(
        **chosen,
        seed=recipe.seed,
        share_every=recipe.share_every,
        by_length=recipe.data.buckets and recipe.data.padding == "dynamic",
        report_to=recipe.report_to,
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


def _save(prepared: Prepared, outcome: Outcome, content: dict[str, Any], folder: Path) -> None:
    """Everything a finished run leaves behind; the record comes last and says that all is there."""
    if prepared.splits.task.kind == "ranking":
        prepare_reranker(prepared.model, prepared.encoder.tokenizer, prepared.recipe.data.max_length)
    save_classifier(prepared.model, prepared.encoder.tokenizer, folder, prepared.recipe.head)
    write_atomically(folder / "log.jsonl", "".join(json.dumps(entry) + "\n" for entry in outcome.log))
    write_atomically(folder / "README.md", model_card(content))
    record.write(folder, content)
    shutil.rmtree(folder / WORK, ignore_errors=True)


def _fit(prepared: Prepared, work: Path, listener: Listener) -> Outcome:
    splits, task = prepared.splits, prepared.splits.task
    material = Material(
        model=prepared.model,
        train=prepared.train,
        validation=prepared.encoded["validation"],
        collate=prepared.collate,
        score=scorer(task, splits.validation, splits.gold),
        primary=task.primary,
    )
    if isinstance(task, RetrievalTask) and task.loss == "list":
        material = by_claim(material, splits.train.groups or ())
    report = ReportProgress(listener, prepared.recipe.name)
    supervision = prepared.recipe.supervision
    if supervision is not None and supervision.labels_wanted:
        collate = prepared.collate.collate if isinstance(prepared.collate, KnowledgeCollator) else prepared.collate
        material = replace(material, probing=Probing(prepared.encoded["train"], collate, task.kind, report.probing))
    return fit(material, settings_of(prepared.recipe), work, [report])
