"""What a model answered to every example of a split: what tests between runs, example by example, need."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy

from headwise.disk import write_atomically
from headwise.errors import InputError
from headwise.experiments import documents, record
from headwise.experiments.record_schema import OutputsFile
from headwise.metrics.ranking import ranking_per_query
from headwise.tasks import Split, Task
from headwise.training import predictions_of

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
