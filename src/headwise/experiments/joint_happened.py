"""What happened in a run on several tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy

from headwise.experiments.joint_prepare import JointPart, JointPrepared
from headwise.experiments.outputs import output_of
from headwise.experiments.prepare import named_splits
from headwise.experiments.scoring import scorer
from headwise.training import Listener, Outcome, predict_logits
from headwise.training.material import MEAN

Scores = dict[str, float]


@dataclass(frozen=True)
class Summary:
    """How a model did on every labelled split but train."""

    tasks: dict[str, dict[str, Any]]
    """Of each task what is known about it, and its metrics by split."""
    metrics: dict[str, Scores | None]
    """By split: the mean of the main metrics, and each task's metrics as TASK/METRIC."""
    outputs: dict[str, Any]
    """What the model answered to every example that was scored, by TASK/SPLIT."""

    def happened(self, outcome: Outcome, last: Summary) -> dict[str, Any]:
        """The record of a run whose best model this is."""
        return {
            "metrics": self.metrics,
            "last": last.metrics,
            "primary": MEAN,
            "tasks": self.tasks,
            "steps": outcome.steps,
            "best_step": outcome.best_step,
            "seconds_per_epoch": [round(seconds, 3) for seconds in outcome.seconds_per_epoch],
            "seconds_per_step": outcome.seconds_per_step,
            "evaluations": outcome.evaluations,
        }


def summarise_joint(prepared: JointPrepared, listener: Listener) -> Summary:
    """Score the model as it is now."""
    batch = prepared.recipe.training.evaluation_batch
    outputs: dict[str, Any] = {}
    tasks = {
        task: _task(prepared, task, part, batch, outputs, listener=listener) for task, part in prepared.parts.items()
    }
    splits = dict.fromkeys(name for each in tasks.values() for name in each["metrics"])
    return Summary(tasks, {split: _joined(tasks, split) for split in splits}, outputs)


def _task(
    prepared: JointPrepared, name: str, part: JointPart, batch: int, outputs: dict[str, Any], *, listener: Listener
) -> dict[str, Any]:
    """One task; what the model answered goes to `outputs`."""
    task = part.splits.task
    metrics: dict[str, Scores | None] = {}
    for split, examples in named_splits(part.splits).items():
        if split == "train":
            continue
        metrics[split] = None
        if examples.labelled:
            logits = predict_logits(prepared.model.classifier(name), part.encoded[split], part.collate, batch=batch)
            metrics[split] = scorer(task, examples, {})(logits)
            outputs[f"{name}/{split}"] = output_of(task, examples, logits, {})
        else:
            listener.tell(f"the {split} set of {name} has no labels: it is not scored")
    return {
        "task": task.name,
        "kind": task.kind,
        "primary": task.primary,
        "labels": list(task.labels),
        "examples": {split: len(encoded) for split, encoded in part.encoded.items()},
        "truncated": {split: encoded.truncated for split, encoded in part.encoded.items()},
        "metrics": metrics,
    }


def _joined(tasks: dict[str, dict[str, Any]], split: str) -> Scores | None:
    scored = {name: each["metrics"][split] for name, each in tasks.items() if each["metrics"].get(split)}
    if not scored:
        return None
    named = {f"{name}/{metric}": value for name, scores in scored.items() for metric, value in scores.items()}
    main = float(numpy.mean([scores[tasks[name]["primary"]] for name, scores in scored.items()]))
    # A mean over some of the tasks would be taken for one over all.
    return ({MEAN: main} if len(scored) == len(tasks) else {}) | named
