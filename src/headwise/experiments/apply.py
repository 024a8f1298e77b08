"""Use a finished run: score it on a split, or predict a file."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
from torch import nn

from headwise.disk import new_file, save_content
from headwise.errors import InputError
from headwise.experiments import record
from headwise.experiments.data import read_split
from headwise.experiments.recipe import Recipe
from headwise.experiments.spreadsheet import csv_text
from headwise.tasks import Collator, Split, Task, build_task, encode
from headwise.training import Listener, Silence, load_classifier_folder, predict_logits, predictions_of, score_logits
from headwise.training.loading import check_classifier
from headwise.training.multitask_saving import load_task
from headwise.training.predict import probabilities_of
from headwise.training.saving import in_one_sentence, load_tokenizer
from headwise.training.token_numbers import check_vocabulary


@dataclass(frozen=True)
class Loaded:
    """A finished run, ready to predict."""

    recipe: Recipe
    task: Task
    model: nn.Module
    tokenizer: Any
    labels: tuple[str, ...]
    data: Path | None

    def logits(self, split: Split, batch: int | None, listener: Listener | None) -> numpy.ndarray:
        """[N,C] for every example of a split."""
        listener = listener or Silence()
        encoded = encode(split, self.tokenizer, self.recipe.data.max_length)
        # As in training, since more padding or another batch would change the last bits.
        data, size = self.recipe.data, batch or self.recipe.training.evaluation_batch
        collate = Collator.of(self.tokenizer, self.task.kind, padding=data.padding, max_length=data.max_length)
        listener.start(self.recipe.name, len(split))
        logits = predict_logits(self.model, encoded, collate, batch=size, after_batch=listener.advance)
        listener.end()
        return logits

    def answer(self, logits: numpy.ndarray) -> tuple[str, dict[str, float]]:
        """What the model says of one example with these logits [C], and for classes the probability of each."""
        if not self.labels:
            return f"{float(logits[0]):.4f}", {}
        (parts,) = probabilities_of(logits[None])
        chances = {label: round(float(part), 6) for label, part in zip(self.labels, parts, strict=True)}
        return self.labels[int(logits.argmax())], chances


def load_run(folder: Path, task: str | None = None) -> Loaded:
    """Load a finished run; of one on several tasks, the classifier of one of them."""
    content = finished_record(folder)
    recipe = record.recipe_of(content, folder, task)
    if task is None:
        model, tokenizer = load_classifier_folder(folder, recipe.head)
        if recipe.head == "pooler":
            check_classifier(folder, model)
    else:
        model, tokenizer = load_task(folder, task), load_tokenizer(folder)
    return loaded(recipe, content, model, tokenizer, task)


def finished_record(folder: Path) -> dict[str, Any]:
    """The record of a run that came to its end."""
    content = record.read(folder)
    if not record.finished(content):
        raise InputError(f"{folder} holds a run that is not finished: go on with `headwise train ... --resume` first.")
    return content


def loaded(recipe: Recipe, content: dict[str, Any], model: nn.Module, tokenizer: Any, task: str | None) -> Loaded:
    """Put a run together from its record and its model."""
    happened = content["happened"]
    labels = tuple((happened if task is None else happened["tasks"][task])["labels"])
    _check_labels(labels, model)
    with in_one_sentence(Path(str(tokenizer.name_or_path))):  # a damaged tokenizer may fail on any text
        check_vocabulary(tokenizer, model)
    options = recipe.task.options | ({"labels": list(labels)} if _takes_labels(recipe, labels) else {})
    data = content["asked"]["data"]
    built = build_task(recipe.task.name, options)
    return Loaded(recipe, built, model, tokenizer, labels, None if data is None else Path(data))


def _check_labels(labels: tuple[str, ...], model: nn.Module) -> None:
    """Refuse a model that answers with more or fewer classes than its record names."""
    found = int(model.config.num_labels)  # type: ignore[union-attr,arg-type]
    if labels and found != len(labels):
        raise InputError(
            f"the model has {found} classes, and its {record.NAME} names {len(labels)} ({', '.join(labels):.80}): one "
            "of the two files was changed; restore it, or train again."
        )


@dataclass(frozen=True)
class Source:
    """Where to look for data: a folder, if not the one of training, and whether the network may be used."""

    data: Path | None = None
    network: bool = False


def evaluate(
    run: Loaded,
    split: str,
    place: Source | None = None,
    *,
    batch: int | None = None,
    listener: Listener | None = None,
) -> dict[str, Any]:
    """The metrics of a run on one of its task's splits, held out and cut as in training."""
    place = place or Source()
    _check_kind(run)
    chosen = read_split(run.recipe, run.task, split, place.data or run.data, network=place.network)
    if not chosen.labelled:
        raise InputError(f"the {split} set of {run.task.name} has no labels, so it cannot be scored: use predict.")
    logits = run.logits(chosen, batch, listener)
    scores = score_logits(logits, [float(label or 0) for label in chosen.labels], run.task.metrics)
    return {"split": split, "examples": len(chosen), "metrics": scores}


def predict(
    run: Loaded, source: Path, *, batch: int | None = None, listener: Listener | None = None
) -> list[dict[str, Any]]:
    """One row per line of a file: the prediction, and for classes the probability of each."""
    _check_kind(run)
    split = run.task.read_file(source, labelled=False)
    logits = run.logits(split, batch, listener)
    if not run.labels:
        return [{"prediction": float(value)} for value in predictions_of(logits)]
    return [
        {"prediction": run.labels[int(row.argmax())]}
        | {f"probability_{label}": round(float(value), 6) for label, value in zip(run.labels, row, strict=True)}
        for row in probabilities_of(logits)
    ]


def _check_kind(run: Loaded) -> None:
    if run.task.kind == "ranking":
        raise InputError(
            "this run is a re-ranker: score it with `headwise rerank RUN --candidates FILE`, or ask it about one claim "
            "with `headwise search`."
        )


def new_target(
    path: Path, *, overwrite: bool, option: str = "--output", endings: tuple[str, ...] = (".tsv", ".csv", ".jsonl")
) -> AbstractContextManager[None]:
    """Lock a file for the block that writes it; one that cannot be written is refused before any work is done."""
    if path.suffix not in endings:
        raise InputError(f"{option} {path}: expected a name that ends in {', '.join(endings[:-1])} or {endings[-1]}.")
    return new_file(path, option, replace=overwrite)


def write_rows(rows: list[dict[str, Any]], path: Path) -> None:
    """Write predictions as TSV, CSV or JSONL, by the name of the file; all or nothing."""
    save_content(path, _text(rows, path.suffix))


def _text(rows: list[dict[str, Any]], suffix: str) -> str:
    if suffix == ".jsonl":
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return csv_text(rows, delimiter="\t" if suffix == ".tsv" else ",")


def _takes_labels(recipe: Recipe, labels: tuple[str, ...]) -> bool:
    """Whether the task found its labels in the training file, so that they must be given to it again."""
    return bool(labels) and not build_task(recipe.task.name, recipe.task.options).labels
