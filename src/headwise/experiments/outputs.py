"""What a model answered to every example of a split: what tests between runs, example by example, need."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from headwise import documents
from headwise.disk import write_atomically
from headwise.errors import InputError
from headwise.experiments import record
from headwise.experiments.record_schema import OutputsFile
from headwise.metrics.ranking import ranking_per_query, ranking_scores_of

if TYPE_CHECKING:
    from headwise.data import Split, Task
    from headwise.experiments.prepare import Prepared
    from headwise.experiments.splits import Splits
    from headwise.training import Listener, Outcome

# How the outputs of a model on a split are scored.


Scorer = Callable[[numpy.ndarray], dict[str, float]]


def scorer(task: Task, split: Split, gold: Mapping[str, int]) -> Scorer:
    """A function from the logits on a labelled split, [N,C], to the metrics of its task.

    Args:
        task: says which metrics.
        split: the examples, in the order of the logits.
        gold: of ranking, how many papers answer each claim of the split, found or not.
    """
    from headwise.training import score_logits  # those who only read outputs need no Trainer

    labels = [float(label or 0) for label in split.labels]
    if task.kind != "ranking":
        return lambda logits: score_logits(logits, labels, task.metrics)
    groups = split.groups or ()
    return lambda logits: ranking_scores_of(logits[:, 0], numpy.asarray(labels), groups, gold=gold)


NAME = "outputs.json"
FORMAT = 1


def output_of(task: Task, split: Split, logits: numpy.ndarray, gold: Mapping[str, int]) -> dict[str, Any]:
    """Predictions beside what was right; of ranking, the measures of every claim.

    Args:
        task: its kind decides the form.
        split: the examples, in the order of the logits; all labelled.
        logits: [N,C].
        gold: of ranking, how many papers answer each claim, found or not.
    """
    from headwise.training import predictions_of

    labels = [float(label or 0) for label in split.labels]
    known = {"kind": task.kind, "examples": examples_key(split)}
    if task.kind == "ranking":
        return known | {
            "per_query": ranking_per_query(logits[:, 0], numpy.asarray(labels), split.groups or (), gold=gold)
        }
    plain = int if task.kind == "classification" else float
    return known | {
        "gold": [plain(label) for label in labels],
        "predictions": [plain(value) for value in predictions_of(logits)],
    }


def examples_key(split: Split) -> str:
    """A short hash of texts and labels, whatever the tokenizer: runs with the same one can be paired by example."""
    total = hashlib.sha256()
    for texts, label in zip(split.texts, split.labels, strict=True):
        total.update(json.dumps([texts, label], ensure_ascii=False).encode())
    return total.hexdigest()[:16]


def write_outputs(folder: Path, outputs: Mapping[str, Any]) -> None:
    """Write them beside the record of a run."""
    content = {"format": FORMAT, "outputs": outputs}
    write_atomically(folder / NAME, json.dumps(content, ensure_ascii=False) + "\n")


def read_outputs(folder: Path) -> dict[str, Any]:
    """The outputs of a run; none of one that an older headwise trained."""
    path = folder / NAME
    if not path.is_file():
        return {}
    content = documents.read(path, record.AGAIN)
    if isinstance(content, dict) and content.get("format") != FORMAT:
        raise InputError(f"{path} has format {content.get('format')!r:.40}: this headwise reads format {FORMAT}.")
    outputs: dict[str, Any] = documents.check(content, OutputsFile, path, record.AGAIN)["outputs"]
    return outputs


# What happened in a run: scores of its best model, times, and what the guides did.


def summarise(prepared: Prepared, outcome: Outcome, listener: Listener) -> tuple[dict[str, Any], dict[str, Any]]:
    """Take the guides off, score the model on every labelled split but train, and put all numbers together.

    Returns:
        What happened, and what the model answered to every example that was scored.
    """
    from headwise.experiments.prepare import named_splits
    from headwise.guides import guidance_of, unguide
    from headwise.training import predict_logits

    if guidance_of(prepared.model) is not None:
        unguide(prepared.model)
    task, batch = prepared.splits.task, prepared.recipe.training.evaluation_batch
    metrics: dict[str, Any] = {}
    outputs: dict[str, Any] = {}
    for name, split in named_splits(prepared.splits).items():
        if name == "train":
            continue
        if not split.labelled:
            listener.tell(f"the {name} set has no labels: it is not scored")
            metrics[name] = None
            continue
        logits = predict_logits(prepared.model, prepared.encoded[name], prepared.collate, batch=batch)
        gold = prepared.splits.gold.get(name, {})
        metrics[name] = scorer(task, split, gold)(logits)
        outputs[name] = output_of(task, split, logits, gold)
    happened = {
        "metrics": metrics,
        "primary": task.primary,
        "labels": list(task.labels),
        "steps": outcome.steps,
        "best_step": outcome.best_step,
        "seconds_per_epoch": [round(seconds, 3) for seconds in outcome.seconds_per_epoch],
        "seconds_per_step": outcome.seconds_per_step,
        "examples": {name: len(split) for name, split in named_splits(prepared.splits).items()},
        **_claims(prepared.splits),
        "truncated": {name: encoded.truncated for name, encoded in prepared.encoded.items()},
        "guides": _guides(outcome.log),
        "targets": prepared.targets,
        **({"ssa": outcome.relabellings} if outcome.relabellings else {}),
        "evaluations": outcome.evaluations,
    }
    return happened, outputs


def _claims(splits: Splits) -> dict[str, dict[str, int]]:
    """Of ranking: how many claims the pairs belong to."""
    from headwise.experiments.prepare import named_splits

    groups = {name: split.groups for name, split in named_splits(splits).items() if split.groups is not None}
    return {"claims": {name: len(set(each)) for name, each in groups.items()}} if groups else {}


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
