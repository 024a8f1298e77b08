"""A recipe becomes a trained model and a record of how it came about."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
from safetensors import SafetensorError
from torch import nn

from headwise.errors import DiskError, InputError
from headwise.experiments import record
from headwise.experiments.card import model_card
from headwise.experiments.data import Splits, read_splits
from headwise.experiments.recipe import Recipe
from headwise.guides import guidance_of, guide, unguide
from headwise.tasks import Collator, Encoded, Split, encode
from headwise.training import (
    Encoder,
    Listener,
    Material,
    Outcome,
    ReportProgress,
    Settings,
    Silence,
    check_length,
    find_encoder,
    fit,
    freeze,
    load_classifier,
    predict_logits,
    save_classifier,
    score_logits,
)
from headwise.training.checkpoints import newest, write_atomically

WORK = "unfinished"


@dataclass(frozen=True)
class Place:
    """Where a run reads and writes."""

    output: Path
    data: Path | None = None
    network: bool = False


@dataclass(frozen=True)
class Prepared:
    """Everything read and checked; nothing written yet."""

    recipe: Recipe
    splits: Splits
    encoder: Encoder
    model: nn.Module
    encoded: dict[str, Encoded]
    collate: Collator


@dataclass(frozen=True)
class Result:
    """The record of a run, and whether it was interrupted before its end."""

    record: dict[str, Any]
    interrupted: bool
    steps: tuple[int, int]
    """Done, of how many."""


def prepare(recipe: Recipe, place: Place) -> Prepared:
    """Read and check everything that a recipe names, so that mistakes come to light before anything is written."""
    encoder = find_encoder(recipe.model, network=place.network)
    check_length(encoder, recipe.data.max_length)
    splits = read_splits(recipe, place.data, network=place.network)
    model = load_classifier(encoder, labels=tuple(splits.task.labels), head=recipe.head, seed=recipe.seed)
    freeze(model, recipe.training.freeze)
    if recipe.guides:
        _check_reach(model)
        guide(model, recipe.guides, tokenizer=encoder.tokenizer, share_every=recipe.share_every)
    encoded = {name: encode(split, encoder.tokenizer, recipe.data.max_length) for name, split in _named(splits).items()}
    collate = Collator.of(
        encoder.tokenizer, splits.task.kind, padding=recipe.data.padding, max_length=recipe.data.max_length
    )
    return Prepared(recipe, splits, encoder, model, encoded, collate)


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
    done = check_output(recipe, place, resume=resume)
    if done is not None:
        shutil.rmtree(place.output / WORK, ignore_errors=True)  # a kill may have left it
        steps = done["happened"]["steps"]
        return Result(done, interrupted=False, steps=(steps, steps))
    prepared = prepare(recipe, place)
    asked = record.asked(recipe, place.data, _fingerprint(prepared.encoded), list(command))
    if resume and record.read(place.output)["asked"].get("examples") != asked["examples"]:
        raise InputError(
            f"{place.output} holds a run on other examples: give the --data that it began with, or choose another "
            "folder with --output."
        )
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
    content = record.compose(asked, _finish(prepared, outcome, listener))
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


def score_split(
    prepared_model: nn.Module, split: Split, encoded: Encoded, collate: Collator, task: Any, batch: int
) -> dict[str, float]:
    """The task's metrics on a split."""
    logits = predict_logits(prepared_model, encoded, collate, batch=batch)
    return score_logits(logits, [float(label or 0) for label in split.labels], task.metrics)


@contextmanager
def _saving(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise DiskError(
            f"{folder} could not be written ({reason}): make room or choose another folder, then run it again."
        ) from error


def _save(prepared: Prepared, outcome: Outcome, content: dict[str, Any], folder: Path) -> None:
    """Everything a finished run leaves behind; the record comes last and says that all is there."""
    save_classifier(prepared.model, prepared.encoder.tokenizer, folder, prepared.recipe.head)
    write_atomically(folder / "log.jsonl", "".join(json.dumps(entry) + "\n" for entry in outcome.log))
    write_atomically(folder / "README.md", model_card(content))
    record.write(folder, content)
    shutil.rmtree(folder / WORK, ignore_errors=True)


def _check_reach(model: Any) -> None:
    """Guides need something to change: a parameter below the attention that they look at."""
    names = [name for name, parameter in model.base_model.named_parameters() if parameter.requires_grad]
    if all(name.startswith("pooler.") for name in names):
        raise InputError(
            "training.freeze leaves the guides nothing to change, as the whole encoder is frozen: leave a part of it "
            "out, or set guides to {}."
        )


def _fingerprint(encoded: dict[str, Encoded]) -> str:
    """A short hash of all examples, so that a run goes on with those that it began with."""
    total = hashlib.sha256()
    for name, part in encoded.items():
        total.update(f"{name} {len(part)}".encode())
        for array in (part.ids, part.starts, numpy.asarray(part.labels or (), dtype=numpy.float64)):
            total.update(array.tobytes())
    return total.hexdigest()[:16]


def _fit(prepared: Prepared, work: Path, listener: Listener) -> Outcome:
    task = prepared.splits.task
    material = Material(
        model=prepared.model,
        train=prepared.encoded["train"],
        validation=prepared.encoded["validation"],
        collate=prepared.collate,
        metrics=tuple(task.metrics),
        primary=task.primary,
    )
    return fit(material, settings_of(prepared.recipe), work, [ReportProgress(listener, prepared.recipe.name)])


def _finish(prepared: Prepared, outcome: Outcome, listener: Listener) -> dict[str, Any]:
    if guidance_of(prepared.model) is not None:
        unguide(prepared.model)
    task, batch = prepared.splits.task, prepared.recipe.training.evaluation_batch
    metrics: dict[str, Any] = {}
    for name, split in _named(prepared.splits).items():
        if name == "train":
            continue
        if not split.labelled:
            listener.tell(f"the {name} set has no labels: it is not scored")
            metrics[name] = None
            continue
        encoded = prepared.encoded[name]
        metrics[name] = score_split(prepared.model, split, encoded, prepared.collate, task, batch)
    return {
        "metrics": metrics,
        "primary": task.primary,
        "labels": list(task.labels),
        "steps": outcome.steps,
        "best_step": outcome.best_step,
        "seconds_per_epoch": [round(seconds, 3) for seconds in outcome.seconds_per_epoch],
        "seconds_per_step": outcome.seconds_per_step,
        "examples": {name: len(split) for name, split in _named(prepared.splits).items()},
        "truncated": {name: encoded.truncated for name, encoded in prepared.encoded.items()},
        "guides": _guides(outcome.log),
        "evaluations": outcome.evaluations,
    }


def _named(splits: Splits) -> dict[str, Split]:
    named = {"train": splits.train, "validation": splits.validation}
    return named if splits.test is None else named | {"test": splits.test}


def _guides(log: list[dict[str, Any]]) -> dict[str, dict[str, float | None]]:
    """Per guide: its last weight, and its gradient share as the mean over all measurements."""
    names = sorted(
        {key[6:-7] for entry in log for key in entry if key.startswith("guide/") and key.endswith("_weight")}
    )
    found: dict[str, dict[str, float | None]] = {}
    for name in names:
        shares = [entry[f"guide/{name}_share"] for entry in log if f"guide/{name}_share" in entry]
        weights = [entry[f"guide/{name}_weight"] for entry in log if f"guide/{name}_weight" in entry]
        values = [entry[f"guide/{name}"] for entry in log if f"guide/{name}" in entry]
        found[name] = {
            "weight": weights[-1],
            "share": sum(shares) / len(shares) if shares else None,
            "first": values[0],
            "last": values[-1],
        }
    return found
